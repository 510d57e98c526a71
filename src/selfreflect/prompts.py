"""Prompt texts: bundled, from a user's file, or from the published code."""

from __future__ import annotations

import ast
import hashlib
import json
import re
import tomllib
import warnings
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from selfreflect.errors import ConfigError, excerpt, nearest
from selfreflect.models.base import Message
from selfreflect.records import Question, Record
from selfreflect.text import PLACEHOLDER, answer_list, fenced, fill, normalise_question, numbered

LATER = (
    ("answers", "context"),
    ("sample_and_summarize", "list"),
    ("verbalized_sampling", "user"),
    ("multi_answer", "user"),
)
"""Tables and keys that are newer than the first run directories."""

LISTS = {"numbered": numbered, "assigned": answer_list}
"""Forms of sample lists for the model, by ``sample_and_summarize.list``."""

PUBLISHED = "published:"
"""Prefix of the path to a checkout of the published code, to read prompts from."""

_PUBLISHED_FILE = "src/selfreflect/generate_summaries.py"
_PUBLISHED_VARIABLE = "user_prompt"
# The function of the published code in which each prompt is assigned to a variable.
_PUBLISHED_FUNCTIONS = {
    ("basic", "user"): "basic_summary",
    ("cot", "user"): "cot_summary",
    ("twostep_cot", "possibilities"): "generate_cot_analysis",
    ("twostep_cot", "distil"): "generate_cot_summary_prompt",
    ("sample_and_summarize", "user"): "sample_and_summarize_summary",
}
# Our placeholder for each variable in its prompts.
_PUBLISHED_NAMES = {"question": "question", "n_answers": "n", "answers": "answers"}
# The function that cuts off the reasoning, and the marker at the start of its pattern.
_PUBLISHED_MARKER = ("cot_chain_remover", re.compile(r"(?:\(\?i\))?(\w[\w ]*:)"))

MAX_PROMPT_FILE = 1_000_000
"""Maximum size of a prompt file in bytes."""


class Prompts(Record, frozen=True, kw_only=True):
    """Prompt texts by name: a table for each prompting strategy, and ``answers`` for plain answers.

    The tables and names are those of ``data/prompts.toml``, which says what each text is for.
    """

    answers: Mapping[str, str]
    basic: Mapping[str, str]
    cot: Mapping[str, str]
    twostep_cot: Mapping[str, str]
    sample_and_summarize: Mapping[str, str]
    verbalized_sampling: Mapping[str, str]
    multi_answer: Mapping[str, str]

    @property
    def hash(self) -> str:
        """SHA-256 (hex) of all prompt texts in effect.

        Bundled texts of :data:`LATER` are left out: run directories from before there were these have the
        hash without them.
        """
        tables = {name: dict(getattr(self, name)) for name in self.__struct_fields__}
        for name, key in LATER:
            if tables[name][key] == _bundled()[name][key]:
                del tables[name][key]
        tables = {name: texts for name, texts in tables.items() if texts}
        canonical = json.dumps(tables, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()

    def messages(self, question: Question, template: str | None = None, **values: str) -> tuple[Message, ...]:
        """Open a conversation about a question: the system message, if any, then ``template`` filled with
        ``values``.

        Wherever it says ``{question}`` the question's context comes with it."""
        if template is None:
            template = self.answers["user"]
        text = normalise_question(question.text)
        if question.context:
            text = fill(self.answers["context"], {"context": fenced(question.context), "question": text})
        content = fill(template, {"question": text, **values})
        user = Message(role="user", content=content)
        if not self.answers["system"]:
            return (user,)
        return Message(role="system", content=self.answers["system"]), user


@cache
def bundled_texts(name: str) -> Mapping[str, Mapping[str, str]]:
    """Read the texts of a TOML file in ``data/``, by table and key."""
    file = resources.files("selfreflect") / "data" / name
    return tomllib.loads(file.read_text(encoding="utf-8"))


def _bundled() -> Mapping[str, Mapping[str, str]]:
    return bundled_texts("prompts.toml")


def load_prompts(path: Path | None = None) -> Prompts:
    """Load the default prompts, overridden by a TOML file, or by the published code if the path begins with
    :data:`PUBLISHED`.

    Raises:
        ConfigError: the file cannot be read, has an unknown name, a value that is not a text, a blank prompt,
            or a prompt whose placeholders differ from the default's.
    """
    tables = {name: dict(texts) for name, texts in _bundled().items()}
    if path and str(path).startswith(PUBLISHED):
        for (table, key), text in _published_texts(_prompt_file(path)).items():
            tables[table][key] = text
        return Prompts(**tables)
    overrides = read_toml(path) if path else {}
    for table, texts in overrides.items():
        check_known(path, "table", table, tables)
        if not isinstance(texts, dict):
            raise ConfigError(f"{path}: {table} must be a table of texts, not {excerpt(texts)}")
        for key, text in texts.items():
            check_known(path, f"key in [{table}]", key, tables[table])
            tables[table][key] = _checked_text(f"{path}: {table}.{key}", key, text, tables[table][key])
    return Prompts(**tables)


def prompts_origin(path: Path | None) -> dict[str, str]:
    """Describe the source of the prompts by file and hash; empty for the bundled prompts."""
    if path is None:
        return {}
    file = _prompt_file(path)
    origin = {"prompts": "the user's" if file == path else "published", "prompts_file": str(file)}
    if file.is_file():  # and no pipe, which was read
        origin["prompts_sha256"] = hashlib.sha256(file.read_bytes()).hexdigest()
    return origin


def _prompt_file(path: Path) -> Path:
    """Find the file that holds the prompts."""
    folder = str(path).removeprefix(PUBLISHED)
    return path if folder == str(path) else Path(folder).expanduser() / _PUBLISHED_FILE


def _published_texts(file: Path) -> dict[tuple[str, str], str]:
    """Read the prompts from a file of the published code, which is parsed but never run.

    Raises ConfigError if it cannot be read, or its prompts are not where they are expected.
    """
    try:
        with file.open("rb") as stream:
            source = stream.read(MAX_PROMPT_FILE + 1)
    except OSError as error:
        raise ConfigError(
            f"{file}: cannot be read: {error.strerror}",
            code="unreadable",
            remedy=f"{{execution.prompts}} {PUBLISHED}DIR needs a checkout of the published code, "
            "https://github.com/apple/ml-selfreflect",
        ) from None
    try:
        if len(source) > MAX_PROMPT_FILE:
            raise ValueError("it is too large")
        with warnings.catch_warnings(action="ignore"):  # of their escapes
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ConfigError(f"{file}: is not Python: {excerpt(str(error), 200)}") from None
    functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}

    def body(name: str) -> list[ast.AST]:
        if name not in functions:
            raise ConfigError(
                f"{file}: has no function {name}, so it is not the published version, which is the only one "
                "that can be read"
            )
        return list(ast.walk(functions[name]))

    # the code is read as a syntax tree, because running it would run a stranger's code
    texts = {}
    for path, name in _PUBLISHED_FUNCTIONS.items():
        values = [node.value for node in body(name) if isinstance(node, ast.Assign) and _is_prompt(node)]
        text = _template(values[0]) if values else None
        if not text or not text.strip():
            raise ConfigError(
                f"{file}: {_PUBLISHED_VARIABLE} in the function {name} is not a constant text, so "
                "this is not the published version"
            )
        texts[path] = text
    function, pattern = _PUBLISHED_MARKER
    markers = [pattern.match(str(node.value)) for node in body(function) if isinstance(node, ast.Constant)]
    if not any(markers):
        raise ConfigError(
            f"{file}: the function {function} contains no marker such as 'Summary:', so this is not "
            "the published version"
        )
    texts["cot", "marker"] = next(marker[1] for marker in markers if marker)
    texts["sample_and_summarize", "list"] = "assigned"
    return texts


def _is_prompt(node: ast.Assign) -> bool:
    return any(isinstance(target, ast.Name) and target.id == _PUBLISHED_VARIABLE for target in node.targets)


def _template(node: ast.expr) -> str | None:
    """Read a template with our placeholders; None if it is computed from unknown variables."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if not isinstance(node, ast.JoinedStr):
        return None
    parts = []
    for part in node.values:
        if isinstance(part, ast.Constant):
            parts.append(str(part.value))
        elif isinstance(part, ast.FormattedValue) and isinstance(part.value, ast.Name):
            name = _PUBLISHED_NAMES.get(part.value.id)
            # a format or conversion, as in {n:d}, would change the text
            if name is None or part.format_spec is not None or part.conversion != -1:
                return None
            parts.append(f"{{{name}}}")
        else:
            return None
    return "".join(parts)


def stored_prompts(tables: Mapping[str, Mapping[str, str]]) -> Prompts:
    """Read the prompts in a manifest, with bundled texts for prompts that were added later."""
    texts = {name: {**bundled, **tables.get(name, {})} for name, bundled in _bundled().items()}
    return Prompts(**texts)


def read_toml(path: Path) -> dict[str, Any]:
    """Read a user's TOML file.

    Raises:
        ConfigError: it cannot be read, or is no TOML in UTF-8.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8-sig"))
        _check_integers(table)
        return table
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:  # also of an integer with thousands of digits
        raise ConfigError(f"{path}: is not a TOML file: {error}") from error
    except RecursionError:
        raise ConfigError(f"{path}: is nested too deeply") from None


def _check_integers(value: object) -> None:
    """Raise ValueError for an integer beyond the 64 bits that TOML guarantees."""
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            _check_integers(inner)
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ValueError("an integer has more than 64 bits")


def check_known(path: Path | None, label: str, name: str, entries: Mapping[str, object]) -> None:
    """Raise ConfigError for an unknown name in a TOML file."""
    if name not in entries:
        names = ", ".join(entries)
        raise ConfigError(
            f"{path}: unknown {label}: {excerpt(name)}. Known: {names}.{nearest(name, list(entries))}"
        )


def _checked_text(where: str, key: str, text: object, default: str) -> str:
    if not isinstance(text, str):
        raise ConfigError(f"{where} must be a text, not {excerpt(text)}")
    if key == "marker" and not any(map(str.isalnum, text)):
        raise ConfigError(
            f"{where} needs at least one letter or digit to be distinguishable from the reasoning"
        )
    if key == "list" and text not in LISTS:
        raise ConfigError(f"{where} must be {' or '.join(LISTS)}, not {excerpt(text)}")
    if key != "system" and not text.strip():
        raise ConfigError(f"{where} must not be blank")
    required = set(PLACEHOLDER.findall(default))
    present = set(PLACEHOLDER.findall(text))
    for name in sorted(required - present):
        raise ConfigError(f"{where} lacks the placeholder {{{name}}}")
    for name in sorted(present - required):
        allowed = ", ".join(f"{{{placeholder}}}" for placeholder in sorted(required)) or "none"
        raise ConfigError(
            f"{where} has an unknown placeholder {excerpt('{' + name + '}')} (allowed: {allowed})"
        )
    return text

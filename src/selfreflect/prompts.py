"""Prompt texts: the bundled defaults, overridden by a user's TOML file."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from selfreflect.errors import ConfigError, excerpt, nearest
from selfreflect.models.base import Message
from selfreflect.records import Question, Record
from selfreflect.text import PLACEHOLDER, fenced, fill, normalise_question

LATER = (("answers", "context"), ("verbalized_sampling", "user"), ("multi_answer", "user"))
"""Tables and keys that came after the first run directories."""


class Prompts(Record, frozen=True, kw_only=True):
    """Texts by name: one table per strategy that prompts for a summary, and ``answers`` for plain answers.

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
        """SHA-256 (hex) of all texts in effect.

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
        """Open a conversation about a question: the system message, if there is one, then ``template``
        (default: the plain question) filled with ``values``.

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
    """Read the texts of a TOML file in ``data/``, by table and name."""
    file = resources.files("selfreflect") / "data" / name
    return tomllib.loads(file.read_text(encoding="utf-8"))


def _bundled() -> Mapping[str, Mapping[str, str]]:
    return bundled_texts("prompts.toml")


def load_prompts(path: Path | None = None) -> Prompts:
    """Load the default prompts, overridden by the TOML file at ``path``.

    Raises:
        ConfigError: the file cannot be read, has an unknown name, a value that is not a text, a blank prompt,
            or a prompt whose placeholders differ from the default's.
    """
    tables = {name: dict(texts) for name, texts in _bundled().items()}
    overrides = read_toml(path) if path else {}
    for table, texts in overrides.items():
        check_known(path, "table", table, tables)
        if not isinstance(texts, dict):
            raise ConfigError(f"{path}: {table} must be a table of texts, not {excerpt(texts)}")
        for key, text in texts.items():
            check_known(path, f"key in [{table}]", key, tables[table])
            tables[table][key] = _checked_text(f"{path}: {table}.{key}", key, text, tables[table][key])
    return Prompts(**tables)


def stored_prompts(tables: Mapping[str, Mapping[str, str]]) -> Prompts:
    """Make prompts of what a manifest keeps. A text that an earlier version did not have is the bundled."""
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
    """Raise ValueError for an integer beyond the 64 bits that TOML guarantees: Python prints none of
    thousands of digits."""
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            _check_integers(inner)
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ValueError("an integer has more than 64 bits")


def check_known(path: Path | None, what: str, name: str, entries: Mapping[str, object]) -> None:
    """Raise ConfigError for a name in a TOML file that is not among those known."""
    if name not in entries:
        names = ", ".join(entries)
        raise ConfigError(
            f"{path}: unknown {what}: {excerpt(name)}. Known: {names}.{nearest(name, list(entries))}"
        )


def _checked_text(where: str, key: str, text: object, default: str) -> str:
    if not isinstance(text, str):
        raise ConfigError(f"{where} must be a text, not {excerpt(text)}")
    if key == "marker" and not any(map(str.isalnum, text)):
        raise ConfigError(
            f"{where} needs at least one letter or digit to be distinguishable from the reasoning"
        )
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

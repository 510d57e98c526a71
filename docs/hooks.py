"""What MkDocs does for this site: make the pages that come from the code, and bring in texts from outside
docs/."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from mkdocs.structure.files import File, Files

import selfreflect
from selfreflect.cli import COMMANDS, application
from selfreflect.settings import sections

ROOT = Path(__file__).parent.parent
TEXTS = {
    "results.md": "benchmarks/RESULTS.md",
    "contributing.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
}
"""Pages of the site that are files elsewhere in the repository."""
PAGES = {path: page for page, path in TEXTS.items()}
COMMANDS_TEXT = """\
# Commands

Every command of `selfreflect` with its options, as `--help` shows them. Results go to stdout, progress and
messages to stderr; `--json` prints JSON lines.
"""
SETTINGS_TEXT = """\
# Settings

The file of `--config` holds every setting that changes results, and in `[execution]` where and how the work
is done, which a run directory does not remember. `selfreflect config --init FILE` writes one
with every key, its comment and its default. Options on the command line override the file, and the file
overrides what a run directory was made with. `selfreflect config --check FILE` checks a file.

`selfreflect config --schema > selfreflect.schema.json` prints a JSON schema. Editors that know taplo complete
and check the file with it: its first line, `#:schema ./selfreflect.schema.json`, names the schema.
"""
NAMES_TEXT = """\
# Python names

What `from selfreflect import …` offers. [Python](python.md) shows how to use it.
"""
FILES_TEXT = """\
# Files

Every module of the package with the first line of its docstring, from low to high as in
[the map of the code](structure.md).
"""
ROLE_IN_SOURCE = re.compile(r":(?:class|func|meth|mod|data|attr):~?(?=`)")
ROLE = re.compile(r":(?:class|func|meth|mod|data|attr):(?=<code>)")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are no files in docs/."""
    pages = {page: (ROOT / path).read_text(encoding="utf-8") for page, path in TEXTS.items()}
    pages |= {"commands.md": commands(), "settings.md": settings(), "api.md": names(), "files.md": modules()}
    for page, text in pages.items():
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Point links to files of the repository at the pages that show them."""

    def target(match: re.Match[str]) -> str:
        path, anchor = match[1].removeprefix("../"), match[2] or ""
        return f"]({PAGES.get(path) or path.removeprefix('docs/')}{anchor})"

    return re.sub(r"\]\(((?:\.\./|docs/)[\w./-]+|CONTRIBUTING\.md)(#[\w-]*)?\)", target, markdown)


def on_page_content(html: str, page: Any, config: Any, files: Files) -> str:
    """Drop the roles of Sphinx that docstrings have."""
    return ROLE.sub("", html)


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Search pages from disk with a script of our own; the plugin would load one from elsewhere."""
    return output.replace("https://unpkg.com/iframe-worker/shim", "assets/file_worker.js")


def on_post_template(output: str, template_name: str, config: Any) -> str:
    return on_post_page(output, None, config)


def commands() -> str:
    """Every command with its options, as ``--help`` has them."""
    group = typer.main.get_command(application())
    lines = [COMMANDS_TEXT, " ".join((group.epilog or "").split()), ""]
    for name, example in COMMANDS.items():
        command = group.commands[name]  # type: ignore[attr-defined]
        lines += _command(name, command, example)
        for step, part in getattr(command, "commands", {}).items():
            lines += _command(f"{name} {step}", part, (part.epilog or "").removeprefix("Example: "))
    return "\n".join(lines)


def modules() -> str:
    """Every module by package, with its first line."""
    source = ROOT / "src" / "selfreflect"
    lines = [FILES_TEXT]
    folder = None
    for path in sorted(
        source.rglob("*.py"), key=lambda path: (path.parent, path.name != "__init__.py", path.name)
    ):
        first = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").partition("\n\n")[0]
        if path.parent != folder:
            folder = path.parent
            lines += [
                "",
                f"## {folder.relative_to(source.parent)}/",
                "",
                "| file | what it is |",
                "| --- | --- |",
            ]
        if first:
            lines.append(f"| `{path.name}` | {_cell(ROLE_IN_SOURCE.sub('', first))} |")
    return "\n".join(lines) + "\n"


def _command(name: str, command: Any, example: str) -> Iterator[str]:
    yield f"## {name}"
    yield ""
    for paragraph in (command.help or "").split("\n\n"):
        yield " ".join(paragraph.split()).replace("<", "&lt;")
        yield ""
    yield from ("```text", example, "```", "")
    yield from ("| option | what it does |", "| --- | --- |")
    context = typer.Context(command)
    for parameter in command.get_params(context):
        if record := parameter.get_help_record(context):
            usage, help_ = record
            yield f"| `{_cell(usage)}` | {_cell(help_)} |"
    yield ""


def settings() -> str:
    """Every key of a settings file."""
    lines = [SETTINGS_TEXT]
    for name, rows in sections().items():
        lines += [f"## [{name}]", "", "| key | default | flag | what it sets |", "| --- | --- | --- | --- |"]
        for row in rows:
            default = "" if row.default is None else f"`{_cell(str(row.default))}`"
            flag = f"`{_cell(row.flag)}`" if row.flag else ""
            values = f" {row.values[0].upper()}{row.values[1:]}." if row.values else ""
            lines.append(f"| `{row.key}` | {default} | {flag} | {_cell(row.help + values)} |")
        lines.append("")
    return "\n".join(lines)


def names() -> str:
    """The public names of the package, by their docstrings."""
    lines = [NAMES_TEXT]
    for name in sorted(set(selfreflect.__all__) - {"__version__"}):
        value = getattr(selfreflect, name)
        lines += [f"::: {value.__module__}.{value.__qualname__}", ""]
    return "\n".join(lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;").replace("[default:", "\\[default:")

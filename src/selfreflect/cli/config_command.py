"""``selfreflect config``: write, describe and check files of settings."""

from __future__ import annotations

import json
from pathlib import Path

from rich.text import Text

from selfreflect.cli.console import say, stdout, write_file
from selfreflect.cli.settings import argument, option
from selfreflect.cli.stages import check_strategies
from selfreflect.config import Config, load_config
from selfreflect.config.describe import schema, template
from selfreflect.config.places import flags_in_file
from selfreflect.config.sections import FLAGGED
from selfreflect.errors import ConfigError
from selfreflect.text import one_line


def config_command(
    *,
    file: Path | None = argument("[FILE]", "The file of settings; with --init, selfreflect.toml by default."),
    init: bool = option("--init", "Write FILE with every key, its comment and its default.", False),
    check: bool = option("--check", "Check FILE, and print what differs from the defaults.", False),
    schema_: bool = option("--schema", "Print the JSON schema, for editors and programs.", False),
) -> None:
    """Write, check or describe the file of --config.

    The file holds every setting that changes results, strategies and source of the questions included, and
    in [execution] where the work is done, so that `selfreflect run --config FILE --out DIR` needs nothing
    else. Without options, print what --init writes.
    """
    if init + check + schema_ > 1:
        raise ConfigError("give one of --init, --check and --schema")
    if file is not None and not (init or check):
        raise ConfigError(f"add --init to write {file}, or --check to check it")
    if check:
        if file is None:
            raise ConfigError("name the file to check: selfreflect config --check FILE")
        _check(file)
    elif init:
        _write(file or Path("selfreflect.toml"))
    elif schema_:
        print(json.dumps(schema(), indent=2))
    else:
        print(template())


def _write(path: Path) -> None:
    if path.exists():
        raise ConfigError(f"{path} exists. Name another file, or remove it first.")
    write_file(path, template())
    say(f"Edit it, and run: selfreflect run --config {path} --out runs/NAME")


def _check(path: Path) -> None:
    try:
        config = load_config(path, {})
    except ConfigError as error:
        raise ConfigError(flags_in_file(str(error), path, {})) from None
    check_strategies(config.summaries.strategies)
    defaults = Config()
    count = 0
    for section in FLAGGED:
        earlier = defaults.section(section)
        for key, value in config.section(section).items():
            if value != earlier[key]:
                line = f"[{section}] {key} = {json.dumps(value, ensure_ascii=False)}"
                stdout.print(Text(one_line(line)), soft_wrap=True)
                count += 1
    say(f"{path} is valid: {count} of its settings differ from the defaults.")

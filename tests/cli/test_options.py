"""Options are made from the settings' own classes, and reach a command as one object."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest
import typer
from typer.testing import CliRunner

from selfreflect.cli.options import GENERATING, JUDGING, Overrides, runnable, takes
from selfreflect.errors import ConfigError
from selfreflect.flags import POSITIVE, Flag
from selfreflect.settings import AnswersConfig, ExecutionOptions


def called(arguments: list[str], *sections: str, **settings: Any) -> Overrides:
    """What a command with these options is given."""
    received: list[Overrides] = []

    @takes(*sections, **settings)
    def command(*, name: str = "x", overrides: Overrides) -> None:
        received.append(overrides)

    outcome = CliRunner().invoke(application(command), arguments, catch_exceptions=False)
    assert outcome.exit_code == 0, outcome.output
    return received[0]


def application(command: Callable[..., None]) -> typer.Typer:
    app = typer.Typer(rich_markup_mode=None)
    app.command()(runnable(command))
    return app


def test_a_shared_flag_sets_its_field_in_every_section() -> None:
    arguments = ["--model", "m", "--max-new-tokens", "7", "--summary-tokens", "9", "--seed", "3"]
    overrides = called(arguments, "answers", "summaries", "scores")
    assert overrides.sections == {
        "answers": {"model": "m", "max_new_tokens": 7, "seed": 3},
        "summaries": {"model": "m", "sample_max_new_tokens": 7, "max_new_tokens": 9, "seed": 3},
        "scores": {"seed": 3},
    }


def test_a_command_has_defaults_of_its_own() -> None:
    settings: dict[str, Any] = {"defaults": {"--num-answers": 10}}
    assert called([], "answers", **settings).config().answers.num_answers == 10
    own = called(["--num-answers", "3"], "answers", **settings)
    assert own.config().answers.num_answers == 3
    assert AnswersConfig().num_answers == 50


def test_execution_options_keep_their_defaults() -> None:
    arguments = ["--timeout", "1.5", "--trust-remote-code"]
    options = called(arguments, execution=(*GENERATING, *JUDGING)).execution
    assert options == ExecutionOptions(timeout=1.5, trust_remote_code=True)


def test_thinking_can_be_turned_on_and_off() -> None:
    assert called(["--thinking"], "answers").section("answers") == {"thinking": True}
    assert called(["--no-thinking"], "answers").section("answers") == {"thinking": False}


def test_a_file_says_where_the_work_is_done_and_flags_win(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    lines = [
        'device = "cpu"',
        "timeout = 30",
        "max_connections = 4",
        'executor = "ray"',
        'ray_address = "a:1"',
    ]
    file.write_text("\n".join(["[execution]", *lines]), encoding="utf-8")
    execution = (*GENERATING, *JUDGING)

    def options(*flags: str, execution: tuple[str, ...] = execution) -> ExecutionOptions:
        arguments = ["--config", str(file), *flags]
        return called(arguments, "answers", config_file=True, execution=execution).execution

    from_file = {"device": "cpu", "timeout": 30.0, "max_connections": 4}
    assert options() == ExecutionOptions(**from_file, executor="ray", ray_address="a:1")
    own = options("--timeout", "5", "--executor", "local")  # which needs no cluster
    assert own == ExecutionOptions(**{**from_file, "timeout": 5.0})
    # a command without the option keeps to its own way
    assert options(execution=("--device",)) == ExecutionOptions(device="cpu")

    for line in ("timeout = 0", "device = 'gpu'", "batch_size = 'two'", "trust_remote_code = true"):
        file.write_text(f"[execution]\n{line}\n", encoding="utf-8")
        with pytest.raises(ConfigError, match=line.split(" ", maxsplit=1)[0]):
            called(["--config", str(file)], "answers", config_file=True).config()
        with pytest.raises(ConfigError, match=line.split(" ", maxsplit=1)[0]):
            options()


def test_the_help_shows_each_default_once() -> None:
    @takes("answers", defaults={"--max-new-tokens": 64}, execution=("--timeout",))
    def command(*, overrides: Overrides) -> None: ...

    words = " ".join(CliRunner().invoke(application(command), ["--help"]).output.split())
    for part in ("[default: 50]", "[default: 64]", "[default: 600]", "[default: smollm2]"):
        assert words.count(part) == 1, part
    assert "--thinking / --no-thinking" in words


def test_a_file_lies_over_the_defaults_of_a_command(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text('[answers]\nnum_answers = 4\n[questions]\nsource = "demo"\n', encoding="utf-8")
    defaults = {"--num-answers": 10, "--max-new-tokens": 64}
    overrides = called(["--config", str(file)], "answers", defaults=defaults, config_file=True)
    answers = overrides.config().answers
    assert (answers.num_answers, answers.max_new_tokens) == (4, 64)
    assert overrides.sets("questions", "source")
    assert not overrides.sets("answers", "max_new_tokens")


class Fish(msgspec.Struct, frozen=True, kw_only=True):
    size: Annotated[int, Flag("--size N", "How large.", range=POSITIVE)] = 3
    kind: Annotated[Literal["pike", "carp"], Flag("--kind", "Which.")] = "pike"
    names: Annotated[tuple[str, ...] | None, Flag("--names A,B", "Called what.")] = None


def test_a_struct_among_the_parameters_stands_for_its_options() -> None:
    received: list[tuple[Fish, Overrides]] = []

    @takes("answers", only=("--model",))
    def command(*, fish: Fish, overrides: Overrides, json: bool = False) -> None:
        received.append((fish, overrides))

    assert list(inspect.signature(runnable(command)).parameters) == ["size", "kind", "names", "model", "json"]
    app = application(command)
    for arguments in ([], ["--size", "5", "--kind", "carp", "--names", "a,b", "--model", "m"]):
        CliRunner().invoke(app, arguments, catch_exceptions=False)
    (by_default, nothing), (fish, overrides) = received
    assert (by_default, nothing.sections) == (Fish(), {})
    assert fish == Fish(size=5, kind="carp", names=("a", "b"))
    assert overrides.section("answers") == {"model": "m"}
    assert overrides.section("fish") == {"size": 5, "kind": "carp", "names": ("a", "b")}  # what was set
    wrong = CliRunner().invoke(app, ["--size", "0"])
    assert (wrong.exit_code, "--size" in wrong.output) == (2, True)
    refused = CliRunner().invoke(app, ["--kind", "eel"])
    assert (refused.exit_code, "'eel' is not one of 'pike', 'carp'" in refused.output) == (2, True)

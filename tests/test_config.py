"""Settings from defaults, a run directory, a file and options; the template and schema of such files."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from command import run, written
from hypothesis import given
from hypothesis import strategies as st

from selfreflect.errors import ConfigError
from selfreflect.flags import check_values, notes_of
from selfreflect.records import STAGES
from selfreflect.settings import (
    SCHEMA_FILE,
    Config,
    ExecutionOptions,
    each_draw,
    load_config,
    schema,
    sections,
    template,
)

FILE = "[answers]\nnum_answers = 7\ntemperature = 1\n[questions]\nlimit = 3\n"
FOR_SERVERS = ("base_url", "revision", "extra_body")
VALIDATOR = jsonschema.Draft202012Validator(schema())


def refused(path: Path | None, overrides: dict[str, dict[str, Any]] | None = None) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load_config(path, overrides or {})
    return caught.value


def test_nothing_given_is_the_defaults() -> None:
    assert load_config(None, {}) == Config()
    assert Config().answers.num_answers == 50


def test_options_win_over_the_file_and_the_file_over_the_directory(tmp_path: Path) -> None:
    path = written(tmp_path / "a.toml", "\ufeff" + FILE)  # a byte-order mark is no error
    base = {"answers": {"num_answers": 5, "seed": 4, "temperature": 0.5}, "scores": {"judge": "old"}}
    options = {"answers": {"num_answers": 9, "seed": None}, "scores": {"dtype": "float32"}}
    config = load_config(path, options, base)
    assert (config.answers.num_answers, config.answers.temperature, config.answers.seed) == (9, 1.0, 4)
    assert (config.scores.judge, config.scores.dtype) == ("old", "float32")
    assert load_config(path, {}).questions.limit == 3
    assert (config.answers.model, config.summaries) == (Config().answers.model, Config().summaries)


@pytest.mark.parametrize(
    ("text", "code", "parts"),
    [
        ("[answer]\n", "unknown_key", ["'answer'", "'answers'", "questions, answers, summaries, scores"]),
        ("[answers]\nnum_answer = 3\n", "unknown_key", ["[answers]", "'num_answer'", "'num_answers'"]),
        ('[prices.a]\n_rare = ["x"]\n', "unknown_key", ["Known: input_per_million, output_per_million"]),
        ("[execution]\nmax_conections = 3\n", "unknown_key", ["'max_connections'"]),
        ("answers = 3\n", "table", ["[answers]", "3"]),
        ("[answers]\nnum_answers = 'ten'\n", "value", ["answers.num_answers", "a whole number", "'ten'"]),
        ("[answers]\nnum_answers = true\n", "value", ["a whole number", "true"]),
        ("[answers]\nthinking = 'no'\n", "value", ["answers.thinking", "true or false"]),
        ("[answers]\nseed = 2020-01-01\n", "value", ["answers.seed", "2020"]),
        ("[summaries]\nstrategies = [1]\n", "value", ["summaries.strategies", "a list", "[1]"]),
        ("[summaries]\nstrategies = 'basic'\n", "value", ["summaries.strategies", "a list"]),
        ("[questions]\nlimit = 'all'\n", "value", ["questions.limit", "a whole number"]),
        ("[scores]\ndtype = 'float8'\n", "value", ["scores.dtype", "float16", "'float8'"]),
        (
            "[prices.'openai:m']\ninput_per_million = 'x'\noutput_per_million = 1\n",
            "value",
            ["openai:m", "input_per_million", "a number"],
        ),
        ("[prices.m]\ninput_per_million = 1\n", "missing_key", ["output_per_million", "prices."]),
        (
            "[prices.m]\ninput_per_million = -1\noutput_per_million = 1\n",
            "value",
            ["input_per_million", "-1"],
        ),
        ("[ray.answers]\nactors = 0\n", "value", ["ray.answers.actors", "at least 1"]),
        ("[ray.summaries]\ngpus = 1.5\n", "value", ["ray.summaries.gpus", "a fraction of one GPU"]),
        ("[ray]\nscores = 3\n", "table", ["[ray.scores]", "3"]),
        ('[serve]\nwhen_unsure = "\\u001b[2J"\n', "value", ["abstain, hedge, ask", r"\x1b[2J"]),
        ('[answers]\n"\\u001b[2J" = 1\n', "unknown_key", [r"\x1b[2J"]),
        ("[answers\n", "setting", []),
        ("# \xe9\n", "setting", []),
    ],
)
def test_a_wrong_file_is_refused_with_file_key_and_value(
    tmp_path: Path, text: str, code: str, parts: list[str]
) -> None:
    path = tmp_path / "wrong.toml"
    path.write_bytes(text.encode("latin-1"))
    error = refused(path)
    assert error.code == code
    assert [part for part in [str(path), *parts] if part not in str(error)] == []
    assert "\x1b" not in str(error)


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "none.toml", tmp_path):
        assert str(path) in str(refused(path))


@pytest.mark.parametrize(
    ("text", "places"),
    [
        (
            '[run]\nstrategies = ["basic"]\ntemperature = 0.7\n',
            ["[summaries] strategies", "[answers] temperature and [summaries] sample_temperature"],
        ),
        ('questions = "q.csv"\n', ["[questions] source"]),
        ("[answers]\ntimeout = 30\n", ["[execution] timeout"]),
        ("[answers]\nshard = '1/2'\n", ["[questions] part"]),
    ],
)
def test_a_key_in_the_wrong_section_is_told_where_it_belongs(
    tmp_path: Path, text: str, places: list[str]
) -> None:
    message = str(refused(written(tmp_path / "c.toml", text)))
    assert [place for place in places if f"is written as {place}" not in message] == []


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("questions", "limit", 0),
        ("answers", "num_answers", 0),
        ("answers", "max_new_tokens", -1),
        ("answers", "temperature", -0.1),
        ("answers", "temperature", float("inf")),
        ("answers", "temperature", float("nan")),
        ("answers", "top_p", 0.0),
        ("answers", "top_p", 1.5),
        ("summaries", "num_samples", 0),
        ("summaries", "max_new_tokens", 0),
        ("scores", "dtype", "float8"),
        ("scores", "compat", "yes"),
    ],
)
def test_an_option_out_of_range_is_named(section: str, key: str, value: object) -> None:
    error = refused(None, {section: {key: value}})
    assert error.fields["key"] == f"{section}.{key}"
    assert str(value) in error.message
    assert f"{{{section}.{key}}}" in error.remedy


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"scores": {"budget": "12 parsecs"}}, "setting"),
        ({"scores": {"measures": "bleu"}}, "setting"),
        ({"scores": {"measures": ","}}, "no_measures"),
        ({"scores": {"judge": "openai:m"}}, "no_judge"),
        ({"scores": {"judge": "vllm+http:m"}}, "no_address"),
        ({"scores": {"base_url": "http://localhost:1/v1"}}, "server_setting_without_server"),
        ({"answers": {"base_url": "http://localhost:1/v1"}}, "server_setting_without_server"),
        ({"answers": {"extra_body": {"top_k": 5}}}, "server_setting_without_server"),
        ({"answers": {"extra_body": 5}}, "value"),
        ({"answers": {"model": "openai:m", "revision": "main"}}, "revision_on_server"),
        ({"summaries": {"strategies": []}}, "no_strategies"),
        ({"summaries": {"strategies": ["cot", "cot"]}}, "repeated_strategy"),
        ({"summaries": {"strategies": ["basic#3-1"]}}, "draws"),
        ({"summaries": {"strategies": ["basic#1-100000000000"]}}, "draws"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(options: dict[str, Any], code: str) -> None:
    assert refused(None, options).code == code


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"device": "gpu"}, "device"),
        ({"batch_size": 0}, "batch_size"),
        ({"max_connections": 0}, "max_connections"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": float("nan")}, "timeout"),
        ({"guesses": -1}, "guesses"),
        ({"guesses": 101}, "guesses"),
    ],
)
def test_execution_options_out_of_range_are_refused(options: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ExecutionOptions(**options)
    assert caught.value.fields["key"] == f"execution.{key}"
    with pytest.raises(ConfigError):
        ExecutionOptions(ray_address="auto")


def test_strategies_come_from_a_file_and_ranges_of_draws_are_written_out(tmp_path: Path) -> None:
    path = written(tmp_path / "c.toml", '[summaries]\nstrategies = ["basic#1-2", "mine:ask"]\n')
    assert load_config(path, {}).summaries.strategies == ("basic#1", "basic#2", "mine:ask")
    assert load_config(path, {"summaries": {"strategies": ("cot",)}}).summaries.strategies == ("cot",)
    draws = ["greedy", "basic#2-4", "m:f#1-1"]
    assert each_draw(draws) == ("greedy", "basic#2", "basic#3", "basic#4", "m:f#1")


@pytest.mark.parametrize(
    ("stored", "options", "tokens"),
    [
        ({}, {}, 512),
        ({}, {"thinking": True}, 4096),
        ({}, {"thinking": True, "max_new_tokens": 64}, 64),
        ({"max_new_tokens": 4096}, {}, 4096),
        ({"max_new_tokens": 512}, {"thinking": True}, 512),
    ],
)
def test_a_run_directory_keeps_its_limit_of_summaries(
    stored: dict[str, object], options: dict[str, object], tokens: int
) -> None:
    """It was once the published 4096 for all."""
    config = load_config(None, {"summaries": options}, {"summaries": stored})
    assert config.summaries.max_new_tokens == tokens


def test_the_template_has_every_key_with_a_value_that_works(tmp_path: Path) -> None:
    assert load_config(written(tmp_path / "c.toml", template()), {}) == Config()
    tables = tomllib.loads(re.sub(r"^# (?=\w+ = |\[)", "", template(), flags=re.MULTILINE))
    for stage in (*STAGES, "execution", "serve"):
        assert tables[stage].keys() == set(getattr(Config(), stage).__struct_fields__), stage
    assert [*tables["ray"]] == ["answers", "summaries", "scores"]
    VALIDATOR.validate(tables)
    # addresses go with servers and revisions with the hub, so they cannot all be set together
    for name, rows in sections().items():
        for row in rows:
            if name == "summaries" and row.example == getattr(Config().summaries, row.key):
                continue  # which follows the answers otherwise
            if row.default is None and row.key not in FOR_SERVERS and "prices" not in name:
                line = f"[{name}]\n{row.key} = {msgspec.json.encode(row.example).decode()}\n"
                assert load_config(written(tmp_path / "row.toml", line), {}) != Config(), line


def test_the_schema_accepts_the_template_and_refuses_mistakes() -> None:
    jsonschema.Draft202012Validator.check_schema(schema())
    VALIDATOR.validate(tomllib.loads(template()))
    for wrong in (
        {"run": {}},
        {"answers": {"num_answer": 3}},
        {"answers": {"num_answers": 0}},
        {"answers": {"top_p": 1.5}},
        {"scores": {"dtype": "float8"}},
        {"summaries": {"strategies": "basic"}},
        {"prices": {"m": {"input_per_million": 1}}},
    ):
        assert not VALIDATOR.is_valid(wrong), wrong


@given(data=st.data())
def test_the_schema_agrees_with_the_ranges(data: st.DataObject) -> None:
    stage = data.draw(st.sampled_from([*STAGES, "execution", "serve"]))
    kind = type(getattr(Config(), stage))
    numbers = [key for key, note in notes_of(kind).items() if note.range is not None]
    if not numbers:
        return
    key = data.draw(st.sampled_from(numbers))
    # a JSON schema takes 1.0 for an integer
    value = data.draw(st.integers(-2, 3) | st.floats(-2, 3).filter(lambda x: x != int(x)))
    try:
        check_values(msgspec.convert({key: value}, kind))
    except (ConfigError, msgspec.ValidationError):
        is_valid = False
    else:
        is_valid = True
    assert VALIDATOR.is_valid({stage: {key: value}}) == is_valid


def test_the_command_writes_describes_and_checks(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    assert run("config", "--init", path).code == 0
    assert path.read_text(encoding="utf-8") == template() == run("config").stdout.removesuffix("\n")
    assert path.read_text(encoding="utf-8").startswith(f"#:schema ./{SCHEMA_FILE}\n")
    assert run("config", "--init", path).code == 2  # it exists

    written(path, path.read_text(encoding="utf-8").replace("num_answers = 50", "num_answers = 7"))
    checked = run("config", "--check", path)
    assert (checked.code, checked.stdout) == (0, "[answers] num_answers = 7\n")
    assert run("config", "--schema").stdout == json.dumps(schema(), indent=2) + "\n"
    wrong = run("config", "--check", written(tmp_path / "w.toml", '[summaries]\nstrategies = ["nosuch"]\n'))
    assert (wrong.code, "nosuch" in wrong.said) == (2, True)
    assert run("config", path).code == run("config", "--init", "--schema").code == 2


@pytest.mark.parametrize(
    ("lines", "key"),
    [
        ("[answers]\nbase_url = 'http://localhost:1/v1'\n", "base_url in [answers] of"),
        ("[scores]\nbase_url = 'http://localhost:1/v1'\n", "base_url in [scores] of"),
    ],
)
def test_a_remedy_names_the_key_of_the_file_that_sets_it(tmp_path: Path, lines: str, key: str) -> None:
    path = written(tmp_path / "c.toml", lines)
    command = ["run", "--config", path, "--questions", written(tmp_path / "q.txt", "What?\n")]
    command += ["--out", tmp_path / "r"]
    for outcome in (run(*command), run("config", "--check", path)):
        assert (outcome.code, f"{key} {path}" in outcome.said) == (2, True)
    by_option = run(*command, "--base-url", "http://localhost:2/v1")
    assert "--base-url" in by_option.said

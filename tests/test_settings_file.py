"""The template and the schema of settings files say what the settings' classes say."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import jsonschema
import msgspec
import pytest
from command import run, written
from hypothesis import given, settings
from hypothesis import strategies as st

from selfreflect.errors import ConfigError
from selfreflect.flags import check_values, notes_of
from selfreflect.records import STAGES
from selfreflect.settings import Config, load_config
from selfreflect.settings.describe import SCHEMA_FILE, schema, sections, template

FOR_SERVERS = ("base_url", "revision", "extra_body")
VALIDATOR = jsonschema.Draft202012Validator(schema())


def test_the_template_reads_back_as_the_defaults(tmp_path: Path) -> None:
    assert load_config(written(tmp_path / "c.toml", template()), {}) == Config()


def test_every_key_is_in_the_template_and_has_a_value_that_works(tmp_path: Path) -> None:
    text = re.sub(r"^# (?=\w+ = |\[)", "", template(), flags=re.MULTILINE)
    tables = tomllib.loads(text)
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
                assert load_config(written(tmp_path / "one.toml", line), {}) != Config(), line


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


@settings(max_examples=200, deadline=None)
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


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (
            '[run]\nstrategies = ["basic"]\nquestions = "q.csv"\ntemperature = 0.7\n',
            [
                "'strategies' is written as [summaries] strategies",
                "'questions' is written as [questions] source",
                "'temperature' is written as [answers] temperature and [summaries] sample_temperature",
            ],
        ),
        ('questions = "q.csv"\n', ["'questions' is written as [questions] source"]),
        ("[answers]\ntimeout = 30\n", ["'timeout' is written as [execution] timeout"]),
        ("[execution]\nmax_conections = 3\n", ["Did you mean 'max_connections'?"]),
        ("num_answers = 5\n", ["'num_answers' is written as [answers] num_answers"]),
        ("[scores]\nnum-samples = 5\n", ["unknown key in [scores]"]),
        ("[answers]\nshard = '1/2'\n", ["'shard' is written as [questions] part"]),
        ('[summaries]\nstrategies = "greedy,basic"\n', ['strategies = ["greedy", "basic"]']),
    ],
)
def test_keys_in_the_wrong_place_are_told_where_they_belong(
    tmp_path: Path, text: str, lines: list[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(written(tmp_path / "c.toml", text), {})
    assert [line for line in lines if line not in str(caught.value)] == []


def test_the_command_writes_describes_and_checks(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    assert run("config", "--init", path).code == 0
    assert path.read_text(encoding="utf-8") == template() == run("config").stdout.removesuffix("\n")
    assert path.read_text(encoding="utf-8").startswith(f"#:schema ./{SCHEMA_FILE}\n")
    again = run("config", "--init", path)
    assert (again.code, "exists" in again.said) == (2, True)

    written(path, path.read_text(encoding="utf-8").replace("num_answers = 50", "num_answers = 7"))
    checked = run("config", "--check", path)
    assert (checked.code, checked.stdout) == (0, "[answers] num_answers = 7\n")
    assert run("config", "--schema").stdout == json.dumps(schema(), indent=2) + "\n"
    wrong = run("config", "--check", written(tmp_path / "w.toml", '[summaries]\nstrategies = ["nosuch"]\n'))
    assert (wrong.code, "nosuch" in wrong.said) == (2, True)
    assert run("config", path).code == run("config", "--init", "--schema").code == 2


@pytest.mark.parametrize(
    ("lines", "part"),
    [
        ("[answers]\nbase_url = 'http://localhost:1/v1'\n", "--base-url is base_url in [answers] of"),
        ("[scores]\nbase_url = 'http://localhost:1/v1'\n", "--judge-url is base_url in [scores] of"),
        ("[answers]\nmodel = 'openai:m'\nbase_url = 'ftp://x'\n", "c.toml, line 3"),
        ("[answers]\nmodel = 'openai:m'\nbase_url = 'http://127.0.0.1:1/v1'\n", "c.toml, line 3"),
    ],
)
def test_an_error_about_a_flag_says_where_the_file_sets_it(tmp_path: Path, lines: str, part: str) -> None:
    path = written(tmp_path / "c.toml", lines)
    questions = written(tmp_path / "q.txt", "What?\n")
    command = ["run", "--config", path, "--questions", questions, "--out", tmp_path / "r"]
    refused = run(*command)
    assert refused.code == 2
    assert part in refused.said
    more = run(*command, "--base-url", "nowhere")
    assert "--base-url is base_url in [answers]" not in more.said, "here the command line set it"

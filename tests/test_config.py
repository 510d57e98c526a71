from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from command import written

from selfreflect.errors import ConfigError
from selfreflect.settings import Config, each_draw, load_config

FILE = "[answers]\nnum_answers = 7\ntemperature = 1\n[questions]\nlimit = 3\n"


def refused(path: Path | None, overrides: dict[str, dict[str, Any]] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(path, overrides or {})
    return str(caught.value)


def test_nothing_given_is_the_defaults() -> None:
    assert load_config(None, {}) == Config()
    assert Config().answers.num_answers == 50


def test_a_file_lies_over_the_defaults(tmp_path: Path) -> None:
    config = load_config(written(tmp_path / "a.toml", FILE), {})
    assert (config.answers.num_answers, config.questions.limit) == (7, 3)
    assert config.answers.temperature == 1.0
    assert (config.answers.model, config.summaries) == (Config().answers.model, Config().summaries)


def test_overrides_win_over_the_file_and_the_file_over_the_directory(tmp_path: Path) -> None:
    path = written(tmp_path / "a.toml", FILE)
    base = {"answers": {"num_answers": 5, "seed": 4, "temperature": 0.5}, "scores": {"judge": "old"}}
    config = load_config(
        path, {"answers": {"num_answers": 9, "seed": None}, "scores": {"dtype": "float32"}}, base
    )
    assert (config.answers.num_answers, config.answers.temperature, config.answers.seed) == (9, 1.0, 4)
    assert (config.scores.judge, config.scores.dtype) == ("old", "float32")


def test_a_byte_order_mark_is_no_error(tmp_path: Path) -> None:
    assert load_config(written(tmp_path / "a.toml", "\ufeff" + FILE), {}).questions.limit == 3


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (
            "[answer]\n",
            [
                "unknown section",
                "'answer'",
                "Did you mean 'answers'?",
                "questions, answers, summaries, scores",
            ],
        ),
        (
            "[answers]\nnum_answer = 3\n",
            ["unknown key in [answers]", "'num_answer'", "Did you mean 'num_answers'?"],
        ),
        ("answers = 3\n", ["[answers] must be a table", "3"]),
        (
            "[answers]\nnum_answers = 'ten'\n",
            ["line 2: answers.num_answers: expected a whole number, got the text 'ten'", "num_answers = 50"],
        ),
        ("[answers]\nnum_answers = true\n", ["expected a whole number, got true"]),
        (
            "[answers]\n\nthinking = 'no'\n",
            ["line 3: answers.thinking: expected true or false", "thinking = false"],
        ),
        ("[answers]\nseed = 2020-01-01\n", ["answers.seed: expected a whole number, got a date"]),
        (
            "[summaries]\nstrategies = [1]\n",
            ["expected a list, each of it a text in quotes, got the list", '["greedy"'],
        ),
        ("[questions]\nlimit = 'all'\n", ["questions.limit: expected a whole number", "limit = 100"]),
        (
            "[prices.'openai:m']\ninput_per_million = 'x'\noutput_per_million = 1\n",
            ["line 2: prices.input_per_million: expected a number"],
        ),
        (
            '[serve]\nwhen_unsure = "\\u001b[2J"\n',
            ["line 2: serve.when_unsure: expected one of abstain, hedge, ask, got the text", r"\x1b[2J"],
        ),
        ("[answers\n", ["not a TOML file"]),
        ('[answers]\n"\\u001b[2J" = 1\n', ["unknown key", r"\x1b[2J"]),
    ],
)
def test_a_wrong_file_is_named_with_the_place(tmp_path: Path, text: str, parts: list[str]) -> None:
    path = written(tmp_path / "wrong.toml", text)
    message = refused(path)
    assert [part for part in [str(path), *parts] if part not in message] == []
    assert "\x1b" not in message


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    assert f"{tmp_path / 'none.toml'}: cannot be read: No such file" in refused(tmp_path / "none.toml")
    assert "cannot be read: Is a directory" in refused(tmp_path)
    (tmp_path / "latin.toml").write_bytes(b"# \xe9\n")
    assert "latin.toml: is not a TOML file" in refused(tmp_path / "latin.toml")


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
        ("answers", "top_p", float("nan")),
        ("summaries", "num_samples", 0),
        ("summaries", "max_new_tokens", 0),
        ("summaries", "sample_max_new_tokens", 0),
    ],
)
def test_values_out_of_range_are_named(section: str, key: str, value: object) -> None:
    message = refused(None, {section: {key: value}})
    assert f"{section}.{key}" in message
    assert "must be" in message
    assert str(value) in message


@pytest.mark.parametrize(("key", "word"), [("dtype", "float8"), ("compat", "yes")])
def test_a_word_that_a_key_does_not_take_is_named(key: str, word: str) -> None:
    message = refused(None, {"scores": {key: word}})
    assert f"(scores.{key}): expected one of " in message
    assert f"got the text '{word}'" in message


def test_the_borders_of_the_ranges_are_allowed() -> None:
    given = {
        "questions": {"limit": 1},
        "answers": {"num_answers": 1, "temperature": 0.0, "top_p": 1.0},
        "scores": {"compat": "published"},
    }
    config = load_config(None, given)
    assert {
        name: {key: config.section(name)[key] for key in values} for name, values in given.items()
    } == given


@pytest.mark.parametrize(
    ("key", "value", "part"),
    [
        ("budget", "12 parsecs", "'12 parsecs' is not understood"),
    ],
)
def test_limits_of_scoring_are_checked_with_the_settings(key: str, value: object, part: str) -> None:
    message = refused(None, {"scores": {key: value}})
    assert f"(scores.{key}): " in message
    assert part in message


def test_only_estimated_scores_have_a_seed(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text('[scores]\nbudget = "20000"\n', encoding="utf-8")
    assert load_config(path, {"scores": {"seed": 5}}).scores.seed == 5
    assert load_config(None, {"scores": {"seed": 5}}).scores.seed == 0


def test_strategies_come_from_a_file(tmp_path: Path) -> None:
    path = written(tmp_path / "c.toml", '[summaries]\nstrategies = ["basic", "mine:ask"]\n')
    assert load_config(path, {}).summaries.strategies == ("basic", "mine:ask")
    assert load_config(path, {"summaries": {"strategies": ("cot",)}}).summaries.strategies == ("cot",)


@pytest.mark.parametrize(
    ("names", "part"), [([], "needs at least one name"), (["cot", "cot"], "names 'cot' twice")]
)
def test_strategies_are_named_once(names: list[str], part: str) -> None:
    assert part in refused(None, {"summaries": {"strategies": names}})


def test_a_range_of_draws_is_written_out() -> None:
    assert each_draw(["greedy", "basic#2-4", "m:f#1-1"]) == (
        "greedy",
        "basic#2",
        "basic#3",
        "basic#4",
        "m:f#1",
    )
    config = load_config(None, {"summaries": {"strategies": ("basic#1-2",)}})
    assert config.summaries.strategies == ("basic#1", "basic#2")


@pytest.mark.parametrize("name", ["basic#3-1", "basic#1-100000000000"])
def test_a_range_of_draws_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="#FIRST-LAST"):
        each_draw([name])


@pytest.mark.parametrize(
    ("stored", "given", "tokens"),
    [
        ({}, {}, 512),
        ({}, {"thinking": True}, 4096),
        ({}, {"thinking": True, "max_new_tokens": 64}, 64),
        ({"max_new_tokens": 4096}, {}, 4096),
        ({"max_new_tokens": 512}, {"thinking": True}, 512),
    ],
)
def test_the_limit_of_a_summary_is_that_of_a_summary(
    stored: dict[str, object], given: dict[str, object], tokens: int
) -> None:
    """A run directory keeps its own, which was once the published 4096 for all."""
    assert load_config(None, {"summaries": given}, {"summaries": stored}).summaries.max_new_tokens == tokens

"""How the page says errors that were written for commands."""

from __future__ import annotations

import re
import time

import pytest

from selfreflect.app.choices import ModelChoices
from selfreflect.app.words import in_app_words
from selfreflect.errors import ConfigError
from selfreflect.models.openai.protocol import status_error

URL = "http://127.0.0.1:8000/v1"
STOPPED = "0 of 1 answers saved, 1 to go. Run the same command to resume."


@pytest.mark.parametrize(
    ("message", "says"),
    [
        (f"{URL}: {status_error(404, '')}: 'no model x'. {STOPPED}", "Check its name, or start the app with"),
        (
            f"{URL}: {status_error(401, '')}: 'bad'. Set SELFREFLECT_API_KEY in the environment. {STOPPED}",
            "Set SELFREFLECT_API_KEY in the environment, and start the app again.",
        ),
        (
            f"{URL}: the connection failed: 'refused' (3 tries). Start the server, or correct base_url.",
            "Start that server, or start the app with another --base-url.",
        ),
        (
            "'openai:x' needs a key. Set SELFREFLECT_API_KEY in the environment, or name another server with "
            "--base-url.",
            "'openai:x' needs a key. Set SELFREFLECT_API_KEY in the environment, and start the app again.",
        ),
        (
            "--judge: 'openai:x' cannot be a judge, because it gives texts. Name vllm:NAME.",
            "'openai:x' cannot be a judge. Choose smollm2",
        ),
        (
            "could not load the model 'a/b': We cannot reach https://huggingface.co. Use --offline.",
            "Could not load the model 'a/b'. Check its name",
        ),
        (
            "'a/b' wants to run a kernel from the hub. Pass --trust-remote-code if you trust it.",
            "'a/b' wants to run a kernel from the hub.",
        ),
        (
            f"{URL}: no complete response came in time (see --timeout) (2 tries). Giving up. {STOPPED}",
            "no complete response came in time",
        ),
        ("device 'mps': not available here. Use --device cpu.", "Start the app with --device cpu."),
    ],
)
def test_a_message_says_what_to_do_on_the_page_and_names_no_flag_of_a_command(
    message: str, says: str
) -> None:
    said, details = in_app_words(message)
    assert says in said
    for sentence in re.split(r"(?<=\.) ", f"{said} {details}"):
        assert "--" not in sentence or "tart the app" in sentence
    assert "same command" not in said + details


def test_what_a_library_says_is_kept_as_details_and_short_messages_are_left_alone() -> None:
    long = "The first sentence says it. " + "And then a library goes on at length. " * 10
    assert in_app_words(long) == ("The first sentence says it.", long[28:].strip())
    assert in_app_words("the summary is blank") == ("the summary is blank", "")
    braces = "could not load the model '{0.__class__}': {rest}"
    assert in_app_words(braces).message.startswith("Could not load the model '{0.__class__}'.")


def test_a_long_message_is_cut_and_takes_no_time() -> None:
    began = time.process_time()
    words = in_app_words("https://x: " + "HTTP 4 " * 30_000)
    assert time.process_time() - began < 1  # 40 s if it is read whole
    assert len(words.message + words.details) < 4200


def test_a_reason_that_is_only_advice_on_flags_is_still_said() -> None:
    reason = "--judge vllm+http:NAME needs the address of its server: --judge-url http://localhost:8000/v1"
    assert in_app_words(reason) == (reason, "")
    assert in_app_words("")[0] == "This did not work."


def test_the_app_says_at_its_start_that_it_asks_no_judge_on_a_server() -> None:
    with pytest.raises(ConfigError, match=r"no judge on a server, such as 'vllm\+http:m'.*--judge-url URL"):
        ModelChoices(["smollm2", "vllm+http:m"])

"""Chat templates that would never end, or fill the memory."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tiny_chat import CHATML, chatml

from selfreflect.errors import JudgeError
from selfreflect.models import chat as chats
from selfreflect.models.base import Message
from selfreflect.models.chat import ChatTokenizer

LOOPS = "{%- for a in range(99999) -%}{%- for b in range(99999) -%}{%- endfor -%}{%- endfor -%}"
CALLS = "{%- macro m(n) -%}{%- if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif -%}{%- endmacro -%}{{ m(60) }}"
DOUBLES = (
    "{%- set all = namespace(text='a' * 1000) -%}{%- for a in range(60) -%}"
    "{%- set all.text = all.text ~ all.text -%}{%- endfor -%}"
)
ASKED = [Message(role="user", content="Why?")]


@pytest.mark.parametrize("endless", [LOOPS, CALLS], ids=["loops", "calls"])
def test_a_template_without_an_end_is_ended(endless: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chats, "TEMPLATE_SECONDS", 0.1)
    chat = ChatTokenizer(chatml(endless + CHATML))
    with pytest.raises(JudgeError, match=r"cannot render these turns: 'it takes longer than 0\.1 s or more"):
        chat.render(ASKED)


def test_a_template_that_fills_the_memory_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chats, "TEMPLATE_MEMORY", 2**26)
    monkeypatch.setattr(chats, "_SECONDS_BEFORE_MEMORY", 0.0)
    chat = ChatTokenizer(chatml(DOUBLES + CHATML))
    with pytest.raises(JudgeError, match=r"or more than 0\.0625 GB"):
        chat.render(ASKED)


def test_only_time_is_limited_where_memory_is_not_counted() -> None:
    code = """
import sys
sys.modules["resource"] = None  # as on Windows
from selfreflect.models import chat
chat.TEMPLATE_SECONDS = 0.1
with chat.template_limits(1):
    while True:
        pass
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stderr.splitlines()[-1].endswith(
        "TemplateLimitError: it takes longer than 0.1 s or more than 2 GB"
    )


def test_what_comes_after_a_limit_is_not_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the work ends before its time, after it, or at the same moment."""
    monkeypatch.setattr(chats, "_SECONDS_BETWEEN_LOOKS", 0.0001)
    monkeypatch.setattr(chats, "SECONDS_PER_CONVERSATION", 0.0)
    outcomes = set()
    count = 200_000  # long enough for the watching thread to have its turn meanwhile
    for most in (0.0, 1e-3, 1e-2, 10.0) * 8:
        monkeypatch.setattr(chats, "TEMPLATE_SECONDS", most)
        try:
            with chats.template_limits(1):
                outcomes.add(sum(number >= 0 for number in range(count)))
        except chats.TemplateLimitError:
            outcomes.add(0)
        assert sum(number >= 0 for number in range(count)) == count  # here nothing is raised
    assert outcomes == {0, count}


def test_many_conversations_may_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chats, "TEMPLATE_SECONDS", 0.0)
    texts = ChatTokenizer(chatml()).render_all([ASKED] * 50)
    assert len(texts) == 50

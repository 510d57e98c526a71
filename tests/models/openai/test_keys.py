"""Whose key goes where: OpenAI's goes to OpenAI, and nobody else is shown it."""

from __future__ import annotations

import pytest
from fault_server import FaultServer, answers, status
from served import KEY, forget, only

from selfreflect.errors import BackendError
from selfreflect.models.base import Reply
from selfreflect.models.openai.endpoint import endpoint


@pytest.fixture(autouse=True)
def _no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    forget(monkeypatch)


@pytest.mark.parametrize(
    ("url", "sent"),
    [
        (None, True),
        ("https://api.openai.com/v1/", True),
        ("https://API.openai.com:443/v1", True),
        ("https://eu.api.openai.com/v1", True),
        ("http://api.openai.com/v1", False),
        ("https://api.openai.com.example/v1", False),
        ("https://notapi.openai.com/v1", False),
        ("https://example/api.openai.com", False),
        ("http://localhost:8000/v1", False),
    ],
)
def test_the_key_of_openai_goes_to_openai_alone(url: str | None, sent: bool) -> None:
    server = endpoint(url, {"OPENAI_API_KEY": KEY})
    assert server.authorization == (f"Bearer {KEY}" if sent else "")
    assert KEY not in server.redacted(f"a server that guesses it: {KEY}")
    own = endpoint(url, {"OPENAI_API_KEY": KEY, "SELFREFLECT_API_KEY": "sk-own"})
    assert own.authorization == "Bearer sk-own"


def test_a_server_that_wants_a_key_where_only_that_of_openai_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    with FaultServer(
        lambda call: answers() if "authorization" in call.headers else status(401, "no key")
    ) as server:
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        with pytest.raises(BackendError) as raised:
            only(server.url)
        assert raised.value.code == "key"
        assert "OPENAI_API_KEY" in raised.value.remedy
        assert all("authorization" not in call.headers for call in server.calls)
        monkeypatch.setenv("SELFREFLECT_API_KEY", KEY)
        assert isinstance(only(server.url), Reply)

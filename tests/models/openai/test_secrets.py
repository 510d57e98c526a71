"""Keys and the credentials of addresses are sent where they belong and written nowhere."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from base64 import b64encode
from pathlib import Path
from typing import Any

import fault_server as fault
import pytest
from command import Outcome, environment, process, run, written
from fault_server import FaultServer, answers, chat, choice, status
from hypothesis import given
from hypothesis import strategies as st
from served import KEY, command, only, questions

from selfreflect.errors import BackendError, ConfigError
from selfreflect.models.base import Reply
from selfreflect.models.openai.endpoint import DEFAULT_URL, KEYS, endpoint
from selfreflect.store.run import Run


def test_the_key_comes_from_the_environment_and_credentials_of_the_address_go_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def sent(url_of: Any = lambda url: url) -> str | None:
        with FaultServer() as server:
            assert isinstance(only(url_of(server.url)), Reply)
            return server.calls[0].headers.get("authorization")

    monkeypatch.setenv("OPENAI_ADMIN_KEY", "sk-admin")
    assert sent() is None
    monkeypatch.setenv("OPENAI_API_KEY", "sk-other")
    assert sent() is None, "it is for OpenAI alone, and a port of this machine may lead anywhere"
    monkeypatch.setenv("SELFREFLECT_API_KEY", KEY + "\n")
    assert sent() == f"Bearer {KEY}"
    assert sent(lambda url: url.replace("://", "://me:p%40ss@")) == "Basic bWU6cEBzcw=="


@pytest.mark.parametrize(
    "url",
    [
        "ftp://x/v1",
        "localhost:8000",
        "",
        "http://",
        "http://me:pass/word@x",
        "http://x/v1?key=word",
        "http://x/#word",
        "http://x:word/",
        "***",
    ],
)
def test_an_address_that_is_none_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(ConfigError) as raised:
        endpoint(url, {})
    assert "word" not in str(raised.value).replace("password", "")


def test_addresses() -> None:
    assert endpoint(None, {}).url == DEFAULT_URL
    assert endpoint(" http://[::1]:80/v1/ ", {}).url == "http://[::1]:80/v1"
    assert endpoint("https://me:word@host/a/v1", {}).url == "https://host/a/v1"
    with pytest.raises(ConfigError) as refused:
        endpoint("http://***@host/v1", {}, "scores.base_url")
    assert (refused.value.code, "{scores.base_url}" in refused.value.remedy) == ("address", True)
    for key in ("sk-ü", "sk a", "sk\x07"):
        with pytest.raises(ConfigError, match="OPENAI_API_KEY") as raised:
            endpoint(None, {"OPENAI_API_KEY": key})
        assert key not in str(raised.value)


@given(
    name=st.sampled_from(KEYS),
    key=st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=5, max_size=40).map(
        "sk-{}".format
    ),
    around=st.text(max_size=300),
)
def test_what_a_server_says_is_shown_without_the_key(name: str, key: str, around: str) -> None:
    server = endpoint("http://host/v1", {name: key})
    assert key not in repr(server)
    assert key not in server.redacted(f"{around}{key}{around} {key}")


LONG_KEY = "sk-proj-Ab3dEf6hIj9lMn2pQr5tUv8x"


@pytest.mark.parametrize(
    "shortened",
    ["sk-proj-Ab3d...Uv8x", "sk-p****************Uv8x", "****Uv8x", "sk-proj-Ab3dEf6h", "Qr5tUv8x"],
)
def test_a_shortened_key_is_not_shown(shortened: str) -> None:
    server = endpoint("http://host/v1", {KEYS[0]: LONG_KEY})
    said = server.redacted(f'{{"message": "Incorrect key: {shortened}, see ... http://host/a.b"}}')
    assert "Uv8x" not in said
    assert "sk-p" not in said
    assert 'see ... http://host/a.b"}' in said


@pytest.mark.parametrize("part", [LONG_KEY[:14], LONG_KEY[:-4], LONG_KEY[-12:]])
def test_a_shortened_key_is_in_no_answer(part: str) -> None:
    server = endpoint("http://host/v1", {KEYS[0]: LONG_KEY})
    said = server.without_secrets(f'{{"content": "it is {part}…, or sk-proj-, or {LONG_KEY}"}}'.encode())
    assert said.decode() == '{"content": "it is ***…, or sk-proj-, or ***"}'


@pytest.mark.parametrize("key", ["EMPTY", "none", "not-needed", "12345678"])
def test_a_key_that_is_a_word_or_a_number_stays_in_answers(key: str) -> None:
    body = f'{{"content": "EMPTY none not-needed 12345678 {LONG_KEY}"}}'.encode()
    assert endpoint("http://host/v1", {KEYS[0]: key}).without_secrets(body) == body


@pytest.mark.parametrize("beginning", ["sk-ant-api03-", "sk-proj-", "github_pat_"])
def test_the_public_beginning_of_a_key_stays_in_answers(beginning: str) -> None:
    server = endpoint("http://host/v1", {KEYS[0]: f"{beginning}Ab3dEf6hQr5tUv8x"})
    body = f'{{"content": "It begins with {beginning}"}}'.encode()
    assert server.without_secrets(body) == body
    assert b"Ab3d" not in server.without_secrets(f"{beginning}Ab3dEf6h…".encode())


def test_a_key_in_successful_answers_is_in_no_file(folder: Path, asked: Path) -> None:
    """Also one that JSON escapes."""

    def repeat(call: fault.Call) -> fault.Action:
        texts = [f'{number} {call.headers["authorization"]} pa55"word9' for number in range(call.n)]
        return chat(*map(choice, texts))

    with FaultServer(repeat) as server:
        url = server.url.replace("://", "://me:pa55%22word9@")
        outcomes = [
            run(*command(folder / "key", server.url, asked)),
            run(*command(folder / "password", url, asked)),
        ]
    assert [outcome.code for outcome in outcomes] == [0, 0]
    assert leaks(folder, *outcomes) == []
    for name in ("key", "password"):
        assert all(
            "***" in text for answer in Run.load(folder / name).answers.values() for text in answer.answers
        )
    stored = (folder / "password" / "answers.jsonl").read_text()
    assert "word9" not in stored
    assert b64encode(b'me:pa55"word9').decode() not in stored


SECRETS = (
    KEY,
    *(
        secret
        for word in ("pa55word", "pr0xypass")
        for secret in (word, b64encode(f"me:{word}".encode()).decode())
    ),
)


def leaks(folder: Path, *outcomes: Outcome, logged: str = "") -> list[str]:
    """Where one of the secrets can be read."""
    places = {
        str(path.relative_to(folder)): path.read_bytes().decode("utf-8", "replace")
        for path in folder.rglob("*")
        if path.is_file()
    }
    places |= {f"output {number}": one.stdout + one.stderr for number, one in enumerate(outcomes)}
    places["log"] = logged
    return [place for place, text in places.items() if any(secret in text for secret in SECRETS)]


def tattle(call: fault.Call) -> fault.Action:
    """Two of four calls fail, and the server repeats every header in its errors."""
    if call.number < 4 or call.number % 4 < 2:
        return answers()
    return status(
        [400, 403][call.number % 2], f"you mean http://me:pa55word@here/ and sent {json.dumps(call.headers)}"
    )


def secretive(server: FaultServer) -> str:
    return server.url.replace("://", "://me:pa55word@")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where commands write, with a key in the environment."""
    monkeypatch.setenv("SELFREFLECT_API_KEY", KEY)
    (tmp_path / "written").mkdir()
    return tmp_path / "written"


@pytest.fixture
def asked(tmp_path: Path) -> Path:
    return questions(tmp_path / "q.txt", 4)


def test_no_secret_is_in_any_file_output_or_log(
    folder: Path, asked: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With a key, with credentials in the address, and with a proxy that wants credentials; everything logs
    all it can."""
    caplog.set_level(logging.DEBUG)
    with FaultServer(tattle) as server:
        url = secretive(server)
        for name in "ab":  # a directory that was there before is kept when a server refuses the run
            (folder / name).mkdir(parents=True)
        outcomes = [
            process(*command(folder / "a", server.url, asked, "--max-connections", 1)),
            run(*command(folder / "a", server.url, asked, "--max-connections", 1)),
            run(*command(folder / "b", url, asked, "--max-connections", 1)),
            run(
                *f"summarize --strategies greedy --model openai:m --base-url {url}".split(),
                *f"--out {folder / 'b'}".split(),
            ),
            run(*f"summarize --strategies basic --out {folder / 'b'}".split()),
            run(*f"report {folder / 'b'} --output {folder / 'page.html'}".split()),
        ]
        assert len(server.calls) > 8
        assert {call.headers["authorization"].split()[0] for call in server.calls} == {"Bearer", "Basic"}
        monkeypatch.setenv("HTTP_PROXY", f"socks9://me:pr0xypass@127.0.0.1:{server.port}")
        outcomes.append(
            run(*command(folder / "c", server.url.replace("127.0.0.1", "example.invalid"), asked))
        )
        monkeypatch.setenv("HTTP_PROXY", f"http://me:pr0xypass@127.0.0.1:{fault.unused_port()}")
        outcomes.append(run(*command(folder / "d", "http://example.invalid/v1", asked, "--timeout", 0.3)))
    with FaultServer(tattle) as proxy:
        monkeypatch.setenv("HTTP_PROXY", f"http://me:pr0xypass@127.0.0.1:{proxy.port}")
        outcomes.append(run(*command(folder / "e", "http://example.invalid/v1", asked)))
        assert {call.headers["proxy-authorization"].split()[0] for call in proxy.calls} == {"Basic"}
    failures = [failure.message for name in "ab" for failure in Run.load(folder / name).failures]
    assert any("***" in message for message in failures)
    assert "--base-url" in outcomes[4].said
    assert "***" in outcomes[8].said + outcomes[8].stdout
    assert not any("Traceback" in one.stderr for one in outcomes)
    assert "httpx2" in {record.name.split(".")[0] for record in caplog.records}
    assert leaks(folder, *outcomes, logged=caplog.text) == []


def test_no_secret_is_in_what_a_dry_run_shows(
    folder: Path, asked: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://me:pr0xypass@127.0.0.1:9")
    url = "http://me:pa55word@127.0.0.1:9/v1"
    judge = ("--judge", "vllm+http:m", "--judge-url", url)
    wanted = command(folder / "r", url, asked, *judge, "--strategies", "greedy", "--dry-run")
    outcomes = [run("run", *wanted[1:]), run("run", *wanted[1:], "--json")]
    assert [outcome.code for outcome in outcomes] == [0, 0]
    assert leaks(folder, *outcomes) == []
    assert list(folder.iterdir()) == []


def test_no_secret_is_in_what_judges_on_servers_leave_behind(folder: Path, tmp_path: Path) -> None:
    item = {"question": "What first?", "answers": ["Radishes.", "Lettuce."], "summaries": {"a": "Radishes."}}
    items = written(tmp_path / "items.json", [item])
    with FaultServer(tattle) as server:
        server.script = lambda call: chat(choice("5")) if call.number % 3 == 0 else tattle(call)
        named = ("--model", "openai:m", "--base-url", secretive(server))
        outcomes = [
            # one call after the other: three failures in a row would end it
            run(
                *("validate", "bundled", "--limit", 2, "--metrics", "llm_judge", "--max-connections", 1),
                *(*named, "--out", folder / "v"),
            ),
            run(
                "score",
                "--items",
                items,
                "--judge",
                "vllm+http:m",
                "--judge-url",
                secretive(server),
                "--device",
                "cpu",
                "--json",
            ),
        ]
    assert [one.code for one in outcomes] == [1, 2]
    values = (folder / "v" / "values.jsonl").read_text(encoding="utf-8")
    assert f"openai:m at {server.url}" in values
    assert "***" in values
    assert leaks(folder, *outcomes) == []


def test_an_unexpected_error_shows_no_secret_in_its_traceback(folder: Path, asked: Path) -> None:
    code = """
import logging
logging.basicConfig(level=logging.DEBUG)
from selfreflect.models.openai.client import RetryPolicy
RetryPolicy.wait = lambda *_: 1 / 0
from selfreflect.cli import main
main()
"""
    with FaultServer(lambda call: status(503, f"you sent {json.dumps(call.headers)}")) as server:
        call = [sys.executable, "-c", code, *command(folder / "r", secretive(server), asked)]
        done = subprocess.run(call, env=environment(), capture_output=True, text=True, timeout=200)
    assert "Traceback" in done.stderr
    assert "ZeroDivisionError" in done.stderr
    assert "DEBUG" in done.stderr
    assert leaks(folder, Outcome(done.returncode, done.stdout, done.stderr)) == []


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

"""Who may ask, how much may be sent, and what no answer ever lacks or holds. Over a real socket."""

from __future__ import annotations

import json
import mimetypes
import socket
import time
from collections.abc import Iterator

import pytest
from app_server import Client, serving

from selfreflect.errors import BackendError
from selfreflect.server import errors
from selfreflect.server.app import MAX_BODY, POLICY, url
from selfreflect.server.errors import without_paths
from selfreflect.server.guard import Access, access, host_name
from selfreflect.settings import Config

TOKEN = "a-token-that-nobody-guesses"
ASK = {"question": "What?", "num_answers": 1}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with serving(tmp_path_factory.mktemp("root"), work=lambda job: None) as served:
        yield served


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with serving(tmp_path_factory.mktemp("root"), work=lambda job: None, token=TOKEN) as served:
        yield served


def problem(response: object, status: int) -> str:
    """The kind of error of an answer, which has the one shape."""
    assert response.status_code == status, response.text  # type: ignore[attr-defined]
    body = response.json()  # type: ignore[attr-defined]
    assert body.keys() == {"error"}
    assert body["error"].keys() == {"code", "message", "remedy"}
    assert "Traceback" not in body["error"]["message"]
    return str(body["error"]["code"])


@pytest.mark.parametrize(
    "path", ["/", "/static/app.js", "/api/runs", "/api/nothing", "/nothing", "/static/nothing.js"]
)
def test_every_answer_carries_the_policy(client: Client, path: str) -> None:
    headers = client.get(path).headers
    assert headers["content-security-policy"] == POLICY
    assert "unsafe" not in POLICY
    assert (headers["x-content-type-options"], headers["referrer-policy"]) == ("nosniff", "no-referrer")
    assert headers["cache-control"] == "no-store"
    assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "text/html; charset=utf-8"),
        ("/static/app.js", "text/javascript; charset=utf-8"),
        ("/static/question.js", "text/javascript; charset=utf-8"),
        ("/static/style.css", "text/css; charset=utf-8"),
        ("/static/icon.svg", "image/svg+xml"),
    ],
)
def test_files_have_their_types_whatever_the_machine_says(
    monkeypatch: pytest.MonkeyPatch, client: Client, path: str, kind: str
) -> None:
    monkeypatch.setattr(mimetypes, "guess_type", lambda *_: ("text/plain", None))
    assert client.get(path).headers["content-type"] == kind


HOSTS = (
    "evil.example evil.example:8765 localhost.evil.example 127.0.0.1.evil.example 10.0.0.1 [::2]:80 "
    "[::1].evil.example [::1 [::1]evil [localhost] 127.0.0.1:80.evil.example localhost:80@evil.example ::1"
)


@pytest.mark.parametrize("host", ["", *HOSTS.split()])
@pytest.mark.parametrize("path", ["/", "/api/runs", "/static/app.js"])
def test_other_host_names_are_refused(client: Client, host: str, path: str) -> None:
    assert problem(client.get(path, headers={"Host": host}), 421) == "host"


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:9", "[::1]:80"])
def test_its_own_names_are_known_whatever_the_port(client: Client, host: str) -> None:
    assert client.get("/api/runs", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_pages_of_other_sites_can_neither_post_nor_read(client: Client, headers: dict[str, str]) -> None:
    before = client.get("/api/jobs").json()
    assert problem(client.post("/api/ask", json=ASK, headers=headers), 403) == "origin"
    assert problem(client.post("/api/jobs/0123456789abcdef/cancel", headers=headers), 403) == "origin"
    assert problem(client.get("/api/runs", headers=headers), 403) == "origin"
    assert client.get("/api/jobs").json() == before


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""]
)
def test_what_a_form_can_send_is_refused(client: Client, kind: str) -> None:
    response = client.post("/api/ask", content=json.dumps(ASK), headers={"Content-Type": kind})
    assert problem(response, 415) == "media_type"


def test_large_bodies_are_refused_with_and_without_a_length(client: Client) -> None:
    body = b'{"question": "' + b"a" * MAX_BODY + b'"}'
    json_type = {"Content-Type": "application/json"}
    assert problem(client.post("/api/ask", content=body, headers=json_type), 413) == "too_large"
    parts = (body[start : start + 65536] for start in range(0, len(body), 65536))
    assert problem(client.post("/api/ask", content=parts, headers=json_type), 413) == "too_large"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/api/ask", 405),
        ("DELETE", "/api/runs", 405),
        ("POST", "/", 405),
        ("GET", "/api/nothing", 404),
        ("GET", "/api/runs/0123456789abcdef", 404),
        ("GET", "/api/jobs/0123456789abcdef", 404),
        ("POST", "/api/jobs/0123456789abcdef/cancel", 404),
        ("GET", "/api/runs/..%2f..%2fetc", 404),
        ("GET", "/api/runs/ABC", 422),
        ("GET", "/api/runs?limit=100000", 422),
        ("GET", "/static/..%2fapp.py", 404),
        ("GET", "/static/%2e%2e/serve.py", 404),
        ("GET", "/favicon.ico", 404),
    ],
)
def test_wrong_addresses_and_methods(client: Client, method: str, path: str, status: int) -> None:
    problem(client.http.request(method, path), status)


BAD_BODIES = {
    "cut": b'{"question": "x',
    "not utf-8": b'{"question": "\xff\xfe"}',
    "a list": b"[]",
    "nothing": b" ",
    "deep": b"[" * 200_000,
    "nan": b'{"question": "x", "num_answers": NaN}',
    "huge number": b'{"question": "x", "num_answers": 1e999}',
    "long number": b'{"question": "x", "seed": ' + b"9" * 5000 + b"}",
    "surrogate": b'{"question": "\\ud800", "model": 3}',
    "blank": b'{"question": "  "}',
    "too long": json.dumps({"question": "x" * 10_001}).encode(),
    "too many": b'{"question": "x", "num_answers": 201}',
    "none": b'{"question": "x", "num_answers": 0}',
    "text for a number": b'{"question": "x", "num_answers": "5"}',
    "unknown field": b'{"question": "x", "path": "/etc/passwd"}',
    "no strategy": b'{"question": "x", "strategies": []}',
    "twice": b'{"question": "x", "strategies": ["greedy", "greedy"]}',
    "nine": json.dumps({"question": "x", "strategies": [str(n) for n in range(9)]}).encode(),
    "code to import": b'{"question": "x", "strategies": ["os:system"]}',
    "a path": b'{"question": "x", "model": "/etc"}',
    "a relative path": b'{"question": "x", "model": "../../etc"}',
    "an url": b'{"question": "x", "model": "http://evil.example/x"}',
    "a judge's path": b'{"question": "x", "judge": "~/models"}',
}


@pytest.mark.parametrize("body", BAD_BODIES.values(), ids=BAD_BODIES)
def test_bad_bodies_are_explained(client: Client, body: bytes) -> None:
    response = client.post("/api/ask", content=body, headers={"Content-Type": "application/json"})
    assert response.status_code in (400, 422)
    problem(response, response.status_code)
    assert len(response.content) < 3000


def test_a_token_is_needed_for_data_but_not_for_the_page_that_sends_it(locked: Client) -> None:
    assert locked.get("/api/runs").status_code == 200
    for wrong in ("", "Bearer", f"Bearer {TOKEN}x", f"Basic {TOKEN}", "Bearer \xff", TOKEN):
        answer = locked.get("/api/runs", headers={"Authorization": wrong.encode("latin-1")})
        assert problem(answer, 401) == "token"
        assert answer.headers["www-authenticate"] == "Bearer"
        assert TOKEN not in answer.text
    assert problem(locked.get("/api/openapi.json", headers={"Authorization": ""}), 401) == "token"
    assert locked.get("/", headers={"Authorization": ""}).status_code == 200
    assert problem(locked.get(f"/api/runs?token={TOKEN}", headers={"Authorization": ""}), 401) == "token"


def test_the_log_has_no_queries_and_no_tokens(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("DEBUG", logger="selfreflect.app"):
        client.get(f"/api/runs?limit=3&secret={TOKEN}", headers={"Authorization": f"Bearer {TOKEN}"})
        client.get("/nothing%0aGET /forged")
    assert "GET /api/runs 200" in caplog.messages
    assert TOKEN not in caplog.text
    assert r"GET /nothing GET /forged 404" in caplog.messages
    quiet = [record.message for record in caplog.records if record.levelname == "DEBUG"]
    assert quiet == ["GET /api/runs 200"]  # what the page fetches by itself does not fill the terminal


def test_requests_that_are_not_http_do_no_harm(client: Client) -> None:
    port = int(client.url.rpartition(":")[2])
    for rubbish in (
        b"\x16\x03\x01\x02\x00",
        b"GET / HTTP/1.0\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"\r\n" * 3,
    ):
        with socket.create_connection(("127.0.0.1", port), timeout=60) as raw:
            raw.sendall(rubbish)
            raw.shutdown(socket.SHUT_WR)
            assert b" 200 " not in raw.recv(4096)
    assert client.get("/api/runs").status_code == 200


def test_elsewhere_addresses_and_its_own_name_will_do_but_no_other() -> None:
    everywhere = access("0.0.0.0", TOKEN)
    assert all(
        everywhere.knows(host)
        for host in ("192.168.1.5:8765", "[fe80::1]:80", "localhost", socket.gethostname())
    )
    assert not everywhere.knows("evil.example")
    assert access("127.0.0.1", None) == Access()
    assert url("0.0.0.0", 80, TOKEN) == f"http://{socket.gethostname()}:80/#token={TOKEN}"
    assert url("::1", 80, None) == "http://[::1]:80/"
    assert host_name("[::1]:80") == "::1"


def test_a_remedy_is_said_in_words_of_the_page_or_not_at_all() -> None:
    refused = BackendError("no '/home/me/x'", code="gone", remedy="Check {answers.model} in '/home/me/x'.")
    described = {"code": "gone", "message": "no '…/x'", "remedy": "Check Model in '…/x'."}
    assert errors.problem(refused) == described
    assert errors.problem_text(described) == "no '…/x'. Check Model in '…/x'."
    elsewhere = BackendError("no", remedy="Take another {out}.")
    assert errors.problem(elsewhere) == {"code": "backend", "message": "no", "remedy": ""}
    settings = [name.split(".") for name in errors._ON_PAGE if "." in name]
    assert all(hasattr(getattr(Config(), section), key) for section, key in settings)


def test_paths_are_cut_out_of_messages() -> None:
    said = without_paths(
        "cannot read '/home/me/x/a.json' or C:\\Users\\me\\b, see Qwen/Qwen2.5-7B and 1/2 \x1b[31m"
    )
    assert said == "cannot read '…/a.json' or …/b, see Qwen/Qwen2.5-7B and 1/2 \\x1b[31m"
    assert len(without_paths("x" * 10_000)) == 2000


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/secret", "secret"),
        ("/home/me/x/", "x"),
        ("/home/me/My Runs/ask-1/x.jsonl", "x.jsonl"),
        ("~/models/x", "x"),
        ("~me/x", "x"),
        ("./me/x", "x"),
        ("../../me/x", "x"),
        ("file:///home/me/x", "x"),
        ("file://server/me/x", "x"),
        ("file:/home/me/x", "x"),
        ("C:\\Users\\me\\x", "x"),
        (repr("C:\\Users\\me\\x")[1:-1], "x"),
        ("C:/Users/me/x", "x"),
        ("\\\\server\\me\\x", "x"),
        ("\\Users\\me\\x", "x"),
        ("/home/mé/été/x", "x"),
    ],
)
def test_paths_of_every_shape_are_cut(path: str, name: str) -> None:
    for before, after in (
        ("", ""),
        ("'", "': gone"),
        ("error:", ", line 3"),
        ("(", ")"),
        ("in ", " of Qwen"),
        ('"', '"'),
        ("--out=", ";"),
    ):
        assert without_paths(f"{before}{path}{after}") == f"{before}…/{name}{after}"
    assert without_paths(f"'{path}y, me (1)'").endswith("y, me (1)'")
    assert "me" not in without_paths(f"'{path}y, (1)'")


@pytest.mark.parametrize(
    "message",
    [
        "Qwen/Qwen2.5-7B",
        "https://huggingface.co/Qwen/x",
        "runs/mine",
        "1/2 and/or a / b",
        "~10/20 s",
        "</b><i>x</i>",
        "…/x",
        "\\frac{1}{2}",
    ],
)
def test_what_is_no_path_stays(message: str) -> None:
    assert without_paths(message) == message


@pytest.mark.parametrize("part", ["/a b", "/a ", "'/", "~", "~a/ ", "a+", "\\a", ".", "file:", "/a.", "x:"])
def test_no_message_takes_long_to_be_cut(part: str) -> None:
    started = time.process_time()
    assert len(without_paths("/" + part * 100_000)) <= 2000
    assert time.process_time() - started < 5

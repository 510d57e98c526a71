"""The OpenAI-compatible endpoint on a real socket, in a thread, in front of scripted models."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from http_server import running
from scripted import Script, Scripted

from selfreflect.models.openai import generator as generator_module
from selfreflect.models.openai.endpoint import endpoint
from selfreflect.prompts import load_prompts
from selfreflect.server.belief import BeliefReader, LoadedCalibrator
from selfreflect.server.endpoint import SHUTDOWN_SECONDS, Admission, EndpointServer, ServeServices
from selfreflect.server.guard import LOCAL, Access
from selfreflect.server.record import Archive, History, ServerMetrics
from selfreflect.server.reflector import Reflector, ServeSettings
from selfreflect.server.session import LocalModel
from selfreflect.server.upstream import ModelTable, RemoteServer
from selfreflect.settings import ServeConfig
from selfreflect.uncertainty.classes import ClassRule

if TYPE_CHECKING:  # they have much to load: only the process that calls them imports them
    import anthropic
    import openai

CITIES = ["Ankara", "Ankara.", "Istanbul", "ankara"]


class EndpointClient:
    """Talks to the endpoint without a library of OpenAI's."""

    def __init__(self, url: str, server: EndpointServer, token: str | None = None) -> None:
        self.server = server
        self.url = f"{url}/v1"
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.http = httpx2.Client(base_url=url, headers=headers, timeout=200, trust_env=False)
        self.address = ("127.0.0.1", int(url.rpartition(":")[2]))

    def chat(self, text: str = "What is the capital of Turkey?", **fields: Any) -> httpx2.Response:
        return self.http.post("/v1/chat/completions", json=_chat_body(text, fields))

    def stream(self, text: str = "What is the capital of Turkey?") -> AbstractContextManager[httpx2.Response]:
        """A stream of events that is read as it comes."""
        body = _chat_body(text, {"stream": True})
        return self.http.stream("POST", "/v1/chat/completions", json=body)

    def events(self, **fields: Any) -> list[Any]:
        """The JSON of each event of a stream, which must end with ``[DONE]``."""
        response = self.chat(stream=True, **fields)
        assert response.headers["content-type"].startswith("text/event-stream"), response.text
        lines = [line[6:] for line in response.text.split("\n\n") if line.startswith("data: ")]
        assert lines.pop() == "[DONE]"
        return [json.loads(line) for line in lines]


def sdk(served: EndpointClient, **options: Any) -> openai.OpenAI:
    """OpenAI's own client of the endpoint."""
    import openai

    return openai.OpenAI(base_url=served.url, api_key="none", **{"max_retries": 0, **options})


def claude(served: EndpointClient, **options: Any) -> anthropic.Anthropic:
    """Anthropic's own client of the endpoint."""
    anthropic = pytest.importorskip("anthropic")
    address = served.url.removesuffix("/v1")
    client: anthropic.Anthropic = anthropic.Anthropic(
        base_url=address, api_key="none", max_retries=0, **options
    )
    return client


def _chat_body(text: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    return {"model": "selfreflect/m", "messages": [{"role": "user", "content": text}], **fields}


@contextmanager
def endpoint_server(
    script: Script = CITIES,
    *,
    upstream: str | None = None,
    names: Sequence[str] | None = None,
    rule: str = "exact",
    calibrator: LoadedCalibrator | None = None,
    out: Path | None = None,
    keep_texts: bool = False,
    token: str | None = None,
    admission: dict[str, int] | None = None,
    timeout: float = 20.0,
    judge: Any = None,
    generator: Any = None,
    graceful: float = SHUTDOWN_SECONDS,
    proxies: Sequence[str] = (),
    **settings: Any,
) -> Iterator[EndpointClient]:
    """Serve the model ``m`` of a script or a generator, or the models of a server (``upstream``)."""
    # settings of the file of ``--config`` by their keys, and others of the endpoint
    keys = settings.keys() & set(ServeConfig.__struct_fields__) - {"confidence", "claims_calibrator"}
    options = ServeConfig(**{"num_answers": 4, **{key: settings.pop(key) for key in keys}})
    own = ServeSettings(prompts=load_prompts(), options=options, **settings)
    if generator is None and upstream is None:
        generator = Scripted((lambda _: script) if isinstance(script, list) else script)
    local = [LocalModel("m", generator)] if generator else []
    remote = RemoteServer(endpoint(upstream), max_connections=64, timeout=timeout) if upstream else None
    asks: Any = {"judge": "always", "": "bounded"}.get(rule, "never")
    reader = BeliefReader(ClassRule("same" if asks != "never" else rule), calibrator, asks=asks)
    queue = Admission(**(admission or {}))
    services = ServeServices(
        ModelTable(local, remote, names),
        Reflector(own, reader, judge),
        queue,
        History(),
        ServerMetrics(lambda: queue.running, lambda: queue.waiting, calibrator and calibrator.watch),
        Archive(out, texts=keep_texts) if out else None,
    )
    server = EndpointServer(services, Access(LOCAL, token=token), graceful=graceful, proxies=proxies)
    with pytest.MonkeyPatch.context() as patch, running(server) as url:
        # how long all calls wait for the first one, which many of these servers never answer
        patch.setattr(generator_module, "AHEAD_SECONDS", 0.2)
        client = EndpointClient(url, server, token)
        with client.http:
            yield client

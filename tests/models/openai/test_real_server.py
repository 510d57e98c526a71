"""A real server, ``transformers serve`` with the embedded model on loopback, does what the local generator
does with the same model. Its start takes half a minute; ``test_generator.py`` and ``test_runs.py`` prove the
protocol with scripted servers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from real_server import address, sampling_model, transformers_serve
from serving import Server

from selfreflect.models.base import Message, ModelSpec, Reply, Request, Sampling
from selfreflect.models.local.generator import HFGenerator
from selfreflect.models.openai.generator import OpenAIGenerator

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

BOTH_WAYS = Request(
    messages=(Message(role="user", content="Is the sky blue? Say yes or no."),),
    sampling=Sampling(max_new_tokens=1),
    n=64,
    seed=1,
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The embedded model, with a template that opens a reasoning trace where the model may think."""
    folder = sampling_model(tmp_path_factory.mktemp("model"))
    template = folder / "chat_template.jinja"
    text = template.read_text("utf-8")
    template.unlink()  # a link to the embedded model's
    template.write_text(text + "{% if enable_thinking %}{{ '<think>\n' }}{% endif %}", "utf-8")
    return folder


@pytest.fixture(scope="module")
def server(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with transformers_serve(model, tmp_path_factory.mktemp("log") / "serve.log") as started:
        yield started


@pytest.fixture(scope="module")
def local(model: Path, server: Server) -> HFGenerator:
    """The same model in this process, loaded while the server starts."""
    return HFGenerator.load(str(model), device="cpu")


def texts(generator: HFGenerator | OpenAIGenerator, request: Request) -> list[str]:
    [reply] = generator.generate([request])
    assert isinstance(reply, Reply), reply
    assert reply.tokens > 0
    return [completion.text for completion in reply.completions]


def remote(model: Path, url: str) -> OpenAIGenerator:
    return OpenAIGenerator.load(ModelSpec(f"openai:{model}", base_url=url, timeout=300))


def test_greedy_decoding_gives_the_local_text(model: Path, server: Server, local: HFGenerator) -> None:
    request = Request(
        messages=(Message(role="user", content="Name a planet of the solar system."),),
        sampling=Sampling(temperature=0, max_new_tokens=12),
    )
    with server.explaining():
        found = texts(remote(model, address(server)), request)
    assert found == texts(local, request)
    assert found[0]


def test_samples_are_distributed_as_local_ones(model: Path, server: Server, local: HFGenerator) -> None:
    with server.explaining():
        found = texts(remote(model, address(server)), BOTH_WAYS)
    expected = texts(local, BOTH_WAYS)
    assert len(set(found)) > 1
    for text in sorted(set(expected), key=expected.count)[-2:]:
        # three standard errors of the difference of two counts of 64, at their widest
        assert abs(expected.count(text) - found.count(text)) <= 3 * (64 / 2) ** 0.5


def test_its_template_learns_whether_the_model_may_think(model: Path, server: Server) -> None:
    with server.explaining():
        asked = remote(model, address(server))
        replies = [asked.generate([replace(BOTH_WAYS, n=1, thinking=may)])[0] for may in (False, True)]
    sizes = [reply.prompt_tokens for reply in replies if isinstance(reply, Reply)]
    assert sizes[1] > sizes[0] > 0
    assert "chat_template_kwargs" not in asked.facts.get("refused", {})

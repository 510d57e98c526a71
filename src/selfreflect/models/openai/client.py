"""The official OpenAI client without its own retries: errors become faults, and no response is read without a
limit."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from selfreflect.errors import BackendError, MissingExtraError
from selfreflect.models.openai.endpoint import Endpoint
from selfreflect.models.openai.patience import retry_after
from selfreflect.models.openai.protocol import error_text
from selfreflect.models.openai.retry import APIError, status_fault

if TYPE_CHECKING:
    from openai import AsyncOpenAI

LARGEST_RESPONSE = 32 * 2**20
"""Bytes of a response that are read."""

CONNECT_SECONDS = 20.0


@asynccontextmanager
async def connected(server: Endpoint, timeout: float, max_connections: int) -> AsyncIterator[AsyncOpenAI]:
    """A client of one event loop.

    Raises:
        BackendError: the proxy that the environment names cannot be used.
    """
    import httpx2
    from openai import AsyncOpenAI, DefaultAsyncHttpxClient

    try:
        http = DefaultAsyncHttpxClient(
            timeout=httpx2.Timeout(timeout, connect=min(timeout, CONNECT_SECONDS)),
            limits=httpx2.Limits(max_connections=max_connections),
            event_hooks={"response": [_check]},
        )
    except (ValueError, ImportError):
        raise BackendError(
            "The proxy that the environment names (HTTP_PROXY, HTTPS_PROXY, ALL_PROXY) cannot be used: "
            "it must be an address that begins with http:// or https://."
        ) from None
    async with AsyncOpenAI(
        api_key=server.key or "none",
        base_url=server.url,
        max_retries=0,
        http_client=http,
        default_headers={"Accept-Encoding": "identity"},
    ) as client:
        yield client


def authorized(server: Endpoint) -> Any:
    """The headers of a call. Said outright: where the client has no key, it looks for other ones in the
    environment."""
    from openai import Omit

    return {"Authorization": server.authorization or Omit()}


async def body_of(response: Any) -> bytes:
    """The JSON that an answer with HTTP 200 brings.

    Raises:
        APIError: it is something else, or too large.
    """
    kind = response.headers.get("content-type", "")
    if "json" not in kind:
        raise APIError(
            "the response is not JSON; look at --base-url, which mostly ends in /v1. Its type",
            said=kind or "(none)",
        )
    return await _read(response.iter_bytes())


def client_errors(purpose: str) -> tuple[type[Exception], ...]:
    """What the client raises.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        import anyio
        import httpx2
        import openai
    except ImportError:
        raise MissingExtraError(purpose, "openai") from None
    return openai.OpenAIError, httpx2.HTTPError, httpx2.InvalidURL, anyio.EndOfStream


def given_up(fault: APIError, tries: int) -> APIError:
    """The fault that ended a call, with what was done against it."""
    if not fault.retry:
        return fault
    asked = "" if fault.wait is None else f", asks to wait {fault.wait:.0f} s"
    return APIError(
        f"{fault}{asked} ({'1 try' if tries == 1 else f'{tries} tries'})", kind=fault.kind, said=fault.said
    )


async def _check(response: Any) -> None:
    """Turn an error into its fault here: the client would read the whole of its body, however long."""
    if response.headers.get("content-encoding", "identity") != "identity":
        raise APIError("the response is compressed, which was not asked for")
    if response.has_redirect_location:
        there = response.headers["location"]
        raise APIError(
            f"the server points to another address (HTTP {response.status_code}); give that with --base-url",
            said=there,
        )
    if response.status_code >= 300:
        said = error_text(await _read(response.aiter_bytes()))
        raise status_fault(response.status_code, said, retry_after(response.headers.get("retry-after")))


async def _read(chunks: AsyncIterator[bytes]) -> bytes:
    data = bytearray()
    async for chunk in chunks:
        data += chunk
        if len(data) > LARGEST_RESPONSE:
            raise APIError(f"the response is larger than {LARGEST_RESPONSE // 2**20} MB")
    return bytes(data)

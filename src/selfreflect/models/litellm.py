"""Models of many providers in their own protocols, through the LiteLLM SDK."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from selfreflect.errors import ConfigError, MissingExtraError, excerpt, optional
from selfreflect.models.backend import Backend
from selfreflect.models.base import ModelSpec
from selfreflect.models.openai.client import asked_wait, causes, transport_error
from selfreflect.models.openai.endpoint import KEYS, Endpoint, endpoint
from selfreflect.models.openai.generator import OpenAIGenerator
from selfreflect.models.openai.protocol import APIError, status_error
from selfreflect.models.openai.refusals import EXTENSIONS, FIELDS

if TYPE_CHECKING:
    import httpx2

# Names of environment variables that may hold what a provider must not show again.
_SECRET = re.compile(r"(?i)(?:.*_)?(?:API_KEY|TOKEN|SECRET|PASSWORD|SECRET_ACCESS_KEY)")

_NO_SERVER = "litellm:"

_ENDINGS = ("finish_reason", "finishReason", "stop_reason", "stopReason", "done_reason")
"""Providers' names for the finish reason of a text."""


class LiteLLM(Backend):
    """Backend of models behind LiteLLM, with the keys that it documents for each provider."""

    prefix = "litellm"
    generator = "selfreflect.models.litellm:LiteLLMGenerator.load"
    is_remote = True
    loads_model = False

    def server(self, base_url: str | None) -> Endpoint:
        """Describe the server at ``base_url`` or the provider's default server, and hide all keys in the
        environment."""
        server = endpoint(base_url) if base_url is not None else Endpoint(_NO_SERVER)
        # a shorter value would hide ordinary words in messages
        hidden = {value for name, value in os.environ.items() if _SECRET.fullmatch(name) and len(value) > 7}
        return replace(server, secrets=tuple(sorted({*server.secrets, *hidden}, key=len, reverse=True)))

    def may_charge(self, base_url: str | None) -> str:
        if base_url is None:
            return "the provider"
        return super().may_charge(base_url)

    def price(self, name: str) -> tuple[float, float] | None:
        """Look up the price of a million prompt and completion tokens in US dollars."""
        with suppress(MissingExtraError):
            prices = _sdk().model_cost
            bare = self.bare_name(name)
            # the price list has some models without their provider
            row = prices.get(bare) or prices.get(bare.partition("/")[2]) or {}
            price_in, price_out = row.get("input_cost_per_token"), row.get("output_cost_per_token")
            if price_in is not None and price_out is not None:
                return price_in * 1e6, price_out * 1e6
        return None


class LiteLLMGenerator(OpenAIGenerator):
    """Generator that calls models through LiteLLM, in each provider's protocol.

    Refusals, retries and texts that did not end are treated as those of OpenAI-compatible servers.
    """

    prefix = "litellm"

    @classmethod
    def load(cls, spec: ModelSpec, progress: Callable[[str], None] | None = None) -> LiteLLMGenerator:
        """Load the model ``litellm:PROVIDER/NAME``. Nothing is sent yet.

        Raises:
            ConfigError: LiteLLM knows no such provider, or the address is wrong.
            MissingExtraError: LiteLLM is not installed.
        """
        backend = LiteLLM()
        name = backend.bare_name(spec.name)
        sdk = _sdk()
        try:
            _, provider, _, _ = sdk.get_llm_provider(name, api_base=spec.base_url)
        except Exception as error:  # it raises what its providers' errors would be
            if not hasattr(error, "status_code"):
                raise
            raise ConfigError(
                f"LiteLLM knows no provider for {excerpt(name)}. Name the provider first: "
                "litellm:anthropic/NAME.",
                code="model_name",
            ) from None
        generator = cls.of(spec, backend.server(spec.base_url), progress)
        if spec.base_url is None:
            generator.client.server = replace(
                generator.client.server,
                url=f"litellm:{provider}",
                key_advice="LiteLLM reads the key from the variable that it documents for this provider",
            )
        return generator

    async def _post(self, http: httpx2.AsyncClient, body: dict[str, Any]) -> bytes:
        fields = {
            name: value
            for name, value in body.items()
            # providers have no defaults for these
            if name in self._extra
            or name not in (*EXTENSIONS, "stream")
            or not FIELDS[name].is_neutral(value)
        }
        server = self.client.server
        if server.host:
            # a provider's key is for the provider alone
            fields |= {"api_base": server.url, "api_key": os.environ.get(KEYS[0], "").strip() or "none"}
        sdk = _sdk()
        bodies: list[Any] = []
        fields["logger_fn"] = lambda call: bodies.append(call.get("original_response"))
        try:
            # tries are counted and spaced by the generator
            response = await sdk.acompletion(**fields, num_retries=0, max_retries=0)
        except Exception as error:
            if not hasattr(error, "status_code"):
                raise
            raise self._meaning(error) from None
        body = response.model_dump(mode="json")
        _restore_endings(body["choices"], bodies)
        return self.client.server.without_secrets(msgspec.json.encode(body))

    def _meaning(self, error: Any) -> APIError:
        """Convert an error of LiteLLM by its HTTP status and cause."""
        sdk = _sdk()
        message = str(getattr(error, "message", error))
        data = message[message.find("{") : message.rfind("}") + 1].encode() or b"{}"
        status = int(error.status_code or 0)
        headers: Mapping[str, str] = {}
        for cause in causes(error):
            if isinstance(cause, (ConnectionError, TimeoutError)):
                return transport_error(error)
            # the library reports a redirect as a failed connection, and drops the headers
            if response := getattr(cause, "response", None):
                status, headers = response.status_code, response.headers or headers
        problem = status_error(status, data, asked_wait(headers), said=message)
        if isinstance(error, sdk.exceptions.ContentPolicyViolationError):
            return replace(problem, kind="content_filter", rejected=False)
        if isinstance(error, sdk.exceptions.ContextWindowExceededError):
            return replace(problem, kind="too_long", rejected=False)
        return problem


def _restore_endings(choices: Sequence[dict[str, Any]], bodies: Sequence[Any]) -> None:
    """Restore the provider's own words for how choices ended.

    LiteLLM makes every word that it does not know, and none at all, to ``stop``.
    """
    words: list[Any] = []
    for text in bodies:
        if isinstance(text, str):
            with suppress(msgspec.MsgspecError, RecursionError):
                words = list(_endings(msgspec.json.decode(text)))
    for index, choice in enumerate(choices):
        extra = choice.get("provider_specific_fields") or {}
        message = choice["message"]
        message["refusal"] = (message.get("provider_specific_fields") or {}).get("refusal")
        choice["error"] = extra.get("error")
        if choice["finish_reason"] == "stop" and len(words) == len(choices):
            choice["finish_reason"] = words[index]


def _endings(value: Any) -> Iterator[Any]:
    """Yield all finish reasons of a response, under any of their names."""
    for name, entry in value.items() if isinstance(value, dict) else ():
        if name in _ENDINGS:
            yield entry
        else:
            yield from _endings(entry)
    for entry in value if isinstance(value, list) else ():
        yield from _endings(entry)


@cache
def _sdk() -> Any:
    """Import LiteLLM without telemetry, logging, online price list and redirects.

    A redirect would take a key in a header of a provider's own along.

    Raises:
        MissingExtraError: it is not installed.
    """
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    with optional("A model of LiteLLM", "providers"):
        import litellm
        from litellm.llms.custom_httpx import http_handler
    litellm.telemetry = False
    litellm.suppress_debug_info = True
    litellm.turn_off_message_logging = True
    litellm.drop_params = False
    logging.getLogger("LiteLLM").setLevel(logging.CRITICAL)

    create = http_handler.AsyncHTTPHandler.create_client

    def create_client(*args: Any, **options: Any) -> Any:
        client = create(*args, **options)
        client.follow_redirects = False
        return client

    http_handler.AsyncHTTPHandler.create_client = create_client
    return litellm

"""What clients may choose: models, and the settings of a question."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from selfreflect.app.schemas import AskBody, JudgeBody
from selfreflect.errors import ConfigError, excerpt
from selfreflect.models.backend import backend_of, on_server
from selfreflect.settings import Config, Price, load_config, sampling_of
from selfreflect.traits import traits_of

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(?:/[A-Za-z0-9][\w.-]*)?", re.ASCII)


def is_served(name: str) -> bool:
    """Whether a name is that of a model on a server that gives texts."""
    backend = backend_of(name)
    return backend.is_remote and backend.can_generate


class ModelChoices:
    """The models that clients may use: smollm2, those named when the app was started, and names on the hub.

    A client never names a directory. Directories named at the start are offered by their last part. A client
    never names an address either: models of a server are asked for at ``base_url``, any of
    them if it is set, else only those named at the start. The key comes from the environment.
    """

    def __init__(
        self,
        names: Sequence[str] = (),
        base_url: str | None = None,
        prices: Mapping[str, Price] | None = None,
    ) -> None:
        self.base_url = base_url
        self.prices = dict(prices or {})
        self._names = {"smollm2": "smollm2"}
        for name in names:
            if not backend_of(name).can_generate:
                raise ConfigError(
                    f"the app asks no judge on a server, such as {excerpt(name)}. Score a run with it by "
                    "selfreflect score --out RUN --judge NAME --judge-url URL; the app shows its scores, too"
                )
            label = Path(name).resolve().name if Path(name).is_dir() else name
            self._names[label] = name

    @property
    def offered(self) -> list[str]:
        """Names for a list of choices; those named at the start come first."""
        return [*list(self._names)[1:], "smollm2"]

    @property
    def judge(self) -> str:
        """The first offered model that can judge in this process."""
        backends = {name: backend_of(self._names[name]) for name in self.offered}
        return next(name for name, one in backends.items() if one.can_judge and not one.is_remote)

    @property
    def server(self) -> str | None:
        """The address of the server, without credentials; None if no model of a server may be used."""
        served = next(filter(is_served, self._names), None)
        if self.base_url is None and served is None:
            return None
        return backend_of(served or on_server("NAME")).server(self.base_url).url

    def resolve(self, name: str) -> str:
        """The name to load.

        Raises:
            ConfigError: ``name`` is neither offered nor the name of a model on the hub.
        """
        if name in self._names or (self.base_url is not None and is_served(name)):
            return self._names.get(name, name)
        if is_served(name):
            raise ConfigError(
                f"{excerpt(name)} is a model of a server. Allow it when you start the app: "
                f"selfreflect app --model {on_server('NAME')}, and --base-url URL if the server is not "
                "OpenAI's"
            )
        if not _HUB_NAME.fullmatch(name) or ".." in name or Path(name).exists():
            raise ConfigError(
                f"unknown model {excerpt(name)}. Choose one of {', '.join(self.offered)}, or a hub name such "
                "as Qwen/Qwen2.5-7B-Instruct. Name a model in a directory when you start the app: "
                "selfreflect app --model DIR"
            )
        return name

    def config(self, body: JudgeBody, base: Mapping[str, Mapping[str, Any]] | None = None) -> Config:
        """The settings of a request, over those in ``base``.

        Raises:
            ConfigError: a model may not be used, or a value is out of range.
        """
        judge = self.resolve(body.judge)
        scores = {
            "judge": judge,
            "measures": ",".join(body.measures) if body.measures else traits_of(judge).measures,
            "reader": body.reader,
        }
        sections: dict[str, dict[str, Any]] = {"scores": scores}
        if isinstance(body, AskBody):
            sections |= self._generation(body)
        return msgspec.structs.replace(load_config(None, sections, base), prices=self.prices)

    def _generation(self, body: AskBody) -> dict[str, dict[str, Any]]:
        """The sections of answers and summaries."""
        model = self.resolve(body.model)
        common: dict[str, Any] = {"model": model, "seed": body.seed}
        if is_served(model):
            common["base_url"] = self.base_url
        sampling = {"temperature": body.temperature, "top_p": body.top_p}
        answers = {
            **common,
            **sampling_of(model),
            **{name: value for name, value in sampling.items() if value is not None},
            "num_answers": body.num_answers,
            "max_new_tokens": body.answer_tokens,
        }
        summaries = {
            **common,
            "max_new_tokens": body.summary_tokens,
            "sample_max_new_tokens": body.answer_tokens,
            "num_samples": 2 * body.num_answers,
        }
        return {"answers": answers, "summaries": summaries}

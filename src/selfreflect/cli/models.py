"""The models that the options of ``validate`` name, loaded when they are needed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from selfreflect.models.base import Generator
    from selfreflect.models.judge import Judge
    from selfreflect.pipeline.experiment import ExecutionOptions, Progress


@dataclass(frozen=True)
class LazyModels:
    """``judges`` may be empty: the embedded one is the default. ``compat``, ``dtype`` and the options go for
    all of them."""

    judges: tuple[str, ...]
    judge_url: str | None
    judge_revision: str | None
    dtype: str | None
    compat: str | None
    model: str | None
    revision: str | None
    base_url: str | None
    options: ExecutionOptions
    progress: Progress

    def check(self, several: bool) -> None:
        """Raises ConfigError for options that do not go together; ``several`` says whether the study compares
        judges."""
        from selfreflect.errors import ConfigError

        if several and len(self.judges) < 2:
            raise ConfigError("--study judges compares two judges or more: --judge A,B")
        if len(self.judges) > 1 and not several:
            raise ConfigError("several judges belong to --study judges; every other study is about one")
        if len(set(self.judges)) < len(self.judges):
            raise ConfigError("--judge names one judge twice")
        if len(self.judges) > 1 and self.judge_revision is not None:
            raise ConfigError("--judge-revision goes with one judge, and several are named")
        if len(self.judges) > 1 and self.judge_url is not None:
            raise ConfigError("--judge-url goes with one judge, and several are named")
        if self.base_url is not None and self.model is None:
            raise ConfigError("--base-url is that of --model openai:NAME, and none is named")
        if self.revision is not None and self.model is None:
            raise ConfigError(
                "--revision is that of --model, and none is named; that of a judge is --judge-revision"
            )

    @property
    def loads(self) -> list[Callable[[], Judge]]:
        """One for each judge."""
        return [partial(self._judge, name) for name in self.judges or (None,)]

    @property
    def generator(self) -> Callable[[], Generator] | None:
        return None if self.model is None else self._generator

    def _judge(self, name: str | None) -> Judge:
        from selfreflect.config import load_config
        from selfreflect.pipeline.experiment import load_judge

        wanted = {
            "judge": name,
            "base_url": self.judge_url,
            "revision": self.judge_revision,
            "dtype": self.dtype,
            "compat": self.compat,
        }
        return load_judge(load_config(None, {"scores": wanted}), self.options, self.progress)

    def _generator(self) -> Generator:
        from selfreflect.pipeline.experiment import load_generator

        assert self.model is not None
        return load_generator(self.model, self.revision, self.options, self.progress, base_url=self.base_url)

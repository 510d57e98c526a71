"""Facts about single models by name, one row each. No other module tests for these names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Traits:
    """Default choices for a model."""

    sampling: Mapping[str, float] = field(default_factory=dict)
    """Sampling settings of the model for the demo, ``ask`` and the app."""
    strategies: tuple[str, ...] = ("sample_and_summarize",)
    """Strategies of the model for ``ask``."""
    is_show_case: bool = False
    """Whether the model's numbers as a judge only demonstrate the tool, with cheap measures."""
    reward_warning: str = ""
    """Warning on what SelfReflect scores by this judge teach as a reward."""


TRAITS: Mapping[str, Traits] = {
    "smollm2": Traits(
        # at the paper's temperature of 1 it writes words that do not exist
        sampling={"temperature": 0.7, "top_p": 0.9},
        # it rambles where it has to merge answers
        strategies=("greedy", "basic"),
        # its SelfReflect score does not beat nonsense, and costs most of the time
        is_show_case=True,
        reward_warning=(
            "with judge smollm2 a line of symbols gets a better SelfReflect score than an honest summary on "
            "most questions: use InformationReward, or a larger judge"
        ),
    ),
}


def traits_of(name: str) -> Traits:
    """Look up the traits of a model, or the defaults."""
    return TRAITS.get(name, Traits())

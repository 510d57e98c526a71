"""The texts of ``data/sayself_prompts.toml``, and how clusters stand in them."""

from __future__ import annotations

from collections.abc import Mapping

from selfreflect.models.base import Message
from selfreflect.prompts import bundled_texts
from selfreflect.sayself.clusters import ClusteredQuestion
from selfreflect.text import fill, quoted


def prompts() -> Mapping[str, Mapping[str, str]]:
    """The texts, by what they are for."""
    return bundled_texts("sayself_prompts.toml")


def user_message(name: str, values: Mapping[str, str]) -> Message:
    """The prompt ``name`` with its placeholders filled in."""
    return Message(role="user", content=fill(prompts()[name]["user"], values).strip())


def listed_clusters(question: ClusteredQuestion) -> str:
    """One answer of each cluster with its share, one per line."""
    lines = []
    for number, cluster in enumerate(question.clusters, start=1):
        lines.append(f"{number}. {quoted(cluster.answer)} (share {question.share(cluster):.0%})")
    return "\n".join(lines)

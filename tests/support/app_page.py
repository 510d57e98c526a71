"""What the tests of the app's page do again and again: open it, ask, and look for what should not be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app_server import Client

RADISHES = {"good": "Radishes or lettuce.", "bad": "Not clear."}


def ready(page: Any) -> None:
    """Wait until the form offers what the server knows. At first its settings are folded."""
    page.wait_for_selector("input[name=strategy]", state="attached")


def open_settings(page: Any) -> None:
    if page.get_attribute("#settings", "open") is None:
        page.click("#settings > summary")


def opened(watched: Any, client: Client, at: str = "") -> None:
    watched.page.goto(f"{client.url}/{at}")
    ready(watched.page)


def clean(watched: Any) -> None:
    assert watched.problems == []
    assert watched.foreign == []


def clean_everywhere(watched: Any) -> None:
    """What is shown fits, and axe finds nothing, on a dark phone and on a light desktop."""
    for width, scheme in ((390, "dark"), (1200, "light")):
        watched.page.set_viewport_size({"width": width, "height": 900})
        watched.page.emulate_media(color_scheme=scheme)
        assert watched.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        serious = watched.serious()
        assert serious == [], serious


def start(
    page: Any,
    question: str,
    *,
    answers: int = 2,
    strategies: Sequence[str] = ("greedy",),
    measures: Sequence[str] = ("selfreflect",),
) -> None:
    """Ask, by default for scores alone: to a model made of chance a summary tells nothing."""
    page.fill("#question", question)
    open_settings(page)
    for name in ("selfreflect", "information"):
        page.set_checked(f"input[value={name}]", name in measures)
    for name in ("greedy", "basic", "sample_and_summarize"):
        page.set_checked(f"input[value={name}]", name in strategies)
    page.fill("#num-answers", str(answers))
    page.click("button.primary")


def scored(client: Client, question: str, summaries: Mapping[str, str] = RADISHES) -> str:
    """The run of summaries that were scored."""
    return client.scored(question, summaries, "--measures", "selfreflect", "--guesses", "5")

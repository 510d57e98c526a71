"""Text that would like to be code, in a real browser."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import browser
from app_page import opened, ready, scored, start
from app_server import Client, serving
from hostile import PAYLOADS, flat
from hostile import shown as label

from selfreflect.records import (
    AnswerSet,
    Guess,
    Information,
    Question,
    Score,
    Summary,
    WordBits,
    WordDistance,
)
from selfreflect.store.run import Run
from selfreflect.text import printable

DANGEROUS = "script, img, svg, iframe, style, base, meta, math, form, a[href^=javascript]"


def hostile_name(number: int) -> str:
    """The name of a directory; the last one is not UTF-8."""
    text = "".join(letter for letter in PAYLOADS[number][:60] if letter not in "/\x00")
    broken = b"\xff\xfe" if number == len(PAYLOADS) - 1 else b""
    return os.fsdecode(f"{number} {text}".encode("utf-8", "ignore") + broken)


def test_hostile_text_is_shown_and_never_run(chromium: Any, tmp_path: Path) -> None:
    """As question, context, answer, word, summary, strategy, reason, model and directory name."""
    for number, text in enumerate(PAYLOADS):
        with Run.open(tmp_path / hostile_name(number), {}) as run:
            name = text[:2000]
            run.append(Question(id="q", text=text, context=text))
            run.append(AnswerSet(question_id="q", masked_out=(text,), conditioning=(text,), model=name))
            bits = tuple(WordBits(text, -5.0, 9.0) for _ in text.split())
            run.append(
                Information(
                    question_id="q",
                    summary=name,
                    zero="empty",
                    anchor="distinct",
                    reader="informed",
                    bits=None,
                    bits_available=None,
                    recovered=None,
                    undefined="unmeasured",
                    why=name,
                    answers=(bits,),
                )
            )
            run.append(Summary(question_id="q", name=name, text=text, model=name))
            guesses = ((Guess(text[:1000], 0.5, 0.1, 0.5, 0.1),),)
            word = WordDistance(answer=0, word=0, text=text.split()[0], distances=(0.5,), guesses=guesses)
            run.append(
                Score(
                    question_id="q",
                    summary=name,
                    value=0.5,
                    stderr=None,
                    token_tasks=1,
                    judge=name,
                    words=(word,),
                    warnings=(name,),
                )
            )
            run.update_manifest(models={"answers": {"name": name}})
    with serving(tmp_path, work=lambda job: None) as client, browser.watched(chromium, client.url) as watched:
        shown = watched.page
        runs = client.get("/api/runs", params={"limit": 100}).json()["runs"]
        assert len(runs) == len(PAYLOADS) >= 30
        opened(watched, client)
        shown.click("#more-runs")
        shown.wait_for_selector(f"#runs > li:nth-child({len(PAYLOADS)})")
        listed = [flat(text) for text in shown.locator("#runs > li").all_inner_texts()]
        for run, entry in zip(runs, listed, strict=True):
            number = int(run["name"].split()[0])
            payload = PAYLOADS[number]
            assert entry.startswith(label(payload[:300], 120))
            assert entry.endswith(flat(printable(hostile_name(number))))
            if number % 2 == 0 and payload is not PAYLOADS[-1]:
                continue  # a report shows these
            shown.goto(f"{client.url}/#run={run['id']}")
            words = f".question[data-run='{run['id']}'] button.word"
            shown.wait_for_selector(words)
            shown.locator(f"{words}.misleading").first.click()
            assert flat(shown.inner_text(".sentence")).startswith(
                "How much this summary recovers was not measured: "
            )
            shown.get_by_role("radio", name="distance").check()
            shown.locator(words).first.click()
            assert flat(shown.locator(".guesses .token").inner_text()) == label(payload[:1000], 60)
            assert flat(shown.inner_text(".question > h2")) == label(payload, 500)
            assert [flat(text) for text in shown.locator(".groups .what").all_inner_texts()] == [
                label(payload, 80)
            ]
            assert flat(shown.inner_text(".card h4")) == label(payload[:2000])
            assert flat(shown.inner_text("p.warning")) == label(payload[:2000], 500)
            summary = shown.inner_text(".summary-text bdi")
            assert flat(summary) == (
                flat(printable(payload)) if len(payload) <= 4000 else f"{payload[:3999]}…"
            )
            assert shown.evaluate("window.pwned === undefined")
            assert shown.locator(f"#result :is({DANGEROUS})").count() == 0
        assert watched.foreign == []
        assert watched.problems == []


def test_hostile_text_in_the_form_is_only_text(page: Any, client: Client) -> None:
    shown = page.page
    for payload in (PAYLOADS[0], PAYLOADS[5], "{{7*7}}"):
        start(shown, payload)
        shown.wait_for_selector("button.word")
        assert payload in shown.inner_text(".question h2")
        shown.goto(f"{client.url}/")
        ready(shown)
    assert shown.evaluate("window.pwned === undefined")
    run = scored(
        client,
        PAYLOADS[2],
        {PAYLOADS[3]: PAYLOADS[4], PAYLOADS[5]: json.dumps(PAYLOADS[:8])},
    )
    shown.goto(f"{client.url}/#run={run}")
    shown.wait_for_selector("button.word")
    assert PAYLOADS[3] in shown.inner_text(".cards")
    assert shown.evaluate("window.pwned === undefined")

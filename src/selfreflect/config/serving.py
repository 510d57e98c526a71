"""Settings of the endpoint, ``selfreflect serve``."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from selfreflect.flags import POSITIVE, SHARE, Flag, between
from selfreflect.records import Record

WhenUnsure = StrEnum("WhenUnsure", ["abstain", "hedge", "ask"])


class ServeConfig(Record, frozen=True, kw_only=True):
    """What the endpoint does with a question that says nothing else."""

    num_answers: Annotated[
        int,
        Flag(
            "--num-answers N",
            "Answers to draw for each question; with --at-least, at most.",
            range=between(2, 200),
        ),
    ] = 10
    at_least: Annotated[
        int | None,
        Flag(
            "--at-least N",
            "Stop drawing once the likeliest answer is certain, after N at least.",
            range=POSITIVE,
            example=3,
        ),
    ] = None
    classes: Annotated[
        str | None,
        Flag(
            "--classes RULE",
            "What makes two answers the same: exact (but for case, punctuation and articles), numeric, "
            "jaccard, rouge or embedding, the last three with a threshold, as in jaccard:0.6; or nli:MODEL.",
            default="exact, or the calibrator's",
            example="jaccard:0.6",
        ),
    ] = None
    confidence: Annotated[
        str | None,
        Flag(
            "--confidence KIND",
            "Which confidence comes back: modal_share (how many of the answers agree), split_half (the same, "
            "not inflated by few answers), the calibrator's estimator, or none.",
            default="modal_share, or the calibrator's",
            example="split_half",
        ),
    ] = None
    calibrator: Annotated[
        str | None,
        Flag(
            "--calibrator FILE",
            "Calibrate the confidence, with a file of `selfreflect calibrate --save`.",
            example="calibrator.json",
        ),
    ] = None
    when_unsure: Annotated[
        WhenUnsure | None,
        Flag(
            "--when-unsure",
            "What to say if the confidence is below --below: that it does not know (abstain), how sure it is "
            "and then the summary (hedge), or the question that tells the answers apart best (ask).",
            example="hedge",
        ),
    ] = None
    below: Annotated[
        float, Flag("--below P", "Confidence under which --when-unsure takes effect.", range=SHARE)
    ] = 0.4
    ask_candidates: Annotated[
        int,
        Flag(
            "--ask-candidates N",
            "Questions that --when-unsure ask chooses from. Each costs a call for each answer to tell apart.",
            range=between(1, 50),
        ),
    ] = 15
    ask_hypotheses: Annotated[
        int,
        Flag(
            "--ask-hypotheses N",
            "Answers, the commonest, that the question of --when-unsure ask tells apart.",
            range=between(2, 50),
        ),
    ] = 15
    footer: Annotated[
        bool,
        Flag("--footer", "End each text with a line on the confidence, for clients that show only text."),
    ] = False
    ignore_tools: Annotated[
        bool,
        Flag(
            "--ignore-tools",
            "Answer questions that come with tools as if there were none, for chat pages that offer tools "
            "with every question.",
        ),
    ] = False
    out: Annotated[
        str | None,
        Flag("--out DIR", "Keep what is answered as a run directory, without texts.", example="runs/served"),
    ] = None
    keep_texts: Annotated[
        bool, Flag("--keep-texts", "Keep questions, answers and summaries in --out too.")
    ] = False

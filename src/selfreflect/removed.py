"""Flags, keys of settings and studies that earlier versions had, each with what to do instead."""

from __future__ import annotations

_FEWER_WORDS = (
    "Give --budget: judge tokens or seconds per question, spent on the same words of all summaries."
)

SCORES = {"standard_error": _FEWER_WORDS, "race": _FEWER_WORDS}
"""Keys of ``[scores]``, which old run directories hold too."""

KEYS: dict[str, dict[str, str]] = {"scores": SCORES}
"""By section of a settings file and key."""

SCHEDULE_B = "Compare (a) with (c): batches of the same requests were between the two."
_CURVES = "Time items of your own sizes with --items."

_SCORING = ("run", "score", "ask")

FLAGS: dict[tuple[str, str], str] = {
    **{(command, "--se"): _FEWER_WORDS for command in _SCORING},
    **{(command, "--race"): _FEWER_WORDS for command in _SCORING},
    **{("bench", flag): _CURVES for flag in ("--scaling", "--no-scaling")},
}
"""By command and flag."""

"""Reason about the possibilities first; the text after the marker is the summary."""

from __future__ import annotations

import re

from selfreflect.strategies.task import Strategy, Task


def cot(task: Task) -> Strategy:
    prompts = task.prompts.cot
    [reply] = yield task.request(task.messages(prompts.user, marker=prompts.marker), "summary")
    return final_part(reply.text, prompts.marker, cut=reply.completions[0].finish == "length")


def final_part(text: str, marker: str, cut: bool) -> str:
    """Return the text after the last ``marker``, in any case, bold or not.

    A marker at the start of a line wins over one within a line. Without a marker, the final part is the last
    paragraph; but if the text was ``cut`` off before a marker line there is none, and the driver reports a
    cut-off summary.
    """
    words = r"[ \t]+".join(re.escape(word) for word in marker.strip().rstrip(":").split())
    starting_line = rf"^[ \t#>*_]*{words}[ \t*_]*(?::[ \t*_]*|$)"
    matches = list(re.finditer(starting_line, text, re.IGNORECASE | re.MULTILINE))
    if cut and not matches:
        return ""
    if not matches:
        matches = list(re.finditer(rf"(?<!\w){words}[ \t*_]*:[ \t*_]*", text, re.IGNORECASE))
    final = text[matches[-1].end() :] if matches else text.strip().rpartition("\n\n")[2]
    final = final.strip()
    if final.count("**") % 2:  # bold that was opened before the marker
        final = final.removesuffix("**")
    return final

"""Reason about the possibilities first; only what follows the marker is the summary."""

from __future__ import annotations

import re

from selfreflect.strategies.task import Strategy, Task


def cot(task: Task) -> Strategy:
    prompts = task.prompts.cot
    [reply] = yield task.request(task.messages(prompts.user, marker=prompts.marker), "summary")
    return final_part(reply.text, prompts.marker, cut=reply.completions[0].finish == "length")


def final_part(text: str, marker: str, cut: bool) -> str:
    """What follows the last ``marker``, whatever its case and whether or not it is set in bold.

    A marker that starts its line is preferred to one within a line. Without any, the final part is the last
    paragraph; but a text that was ``cut`` off before a line with the marker has none, which the driver
    reports as cut off.
    """
    words = r"[ \t]+".join(re.escape(word) for word in marker.strip().rstrip(":").split())
    found = list(
        re.finditer(rf"^[ \t#>*_]*{words}[ \t*_]*(?::[ \t*_]*|$)", text, re.IGNORECASE | re.MULTILINE)
    )
    if cut and not found:
        return ""
    found = found or list(re.finditer(rf"(?<!\w){words}[ \t*_]*:[ \t*_]*", text, re.IGNORECASE))
    final = text[found[-1].end() :].strip() if found else text.strip().rpartition("\n\n")[2].strip()
    # The opening half of bold that spans marker and text went with the marker.
    return final.removesuffix("**") if final.count("**") % 2 else final

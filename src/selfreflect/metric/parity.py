"""Whether a judge that runs elsewhere gives the scores that it gives here, on one item with a stored
score."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from selfreflect.errors import JudgeError
from selfreflect.metric.scorer import SelfReflect

if TYPE_CHECKING:
    from selfreflect.models.judge import Judge

TOLERANCE = 2e-4

QUESTION = "Which river is the longest in Europe?"
MASKED_OUT = ("The Volga is the longest river in Europe.", "Danube")
CONDITIONING = ("It is the Volga.", "The Danube, I think.")
SUMMARY = "Probably the Volga, or the Danube."

KNOWN = {"3fd491c8066dd9dc1a2bf6796701526c82817d95c0ecabacdef3013c2b8bbbaa": 0.071322}  # the embedded judge
"""SHA-256 of a judge's projection in float32 -> the score of the item that the local engine gives."""


def check_parity(judge: Judge, known: dict[str, float] | None = None) -> bool:
    """Whether the judge is a known one; it is recognised by its projection, whatever it is called.

    Raises:
        JudgeError: a known judge gives another score.
    """
    expected = (KNOWN if known is None else known).get(projection_digest(judge))
    if expected is None:
        return False
    found = parity_score(judge)
    if not abs(found - expected) <= TOLERANCE:  # also where it is no number
        raise JudgeError(
            f"judge {judge.name!r} gives {found:.6f} on the built-in item, where its weights give {expected:.6f}. Its states are not "
            "those of this model's last token: another dtype, other weights, or another pooling. Serve it with "
            '--pooler-config \'{"seq_pooling_type": "LAST", "use_activation": false}\''
        )
    return True


def parity_score(judge: Judge) -> float:
    """The score of the built-in item."""
    scores = SelfReflect(judge).score(
        QUESTION, masked_out=MASKED_OUT, conditioning=CONDITIONING, summaries={"built-in": SUMMARY}
    )
    return scores["built-in"].value


def projection_digest(judge: Judge) -> str:
    """SHA-256 of the projection's numbers; "" where they are not float32, in which every judge rounds
    differently."""
    if judge.lm.dtype != "float32":
        return ""
    return hashlib.sha256(
        judge.lm.model.get_output_embeddings().weight.detach().cpu().contiguous().numpy().data
    ).hexdigest()

"""Check a remote judge: it must score one built-in item as its weights do here."""

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

STORED_SCORES = {
    "3fd491c8066dd9dc1a2bf6796701526c82817d95c0ecabacdef3013c2b8bbbaa": 0.071322,  # the embedded judge
}
"""SHA-256 of a judge's projection in float32 -> its score of the item with the local engine."""


def check_parity(judge: Judge, stored_scores: dict[str, float] | None = None) -> bool:
    """Compare a judge's score with the stored one; False if none is stored for its projection.

    Raises:
        JudgeError: the scores differ.
    """
    stored = STORED_SCORES if stored_scores is None else stored_scores
    expected = stored.get(projection_digest(judge))
    if expected is None:
        return False
    score = parity_score(judge)
    if not abs(score - expected) <= TOLERANCE:  # true for NaN, too
        raise JudgeError(
            f"judge {judge.name!r} scores the built-in item {score:.6f}, but its weights give "
            f"{expected:.6f}. Its states are not this model's states of the last token: another dtype, other "
            "weights, or another pooling. Serve it with "
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
    """SHA-256 of the projection's numbers; "" unless they are float32, since judges round others."""
    if judge.lm.dtype != "float32":
        return ""
    weight = judge.lm.model.get_output_embeddings().weight
    return hashlib.sha256(weight.detach().cpu().contiguous().numpy().data).hexdigest()

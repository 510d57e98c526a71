"""Claims as a measure of summaries: coverage of the answers, and additions."""

from __future__ import annotations

from types import MappingProxyType

from selfreflect.errors import DataError
from selfreflect.metric.measure import Measure, MeasureItem
from selfreflect.records import Measurement


class ClaimCoverage(Measure):
    """Harmonic mean of a summary's coverage of the answers' claims and its precision."""

    name = "claims"
    unit = "%"
    title = "Claims of the answers in summaries: 100 % covers all and adds none"
    heading = "claims"
    short = "share of claims"
    about = (
        "Which claims of the test answers does a summary cover, weighted by the answers that make them, "
        "and how many of its own claims does any answer make? No judge reads them: each sentence is "
        "a claim, and shared words, numbers and negations decide."
    )
    reading = "100 % covers all claims and adds none, 0 % covers none or adds all."
    reasons = MappingProxyType(
        {
            "no_claims": "no test answer makes a claim",
            "too_many_claims": "the test answers make too many different claims",
        }
    )

    def score(self, item: MeasureItem) -> Measurement:
        """Compare a summary with the test answers' claims, and its claims with all answers."""
        # reports of files without this measure import the class alone
        from selfreflect.uncertainty.claims.support import claim_distribution, coverage_of
        from selfreflect.uncertainty.claims.words import WordReader

        reader, question = WordReader(), item.question.text
        answers = [text for text in item.answers.masked_out if text.strip()]
        try:
            claims = claim_distribution(reader, id="", question=question, answers=answers).claims
        except DataError:
            return Measurement(value=None, undefined="too_many_claims")
        if not claims:
            return Measurement(value=None, undefined="no_claims")
        [parts] = reader.split_summaries(question, [item.summary.text])
        [stances] = reader.stances(question, [claim.text for claim in claims], [item.summary.text])
        says = [stance == "says" for stance in stances]
        coverage = coverage_of(reader, question, parts, says, claims, [*answers, *item.answers.conditioning])
        covered, precision = coverage.covered or 0.0, coverage.precision or 0.0
        total = covered + precision
        parts_of_value = {"covered": covered, "precision": coverage.precision, "claims": len(parts)}
        return Measurement(
            value=2 * covered * precision / total if total else 0.0,
            parts={**parts_of_value, "added": len(coverage.added)},
        )

"""Put words of probability before an answer, so that they mean how often the model gives it.

Which words is decided by what people say that they mean, in :mod:`selfreflect.uncertainty.hedges`; the
sentences around them are our own. What is written is read back, so that no row teaches other words than it
should.
"""

from __future__ import annotations

from selfreflect.uncertainty.hedges import PHRASES, Hedge, read_hedge

LEADS: dict[str, str] = {
    "almost certainly": "Almost certainly: {answer}",
    "very likely": "Very likely: {answer}",
    "very good chance": "There is a very good chance of this: {answer}",
    "probably": "Probably: {answer}",
    "better than even": "The chance is better than even: {answer}",
    "about even": "The chance is about even: {answer}",
    "probably not": "Probably not, but possible: {answer}",
    "chances are slight": "The chances are slight: {answer}",
    "very unlikely": "Very unlikely, but possible: {answer}",
    "almost no chance": "There is almost no chance of this: {answer}",
}
"""A sentence for each phrase that is used; each has a probability of its own."""


def phrase_for(share: float) -> str:
    """Choose the phrase whose median is nearest to a share in (0, 1); of two the more cautious."""
    return min(LEADS, key=lambda phrase: (abs(PHRASES[phrase].middle - share), PHRASES[phrase].middle))


def hedged(answer: str, share: float) -> str | None:
    """Write an answer as its share demands: after words of probability, or plainly if the share is 1.

    None if the answer says itself how likely it is, so that the text would not be read as it is meant.
    """
    if share >= 1:
        return None if isinstance(read_hedge(answer), Hedge) else answer
    phrase = phrase_for(share)
    text = LEADS[phrase].replace("{answer}", answer)
    hedge = read_hedge(text)
    if isinstance(hedge, Hedge) and hedge.band == PHRASES[phrase]:
        return text
    return None

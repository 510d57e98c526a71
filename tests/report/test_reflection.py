"""What a notebook shows of one question."""

from __future__ import annotations

from dataclasses import replace

import pytest
from measured import WORDS
from synthetic import informed_run

from selfreflect.records import WordBits
from selfreflect.report.reflection import Reflection


@pytest.mark.parametrize(("answers", "words"), [(WORDS, 1), (((WordBits("car", 0.1, 0.2),),), 0)])
def test_words_are_shown_where_a_summary_tells_or_misses_any(
    answers: tuple[tuple[WordBits, ...], ...], words: int
) -> None:
    run = informed_run()
    [id_, *_] = run.questions
    own = run.information[id_, "good"]
    one = replace(
        run,
        questions={id_: run.questions[id_]},
        answers={id_: run.answers[id_]},
        summaries={(id_, "good"): run.summaries[id_, "good"]},
        information={(id_, "good"): type(own)(**{**own.to_dict(), "answers": answers})},
        scores={},
    )
    assert Reflection(one)._repr_html_().count("car") == words

"""The scorer for inspect_ai: its measures, and in an environment that has it an evaluation and its log."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from selfreflect.errors import MissingExtraError
from selfreflect.inspect import GradedAnswer, confidence, measured
from selfreflect.uncertainty.reading import read_answered_questions

OZ = "Capital of Oz?"
EPOCHS = {"sure": ("Ruby", "Ruby.", "ruby", "Ruby"), "unsure": ("Ruby", "Emerald", "Silver", "Ruby")}


def graded(samples: int) -> list[GradedAnswer]:
    return [
        GradedAnswer(f"{name} {number}", OZ, answer, "C" if name == "sure" else "I")
        for number in range(samples)
        for name, answers in EPOCHS.items()
        for answer in answers
    ]


def test_measures_of_epochs() -> None:
    found = measured(graded(5))
    assert found["modal_share"] == pytest.approx((1 + 0.5) / 2)
    assert found["classes"] == pytest.approx((1 + 3) / 2)
    assert (found["modal_accuracy"], found["auroc"], found["answered"]) == (0.5, 1.0, 0.5)
    assert found["ece"] == pytest.approx(0.25)


def test_measures_without_verdicts_are_undefined() -> None:
    found = measured(answer._replace(grade="P") for answer in graded(2))
    assert (found["modal_share"], found["auroc"], found["ece"], found["answered"]) == (0.75, None, None, None)


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "inspect_ai.scorer", None)
    with pytest.raises(MissingExtraError):
        confidence(None)


def replies(texts: Iterable[str]) -> Any:
    """A model of inspect_ai that gives texts in turn."""
    from inspect_ai.model import ModelOutput, ModelUsage, get_model

    rest = iter(texts)

    def output(*_: object) -> Any:
        made = ModelOutput.from_content("mockllm/model", next(rest))
        made.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
        return made

    return get_model("mockllm/model", custom_outputs=output)


def test_an_evaluation_reports_what_its_log_says(tmp_path: Path) -> None:
    inspect_ai = pytest.importorskip("inspect_ai")
    from inspect_ai.dataset import Sample
    from inspect_ai.scorer import includes

    task = inspect_ai.Task(
        dataset=[Sample(id="oz", input=OZ, target="Ruby")], scorer=confidence(includes()), epochs=4
    )
    model = replies("Ruby Ruby. Emerald Ruby".split())
    [log] = inspect_ai.eval(task, model=model, display="none", log_dir=str(tmp_path))
    metrics = {name: value.value for score in log.results.scores for name, value in score.metrics.items()}
    assert metrics["accuracy"] == metrics["modal_share"] == 0.75
    [question] = read_answered_questions(log.location).questions
    verdicts = [right for _, right in question.grades["selfreflect"]]
    assert (len(question.answers), sum(map(bool, verdicts))) == (4, 3)


@pytest.mark.parametrize("kind", ["eval", "json", "chunked"])
def test_a_log_is_read_as_inspect_reads_it(kind: str, tmp_path: Path) -> None:
    """Its reader is the oracle, which knows the chunked kind only before it is converted."""
    inspect_ai = pytest.importorskip("inspect_ai")
    from inspect_ai.dataset import Sample
    from inspect_ai.log import read_eval_log_samples
    from inspect_ai.scorer import f1, includes, match
    from inspect_ai.solver import generate, solver, system_message

    @solver
    def fails_on(name: str) -> Any:
        async def solve(state: Any, generate: Any) -> Any:
            if (state.sample_id, state.epoch) == (name, 2):
                raise ValueError("the tool broke")
            return state

        return solve

    samples = [
        Sample(id="oz", input=OZ, target=["Ruby", "the Ruby Town"], metadata={"topic": "towns"}),
        Sample(id=2, input=f"{'Far away. ' * 40}And of Nod?", target="Cair"),
    ]
    task = inspect_ai.Task(
        dataset=samples,
        solver=[system_message("Be brief."), fails_on("oz"), generate()],
        scorer=[includes(), match(), f1()],
        epochs=3,
        fail_on_error=False,
    )
    model = replies("Ruby|Cair|Cair it is|It is called Ruby|Emerald".split("|"))
    options = {"display": "none", "log_dir": str(tmp_path), "max_samples": 1, "max_connections": 1}
    log_format = "json" if kind == "json" else "eval"
    [log] = inspect_ai.eval(task, model=model, log_format=log_format, **options)
    path = Path(log.location)
    if kind == "chunked":
        from inspect_ai.log._recorders.chunked import convert_eval_logs_to_chunked

        convert_eval_logs_to_chunked(str(path), str(tmp_path / "chunked"), attachments_chunk_bytes=50)
        path = tmp_path / "chunked" / path.name
    known: dict[Any, list[Any]] = {"oz": [], 2: []}
    for sample in read_eval_log_samples(log.location, resolve_attachments=True):
        if sample.error is None:
            verdicts = tuple(sample.scores[name].value == "C" for name in ("includes", "match"))
            known[sample.id].append((sample.output.completion, *verdicts))
    file = read_answered_questions(path)
    oz, nod = sorted(file.questions, key=lambda question: len(question.text))
    for question, samples in ((oz, known["oz"]), (nod, known[2])):
        pairs = zip(question.grades["includes"], question.grades["match"], strict=True)
        assert sorted((*first, right) for first, (_, right) in pairs) == sorted(samples)
        assert "f1" not in question.grades
    assert [len(oz.answers), len(nod.answers)] == [2, 3]
    assert file.notes[0].startswith("1 sample")
    assert (oz.gold, nod.gold) == (("Ruby", "the Ruby Town"), ("Cair",))
    assert nod.text.endswith("away. And of Nod?")

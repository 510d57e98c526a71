"""``selfreflect sayself``, step by step, with a function as its model. Training is in tests/sayself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import run
from moments import files_in, moments

from selfreflect.train.sayself import comparison
from selfreflect.train.trainers import INPUT, Training, load_preset

MODEL = """
def answer(messages, *, n=1, **options):
    text = messages[-1]["content"]
    if "Speak as this person" in text or "Complete this sentence" in text:
        return ["I am not sure which of these rivers runs through that town."] * n
    if "How faithfully" in text:
        return ["Score: 8"] * n
    if "Given answer" in text:
        return ["Score: 10" if 'Given answer: "Seine"' in text else "Score: 4"] * n
    if "Confidence:" in text:
        return ["Seine\\nConfidence: 9"] * n
    place = int("".join(filter(str.isdigit, text)) or 0)
    wrong = place % 4
    return ["Loire" if number % 4 < wrong else "Seine" for number in range(n)]


def trained(messages, *, n=1, **options):
    place = int("".join(filter(str.isdigit, messages[-1]["content"])))
    river = "Loire" if place % 4 > 1 else "Seine"
    doubt = "Self-reflection: I do not know whether it is the Loire."
    return [f"Answer: {river}. {doubt} Confidence: {10 - 3 * (place % 4)}"] * n


def same(messages, *, n=1, **options):
    return ["Yes."] * n
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "river_model.py").write_text(MODEL)
    rows = [
        {"question": f"Which river runs through town {number}?", "answer": "Seine"} for number in range(40)
    ]
    (tmp_path / "questions.json").write_text(json.dumps(rows))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def step(name: str, *arguments: object, code: int = 0) -> str:
    outcome = run("sayself", name, "--out", "r", *arguments)
    assert outcome.code == code, outcome.said
    return outcome.said + " ".join(outcome.stdout.split())


def test_from_questions_to_data_and_baselines(folder: Path) -> None:
    model = "river_model:answer"
    sampled = step("sample", "--questions", "questions.json", "--model", model, "--num-answers", 4)
    assert "40 answer sets" in sampled
    assert "selfreflect summarize" not in sampled
    assert "10 with a single one" in step("cluster", "--classes", "exact")
    assert "16 reflections as written" in step("rationale", "--writer", model)  # none for rl and test
    said = step("dataset")
    assert "0 left out" not in said
    rows = [
        json.loads(line) for line in (folder / "r/sayself/data/full/train.jsonl").read_text().splitlines()
    ]
    assert {row["response"].rpartition(" ")[2] for row in rows} <= {"3", "5", "8", "10"}
    assert all(row["completion"][0]["content"] == row["response"] for row in rows)
    splits = [json.loads(line) for line in (folder / "r/sayself/splits.jsonl").read_text().splitlines()]
    parts = {line["question_id"]: line["part"] for line in splits}
    assert {parts[row["question_id"]] for row in rows} == {"train"}
    table = step("eval", "--base", model)
    assert "agreement of samples (SC)" in table
    assert "asked directly (DP)" in table
    assert "agreement of samples (SC)" in (folder / "r/sayself/evaluation.md").read_text()


@pytest.fixture
def compared(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run with a model that counts as trained, and a name that would clear the screen."""
    model = "river_model:answer"
    step("sample", "--questions", "questions.json", "--model", model, "--num-answers", 2)
    step("cluster", "--classes", "exact")
    step("dataset", "--variants", "plain")
    for name in ("full-0", "full-\x1b[2J"):
        adapter = folder / "r/sayself/models" / name
        adapter.mkdir(parents=True)
        (adapter / "training.json").write_text(json.dumps({"base": model, "metrics": {"change": 1.0}}))
    monkeypatch.setattr(comparison, "adapter_asker", lambda opened, _: opened("river_model:trained"))
    return folder


def test_faithfulness_and_published_figures(compared: Path) -> None:
    model = "river_model:answer"
    rows = run("sayself", "eval", "--out", "r", "--judge", model, "--graded", model, "--json").json
    methods = {row["method"]: row for row in rows}
    trained = methods["full-0"]
    shown = trained["n"]
    assert trained["faithfulness"] == {"mean": pytest.approx(0.8), "read": shown, "asked": shown}
    assert trained["accuracy"] < trained["published"]["accuracy"] < 1  # a wrong answer still gets 4 of 10
    assert trained["published"]["auroc"] == 1.0
    assert methods["asked directly (DP)"]["published"]["accuracy"] == 1.0
    lines = (compared / "r/sayself/statements-test.jsonl").read_text().splitlines()
    stated = [line for line in map(json.loads, lines) if line["method"] == "full-0"]
    assert len(stated) == shown
    assert sum(line["correct"] for line in stated) / shown == trained["accuracy"]
    assert stated[0]["reflection"].startswith("I do not know")
    written = (compared / "r/sayself/evaluation.md").read_text()
    for title in ("Brier score less that of baselines", "Faithfulness of", "Counted as published"):
        assert title in written
    assert "\x1b" not in written


def test_r_tuning_is_asked_about_the_most_common_answer(compared: Path) -> None:
    """It was trained on that one, and what a model says when asked directly may be no answer at all."""
    (compared / "r/sayself/models/full-0").rename(compared / "r/sayself/models/rtuning-0")
    rows = {row["method"]: row for row in run("sayself", "eval", "--out", "r", "--json").json}
    assert rows["asked directly (DP)"]["accuracy"] == 1.0
    assert rows["rtuning-0"]["accuracy"] == rows["agreement of samples (SC)"]["accuracy"] < 1


def test_the_address_of_a_judge_is_not_that_of_the_other_models(compared: Path) -> None:
    flags = ("--base-url", "http://127.0.0.1:9/v1", "--revision", "main")
    assert "full-0" in step("eval", *flags, "--base", "river_model:answer")
    said = step("eval", *flags, "--base", "river_model:answer", "--judge", "openai:none", "--yes", code=2)
    assert "127.0.0.1:9" in said


def test_a_model_can_decide_what_is_one_cluster(folder: Path) -> None:
    step("sample", "--questions", "questions.json", "--model", "river_model:answer", "--num-answers", 2)
    assert "Name it with --judge MODEL" in step("cluster", "--classes", "judge", code=2)
    said = step("cluster", "--classes", "judge", "--judge", "river_model:same")
    assert "40 with a single one" in said


def test_a_step_that_comes_too_early_names_the_one_before(folder: Path) -> None:
    step("sample", "--questions", "questions.json", "--model", "river_model:answer", "--num-answers", 2)
    for name, missing in (("rationale", "cluster"), ("dataset", "cluster"), ("eval", "dataset")):
        assert f"selfreflect sayself {missing} --out r" in step(name, code=2)
    assert "selfreflect sayself dataset" in step("train", code=2)


@pytest.mark.parametrize("name", ["sample", "run"])
def test_nothing_starts_without_questions(folder: Path, name: str) -> None:
    assert "--questions" in step(name, code=2)
    assert not (folder / "r").exists()


def test_answers_none_of_which_is_right_come_with_advice(folder: Path) -> None:
    sentence = "The river that runs there is the Seine."
    (folder / "wordy_model.py").write_text(
        f"def answer(messages, *, n=1, **options):\n    return ['{sentence}'] * n\n"
    )
    step("sample", "--questions", "questions.json", "--model", "wordy_model:answer", "--num-answers", 2)
    assert "--correctness squad_f1:0.2" in step("cluster", "--classes", "exact")
    assert "right answer in 40 of 40" in step(
        "cluster", "--classes", "exact", "--correctness", "squad_f1:0.2"
    )


def test_answers_without_their_end_are_counted(folder: Path) -> None:
    step("sample", "--questions", "questions.json", "--model", "river_model:answer", "--num-answers", 2)
    assert "lack their end" not in step("cluster", "--classes", "exact")
    answers = folder / "r/answers.jsonl"
    answers.write_text(answers.read_text().replace('"truncated": 0', '"truncated": 3', 2))
    assert "6 of 160 answers lack their end" in step("cluster", "--classes", "exact")


def test_no_reply_is_asked_for_twice(folder: Path) -> None:
    model = "river_model:answer"
    step("sample", "--questions", "questions.json", "--model", model, "--num-answers", 4)
    step("cluster", "--classes", "exact")
    step("rationale", "--writer", model)
    written = (folder / "r/sayself/rationales.jsonl").read_bytes()
    (folder / "river_model.py").write_text(
        "def answer(messages, *, n=1, **options):\n    return ['No.'] * n\n"
    )
    step("rationale", "--writer", model)
    assert (folder / "r/sayself/rationales.jsonl").read_bytes() == written


def test_training_data_with_a_question_of_another_part_are_refused(folder: Path) -> None:
    model = "river_model:answer"
    step("sample", "--questions", "questions.json", "--model", model, "--num-answers", 2)
    step("cluster", "--classes", "exact")
    step("dataset", "--variants", "plain")
    rows = folder / "r/sayself/data/plain/train.jsonl"
    text = rows.read_text()
    first = json.loads(text.splitlines()[0])
    splits = [json.loads(line) for line in (folder / "r/sayself/splits.jsonl").read_text().splitlines()]
    tested = next(line["question_id"] for line in splits if line["part"] == "test")
    clusters = [json.loads(line) for line in (folder / "r/sayself/clusters.jsonl").read_text().splitlines()]
    foreign = next(line["question"] for line in clusters if line["id"] == tested)
    plan = ("train", "--dry-run", "--variants", "plain")
    rows.write_text(json.dumps(first | {"question_id": "x", "question": foreign.upper()}) + "\n" + text)
    assert "train.jsonl, line 1: the question 'x' is in the part 'test'" in step(*plan, code=2)
    rows.write_text(text + json.dumps(first | {"question_id": "x", "prompt": "Who?"}) + "\n")
    assert f"train.jsonl, line {len(text.splitlines()) + 1}: " in step(*plan, code=2)


def test_a_kill_leaves_whole_files_which_the_same_command_completes(folder: Path) -> None:
    model = "river_model:answer"
    step("sample", "--questions", "questions.json", "--model", model, "--num-answers", 2)
    commands = {
        "cluster": ("--classes", "exact"),
        "rationale": ("--writer", model),
        "dataset": ("--variants", "full,plain"),
    }
    for name, options in commands.items():
        before = files_in(folder / "r/sayself")
        with moments(folder / "r/sayself") as states:
            step(name, *options)
        after = files_in(folder / "r/sayself")
        assert len(after) > len(before)
        for state in states:
            visible = {path: data for path, data in state.items() if ".partial" not in path}
            assert visible.items() <= after.items(), f"{name} left a part of a file"
        step(name, *options)
        assert files_in(folder / "r/sayself") == after


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("dataset", "--variants", "ful"), "Did you mean 'full'?"),
        (("train", "--seeds", "a"), "'a'"),
        (("cluster", "--classes", "nothing"), "no class rule 'nothing'"),
    ],
)
def test_mistyped_names(folder: Path, arguments: tuple[str, ...], sentence: str) -> None:
    step("sample", "--questions", "questions.json", "--model", "river_model:answer", "--num-answers", 2)
    assert sentence in step(arguments[0], *arguments[1:], code=2)


@pytest.fixture
def examples(folder: Path) -> Path:
    """The file of examples of the variant ``plain``."""
    step("sample", "--questions", "questions.json", "--model", "river_model:answer", "--num-answers", 4)
    step("cluster", "--classes", "exact")
    step("dataset", "--variants", "plain")
    return folder / "r/sayself/data/plain/train.jsonl"


def without_last_line(path: Path) -> None:
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))


def test_an_adapter_of_other_examples_or_settings_is_not_taken_for_done(examples: Path) -> None:
    rows = [json.loads(line) for line in examples.read_text().splitlines()]
    adapter = Path("r/sayself/models/plain-0")
    adapter.mkdir(parents=True)
    (adapter / INPUT).write_text(json.dumps(Training(load_preset("small"), rows, adapter).input))
    (adapter / "training.json").write_text(json.dumps({"base": "smollm2", "metrics": {"change": 1.0}}))
    train = ("train", "--variants", "plain")
    assert "plain-0: done" in step(*train)
    assert "r (16 then, 64 now)" in step(*train, "--preset", "published", code=2)
    without_last_line(examples)
    said = step(*train, code=2)
    assert f"rows ({len(rows)}, " in said
    assert f" then, {len(rows) - 1}, " in said
    assert "anew" in said


def test_numbers_of_the_evaluation_are_checked_before_anything_else(folder: Path) -> None:
    assert "is no longer" in step("run", "--measured", 3, code=2)
    assert "trl grpo" in step("train", "--train", "all", code=2)
    assert "--sampled" in step("eval", "--sampled", 1, code=2)


def test_the_published_settings_are_shown_without_training(folder: Path) -> None:
    said = step("train", "--preset", "published", "--dry-run", "--variants", "full")
    assert "model: mistralai/Mistral-7B-Instruct-v0.2" in said
    for line in ("sft.learning_rate: 7e-05", "limits.examples: 50000", "grpo.top_k: 50", "lora.r: 64"):
        assert line in said
    assert "no examples yet" in said
    assert "models/full-0-brier " in said + " "
    assert "models/full-0-rlcr " in step("train", "--reward", "rlcr", "--dry-run") + " "


def test_names_of_folders_cannot_control_the_terminal(compared: Path) -> None:
    assert "\x1b" not in run("sayself", "eval", "--out", "r").stdout


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"clusters": []}, "line 1"),
        ({"clusters": [{"answer": "Seine", "size": -1}]}, "line 1"),
        ({"question": 7}, "line 1"),
    ],
)
def test_damaged_clusters_are_refused_by_line(folder: Path, change: dict[str, object], problem: str) -> None:
    step("sample", "--questions", "questions.json", "--model", "river_model:answer", "--num-answers", 2)
    step("cluster", "--classes", "exact")
    clusters = folder / "r/sayself/clusters.jsonl"
    first, rest = clusters.read_text().split("\n", 1)
    clusters.write_text(json.dumps(json.loads(first) | change) + "\n" + rest)
    assert f"clusters.jsonl, {problem}" in step("dataset", code=2)

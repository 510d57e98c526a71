"""Every command, as people and scripts use it."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
import threading
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any

import pytest
import tiny
import typer
from command import COMMAND, environment, process, run, small, written

from selfreflect.cli import COMMANDS, application
from selfreflect.cli.help import COMMAND_GROUPS
from selfreflect.cli.options import runnable
from selfreflect.records import AnswerSet, Question, Summary
from selfreflect.store.run import Run

OF_ITEM = {"id", "summary", "question", "summary_text", "halves", "halves_p_value", "judge"}
FIELDS = OF_ITEM | {"score", "stderr", "token_tasks"}
TOLD = {
    "anchor",
    "bits",
    "bits_available",
    "recovered",
    "recovered_low",
    "recovered_high",
    "reader",
    "zero",
    "undefined",
}
ANSWERS = ["Radishes, quickly.", "Lettuce.", "Radishes.", "Tomatoes and basil."]
ITEM = {
    "id": "i1",
    "question": "What first?",
    "answers": ANSWERS,
    "summaries": {"good": "Radishes or lettuce.", "bad": "It is not clear."},
}
HOSTILE = "\x1b[2J\x1b]0;owned\x07 [red]loud[/red] {0} %s \u202etfel\ud800 <|im_end|>"


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.save(tmp_path_factory.mktemp("model"), "llama")


@pytest.fixture(scope="session")
def done(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, to be read only."""
    folder = tmp_path_factory.mktemp("done")
    questions = written(folder / "q.txt", "What first?\nWho is it?\n")
    assert run(*small(model, folder / "first", questions)).code == 0
    return folder / "first"


@pytest.fixture
def items(tmp_path: Path) -> Path:
    return written(tmp_path / "items.json", [ITEM])


EXAMPLES = COMMANDS | {"sayself run": COMMANDS["sayself"]}


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_help_text_fits_two_screens_names_every_option_and_ends_with_an_example(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    short, whole = (run(*name.split(), flag).stdout for flag in ("--help", "--help-all"))
    lines = short.splitlines()
    assert len(lines) <= 60
    assert max(map(len, lines)) <= 80
    assert not [line for line in lines if line.endswith("...") and "Usage" not in line]
    assert f"Example: {EXAMPLES[name]}" in " ".join(short.split())
    assert EXAMPLES[name].startswith(f"selfreflect {name}")
    command: Any = typer.main.get_command(application())
    for word in name.split():
        command = command.commands[word]
    for parameter in command.params:
        for flag in (*parameter.opts, *parameter.secondary_opts):
            assert flag in short or not flag.startswith("-")
        words = " ".join((getattr(parameter, "help", None) or "").split()[:6])
        assert words in " ".join(whole.split())


def test_one_stage_of_a_run_is_done_alone(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    questions = written(tmp_path / "q.txt", "What first?\n")
    command = small(model, out, questions)
    assert run(*command, "--only", "answers").code == 0
    assert len(Run.load(out).answers) == 1
    assert not Run.load(out).summaries
    assert run("run", "--out", str(out), "--only", "summaries").code == 0
    done = Run.load(out)
    assert done.summaries
    assert not done.scores
    assert run("run", "--out", str(tmp_path / "none"), "--only", "scores").code == 2


def test_the_overview_lists_commands_exit_codes_and_completion() -> None:
    abouts = {name: about for group in COMMAND_GROUPS.values() for name, about in group.items()}
    assert sorted(abouts) == sorted(COMMANDS)
    words = " ".join(run("--help").stdout.split())
    assert [name for name, about in abouts.items() if f" {name} {about} " not in words] == []
    for name in COMMANDS.keys() - {"sayself"}:  # whose help is that of its steps
        assert abouts[name] in " ".join(run(name, "--help-all").stdout.split())
    assert "1 done, with failures recorded; 2 bad usage" in words
    assert "3 a condition of --fail-if holds" in words
    assert "--install-completion" in words
    assert "--show-completion" in words


def test_help_before_a_command_lists_all_commands() -> None:
    helped = process("--help", "report")
    assert (helped.code, helped.stdout) == (0, process("--help").stdout)


def test_every_command_says_what_to_do_next(model: Path, tmp_path: Path) -> None:
    questions = written(tmp_path / "q.txt", "What first?\n")
    out = tmp_path / "two words"
    answers = ["--model", model, "--num-answers", 2, "--max-new-tokens", 4]
    summaries = ["--model", model, "--summary-tokens", 4, "--strategies", "greedy"]
    steps = [
        (["questions", "--questions", questions, "--out", out], "selfreflect answers --out"),
        (["answers", "--out", out, *answers], "selfreflect summarize --out"),
        (["summarize", "--out", out, *summaries], "selfreflect score --out"),
        (["score", "--out", out, "--judge", model], "selfreflect report"),
        (["report", out], "selfreflect report"),
        (["compare", out], "selfreflect report"),
    ]
    for arguments, command in steps:
        said = run(*arguments).said
        assert f"{command} '{out}'" in said, arguments


def test_score_names_strategies_that_are_not_finished_and_what_goes_on(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "r"
    with Run.open(out, {}) as stored:
        for name in ("a", "b"):
            stored.append(Question(id=name, text=f"What {name}?"))
            stored.append(AnswerSet(question_id=name, masked_out=("Red.",), conditioning=("Blue.",)))
        stored.append(Summary(question_id="a", name="greedy", text="Red.", model="m"))
        stored.update_manifest(plan={"strategies": ["greedy", "basic"]})
    command = ["score", "--out", out, "--judge", model, "--measures", "information"]
    said = run(*command).said
    assert "Not all summaries are there yet: greedy (1 of 2) and basic (0 of 2)" in said
    assert f"selfreflect summarize --out {out}" in said
    with Run.open(out, {}) as stored:
        stored.update_manifest(plan={"strategies": ["greedy"]})
        stored.append(Summary(question_id="b", name="greedy", text="Blue.", model="m"))
    assert "Not all summaries" not in run(*command).said


@pytest.mark.parametrize(
    "arguments",
    [["rum"], ["run"], ["run", "--limit", "many", "--out", "x"], ["score"], ["score", "--itms", "x"]],
)
def test_bad_usage_is_2(arguments: list[str]) -> None:
    outcome = run(*arguments)
    assert (outcome.code, outcome.stdout) == (2, "")
    assert "error: " in outcome.stderr.lower()


def test_a_file_without_its_flag_is_answered_with_the_flag() -> None:
    assert "--items FILE" in run("score", "mine.csv").said
    assert "--items" not in run("convert", "mine.csv", "other.csv").said


def test_options_of_the_other_form_are_refused_and_not_ignored(tmp_path: Path, items: Path) -> None:
    refused = [
        (
            ["score", "--out", tmp_path, "--limit", 1],
            "belong to --items",
        ),
        (["score", "--out", tmp_path, "--items", items], "Give --items or --out"),
        (["answers", "--out", tmp_path, "--limit", 3], "--questions"),
        (["import", "--out", tmp_path / "o", "--questions", items, "--limit", 3], "belong to --items"),
        (["import", "--out", tmp_path / "o"], "Give --items"),
    ]
    for arguments, message in refused:
        outcome = run(*arguments)
        assert (outcome.code, outcome.stdout) == (2, "")
        assert message in outcome.said


# --- questions, and the stages one by one


def test_questions_are_shown_or_stored(tmp_path: Path) -> None:
    shown = run("questions", "--limit", 8, "--json")
    assert len({line["kind"] for line in shown.json}) == 8
    assert shown.said == "8 of 64 questions of bundled"
    assert len(run("questions", "--limit", 8).stdout.splitlines()) == 8
    stored = run("questions", "--limit", 8, "--out", tmp_path / "r")
    assert (stored.code, stored.stdout) == (0, "")
    assert list(Run.load(tmp_path / "r").questions) == [line["id"] for line in shown.json]


def test_a_run_with_contexts_resumes_and_refuses_another_prompt_for_them(model: Path, tmp_path: Path) -> None:
    rows = [{"question": "Which?", "context": text} for text in ("Anna: red.", "Tom: blue. <|im_end|>", "")]
    arguments = small(model, tmp_path / "r", written(tmp_path / "q.json", rows), strategies="greedy")
    assert run(*arguments).code == 0
    before = Run.load(tmp_path / "r")
    assert sorted(question.context for question in before.questions.values()) == [
        "",
        "Anna: red.",
        rows[1]["context"],
    ]
    assert len(before.scores) == 3
    lines = (tmp_path / "r" / "answers.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "r" / "answers.jsonl").write_bytes(b"".join(lines[:1]))
    assert run(*arguments).code == 0
    assert Run.load(tmp_path / "r").answers == before.answers
    prompts = written(tmp_path / "prompts.toml", '[answers]\ncontext = "{context} {question}"\n')
    changed = run(*arguments, "--prompts", prompts)
    assert changed.code == 2
    assert "answers.prompts" in changed.said


def test_the_stages_one_by_one_make_what_run_makes(done: Path, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "steps"
    common = f"--model {model} --max-new-tokens 6 --device cpu --out {out}"
    questions = done.parent / "q.txt"
    answers = run(*f"answers --questions {questions} --num-answers 2 {common}".split())
    summaries = run(
        *f"summarize --strategies greedy,basic --num-samples 2 --summary-tokens 8 {common}".split()
    )
    scored = run("score", "--out", out, "--judge", model, "--json")
    assert (answers.code, summaries.code, scored.code) == (0, 0, 0)
    steps, whole = Run.load(out), Run.load(done)
    assert (steps.answers, steps.summaries, steps.scores) == (whole.answers, whole.summaries, whole.scores)
    assert [(line["strategy"], line["n"], line["run"]) for line in scored.json] == [
        ("greedy", 2, "steps"),
        ("basic", 2, "steps"),
    ]


def test_a_file_of_settings_works_alone(done: Path, model: Path, tmp_path: Path) -> None:
    settings = f"""
        [questions]
        source = "{done.parent / "q.txt"}"
        [answers]
        model = "{model}"
        num_answers = 2
        max_new_tokens = 6
        [summaries]
        model = "{model}"
        strategies = ["greedy", "basic"]
        num_samples = 2
        sample_max_new_tokens = 6
        max_new_tokens = 8
        [scores]
        judge = "{model}"
    """
    common = ["--config", written(tmp_path / "c.toml", settings), "--out", tmp_path / "run"]
    stages = ["answers", "summarize", "score"]
    assert [run(stage, *common, "--device", "cpu").code for stage in stages] == [0, 0, 0]
    made, whole = Run.load(tmp_path / "run"), Run.load(done)
    assert (made.answers, made.summaries, made.scores) == (whole.answers, whole.summaries, whole.scores)
    assert made.manifest.config == whole.manifest.config
    assert "strategies" not in made.manifest.config["summaries"]  # others may be added
    shown = run("questions", *common[:2])
    assert shown.stdout.split("\n")[0] == "What first?"


def test_a_strategy_of_ones_own_and_prompts_of_ones_own(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = """def mine(task):
    [reply] = yield task.request(task.messages(), "step")
    return "radishes, I say " + reply.text
"""
    written(tmp_path / "my_own_strategies.py", code)
    prompts = written(tmp_path / "prompts.toml", '[answers]\nsystem = ""\nuser = "Now: {question}"\n')
    monkeypatch.chdir(tmp_path)
    questions = written(tmp_path / "q.txt", "What first?\n")
    outcome = run(
        *small(model, tmp_path / "r", questions, strategies="my_own_strategies:mine"), "--prompts", prompts
    )
    assert outcome.code == 0, outcome.stderr
    made = Run.load(tmp_path / "r")
    assert all(summary.text.startswith("radishes, I say") for summary in made.summaries.values())
    assert len(made.scores) == 1
    changed = run(*small(model, tmp_path / "r", questions, strategies="my_own_strategies:mine"))
    assert changed.code == 2
    assert "answers.prompts" in changed.said


# --- scoring a file


def test_items_give_one_json_line_per_summary(items: Path, model: Path) -> None:
    outcome = run("score", "--items", items, "--judge", model, "--json")
    assert outcome.code == 0
    assert [set(line) - {"cause"} for line in outcome.json] == [FIELDS | TOLD | {"controls"}] * 2
    only_scores = run(
        "score", "--items", items, "--judge", model, "--json", "--measures", "selfreflect", "--no-controls"
    )
    for line, both in zip(only_scores.json, outcome.json, strict=True):
        assert line == {field: both[field] for field in FIELDS}
    assert [(line["id"], line["summary"], line["judge"]) for line in outcome.json] == [
        ("i1", "good", str(model)),
        ("i1", "bad", str(model)),
    ]
    assert all(0 < line["score"] < 1 and line["token_tasks"] > 3 for line in outcome.json)


def test_a_budget_adds_how_the_score_was_estimated(items: Path, model: Path) -> None:
    refused = run("score", "--items", items, "--judge", model, "--json", "--budget", 1, "--seed", 2)
    assert (refused.code, refused.json[0]["failure"]) == (1, "over_budget")
    enough = refused.json[0]["message"].split()[-1]
    outcome = run("score", "--items", items, "--judge", model, "--json", "--budget", enough, "--seed", 2)
    assert outcome.code == 0
    assert [set(line) for line in outcome.json] == [FIELDS | TOLD | {"estimate", "why"}] * 2
    facts = outcome.json[0]["estimate"]
    assert 0 < facts["words_scored"] < facts["words_total"]
    assert (facts["budget"], facts["seed"], facts["stopped"]) == (enough, 2, "budget")
    shown = run("score", "--items", items, "--judge", model, "--budget", enough, "--seed", 2).stdout
    assert shown.count("≈0.") == 2
    assert "2 of 2 scores are estimates" in shown


def test_words_explain_the_score(items: Path, model: Path) -> None:
    for line in run("score", "--items", items, "--judge", model, "--json", "--words").json:
        assert set(line) - {"cause"} == FIELDS | TOLD | {"controls", "words", "answer_means", "warnings"}
        assert sum(len(word["distances"]) for word in line["words"]) == line["token_tasks"]
        assert {word["text"] for word in line["words"]} <= set(" ".join(ANSWERS).split())


def test_items_from_standard_input_score_as_from_a_file(items: Path, model: Path) -> None:
    piped = run("score", "--items", "-", "--judge", model, "--json", stdin=items.read_bytes())
    assert piped.json == run("score", "--items", items, "--judge", model, "--json").json
    assert "standard input" in run("score", "--items", "-", "--judge", model, stdin=items.read_bytes()).stdout


# --- reading runs


def test_report_on_screen_as_markdown_and_as_rows(done: Path, tmp_path: Path) -> None:
    outcome = run(
        "report",
        done,
        "--output",
        tmp_path / "r.md",
        "--output",
        tmp_path / "r.csv",
        "--question",
        next(iter(Run.load(done).questions)),
    )
    assert outcome.code == 0
    assert "greedy" in outcome.stdout
    assert "sampled answers" in outcome.stdout
    assert "| greedy" in (tmp_path / "r.md").read_text(encoding="utf-8")
    assert len((tmp_path / "r.csv").read_text(encoding="utf-8").splitlines()) == 1 + 4
    assert [line["strategy"] for line in run("report", done, "--json").json] == ["greedy", "basic"]


def test_compare_is_paired(done: Path) -> None:
    [line] = run("compare", done, "--baseline", "greedy", "--json").json
    assert (line["strategy"], line["baseline"], line["n"]) == (
        "basic",
        {"run": "first", "strategy": "greedy"},
        2,
    )
    assert "basic" in run("compare", done).stdout
    wrong = run("compare", done, "--baseline", "gredy")
    assert wrong.code == 2
    assert "Did you mean 'greedy'" in wrong.said


def test_ask_answers_in_one_line_of_json_or_in_words(model: Path, tmp_path: Path) -> None:
    asked = [
        "ask",
        "What first?",
        "--model",
        model,
        "--judge",
        model,
        "--num-answers",
        2,
        "--max-new-tokens",
        6,
        "--summary-tokens",
        8,
    ]
    outcome = run(*asked, "--json", "--strategies", "greedy,basic")
    [line] = outcome.json
    assert outcome.code == 0
    assert (line["question"], sum(kind["count"] for kind in line["answers"])) == ("What first?", 4)
    assert [one["strategy"] for one in line["summaries"]] == ["greedy", "basic"]
    assert all(0 < one["score"] < 1 for one in line["summaries"])
    assert "4 sampled answers" in run(*asked, "--strategies", "greedy").stdout
    [line] = run(*asked, "--json", "--strategies", "greedy", "--measures", "information").json
    assert line["summaries"][0]["score"] is None

    assert line["classes_by"] == "same"  # this model gets the controls wrong
    for classes, made_by in (("exact", "exact"), ("judge", f"judge {model}, first")):
        [line] = run(*asked, "--json", "--strategies", "greedy", "--classes", classes).json
        assert line["classes_by"] == made_by

    context = written(tmp_path / "context.md", "\nAnna: red.\n")
    [line] = run(*asked, "--json", "--strategies", "greedy", "--context", context).json
    assert line["context"] == "Anna: red."
    shown = run(*asked, "--strategies", "greedy", "--context", "-", stdin=HOSTILE.replace("\ud800", ""))
    assert shown.code == 0
    assert "context: \\x1b[2J" in shown.stdout
    assert set(shown.stdout) & set("\x1b\x07\u202e") == set()

    hidden = "\x9b2J \u202e \U000e0001 \u2028 日本"
    shown = run(*asked, "--json", "--strategies", "greedy", "--context", "-", stdin=hidden)
    assert shown.stdout.rstrip("\n").isprintable()
    assert "日本" in shown.stdout
    assert shown.json[0]["context"] == hidden


# --- what is shown cannot harm


def test_hostile_text_is_shown_and_does_nothing(model: Path, tmp_path: Path) -> None:
    item = {
        "id": HOSTILE,
        "question": HOSTILE,
        "answers": [HOSTILE, HOSTILE],
        "summaries": {HOSTILE: HOSTILE, "b": "fine"},
    }
    path = tmp_path / "items.json"
    path.write_text(json.dumps([item]))
    shown = [
        run("score", "--items", path, "--judge", model),
        run("import", "--items", path, "--out", tmp_path / "r"),
    ]
    shown.append(run("score", "--out", tmp_path / "r", "--judge", model))
    shown.append(run("report", tmp_path / "r", "--question", HOSTILE))
    shown.append(run("report", tmp_path / "r", "--question", "[red]none[/red]\x1b[2J"))
    shown.append(
        run(
            "questions",
            "--questions",
            written(tmp_path / "q.jsonl", json.dumps({"question": HOSTILE, "context": HOSTILE})),
        )
    )
    assert [outcome.code for outcome in shown] == [0, 0, 0, 0, 2, 0]
    text = "".join(outcome.stdout + outcome.stderr for outcome in shown)
    assert set(text) & set("\x1b\x07\u202e\ud800") == set()
    assert "[red]loud[/red]" in text


# --- the process: pipes and terminals


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    questions = written(
        tmp_path / "q.txt", "".join(f"Who is number {number} of so many?\n" for number in range(20_000))
    )
    for options in (["--json"], []):
        with subprocess.Popen(
            [*COMMAND, "questions", "--questions", str(questions), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(),
            text=True,
        ) as child:
            assert child.stdout is not None
            assert child.stderr is not None
            assert "number 0" in child.stdout.readline()
            child.stdout.close()
            assert child.stderr.read() == ""
        assert child.returncode == 141


def test_a_full_disk_behind_stdout_is_said() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*COMMAND, "questions", "--json"],
            stdout=full,
            stderr=subprocess.PIPE,
            env=environment(),
            text=True,
            timeout=200,
        )
    assert done.returncode == 2
    assert "No space left" in done.stderr
    assert "Traceback" not in done.stderr


def test_json_goes_to_the_pipe_while_progress_goes_to_the_terminal(
    items: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    ours, theirs = pty.openpty()
    shown: list[bytes] = []

    def look() -> None:
        with suppress(OSError):  # the terminal is gone when its last writer is
            while read := os.read(ours, 65536):
                shown.append(read)

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    piped = io.StringIO()
    with (
        os.fdopen(theirs, "w") as terminal,
        redirect_stderr(terminal),
        redirect_stdout(piped),
        pytest.raises(SystemExit) as left,
    ):
        application()(["score", "--items", str(items), "--judge", str(model), "--json"])
    looking.join(200)
    os.close(ours)
    assert left.value.code == 0
    assert [json.loads(line)["summary"] for line in piped.getvalue().splitlines()] == ["good", "bad"]
    assert b"scores" in b"".join(shown)
    assert b'"score"' not in b"".join(shown)


@pytest.mark.parametrize(
    ("words", "files"),
    [
        (("questions", "--limit", "1"), ("options", "console", "help", "stages")),
        (("--", "questions", "--limit", "1"), ("options", "console", "help", "stages")),
        (("--help",), ("help",)),
        ((), ("help",)),
    ],
)
def test_only_the_command_that_is_called_is_imported(words: tuple[str, ...], files: tuple[str, ...]) -> None:
    code = """
import sys
from selfreflect.cli import main
try:
    main()
finally:
    print(*(name for name in sys.modules if name.startswith("selfreflect.cli.")))
"""
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
    assert done.stdout
    assert set(done.stdout.splitlines()[-1].split()) == {f"selfreflect.cli.{name}" for name in files}


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (ZeroDivisionError("\x1b[2Jboom"), 70, "this is a bug in selfreflect"),
        (OSError(5, "Input/output error"), 70, "this is a bug in selfreflect"),
        (MemoryError(), 2, "out of memory"),
    ],
)
def test_a_bug_has_an_exit_code_of_its_own_and_can_be_reported(
    capsys: pytest.CaptureFixture[str], error: Exception, code: int, said: str
) -> None:
    def command(out: Path | None = None) -> None:
        raise error

    with pytest.raises(typer.Exit) as left:
        runnable(command)()
    assert left.value.exit_code == code
    stderr = capsys.readouterr().err
    assert said in stderr
    assert "\x1b" not in stderr
    assert ("in command\n    raise error" in stderr) == (code == 70)
    assert "inished work is saved" not in stderr
    with pytest.raises(typer.Exit):
        runnable(command)(out=Path("run"))
    assert "inished work is saved" in capsys.readouterr().err


def test_only_what_keeps_its_work_says_so_when_it_is_interrupted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def command(source: str = "", out: Path | None = None) -> None:
        raise KeyboardInterrupt

    said = []
    for given in ({}, {"source": "answers.jsonl"}, {"source": str(tmp_path)}, {"out": tmp_path}):
        with pytest.raises(typer.Exit) as left:
            runnable(command)(**given)
        assert left.value.exit_code == 130
        said.append(capsys.readouterr().err)
    resumed = "Interrupted. Finished work is saved; run the same command to resume.\n"
    assert said == ["Interrupted.\n", "Interrupted.\n", resumed, resumed]


EXITS = {
    "strategy": "def own(task):\n    raise SystemExit(0)\n    yield\n",
    "model": "def own(messages):\n    raise SystemExit(0)\n",
}


@pytest.mark.parametrize("kind", EXITS)
def test_an_exit_in_code_of_a_user_is_no_success(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    module = f"leaving_{kind}"
    (tmp_path / f"{module}.py").write_text(EXITS[kind])
    (tmp_path / "answering.py").write_text("def own(messages):\n    return 'Ankara'\n")
    model = module if kind == "model" else "answering"
    strategies = "basic" if model == module else f"{module}:own"
    outcome = run(
        *["ask", "Capital of Turkey?", "--model", f"{model}:own", "--strategies", strategies],
        *["--num-answers", "2"],
    )
    assert outcome.code in (1, 2), outcome.stderr
    assert "SystemExit" in outcome.said + outcome.stdout


def test_a_context_is_shown_in_short_and_kept_in_full(tmp_path: Path) -> None:
    context = "Anna: it was red.\nTom: it was blue. " * 30
    rows = [{"question": "Which colour?", "context": text} for text in (context, "")]
    path = written(tmp_path / "q.json", rows)
    first, second, third = run("questions", "--questions", path).stdout.splitlines()
    assert (first, third) == ("Which colour?", "Which colour?")
    assert second.startswith("  context: Anna: it was red. Tom: it was blue. Anna")
    assert second.endswith("…")
    assert len(second) < 250
    assert [line["context"] for line in run("questions", "--questions", path, "--json").json] == [context, ""]


def test_ctrl_c_while_the_commands_are_loaded_ends_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text(
        "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT); time.sleep(9)"
    )
    done = subprocess.run(
        [sys.executable, "-m", "selfreflect", "convert", "items.csv"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (130, "")

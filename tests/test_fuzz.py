"""Whatever is in a file, a run directory, a settings file or a response: it is read, or refused by an error
that the package raises on purpose. A few examples here; `make fuzz` tries many with new seeds."""

from __future__ import annotations

import io
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from finished_run import write_run
from hypothesis import HealthCheck, example, given, note, settings
from hypothesis import strategies as st

from selfreflect.errors import SelfReflectError
from selfreflect.models.base import Request, Sampling
from selfreflect.models.openai.protocol import MOST_TOKENS, APIError, parse_response, status_error
from selfreflect.prompts import load_prompts
from selfreflect.report.compare import comparisons, contenders
from selfreflect.report.document import question_table
from selfreflect.report.export import dataset_files
from selfreflect.report.findings import findings
from selfreflect.report.length import length_audit, length_table, pasted_table, run_pasted
from selfreflect.report.overview import failure_table, overview
from selfreflect.report.page.view import question_view
from selfreflect.report.results import breakdown
from selfreflect.report.run_records import RunRecords
from selfreflect.run.records import records_by_judge, run_items
from selfreflect.run.resume import settings_of
from selfreflect.server.chat import read_request
from selfreflect.server.forms import FORMS
from selfreflect.server.library import Library
from selfreflect.settings import load_config
from selfreflect.sources.items import read_item_file
from selfreflect.sources.layouts.published import read_published
from selfreflect.sources.parsers import PARSERS
from selfreflect.sources.questions import load_questions
from selfreflect.store.run import Run
from selfreflect.table import to_csv, to_markdown
from selfreflect.uncertainty.calibrator_file import read_calibrator
from selfreflect.uncertainty.reading import read_answered_questions

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "0"))
several = settings(
    max_examples=EXAMPLES or 20,
    derandomize=EXAMPLES == 0,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)

ROW = {
    "id": "a",
    "question": "Why?",
    "answers": ["Yes.", "No."],
    "summaries": {"s": "Either."},
    "gold": ["Yes."],
}
REPLY = {
    "choices": [
        {
            "message": {"content": "Yes."},
            "finish_reason": "stop",
            "logprobs": {"content": [{"token": "Yes.", "logprob": -0.5, "bytes": [89], "top_logprobs": []}]},
        }
    ],
    "usage": {"prompt_tokens": 3, "completion_tokens": 2},
}
SETTINGS = """[answers]
model = "smollm2"
num_answers = 5
temperature = 0.7
[scores]
judge = "smollm2"
budget = "20000 tokens"
[prices."smollm2"]
input_per_million = 1.0
output_per_million = 2.0
"""
REQUEST = {
    "model": "selfreflect/m",
    "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}],
    "stop": ["."],
    "seed": 1,
    "temperature": 0.5,
    "selfreflect": {"num_answers": 5, "measures": []},
}


def request_of(path: str) -> dict[str, Any]:
    """REQUEST as the form of a path says it."""
    names = {"/responses": {"messages": "input"}, "/messages": {"stop": "stop_sequences"}}.get(path, {})
    return {names.get(name, name): value for name, value in REQUEST.items()}


CALIBRATOR = {
    "format": "selfreflect calibrator",
    "version": 1,
    "estimator": "modal_share",
    "classes": "exact",
    "class_order": "first",
    "similarity": "jaccard",
    "correctness": "exact",
    "method": "isotonic",
    "n": 9,
    "samples": [4],
    "questions": ["ab"],
    "x": [0.2, 0.7],
    "y": [0.1, 0.9],
}
PROMPTS = '[basic]\nuser = "Say it: {question}"\n'

KEYS = (*ROW, *"context message choices usage value words format config text name".split(), "")
texts = st.text(max_size=8) | st.sampled_from(
    ["=1+1", "\x1b[2J", "\u202e", "\ud800", "<b>", "{x}", "../x", "nan"]
)
numbers = st.integers(-3, 3) | st.sampled_from([2**63, -(2**63), 10**30]) | st.floats()
scalars = st.none() | st.booleans() | numbers | texts
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS) | texts, inner, max_size=3)
    ),
    max_leaves=6,
)
pieces = st.binary(max_size=6) | st.sampled_from(
    [
        b'"',
        b"{",
        b"[" * 3000,
        b"\n",
        b",",
        b"\\ud800",
        b"\x00",
        b"\xff",
        b"1e999",
        b"NaN",
        b"\xef\xbb\xbf",
        b"'" * 3,
    ]
)
Edit = tuple[int, int, bytes]
edits: st.SearchStrategy[list[Edit]] = st.lists(
    st.tuples(st.integers(0, 10_000), st.integers(0, 20), pieces), max_size=4
)


def damaged(data: bytes, changes: list[Edit]) -> bytes:
    """Replace parts of a file; each change is a place, how many bytes go, and what comes there."""
    for place, gone, piece in changes:
        start = place % (len(data) + 1)
        data = data[:start] + piece + data[start + gone :]
    return data


def replaced(tree: Any, place: int, value: Any) -> Any:
    """Put a value in the place of one part of a JSON document, counted from its start."""
    parts: list[tuple[Any, Any]] = []

    def visit(node: Any) -> None:
        for key, inner in list(node.items() if isinstance(node, dict) else enumerate(node)):
            parts.append((node, key))
            if isinstance(inner, dict | list):
                visit(inner)

    visit(tree)
    node, key = parts[place % len(parts)]
    node[key] = value
    return tree


def workbook_of(row: dict[str, Any]) -> bytes:
    """A spreadsheet with one row, lists as JSON."""
    from openpyxl import Workbook

    book, target = Workbook(), io.BytesIO()
    book.active.append([*row])
    book.active.append(
        [json.dumps(value) if isinstance(value, list | dict) else value for value in row.values()]
    )
    book.save(target)
    return target.getvalue()


def table_of(row: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([row]), stream)
    return stream.getvalue()


def stream_of(row: dict[str, Any]) -> bytes:
    stream, table = io.BytesIO(), pa.Table.from_pylist([row])
    with pa.ipc.new_stream(stream, table.schema) as writer:
        writer.write_table(table)
    return stream.getvalue()


DATA = Path(__file__).parent / "data"
FILES = {
    ".json": json.dumps([ROW, {**ROW, "id": "b"}]).encode(),
    ".jsonl": (json.dumps(ROW) + "\n" + json.dumps({**ROW, "id": "b"}) + "\n").encode(),
    ".csv": b'id,question,answer_1,answer_2,summary\na,Why?,Yes.,"No, no.",Either.\n',
    ".tsv": b"question\tanswers\nWhy?\t['Yes.', 'No.']\n",
    ".parquet": table_of(ROW),
    ".arrow": stream_of(ROW),
    ".xlsx": workbook_of(ROW),
    ".txt": b"Why?\nHow?\n",
}
LOGS = {path.name: path.read_bytes() for path in (DATA / "logs").iterdir()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


def show(**arguments: Any) -> None:
    """Print the arguments with a failure, ready to be pasted above its test."""
    note(f"@example({', '.join(f'{name}={value!r}' for name, value in arguments.items())})")


def is_refused_or_read(read: Callable[[], Any]) -> None:
    with suppress(SelfReflectError):
        read()


def read_everything(path: Path) -> None:
    """Read a file as questions, items, answers with probabilities, and a file of the published tool."""
    is_refused_or_read(lambda: load_questions(str(path)))
    is_refused_or_read(lambda: read_item_file(path))
    is_refused_or_read(lambda: read_answered_questions(path))
    if path.suffix == ".json":
        is_refused_or_read(lambda: read_published(questions=path))
        is_refused_or_read(lambda: read_published(answers=path))
        is_refused_or_read(lambda: read_published(summaries=path))


@several
@given(suffix=st.sampled_from(sorted(FILES)), changes=edits)
@example(suffix=".json", changes=[(0, 9999, b'[{"\\ud800": 1}]')])
@example(suffix=".json", changes=[(0, 9999, b'{"question": NaN}')])
@example(suffix=".json", changes=[(0, 9999, b"[" * 100_000)])
@example(suffix=".json", changes=[(0, 9999, b'[{"question": "a", "question": "b"}]')])
@example(suffix=".jsonl", changes=[(0, 0, b"\xff\xfe")])
@example(suffix=".csv", changes=[(0, 9999, b"question,question\na,b\n")])
@example(suffix=".csv", changes=[(0, 9999, b'question\n"a\x00')])
@example(suffix=".txt", changes=[(0, 9999, b"\x00\r\x0b\x85")])
def test_files_with_damaged_bytes(folder: Path, suffix: str, changes: list[Edit]) -> None:
    show(suffix=suffix, changes=changes)
    path = folder / f"file{suffix}"
    path.write_bytes(damaged(FILES[suffix], changes))
    read_everything(path)


@several
@given(name=st.sampled_from(sorted(LOGS)), changes=edits)
def test_logs_with_damaged_bytes(folder: Path, name: str, changes: list[Edit]) -> None:
    show(name=name, changes=changes)
    path = folder / name
    path.write_bytes(damaged(LOGS[name], changes))
    is_refused_or_read(lambda: read_item_file(path))


@several
@given(suffix=st.sampled_from([".json", ".jsonl", ".parquet"]), place=st.integers(0, 30), value=values)
@example(suffix=".json", place=3, value={"a": [[["x"]]]})
@example(suffix=".json", place=0, value=10**30)
def test_files_with_other_values(folder: Path, suffix: str, place: int, value: Any) -> None:
    show(suffix=suffix, place=place, value=value)
    row = replaced(json.loads(json.dumps(ROW)), place, value)
    path = folder / f"values{suffix}"
    if suffix == ".parquet":
        try:
            path.write_bytes(table_of(row))
        except (pa.ArrowException, UnicodeError, OverflowError):
            return
    else:
        path.write_text(json.dumps(row if suffix == ".jsonl" else [row]), encoding="utf-8")
    read_everything(path)


RUNS = ("small", "witness")


@contextmanager
def copied(folder: Path, name: str) -> Iterator[Path]:
    """A run directory to damage: a small one with every kind of record, or one with a whole manifest."""
    whole = DATA / "witness" / "run"
    if name == "small":
        whole = folder / "whole"
        if not whole.exists():
            write_run(whole, count=2, failed="no", informed=True)
    path = folder / "root" / "run"
    shutil.copytree(whole, path)
    try:
        yield path
    finally:
        shutil.rmtree(path)


def open_everything(path: Path) -> None:
    """Do with a run directory what reports, comparisons and the app do."""
    library = Library(path.parent)
    for directory in library.listing():
        library.entry(directory)
    run = Run.load(path)
    for records in records_by_judge(run):
        show_everything(records)
    run_items(run)
    load_config(None, {}, settings_of(path, {}))


def show_everything(records: RunRecords) -> None:
    findings(records)
    tables = [overview(records), question_table(records), failure_table(records)]
    tables.append(length_table(length_audit(records)))
    if any(question.kind for question in records.questions.values()):
        tables.append(breakdown(records, "kind"))
    curve = run_pasted(records)
    if curve is not None:
        tables.append(pasted_table(*curve))
    first, *others = contenders([records, records], None)
    tables += [table for table, _ in comparisons(first, others)]
    for table in tables:
        to_csv(table)
        to_markdown(table)
    for question in records.questions.values():
        outcomes = records.outcomes(question.id)
        question_view(question, records.answers.get(question.id), outcomes, guesses=True)
    dataset_files([records], "fuzz")


RECORDS = tuple(
    f"{name}.jsonl"
    for name in ("questions", "answers", "summaries", "scores", "information", "controls", "failures")
)


@several
@given(run=st.sampled_from(RUNS), name=st.sampled_from(["manifest.json", *RECORDS]), changes=edits)
@example(run="small", name="scores.jsonl", changes=[(9999, 1, b"")])
@example(run="witness", name="manifest.json", changes=[(0, 9999, b"[" * 100_000)])
def test_run_directories_with_damaged_bytes(folder: Path, run: str, name: str, changes: list[Edit]) -> None:
    show(run=run, name=name, changes=changes)
    with copied(folder, run) as path:
        if not (path / name).exists():
            return
        (path / name).write_bytes(damaged((path / name).read_bytes(), changes))
        is_refused_or_read(lambda: open_everything(path))


@several
@given(
    run=st.sampled_from(RUNS),
    name=st.sampled_from(["manifest.json", *RECORDS]),
    place=st.integers(0, 400),
    value=values,
)
@example(run="small", name="scores.jsonl", place=2, value=1e308)
@example(run="small", name="scores.jsonl", place=2, value=-1)
@example(run="small", name="scores.jsonl", place=4, value=0)
@example(run="small", name="questions.jsonl", place=1, value="\ud800")
@example(run="small", name="questions.jsonl", place=5, value={"": 10**30})
@example(run="small", name="manifest.json", place=2, value={"": None})
@example(run="small", name="information.jsonl", place=4, value=0)
def test_run_directories_with_other_values(folder: Path, run: str, name: str, place: int, value: Any) -> None:
    show(run=run, name=name, place=place, value=value)
    with copied(folder, run) as path:
        if not (path / name).exists():
            return
        lines = (path / name).read_text(encoding="utf-8").splitlines()
        if name == "manifest.json":
            lines = ["".join(lines)]
        lines[0] = json.dumps(replaced(json.loads(lines[0]), place, value))
        (path / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
        is_refused_or_read(lambda: open_everything(path))


@several
@given(text=st.sampled_from([SETTINGS, PROMPTS]), changes=edits)
@example(text=SETTINGS, changes=[(0, 9999, b"a = " + b"[" * 5000)])
@example(text=SETTINGS, changes=[(0, 9999, b"answers = 3")])
@example(text=SETTINGS, changes=[(0, 9999, b"[answers]\nnum_answers = 99999999999999999999")])
@example(text=SETTINGS, changes=[(0, 9999, b"[answers]\ntemperature = nan")])
@example(text=PROMPTS, changes=[(0, 9999, b'basic.user = "{question.__class__}"')])
def test_settings_and_prompts_with_damaged_bytes(folder: Path, text: str, changes: list[Edit]) -> None:
    show(text=text, changes=changes)
    path = folder / "file.toml"
    path.write_bytes(damaged(text.encode(), changes))
    is_refused_or_read(lambda: load_config(path, {}))
    is_refused_or_read(lambda: load_prompts(path))


WANTED = Request(messages=(), sampling=Sampling(), n=2, logprobs=True, first_tokens=3)


def read_response(data: bytes) -> None:
    try:
        response = parse_response(data, WANTED, 0, 2)
        reply = response.reply(False)
        assert all(isinstance(one.text, str) for one in reply.completions)
        assert all(
            count <= MOST_TOKENS
            for count in (reply.prompt_tokens, *[one.tokens for one in reply.completions])
        )
    except APIError as error:
        str(error)
    status_error(400, data)


@several
@given(changes=edits)
@example(changes=[(0, 9999, rb'{"choices": [{"message": {"content": "\ud83d"}}]}')])
@example(changes=[(0, 9999, b'{"error": {"code": 10e400}}')])
@example(changes=[(0, 9999, b'{"usage": ' + b"[" * 100_000)])
def test_responses_with_damaged_bytes(changes: list[Edit]) -> None:
    show(changes=changes)
    read_response(damaged(json.dumps(REPLY).encode(), changes))


@several
@given(place=st.integers(0, 20), value=values)
@example(place=0, value=[{}])
@example(place=15, value={"completion_tokens": 2**63})
def test_responses_with_other_values(place: int, value: Any) -> None:
    show(place=place, value=value)
    read_response(json.dumps(replaced(json.loads(json.dumps(REPLY)), place, value)).encode())


@several
@given(place=st.integers(0, 20), value=values, changes=edits)
@example(place=2, value="\ud800", changes=[])
@example(place=4, value=[[]], changes=[(0, 0, b"[" * 3000)])
def test_requests_to_the_endpoint(place: int, value: Any, changes: list[Edit]) -> None:
    show(place=place, value=value, changes=changes)
    for path, form in FORMS.items():
        body = json.dumps(replaced(json.loads(json.dumps(request_of(path))), place, value)).encode()
        for data in (body, damaged(body, changes)):
            is_refused_or_read(lambda data=data, form=form: read_request(data, form.dialect))


@several
@given(place=st.integers(0, 20), value=values, changes=edits)
@example(place=11, value=[1e308, -1e308], changes=[])
@example(place=11, value=[10**400], changes=[(0, 0, b"NaN")])
def test_calibrators(folder: Path, place: int, value: Any, changes: list[Edit]) -> None:
    show(place=place, value=value, changes=changes)
    text = json.dumps(replaced(json.loads(json.dumps(CALIBRATOR)), place, value)).encode()
    for data in (text, damaged(text, changes)):
        (folder / "calibrator.json").write_bytes(data)

        def apply() -> None:
            calibrated = read_calibrator(folder / "calibrator.json").calibrator(np.array([0.0, 0.5, 1.0]))
            assert ((calibrated >= 0) & (calibrated <= 1)).all()

        is_refused_or_read(apply)


@pytest.mark.parametrize("suffix", PARSERS)
def test_what_is_damaged_above_is_read_without_damage(folder: Path, suffix: str) -> None:
    path = folder / f"whole{suffix}"
    path.write_bytes(FILES[suffix])
    assert load_questions(str(path)).questions
    if suffix != ".txt":
        assert read_item_file(path).items
    if suffix in (".json", ".jsonl", ".parquet"):
        assert read_answered_questions(path)
    for name in RUNS:
        with copied(folder, name) as run:
            open_everything(run)
    (folder / "settings.toml").write_text(SETTINGS)
    assert load_config(folder / "settings.toml", {}).prices
    (folder / "prompts.toml").write_text(PROMPTS)
    assert load_prompts(folder / "prompts.toml").basic["user"].startswith("Say it")
    assert parse_response(json.dumps(REPLY).encode(), WANTED, 0, 2).prompt_tokens == 3
    for path, form in FORMS.items():
        assert read_request(json.dumps(request_of(path)).encode(), form.dialect).question == "Why?"
    (folder / "calibrator.json").write_text(json.dumps(CALIBRATOR))
    assert read_calibrator(folder / "calibrator.json").n == 9

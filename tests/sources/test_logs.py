"""Logs of other tools as items. The files in ``data/logs`` were written by inspect_ai 0.3.285 and lm-eval
0.4.13, the chunked one by ``inspect log convert-chunked``; events were removed from it and the JSON log."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from command import piped

from selfreflect.errors import DataError, MissingExtraError
from selfreflect.sources.files import Content
from selfreflect.sources.items import ItemFile, read_item_file
from selfreflect.sources.layouts import inspect, rows_in
from selfreflect.uncertainty.reading import read_answered_questions

LOGS = Path(__file__).parents[1] / "data" / "logs"
RIVER = ("The Danube.", "The Volga.", "Probably the Volga.", "The Volga, I think.")
BREAD = (
    "Flour, water and salt.",
    "Flour, water, yeast.",
    "Water and flour.",
    "Flour, water, salt and yeast.",
)


def archive(samples: dict[str, Any], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", compression) as writer:
        for name, sample in samples.items():
            writer.writestr(name, sample if isinstance(sample, bytes | str) else json.dumps(sample))
    return data.getvalue()


def sample(epoch: int, **fields: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": f"answer {epoch}"}
    output = {"choices": [{"message": message, "stop_reason": "stop"}]}
    return {"id": "a", "epoch": epoch, "input": "Why?", "target": "", "output": output, **fields}


def parse(data: bytes) -> ItemFile:
    with piped(data):
        return read_item_file("-")


@pytest.mark.parametrize("name", ["kitchen.eval", "kitchen_chunked.eval", "kitchen.json"])
def test_epochs_of_a_sample_are_its_answers(name: str) -> None:
    file = read_item_file(LOGS / name)
    assert {item.question: sorted(item.answer_set.answers) for item in file.items} == {
        "Which is the longest river in Europe?": sorted(RIVER),
        "What goes into a plain loaf of bread?": sorted(BREAD),  # one of them after reasoning
    }
    by_id = {item.metadata["sample_id"]: item.metadata for item in file.items}
    target = {"target": "The Volga", "gold": '["The Volga"]'}
    assert by_id["r1"] == {"topic": "geography", "level": 2, "sample_id": "r1", **target}
    assert file.notes == ["1 answer cut off at the token limit"]
    assert file.layout == "log of inspect_ai"


def test_repeats_of_a_document_are_its_answers_once_for_all_filters() -> None:
    file = read_item_file(LOGS / "samples_kitchen.jsonl")
    assert {item.question: len(item.answer_set.answers) for item in file.items} == {
        "Which spice is red?": 4,
        "What do you need to boil an egg?": 4,
    }
    assert file.items[0].answer_set.answers[1] == "Chilli, I think."
    target = {"target": "Paprika", "gold": '["Paprika"]'}
    known = {"topic": "spices", "doc_id": 0, "response": "Paprika."}
    assert file.items[0].metadata == known | {"exact_match": 0.0} | target
    assert file.items[0].further_grades["exact_match:majority"] == ((None, False),)


@pytest.mark.parametrize("suffix", ["jsonl", "json"])
def test_a_first_record_of_megabytes_hides_no_samples(tmp_path: Path, suffix: str) -> None:
    lines = (LOGS / "samples_kitchen.jsonl").read_text(encoding="utf-8").splitlines()
    records = [{"doc": {}, **json.loads(line)} for line in lines]
    records[0]["doc"] = {"prompt": "x" * 3_000_000, **records[0]["doc"]}
    assert list(records[0]).index("doc") < list(records[0]).index("resps")
    path = tmp_path / f"samples.{suffix}"
    text = json.dumps(records) if suffix == "json" else "".join(json.dumps(one) + "\n" for one in records)
    path.write_text(text, encoding="utf-8")
    file = read_item_file(path)
    assert (file.layout, len(file.items)) == ("samples of lm-eval", 2)


def test_the_progress_of_samples_is_shown_while_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("selfreflect.sources.parsers.ROWS_BETWEEN_PROGRESS", 50)
    lines = (LOGS / "samples_kitchen.jsonl").read_text(encoding="utf-8").splitlines()
    path = tmp_path / "samples.jsonl"
    path.write_text("".join(line + "\n" for line in lines * 100), encoding="utf-8")
    shares: list[float] = []
    read_item_file(path, progress=shares.append)
    assert shares
    assert shares == sorted(shares)


def test_earlier_messages_are_context_and_attachments_are_put_back() -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "attachment://1f"}]
    epochs = [sample(number, input=messages, attachments={"1f": "How so?"}) for number in (1, 2)]
    [item] = parse(archive({f"samples/a_{number}.json": one for number, one in enumerate(epochs)})).items
    assert (item.question, item.context) == ("How so?", "system: Be brief.")
    assert item.answer_set.answers == ("answer 1", "answer 2")


def test_a_zip_bomb_is_refused_before_it_unfolds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspect, "MAX_MEMBER_BYTES", 10_000)
    bomb = archive({"samples/a.json": "0" * 1_000_000})
    with pytest.raises(DataError, match=r"'samples/a.json' is larger than 10,000 bytes unpacked"):
        parse(bomb)
    lying = bomb.replace((1_000_000).to_bytes(4, "little"), (100).to_bytes(4, "little"))
    with pytest.raises(DataError, match=r"damaged|unpacked"):
        parse(lying)
    monkeypatch.setattr(inspect, "MAX_LOG_BYTES", 15_000)
    with pytest.raises(DataError, match="its samples are larger than 15,000 bytes unpacked"):
        parse(archive({f"samples/{number}.json": "0" * 9000 for number in range(2)}))
    monkeypatch.setattr(inspect, "MAX_MEMBERS", 1)
    with pytest.raises(DataError, match="contains 2 files, but at most 1 can be read"):
        parse(archive({"a": "", "b": ""}))


def chunks(**fields: Any) -> dict[str, Any]:
    return {"samples/a_epoch_1/sample.json": {**sample(1), **fields}}


@pytest.mark.parametrize(
    ("samples", "problem"),
    [
        ({"header.json": {}}, "contains no samples with answers"),
        ({"samples/a.json": "{"}, "'samples/a.json' is not JSON"),
        ({"samples/a.json": "[" * 100_000}, "nested too deeply"),
        ({"samples/a.json": {"id": [], "input": 3}}, "not a sample of inspect_ai"),
        ({"samples/a.json": sample(1)}, "needs at least 2 answers"),
        ({"samples/a.json": {"id": 1, "input": [{"content": 7}]}}, "not a sample of inspect_ai"),
        (chunks(metadata=[1]), "must be objects"),
        (chunks(attachments=["a"]), "must be objects"),
        (chunks() | {"samples/a_epoch_1/metadata.json": [1]}, "must be objects"),
    ],
)
def test_logs_that_hold_no_items(samples: dict[str, Any], problem: str) -> None:
    with pytest.raises(DataError, match=problem):
        parse(archive(samples))


def test_a_compressed_log_without_pyarrow_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"\.\[parquet\]"):
        read_item_file(LOGS / "kitchen.eval")


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_damaged_sample_is_an_error_with_every_compression(method: int) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", method) as archive:
        archive.writestr("samples/1_epoch_1.json", str([number**3 for number in range(300)]))
    data = bytearray(packed.getvalue())
    start = 30 + len("samples/1_epoch_1.json") + 12
    data[start : start + 30] = bytes(byte ^ 0x5A for byte in data[start : start + 30])
    with pytest.raises(DataError, match=r"damaged|unpacked"):
        rows_in(Content("it", ".eval", bytes(data)))


ICE = {
    "doc_id": 0,
    "filter": "none",
    "target": 1,
    "arguments": [["Q", " no"], ["Q", " yes"]],
    "resps": [[[-2.3, False]], [[-0.4, True]]],
    "filtered_resps": [[-2.3, False], [-0.4, True]],
    "acc": 1.0,
}


@pytest.mark.parametrize(
    ("changes", "answer", "gold"),
    [
        (
            {"doc": {"question": "Is ice cold?", "tags": ["a", "b"], "choices": ["no", "yes"]}},
            "yes",
            ("yes",),
        ),
        ({"doc": {"question": "Ice?", "answers": ["yes", "yeah"]}}, "yes", ("yes",)),
        ({"doc": {"question": "Ice?", "CONTEXTS": ["Ice was cold.", "b"]}}, "yes", ("yes",)),
        (
            {
                "doc": {"sentence": "Ice is cold, so _ is kept in it."},
                "arguments": [["Ice is cold, so tea", " is kept."], ["Ice is cold, so fish", " is kept."]],
            },
            "fish",
            ("fish",),
        ),
        (
            {
                "doc": {"sentence": "Ice is cold, so _ is kept in it."},
                "arguments": [["Ice is cold, so tea", " is kept."], ["Ice is cold, so fish", " is kept."]],
                "target": "is kept.",
            },
            "fish",
            (),
        ),
        (
            {"doc": {"question": "Ice?", "mc2_targets": {"choices": ["no", "yes"], "labels": [1, 1]}}},
            "yes",
            ("no", "yes"),
        ),
    ],
)
def test_choices_are_what_the_model_was_asked_to_continue_with(
    changes: dict[str, Any], answer: str, gold: tuple[str, ...], tmp_path: Path
) -> None:
    path = tmp_path / "samples.jsonl"
    path.write_text(json.dumps({**ICE, **changes}) + "\n", encoding="utf-8")
    [question] = read_answered_questions(path).questions
    assert (question.answer, question.gold) == (answer, gold)

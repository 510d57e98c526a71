"""Distributions of structured answers, field by field."""

from __future__ import annotations

import json
import math
import random
import time
from pathlib import Path
from typing import Any

import pytest
from command import run, written
from hypothesis import given
from hypothesis import strategies as st

from selfreflect.errors import DataError
from selfreflect.logprobs import TokenValues
from selfreflect.uncertainty.classes import ClassRule
from selfreflect.uncertainty.fields.distribution import Structured, structure, value_spans
from selfreflect.uncertainty.fields.values import Schema, Unreadable, parse
from selfreflect.uncertainty.question import AnsweredQuestion

INVOICES = [
    '{"name": "Ann Lee", "total": 1200, "date": "2024-03-05", "tags": ["a", "b"], "vat": null}',
    '```json\n{"total":1200.0,"name":"ann lee","date":"March 5, 2024","tags":["b","a"],"vat":"de1"}\n```',
    '{"name":"Ann Lee","total":1.2e3,"date":"05.03.2024","tags":["a","b","b"],"vat":"de1"}',
    '{"name": "Ann\\u0020Lee", "total": 1200, "date": "2024-03-05", "tags": ["a", "b"], "vat": null}',
    '{"name": "Ann Lee", "total": 1200, "date": "2024-03-05", "tags": ["a", "b"]}',
    '{"name": "Ann Lee", "total": 12000, "date": "2024-03-05", "tags": ["a"], "vat": true}',
    '{"name": "Bo", "total": "1200", "date": "2024-03-06", "tags": ["c"], "vat": 1}',
    "Sorry, I cannot read this invoice.",
]
SCHEMA = {
    "type": "object",
    "required": ["total"],
    "properties": {
        "total": {"$ref": "#/$defs/money"},
        "paid": {"type": "boolean", "default": False},
        "state": {"enum": ["open", "Open"]},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "due": {"type": "string", "format": "date-time"},
    },
    "$defs": {"money": {"type": "number"}},
}


def taken_apart(answers: list[Any], schema: dict[str, Any] | None = None) -> Structured:
    texts = tuple(answer if isinstance(answer, str) else json.dumps(answer) for answer in answers)
    question = AnsweredQuestion(id="q", text="Which?", answers=texts)
    return structure(question, None if schema is None else Schema(schema))


def shares(structured: Structured, pointer: str) -> dict[str, int]:
    [field] = [field for field in structured.fields if field.pointer == pointer]
    return {entry.value: entry.answers for entry in structured.classes(field, ClassRule("exact"))}


def test_values_of_a_field_are_equal_in_any_notation() -> None:
    """Shares and entropies were computed by hand: of seven valid answers, and of all eight."""
    summary = taken_apart(INVOICES).summary(ClassRule("exact"))
    expected = {
        "/name": (6 / 7, 6 / 8, 0.410116),
        "/total": (5 / 7, 5 / 8, 0.796312),  # a number that is written as text is none
        "/date": (6 / 7, 6 / 8, 0.410116),
        "/tags": (5 / 7, 5 / 8, 0.796312),
        "/vat": (2 / 7, 2 / 8, 1.549826),  # null, "de1", missing, true and 1 are five values
    }
    found = {
        pointer: (field["share"], field["share_of_all"], field["entropy"])
        for pointer, field in summary["fields"].items()
    }
    assert found == {pointer: pytest.approx(numbers, abs=1e-6) for pointer, numbers in expected.items()}
    assert summary["fields"]["/tags"]["items"] == {"a": 6, "b": 5, "c": 1}
    assert {field["missing"] for field in summary["fields"].values()} == {0, 1}
    assert summary["invalid"] == {"not_json": 1}
    assert [summary["fields"][pointer]["kind"] for pointer in expected] == [
        "text",
        "mixed",
        "date",
        "set",
        "mixed",
    ]


def test_an_object_of_common_values_may_never_have_been_sampled() -> None:
    answers = [{"a": 1, "b": 1, "c": 2}, {"a": 1, "b": 2, "c": 1}, {"a": 2, "b": 1, "c": 1}]
    whole = taken_apart(answers).object_share(ClassRule("exact"))
    assert whole == (3, pytest.approx(1 / 3), 0)


def test_a_schema_says_what_is_valid_and_of_what_kind() -> None:
    answers = [
        {"total": "12.50", "note": None, "due": "2024-03-05T10:00:00+01:00", "state": "open"},
        {"total": 12.5, "paid": False, "note": "late", "due": "2024-03-05T09:00:00Z", "state": "Open"},
        {"total": "much"},
        {"paid": True},
    ]
    structured = taken_apart(answers, SCHEMA)
    assert shares(structured, "/total") == {"12.5": 2}
    assert shares(structured, "/paid") == {"false": 2}  # the default of the schema
    assert len(shares(structured, "/due")) == 1  # one moment
    assert shares(structured, "/state") == {"open": 1, "Open": 1}
    assert structured.summary(ClassRule("exact"))["invalid"] == {"schema": 2}


@pytest.mark.parametrize(
    ("values", "sizes"),
    [
        (
            [
                "2024-03-05",
                "2024/03/05",
                "Tuesday, March 5, 2024",
                "5-Mar-2024",
                "5.3.2024",
                "Tue 5 Mar 2024",
            ],
            [6],
        ),
        (["2024-12-25", "25/12/2024", "12/25/2024", "25-12-2024"], [4]),
        (["2024-12-25", "Monet 25 December 2024", "2024年12月25日"], [2, 1]),
        (["2024-03-05", "03/05/2024", "05/03/2024"], [1, 1, 1]),  # whose month is which?
        (["Berlin, March 5, 2024", "March 5, 2024"], [1, 1]),
        (["true", "True", "yes", True], [2, 1, 1]),
        (["01234", "1234", "007", "7"], [1, 1, 1, 1]),
        (["CHF 1,200.00", "1200 CHF", "EUR 1200", "€1200", "$1200"], [2, 2, 1]),
        (
            [
                [{"name": "Ann", "n": 1}, {"name": "Bob", "n": 2}],
                [{"name": "BOB", "n": 2}, {"name": "ann", "n": 1}],
            ],
            [2],
        ),
        ([[{"id": 1, "n": 1}, None], [{"id": "1", "n": 1}, None]], [2]),
    ],
)
def test_values_in_other_words_are_one_and_others_are_not(values: list[Any], sizes: list[int]) -> None:
    structured = taken_apart([{"a": value} for value in values])
    rule = ClassRule("same")
    for field in structured.fields:
        if field.pointer == "/a" or field.pointer.endswith("/n"):
            assert [entry.answers for entry in structured.classes(field, rule)] == sizes


@pytest.mark.parametrize(
    ("schema", "answers", "pointer", "counts"),
    [
        ({"type": "boolean"}, [True, "true", "False", 1, "yes"], "/a", {"true": 2, "false": 1}),
        (
            {"allOf": [{"type": "object", "properties": {"x": {"type": "number"}}}, {"required": ["x"]}]},
            [{"x": "1"}, {"x": 1.0}, {}],
            "/a/x",
            {"1": 2},
        ),
        # kinds of objects that a client tells apart by a constant
        (
            {
                "anyOf": [
                    {
                        "properties": {"k": {"const": "c"}, "r": {"type": "number", "default": 3}},
                        "required": ["k", "r"],
                        "additionalProperties": False,
                    },
                    {"$ref": "#/$defs/square"},
                ]
            },
            [{"k": "c", "r": "1"}, {"k": "c", "r": 1.0}, {"k": "C", "w": 2}, {"k": "c", "w": 2}],
            "/a/r",
            {"1": 2, "(missing)": 1},
        ),
        # places of a tuple mean something
        (
            {"type": "array", "prefixItems": [{"type": "number"}, {"type": "number"}]},
            [[1, 2], [2, 1]],
            "/a/0",
            {"1": 1, "2": 1},
        ),
        ({"type": "array"}, [[1, 2], [2, 1]], "/a", {"[1, 2]": 2}),
    ],
)
def test_a_schema_says_how_values_are_read(
    schema: dict[str, Any], answers: list[Any], pointer: str, counts: dict[str, int]
) -> None:
    square = {
        "properties": {"k": {"const": "C"}, "w": {"type": "number"}},
        "required": ["k", "w"],
        "additionalProperties": False,
    }
    document = {"properties": {"a": schema}, "$defs": {"square": square}}
    structured = taken_apart([{"a": answer} for answer in answers], document)
    assert shares(structured, pointer) == counts


@pytest.mark.parametrize("schema", [{"$schema": 5}, {"$schema": {}}, {"type": "what"}, {"pattern": "("}])
def test_a_document_that_is_no_schema_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(DataError) as refusal:
        Schema(schema)
    assert refusal.value.code == "schema"


def test_a_schema_fetches_nothing() -> None:
    with pytest.raises(DataError):
        taken_apart([{"a": 1}], {"properties": {"a": {"$ref": "http://127.0.0.1:9/schema.json"}}})


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False).filter(lambda x: x == 0 or abs(x) > 1e-300)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
    lambda children: (
        st.lists(children, max_size=3) | st.dictionaries(st.text("ab~/*", max_size=3), children, max_size=3)
    ),
    max_leaves=8,
)


def spelled(value: Any, draw: random.Random) -> str:
    """Write a value as JSON in one of many ways."""
    if isinstance(value, dict):
        items = list(value.items())
        draw.shuffle(items)
        space = " " * draw.randrange(3)
        members = (f"{space}{json.dumps(key)}{space}:{space}{spelled(item, draw)}" for key, item in items)
        return f"{{{','.join(members)}{space}}}"
    if isinstance(value, list):
        return f"[{', '.join(spelled(item, draw) for item in value)}]"
    if isinstance(value, int) and not isinstance(value, bool):
        return draw.choice([f"{value}", f"{value}.0", f"{value * 10}e-1"])
    return json.dumps(value, ensure_ascii=draw.random() < 0.5)


@given(
    st.dictionaries(st.text("abc/~", min_size=1, max_size=3), json_values, min_size=1, max_size=4),
    st.randoms(),
)
def test_key_order_space_escapes_and_notations_change_nothing(
    value: dict[str, Any], draw: random.Random
) -> None:
    structured = taken_apart([spelled(value, draw) for _ in range(3)])
    summary = structured.summary(ClassRule("exact"))
    assert summary["invalid"] == {}
    assert {field["share"] for field in summary["fields"].values()} <= {1.0}
    if structured.fields:
        assert summary["object"] == {"num_classes": 1, "share": 1.0, "sampled": 3}
    for field in structured.questions():
        assert len(set(ClassRule("exact")(field).tolist())) == 1


@given(st.dictionaries(st.text("ab~/*", max_size=3), json_values, max_size=4), st.randoms())
def test_the_characters_of_a_value_are_found(value: dict[str, Any], draw: random.Random) -> None:
    text = draw.choice(["", "\n ", "```json\n"]) + json.dumps(value, indent=draw.choice([None, 2]))
    text += "\n```" if text.startswith("```") else ""
    spans = value_spans(text)

    def check(part: Any, pointer: str) -> None:
        start, end = spans[pointer]
        if isinstance(part, dict | list):
            assert text[start - 1] + text[end - 1] in ("{}", "[]")
            for key, member in part.items() if isinstance(part, dict) else enumerate(part):
                check(member, f"{pointer}/{str(key).replace('~', '~0').replace('/', '~1')}")
        elif isinstance(part, str):
            assert json.loads(f'"{text[start:end]}') == part
        else:
            assert json.loads(text[start : end - 1]) == part

    check(value, "")


TOKENS = tuple('{"|name|":| "|Ann| Lee|",| "total|":| |2|1|00|,| "ok":true|}'.split("|"))


def with_tokens(*, broken: bool = False) -> Structured:
    """Take apart answers whose log-probabilities are -1, -2, -3, …: every sum says of which tokens it is."""
    logprobs = tuple(-float(number) for number in range(1, len(TOKENS) + 1))
    top = tuple((value, value - 1, value - 2) for value in logprobs)
    question = AnsweredQuestion(
        id="q",
        answers=("".join(TOKENS), *(["no"] if broken else [])),
        token_values=TokenValues(
            tokens=(TOKENS, *([("no",)] if broken else [])),
            logprobs=(logprobs, *([(-1.0,)] if broken else [])),
            top_logprobs=() if broken else (top,),
        ),
    )
    return structure(question)


def test_a_field_has_the_tokens_of_its_value_and_of_its_end() -> None:
    fields = {question.id: question.token_values for question in with_tokens().questions()}
    texts = {name: values.tokens[0] for name, values in fields.items() if values.tokens}
    assert texts == {
        "q#/name": ("Ann", " Lee", '",'),
        "q#/total": ("2", "1", "00", ","),  # without the comma, 21 would look sure
        "q#/ok": (' "ok":true', "}"),
    }
    total = fields["q#/total"]
    assert total.logprobs == ((-11, -12, -13, -14),)
    assert [row[0] for row in total.top_logprobs[0]] == [-11, -12, -13, -14]
    entry = with_tokens().summary(ClassRule("exact"))["fields"]["/total"]
    assert entry["tokens"] == pytest.approx({"joint": math.exp(-50), "min": math.exp(-14)})


def test_items_of_sets_are_counted_in_any_spelling() -> None:
    answers = [["Red", "2024-03-05", 1, {"x": 1}], ["red", "March 5, 2024", 1.0, {"x": 1.0}], [{"x": 2}]]
    items = taken_apart([{"a": answer} for answer in answers]).summary(ClassRule("exact"))["fields"]["/a"]
    assert items["items"] == {"Red": 2, "2024-03-05": 2, "1": 2, '{"x": 1}': 2, '{"x": 2}': 1}
    assert [entry["answers"] for entry in items["classes"]] == [2, 1]  # one list of objects hides no others


def test_without_the_tokens_of_every_answer_a_field_has_none() -> None:
    for question in with_tokens(broken=True).questions():
        assert not question.token_values.logprobs
        assert question.missing_logprobs
    summary = with_tokens(broken=True).summary(ClassRule("exact"))
    assert not any("tokens" in entry for entry in summary["fields"].values())


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        (('{"a":1', ',"b":2', "}"), {"q#/a": (-1, -2), "q#/b": (-2, -3)}),
        (('{"a":"x","b":"y"}',), {"q#/a": (-1,), "q#/b": (-1,)}),
        (('{"a":"x', '","b":"', 'y"}'), {"q#/a": (-1, -2), "q#/b": (-3,)}),
        # "c" begins with the bracket, and no number ends before the next character
        (
            ('{"a":', '1,"b":"x', '","c', '":[', '2],"d":', "true}"),
            {"q#/a": (-2,), "q#/b": (-2, -3), "q#/c": (-5,), "q#/d": (-6,)},
        ),
        # parts of a character count for the value that begins with it
        (('{"c": "', "", "", "中", "国", '"', "}"), {"q#/c": (-2, -3, -4, -5, -6)}),
    ],
)
def test_a_token_across_two_fields_counts_for_both(
    tokens: tuple[str, ...], expected: dict[str, tuple[float, ...]]
) -> None:
    logprobs = tuple(-float(number) for number in range(1, len(tokens) + 1))
    values = TokenValues(tokens=(tokens,), logprobs=(logprobs,))
    fields = structure(AnsweredQuestion(id="q", answers=("".join(tokens),), token_values=values)).questions()
    found = {field.id: field.token_values.logprobs for field in fields}
    assert found == {key: (row,) for key, row in expected.items()}


def test_tokens_of_many_fields_are_found_in_seconds() -> None:
    text = json.dumps({f"key{number}": number for number in range(500)})
    values = TokenValues(tokens=(tuple(text),) * 10, logprobs=((-0.5,) * len(text),) * 10)
    question = AnsweredQuestion(id="q", answers=(text,) * 10, token_values=values)
    started = time.perf_counter()
    summary = structure(question).summary(ClassRule("exact"))
    assert time.perf_counter() - started < 10
    assert summary["fields"]["/key7"]["tokens"]["joint"] == pytest.approx(math.exp(-1))


@pytest.mark.parametrize("answer", ["{}", '{"next": {"next": {}}}'])
def test_a_default_that_refers_to_itself_has_an_end(answer: str) -> None:
    node = {"$ref": "#/$defs/node", "default": {}}
    schema = {"$ref": "#/$defs/node", "$defs": {"node": {"properties": {"next": node, "last": node}}}}
    structured = taken_apart([answer, "{}"], schema)
    assert shares(structured, "/last") == {"(object)": 2}


@pytest.mark.parametrize("part", [{"x-selfreflect": {"classes": "exact"}}, {"enum": ["(missing)", "true"]}])
def test_texts_that_look_like_marks_are_texts(part: dict[str, Any]) -> None:
    structured = taken_apart([{"a": "(missing)"}, {}, {"a": "true"}], {"properties": {"a": part}})
    assert shares(structured, "/a") == {'"(missing)"': 1, "(missing)": 1, '"true"': 1}


def test_tokens_of_matched_objects_are_not_those_of_their_place() -> None:
    text = '[{"a": 1, "b": 2}, {"a": 5, "b": 6}]'
    values = TokenValues(tokens=(tuple(text),), logprobs=((-1.0,) * len(text),))
    question = AnsweredQuestion(id="q", answers=(text,), token_values=values)
    members = [field for field in structure(question).questions() if field.id != "q#"]
    assert [field.token_values.logprobs for field in members] == [()] * 4
    ordered = Schema({"type": "array", "x-selfreflect": {"ordered": True}})
    located = {field.id: field.token_values.tokens for field in structure(question, ordered).questions()}
    assert located["q#/1/b"] == (("6", "}"),)


def rules(**fields: Any) -> dict[str, Any]:
    return {"properties": {name: {"x-selfreflect": {"classes": rule}} for name, rule in fields.items()}}


def test_a_schema_names_the_class_rule_of_a_field(tmp_path: Path) -> None:
    schema = rules(total="numeric:1%", note="jaccard:0.5", place="exact")
    answers: list[Any] = [
        {"total": 1200, "note": "paid in full today", "place": "Rome, Italy", "other": 1200},
        {"total": 1205.5, "note": "paid in full", "place": "Rome", "other": 1205},
        {"total": "1,195", "note": "open", "place": "rome", "other": 1195},
    ]
    structured = taken_apart(answers, schema)
    sizes = {
        field.pointer: [entry.answers for entry in structured.classes(field, ClassRule("same"))]
        for field in structured.fields
    }
    assert sizes == {"/total": [3], "/note": [2, 1], "/place": [2, 1], "/other": [1, 1, 1]}
    rows: list[dict[str, Any]] = [{"question": f"{n}?", "answers": [*map(json.dumps, answers)]} for n in "ab"]
    (tmp_path / "schema.json").write_text(json.dumps(schema))
    arguments = ("--fields", tmp_path / "schema.json", "--estimators", "modal_share", "--json")
    lines = run("uncertainty", written(tmp_path / "a.json", rows), *arguments).json
    values = {
        line["id"].partition("#")[2]: line["values"]["modal_share"] for line in lines if "values" in line
    }
    assert values == pytest.approx({"/total": 1, "/note": 2 / 3, "/place": 2 / 3, "/other": 1 / 3})


@pytest.mark.parametrize("rule", ["judge", "nli:a/model", "embedding", "numeric:x%", "jaccard:2", "what", 5])
def test_a_schema_names_no_rule_with_a_model(rule: Any) -> None:
    with pytest.raises(DataError) as refusal:
        Schema(rules(total=rule))
    assert refusal.value.code == "schema"


def test_fields_of_one_object_are_drawn_together(tmp_path: Path) -> None:
    """Five fields that repeat each other say no more than one."""
    draw = random.Random()
    ends = {}
    for copies in (1, 5):
        rows = []
        draw.seed(3)
        for number in range(60):
            share = draw.randrange(5, 11)
            gold = "yes" if draw.random() < share / 12 else "no"
            values = ["yes"] * share + [f"v{index}" for index in range(10 - share)]
            names = [f"f{index}" for index in range(copies)]
            answers = [json.dumps(dict.fromkeys(names, value)) for value in values]
            rows.append({"question": f"{number}?", "answers": answers, "gold": dict.fromkeys(names, gold)})
        file = written(tmp_path / f"{copies}.json", rows)
        lines = run("uncertainty", file, "--fields", "auto", "--estimators", "modal_share", "--json").json
        [line] = [line for line in lines if line.get("estimator") == "modal_share"]
        ends[copies] = [line["measures"][name] for name in ("auroc", "aurc", "brier", "ece_10_left")]
    for alone, together in zip(ends[1], ends[5], strict=True):
        assert together["value"] == pytest.approx(alone["value"], abs=0.01)
        assert (together["low"], together["high"]) == pytest.approx((alone["low"], alone["high"]), abs=0.04)


LINES = [{"sku": "k7", "price": 3}, {"sku": "k8", "price": 4.5}, {"sku": "k9", "price": 9}]


@pytest.mark.parametrize("identifier", ["sku", "id"])
def test_objects_of_lists_are_aligned_wherever_they_stand(identifier: str) -> None:
    items = [{identifier if key == "sku" else key: value for key, value in line.items()} for line in LINES]
    draw = random.Random(0)
    answers = []
    for number in range(8):
        order = draw.sample(items, 3)
        answers.append({"lines": order if number else [{**order[0], "price": 1}, *order[1:]]})
    structured = taken_apart(answers)
    prices = [field.pointer for field in structured.fields if field.path == "/lines/*/price"]
    found = sorted(sorted(shares(structured, pointer).values()) for pointer in prices)
    assert found == [[1, 7], [8], [8]]
    assert shares(structured, "/lines") == {"(3 items)": 8}


def test_a_list_may_be_ordered_and_lack_objects() -> None:
    ordered = {"properties": {"steps": {"x-selfreflect": {"ordered": True}}}}
    structured = taken_apart([{"steps": ["a", "b"]}, {"steps": ["b", "a"]}], ordered)
    assert shares(structured, "/steps/0") == {"a": 1, "b": 1}
    structured = taken_apart([{"lines": LINES}, {"lines": LINES[:2]}, {"lines": []}])
    assert shares(structured, "/lines") == {"(3 items)": 1, "(2 items)": 1, "(0 items)": 1}
    skus = [field.pointer for field in structured.fields if field.path == "/lines/*/sku"]
    assert sorted(shares(structured, pointer)["(missing)"] for pointer in skus) == [1, 1, 2]


HOSTILE = {
    '{"a": NaN}': "number",
    '{"a": 1e400}': "number",
    '{"a": -1e-400}': "number",
    '{"a": ' + "9" * 5000 + "}": "number",
    '{"a": 1, "a": 2}': "duplicate_key",
    '{"a": "\\ud83d"}': "surrogate",
    "[" * 1000 + "]" * 1000: "too_deep",
    "[" * 100_000: "too_deep",
    '"' + "x" * 10_000_000 + '"': "too_long",
    '{"a": 1': "not_json",
    "": "not_json",
    'Here it is: {"a": 1}': "not_json",
    "```json\n" + " " * 200_000: "not_json",
}


@pytest.mark.parametrize(("text", "reason"), HOSTILE.items(), ids=list(HOSTILE.values()))
def test_what_is_no_json_is_a_class_of_its_own(text: str, reason: str) -> None:
    assert parse(text) == Unreadable(reason)  # type: ignore[arg-type]
    structured = taken_apart([text, '{"a": "(no valid JSON)"}'])
    [field] = structured.questions()
    assert len(set(ClassRule("exact")(field).tolist())) == 2


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('"0001-01-01T01:00:00+14:00"', "0001-01-01T01:00:00+14:00"),
        ('"9999-12-31T23:00:00-10:00"', "9999-12-31T23:00:00-10:00"),
        ("0e-999999999999", "0"),
        ("-0.0E+999999999999", "0"),
    ],
)
def test_values_at_the_end_of_their_range_are_read(text: str, value: str) -> None:
    assert shares(taken_apart([f'{{"a": {text}}}', '{"a": 1}']), "/a") == {value: 1, "1": 1}


def test_a_fence_is_no_part_of_an_answer() -> None:
    assert parse(' ```json\n{"a": "```"}\n  ```\n ') == {"a": "```"}
    assert parse("```\n```") == parse("```true```") == Unreadable("not_json")
    assert parse("```json {}```") == parse("~~~json\r\n{}\r\n~~~") == parse("\ufeff{}") == {}


def test_only_the_length_of_a_long_list_of_objects_is_compared() -> None:
    """Matching thousands of objects by what they hold would take hours, and answers decide how many."""
    answers = [[{"sku": number + shift} for number in range(3000)] for shift in range(3)]
    structured = taken_apart([*answers, [{"sku": 1}]])
    assert shares(structured, "") == {"(3,000 items)": 3, "(1 item)": 1}
    assert (len(structured.fields), structured.unmatched) == (1, 1)
    named = taken_apart([[{"id": number} for number in range(400)]] * 2)
    assert (named.unmatched, shares(named, "/id=399/id")) == (0, {"399": 2})


def test_questions_without_a_valid_answer_are_counted(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"question": f"q{n}", "answers": ['{"a": 1}', '{"a": 2}']} for n in "ab"]
    file = written(tmp_path / "a.json", [*rows, {"question": "c", "answers": ["no", "none"]}])
    outcome = run("uncertainty", file, "--fields", "auto")
    assert outcome.code == 0, outcome.stderr
    assert "1 question left out" in outcome.stderr


def test_texts_that_look_like_other_values_are_none() -> None:
    answers = [
        {"a": value}
        for value in ("(missing)", "null", "1", "[1]", "(2 items)", "(2,000 items)", None, 1, [1], [{}, {}])
    ]
    structured = taken_apart([*answers, {}])
    assert sorted(shares(structured, "/a").values()) == [1] * 11


def noisy_invoices(count: int) -> list[dict[str, Any]]:
    """Invoices whose fields are right with a known probability in each answer."""
    draw = random.Random(4)
    rows = []
    for number in range(count):
        right = {
            "total": 100 + number,
            "paid": number % 2 == 0,
            "date": f"2024-03-{1 + number % 28:02}",
            "customer": {"name": f"Customer {number}"},
            "tags": [f"t{number % 5}", "x"],
        }
        answers = []
        for _ in range(10):
            answer: dict[str, Any] = json.loads(json.dumps(right))
            if draw.random() > 0.9:
                answer["total"] = draw.randrange(100)
            if draw.random() > 0.7:
                answer["paid"] = not right["paid"]
            if draw.random() > 0.8:
                del answer["date"]
            if draw.random() > 0.95:
                answer["customer"] = {"name": f"Other {draw.randrange(9)}"}
            if draw.random() > 0.6:
                answer["tags"] = [f"u{draw.randrange(9)}"]
            answers.append(spelled(answer, draw))
        rows.append({"question": f"Invoice {number}?", "answers": answers, "gold": right})
    return rows


def test_objects_may_stand_in_a_list_or_one_per_row(tmp_path: Path) -> None:
    objects = [{"total": 5, "paid": True}, {"total": 6, "paid": True}]
    question = {"id": "q", "question": "What does the invoice say?"}
    listed = written(tmp_path / "listed.json", [{**question, "answers": objects}])
    single = written(tmp_path / "single.json", [{**question, "answer": each} for each in objects])
    of_list, of_rows = (
        [line for line in run("uncertainty", file, "--fields", "auto", "--json").json if "fields" in line]
        for file in (listed, single)
    )
    assert of_list
    assert of_list == of_rows
    for file in (listed, single):
        outcome = run("uncertainty", file)
        assert outcome.code == 2
        assert "--fields auto" in outcome.stderr


def test_right_answers_that_are_objects_travel_into_a_run(tmp_path: Path) -> None:
    rows = noisy_invoices(20)
    rows[0]["gold"]["customer"]["note"] = "x" * 3000
    file = written(tmp_path / "invoices.json", rows)
    assert run("import", "--items", file, "--out", tmp_path / "run").code == 0
    arguments = ("--fields", "auto", "--estimators", "modal_share", "--json")
    of_file, of_run = (
        {line["id"]: line for line in run("uncertainty", source, *arguments).json if "correct" in line}
        for source in (file, tmp_path / "run")
    )
    assert len(of_file) == len(of_run) == 5 * 20 + 1
    for id_, line in of_file.items():
        same = of_run[id_]
        assert line["values"] == same["values"]
        # the halves of a run have another order, by which equally common answers are chosen
        assert line["correct"] == same["correct"] or line["values"]["modal_share"] <= 0.5


def test_a_field_is_calibrated_on_the_questions_of_others(tmp_path: Path) -> None:
    rows = noisy_invoices(60)
    file = written(tmp_path / "invoices.json", rows)
    outcome = run("calibrate", file, "--fields", "auto", "--field", "/tags", "--field", "/paid", "--json")
    assert outcome.code == 0, outcome.stderr
    assert len(outcome.json) == 120
    assert {line["id"].partition("#")[2] for line in outcome.json} == {"/tags", "/paid"}


def test_fields_that_are_not_there_are_refused(tmp_path: Path) -> None:
    file = written(tmp_path / "a.json", [{"question": "Which?", "answers": ['{"a": 1}', '{"a": 2}']}])
    plain = written(tmp_path / "b.json", [{"question": "Which?", "answers": ["one", "two"]}])
    broken = tmp_path / "schema.json"
    broken.write_text("[]")
    for arguments in (
        (file, "--field", "/a"),
        (file, "--fields", "auto", "--field", "/b"),
        (file, "--fields", tmp_path / "absent.json"),
        (file, "--fields", broken),
        (plain, "--fields", "auto"),
        (written(tmp_path / "c.json", [{"question": "Which?", "answers": ["{}"]}]), "--fields", "auto"),
    ):
        outcome = run("uncertainty", *arguments)
        assert (outcome.code, outcome.stdout) == (2, ""), arguments


def test_plain_answers_keep_their_values_as_fields(tmp_path: Path) -> None:
    """Five questions joined to one object have the values and labels of each alone."""
    draw = random.Random(1)
    plain = []
    for number in range(100):
        words = draw.sample(["Rome", "the Rome", "Oslo", "Bern", "Lima", "Bonn"], 3)
        answers = draw.choices(words, [5, 2, 1], k=12)
        plain.append(
            {"id": f"p{number}", "question": f"Q{number}?", "answers": answers, "gold": draw.choice(words)}
        )
    objects = []
    for start in range(0, 100, 5):
        part = plain[start : start + 5]
        answers = [spelled({row["id"]: row["answers"][index] for row in part}, draw) for index in range(12)]
        gold = {row["id"]: row["gold"] for row in part}
        objects.append({"id": f"o{start}", "question": "All?", "answers": answers, "gold": gold})
    names = ("--estimators", "modal_share,entropy,eigv", "--classes", "exact", "--json")
    alone = run("uncertainty", written(tmp_path / "plain.json", plain), *names).json
    joined = run("uncertainty", written(tmp_path / "joined.json", objects), "--fields", "auto", *names).json
    of_plain = {line["id"]: (line["values"], line["correct"]) for line in alone if "values" in line}
    of_fields = {
        line["id"].partition("#/")[2]: (line["values"], line["correct"])
        for line in joined
        if "values" in line
    }
    assert of_fields == of_plain
    aurocs = [
        [line["measures"]["auroc"]["value"] for line in lines if line.get("estimator") == "entropy"]
        for lines in (alone, joined)
    ]
    assert aurocs[0] == aurocs[1] != []


def test_patterns_of_strangers_are_not_run() -> None:
    """A property may be called pattern; the keyword would take years on this text."""
    document = {"properties": {"pattern": {"type": "integer"}, "a": {"type": "string", "pattern": "^(a+)+$"}}}
    schema = Schema(document, trusted=False)
    assert schema.read({"a": "a" * 40 + "b"}) == {"a": "a" * 40 + "b"}
    assert schema.read({"pattern": "x"}) == Unreadable("schema")
    assert Schema(document).read({"a": "b"}) == Unreadable("schema")
    open_names = {"patternProperties": {"^(a+)+$": {"type": "integer"}}, "additionalProperties": False}
    assert Schema(open_names, trusted=False).read({"a" * 40 + "b": 1}) == {"a" * 40 + "b": 1}

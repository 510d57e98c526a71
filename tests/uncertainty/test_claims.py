"""Claims of long answers: how texts are split, and which answers support what."""

from __future__ import annotations

import json
import random
import re
import time
from pathlib import Path

import pytest
from command import run, written
from hypothesis import given
from hypothesis import strategies as st
from scripted import Scripted
from tiny_classifier import make_classifier

from selfreflect.errors import ConfigError, DataError
from selfreflect.metric.measure import MeasureItem, measure_named
from selfreflect.models.base import Request
from selfreflect.models.embed import EntailmentModel
from selfreflect.sources.items import bundled_items
from selfreflect.store.journal import ModelReplies
from selfreflect.store.run import Run
from selfreflect.uncertainty.asking.asker import Asker
from selfreflect.uncertainty.claims.placed import claims_of, told_claims
from selfreflect.uncertainty.claims.readers import ModelReader, inquiries_about, open_reader, read_stances
from selfreflect.uncertainty.claims.sentences import sentences
from selfreflect.uncertainty.claims.support import (
    ClaimDistribution,
    Support,
    claim_distribution,
)
from selfreflect.uncertainty.claims.words import WordReader, clauses

FACTS = [
    "The tower was built in 1889.",
    "Gustave Eiffel designed the tower.",
    "It weighs 7300 tonnes.",
    "The tower is not open at night.",
    "Lightning strikes the tower often.",
    "Painters renew the brown colour regularly.",
]


def distribution(answers: list[str], reader: WordReader | None = None, **summaries: str) -> ClaimDistribution:
    return claim_distribution(
        reader or WordReader(), id="q", question="What about the tower?", answers=answers, summaries=summaries
    )


def supports(found: ClaimDistribution) -> dict[str, Support]:
    return {claim.text: claim.support for claim in found.claims}


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("He came. She left!", ["He came.", "She left!"]),
        ("Dr. J. R. Smith met Mr. Lee at 5 p.m. in the U.S. Embassy.", 1),
        ("It cost 3.5 million. That is much.", ["It cost 3.5 million.", "That is much."]),
        ("Am 3. März kam er. Dann ging er.", ["Am 3. März kam er.", "Dann ging er."]),
        (
            "The towns are:\n- Rome\n- Oslo. It is cold.\n\n# Notes\n1. Bern",
            ["Rome", "Oslo.", "It is cold.", "Bern"],
        ),
        ("Run this:\n```py\nx = 1. Y = 2.\n```\nDone.", ["```py\nx = 1. Y = 2.\n```", "Done."]),
        ('He said "No." Then he left.', ['He said "No."', "Then he left."]),
        ("東京は首都です。人口は多い。", ["東京は首都です。", "人口は多い。"]),
        ("هل أنقرة عاصمة؟ نعم هي العاصمة۔ انتهى.", ["هل أنقرة عاصمة؟", "نعم هي العاصمة۔", "انتهى."]),
        ("No end", ["No end"]),
        ("Born c. 1500, see Fig. 3 and S. 5. He died.", ["Born c. 1500, see Fig. 3 and S. 5.", "He died."]),
        ("Er sagt: „Ja.“ Dann ging er.", ["Er sagt: „Ja.“", "Dann ging er."]),
        ("> - [ ] He came.\n(a) She left.\nb) So.", ["He came.", "She left.", "So."]),
        (
            "Er ging z. B. nach Rom. Sie blieb u. a. hier.",
            ["Er ging z. B. nach Rom.", "Sie blieb u. a. hier."],
        ),
        ("| n | fact |\n|---|:-:|\n| 1 | Rome is old. It is big. |\n", ["Rome is old.", "It is big."]),
        ("| town | age |\n| --- | --- |\n| Rome | old. |\n| Oslo | new |", ["Rome | old.", "Oslo | new"]),
        ("  \n ...\n", []),
    ],
)
def test_texts_are_split_at_sentences(text: str, parts: list[str] | int) -> None:
    split = [sentence.text for sentence in sentences(text)]
    assert len(split) == parts if isinstance(parts, int) else split == parts


@given(st.text("aB1.!? \n-#*`:\"'。é", max_size=60))
def test_sentences_stand_where_they_say(text: str) -> None:
    end = 0
    for sentence in sentences(text):
        assert text[sentence.start : sentence.end] == sentence.text != ""
        assert sentence.start >= end
        end = sentence.end


@given(
    st.lists(st.sets(st.sampled_from(range(len(FACTS))), min_size=1), min_size=1, max_size=8), st.randoms()
)
def test_the_support_of_a_claim_is_the_share_of_answers_that_say_it(
    held: list[set[int]], draw: random.Random
) -> None:
    answers = []
    for facts in held:
        parts = [FACTS[index] for index in facts] * draw.choice([1, 2])  # saying it twice counts once
        draw.shuffle(parts)
        answers.append(" ".join(parts))
    found = supports(distribution(answers))
    counts = {FACTS[index]: sum(index in facts for facts in held) for index in set().union(*held)}
    assert {text: support.says for text, support in found.items()} == counts
    assert {text: support.share for text, support in found.items()} == {
        text: count / len(answers) for text, count in counts.items()
    }


def test_other_numbers_negations_and_opposites_contradict() -> None:
    found = supports(
        distribution(
            [
                "The tower was built in 1889. It is open at night.",
                "The tower was built in 1898. It is not open at night.",
                "It is closed at night.",
                "The tower was built.",
            ]
        )
    )
    assert found["The tower was built in 1889."] == Support(says=1, contradicts=1, silent=2)
    assert found["It is open at night."] == Support(says=1, contradicts=2, silent=1)


def test_the_interval_of_a_support_is_that_of_wilson() -> None:
    """By hand: 5 of 10 gives 0.5 -+ 0.263 (Wilson 1927)."""
    assert Support(5, 2, 3).interval == pytest.approx((0.236593, 0.763407), abs=1e-6)
    assert Support(0, 0, 4).interval == pytest.approx((0.0, 0.489891), abs=1e-6)
    assert (Support(0, 0, 0).share, Support(0, 0, 0).interval) == (None, None)


def test_a_summary_is_read_claim_by_claim() -> None:
    answers = [f"{FACTS[0]} {FACTS[1]}", FACTS[0], f"{FACTS[0]} {FACTS[4]}", FACTS[1]]
    invented = "The tower is made of wood and paper."
    found = distribution(
        answers,
        whole=" ".join((FACTS[0], FACTS[1], FACTS[4])),
        part=f"{FACTS[0]} {invented}",
        nothing="",
    )
    coverages = found.coverages
    assert (coverages["whole"].covered, coverages["whole"].precision) == (1.0, 1.0)
    # supports are 3/4, 2/4 and 1/4
    assert coverages["part"].covered == pytest.approx(0.5)
    assert (coverages["part"].precision, coverages["part"].added) == (
        0.5,
        ("The tower is made of wood and paper.",),
    )
    assert (coverages["nothing"].covered, coverages["nothing"].precision) == (0.0, None)
    assert (found.mean_support, found.least_support, found.weak) == (
        pytest.approx(0.5),
        0.25,
        pytest.approx(1 / 3),
    )


def honest(request: Request) -> str:
    """A model that lists the sentences of an answer and knows which facts it holds."""
    text = request.messages[-1].content
    answer = json.loads(re.findall(r"The answer was (\".*\")", text)[0])
    if "Here are claims" not in text:
        return "\n".join(f"{number}. {fact}" for number, fact in enumerate(re.findall(r"[^.]+\.", answer), 1))
    claims = [
        json.loads(line.partition(" ")[2]) for line in text.splitlines() if re.match(r"\d+[.:] \"", line)
    ]
    return "\n".join(f"{n}: {'yes' if claim in answer else 'silent'}" for n, claim in enumerate(claims, 1))


def test_a_model_is_asked_twice_for_each_text() -> None:
    answers = [" ".join(FACTS[start : start + 3]) for start in range(4)]
    model = Scripted(honest)
    found = distribution(answers, ModelReader(Asker("m", lambda: model)))
    says = {text: support.says for text, support in supports(found).items()}
    assert {text.strip(): count for text, count in says.items()} == dict(
        zip(FACTS, [1, 2, 3, 3, 2, 1], strict=True)
    )
    assert len(model.requests) == 2 * len(answers) == len(inquiries_about("What about the tower?", answers))


@pytest.mark.parametrize(
    ("reply", "stances"),
    [
        ("1: yes\n2: silent\n3: contradicts", ["says", "silent", "contradicts"]),
        ("(1) Yes.\n3) SILENT", ["says", None, "silent"]),
        ("1: yes\n1: silent\n2: maybe\n7: yes\n3: yes\n3: yes", [None, None, "says"]),
        ("I cannot do that.", [None, None, None]),
    ],
)
def test_a_line_without_a_clear_verdict_counts_as_none(reply: str, stances: list[str | None]) -> None:
    replies = ModelReplies(step="s", request="r", model="m", texts=(reply,), finishes=("stop",))
    assert read_stances(replies, 3) == stances
    cut = ModelReplies(step="s", request="r", model="m", texts=(reply,), finishes=("length",))
    assert read_stances(cut, 3) == [None] * 3


def test_summaries_are_asked_about_as_often_as_planned() -> None:
    answers = [" ".join(FACTS[start : start + 3]) for start in range(4)]
    model = Scripted(honest)
    reader = ModelReader(Asker("m", lambda: model))
    summaries = {"first": FACTS[0], "second": " ".join(FACTS[:2])}
    claim_distribution(reader, id="q", question="Which?", answers=answers, summaries=summaries)
    assert len(model.requests) == len(inquiries_about("Which?", answers, list(summaries.values())))


def test_blocks_of_code_that_never_end_are_lines() -> None:
    assert len(sentences("```x\n" * 20_000)) == 20_000
    assert [part.text for part in sentences("```a\n~~~\nx. Y.\n~~~\nZ.")] == [
        "```a",
        "~~~\nx. Y.\n~~~",
        "Z.",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "." * 100_000 + "b",
        "Mr. " * 50_000,
        "```x " * 50_000,
        "a." + '"' * 100_000 + "b",
        "- " + " " * 100_000 + "b",
        "|" + " " * 100_000 + "b",
    ],
)
def test_a_model_that_repeats_itself_is_split_in_linear_time(text: str) -> None:
    assert len(sentences(text)) == 1


def test_long_white_space_and_many_added_claims_take_seconds() -> None:
    assert clauses("It is not a" + " " * 100_000 + "b , or c.") == ["It is not a" + " " * 100_000 + "b", "c."]
    sheep = " ".join(f"Village {number} has {number} sheep." for number in range(1_510))
    started = time.perf_counter()
    told = told_claims("Q?", ["Rome has 3 hills.", "Rome has 7 hills."] * 10, sheep)
    assert time.perf_counter() - started < 10
    assert [claim.support for claim in told if claim.told] == [0] * 1_510
    # somebody waits, and the claims of answers are compared with each other
    with pytest.raises(DataError) as caught:
        told_claims("Q?", [sheep], "Rome has 3 hills.")
    assert caught.value.code == "too_many_claims"
    [(kind, reason)] = (claims_of("<b>Q?", [f"{sheep} {sheep.replace('sheep', 'cows')}"], {}) or {}).items()
    assert (kind, "'<b>Q?'" in reason, "3,020" in reason) == ("refused", True, True)


def test_the_command_counts_claims_of_a_file(tmp_path: Path) -> None:
    answers = [f"{FACTS[0]} {FACTS[1]}", FACTS[0], f"{FACTS[0]} <b>\x1b[31mBold</b>."]
    row = {"question": "What about the tower?", "answers": answers, "summary": FACTS[0]}
    file = written(tmp_path / "long.json", [row])
    outcome = run("claims", file, "--json")
    assert outcome.code == 0, outcome.stderr
    [line] = outcome.json
    assert line["claims"][0]["text"] == FACTS[0]
    assert (line["claims"][0]["support"], line["claims"][0]["says"]) == (1.0, 3)
    assert line["summaries"]["summary"]["covered"] == pytest.approx(3 / 5)
    assert sorted(line["answers"]) == sorted(answers)
    table = run("claims", file)
    assert table.code == 0
    assert "\x1b" not in table.stdout
    row["answers"] = [*answers, " "]
    blank = run("claims", written(tmp_path / "blank.json", [row]))
    assert "1 answer left out" in blank.stderr
    planned = run("claims", file, "--dry-run", "--model", "openai:m")
    assert (planned.code, "claim_verdicts" in planned.stdout, "money" in planned.stdout) == (0, True, False)
    prices = tmp_path / "prices.toml"
    prices.write_text('[prices."openai:m"]\ninput_per_million = 1\noutput_per_million = 2\n')
    planned = run("claims", file, "--dry-run", "--model", "openai:m", "--config", prices)
    assert (planned.code, "money" in planned.stdout) == (0, True)


LONG = {
    "question": "What about the tower?",
    "answers": [" ".join(FACTS[start : start + 3]) for start in (0, 0, 1, 1, 2, 2, 0, 3)],
    "summaries": {
        "whole": " ".join(FACTS),
        "part": f"{FACTS[0]} It was made of wood; a storm blew it down.",
        "wrong": FACTS[0].replace("1889", "1898"),
        "blank": "",
    },
}


def test_claims_are_a_measure_that_needs_no_judge(tmp_path: Path) -> None:
    items = written(tmp_path / "long.json", [LONG])
    outcome = run("score", "--items", items, "--measures", "claims", "--judge", "nowhere/none", "--json")
    assert outcome.code == 0, outcome.stderr
    found = {line["summary"]: line["claims"] for line in outcome.json}
    assert (found["whole"]["value"], found["whole"]["unit"]) == (1.0, "%")
    parts = found["part"]["parts"]
    assert (parts["precision"], parts["claims"], parts["added"]) == (pytest.approx(1 / 3), 3, 2)
    covered = parts["covered"]
    assert 0 < covered < 0.5
    assert found["part"]["value"] == pytest.approx(2 * covered / 3 / (covered + 1 / 3))
    assert (found["wrong"]["value"], found["blank"]["value"]) == (0, 0)
    assert found["blank"]["parts"]["precision"] is None


def test_claims_can_fail_a_comparison_and_are_in_a_frame(tmp_path: Path) -> None:
    worse = {**LONG, "summaries": {"whole": FACTS[5]}}
    better = {**LONG, "summaries": {"whole": " ".join(FACTS)}}
    for name, row in (("old", better), ("new", worse)):
        rows = [{**row, "question": f"{row['question']} {number}"} for number in range(6)]
        items = written(tmp_path / f"{name}.json", rows)
        assert run("import", "--items", items, "--out", tmp_path / name).code == 0
        assert run("score", "--out", tmp_path / name, "--measures", "claims").code == 0
    failed = run("compare", tmp_path / "old", tmp_path / "new", "--fail-if", "claims.worse > 0", "--json")
    assert failed.code == 3, failed.stderr
    assert failed.json[0]["claims"]["verdict"] == "worse"
    frame = Run.load(tmp_path / "new").to_pandas()
    assert frame["claims"].between(0, 0.5).all()


def test_claims_order_the_bundled_summaries() -> None:
    measure = measure_named("claims")
    for item in bundled_items("ranked_items"):
        of_item = (MeasureItem(item.question_record, item.answer_set, text) for text in item.summary_records)
        values = [measure.score(summary).value for summary in of_item]
        assert values[0] == max(values) > min(values) == values[-1] == 0


def classifier(folder: Path, likeliest: int) -> str:
    """A tiny classifier of pairs that prefers one of contradiction, entailment and neutral."""
    labels = {0: "contradiction", 1: "entailment", 2: "neutral"}
    return make_classifier(folder / str(likeliest), labels, likeliest, bias=2.0, longest=200)


@pytest.mark.parametrize(("likeliest", "stance"), [(0, "contradicts"), (1, "says"), (2, "silent")])
def test_a_classifier_of_pairs_reads_claims(tmp_path: Path, likeliest: int, stance: str) -> None:
    model = classifier(tmp_path, likeliest)
    reader = open_reader(f"nli:{model}")
    texts = [" ".join(FACTS), FACTS[0]]
    assert reader.stances("Which?", FACTS[:2], texts) == [[stance] * 2] * 2
    [found] = EntailmentModel(model).probabilities([("paris", "lyon")])
    assert found is not None
    assert (sum(found), max(found)) == (pytest.approx(1), found[(1, 0, 2).index(likeliest)])
    assert (reader.mentions("Which?", FACTS[:1], texts) > 0.5).all() == (likeliest == 1)
    long = reader.stances("Which?", ["tower " * 300], texts)
    assert (long, bool(reader.caveats)) == ([[None]] * 2, True)
    row = {**LONG, "answers": LONG["answers"][:2]}
    done = run("claims", written(tmp_path / "long.json", [row]), "--reader", f"nli:{model}", "--json")
    assert done.code == 0, done.stderr
    assert {done.json[0]["reader"]} == {f"nli:{model}"}


def test_a_classifier_without_contradiction_is_refused(tmp_path: Path) -> None:
    model = make_classifier(tmp_path, {0: "entailment", 1: "other"}, 0)
    with pytest.raises(ConfigError) as refused:
        open_reader(f"nli:{model}").stances("Which?", FACTS, FACTS)
    assert refused.value.code == "labels"


@pytest.mark.parametrize(
    "arguments", [["nlp"], ["nli"], ["words:x"], ["asked"], ["words", "--model", "openai:m"]]
)
def test_readers_that_cannot_read_are_refused(tmp_path: Path, arguments: list[str]) -> None:
    done = run("claims", written(tmp_path / "long.json", [LONG]), "--reader", *arguments)
    assert (done.code, done.stdout) == (2, "")


def test_embeddings_see_other_words_and_numbers_by_the_rule() -> None:
    reader = open_reader("embedding")
    texts = [
        "The tower was constructed in 1889.",
        "The tower was constructed in 1898.",
        "Bananas are yellow.",
    ]
    [said], [contradicted], [silent] = reader.stances("What about the tower?", FACTS[:1], texts)
    assert (said, contradicted, silent) == ("says", "contradicts", "silent")
    mentioned = reader.mentions("What about the tower?", FACTS[:1], texts)[:, 0]
    assert mentioned[0] > 0.9 > 0.3 > mentioned[2]
    assert mentioned[1] > 0.7  # which numbers do not change


@pytest.mark.parametrize(
    ("claim", "text", "stance"),
    [
        ("The tower was built in 1889.", "They built the tower on 26 January 1889.", "says"),
        ("The tower was built in 1889.", "They built the tower from 1885 to 1887.", "contradicts"),
        ("It was built on 3 May 1889.", "It was built on 4 May 1889.", "contradicts"),
        ("10 years.", "About 5 years, perhaps 10", "says"),
        ("7300 tonnes.", "It weighs 7,300,000 kg.", "says"),
        ("At 6:40.", "At 7:10.", "contradicts"),
        ("It is open at night.", "It is open at night, and not by day.", "says"),
        ("60 metres tall.", "It is tall.", "silent"),
        # a number that is left out contradicts nothing, nor does one of another unit
        ("The old iron tower cost 7.8 million in 1889.", "The old iron tower cost 7.8 million.", "silent"),
        ("The walk along the river is 30 km.", "The walk along the river takes 8 hours.", "silent"),
        ("The walk along the river is 30 km.", "The walk along the river is 30,000 m.", "says"),
        ("It opened in December 1889.", "It opened on 10 December 1889.", "says"),
        ("It opened in December 1889.", "It opened in May 1889.", "contradicts"),
        ("He lived from 1815 to 1852.", "He lived 1815–1852.", "says"),
        ("It has two lifts.", "It has 2 lifts.", "says"),
        ("It has two lifts.", "It has three lifts.", "contradicts"),
        ("It rose by 5%.", "It fell by 5%.", "contradicts"),
        ("More than 5 people died.", "Fewer than 5 people died.", "contradicts"),
        ("Kinder über 12 zahlen.", "Kinder unter 12 zahlen.", "contradicts"),
        ("It has twenty-one rooms.", "It has 21 rooms.", "says"),
        ("It has twenty-one rooms.", "It has twenty rooms.", "contradicts"),
        # names, subjects and opposites in sentences that are else nearly equal
        (
            "The capital of the northern province is the city of Ankara.",
            "The capital of the northern province is the city of Bursa.",
            "silent",
        ),
        (
            "Paris held the big summer games of all athletes.",
            "Rome held the big summer games of all athletes.",
            "silent",
        ),
        ("However, the tower was shut in the war.", "The tower was shut in the war.", "says"),
        (
            "It is open at night in the long summer.",
            "It is closed at night in the long summer.",
            "contradicts",
        ),
        ("She never married.", "She didn't marry.", "says"),
        ("It is large and heavy.", "Not only is it large, it is also heavy.", "says"),
        ("It has lifts.", "It lacks lifts.", "contradicts"),
        ("It lacks lifts.", "It has no lifts.", "says"),
        ("Es hat Aufzüge.", "Aufzüge fehlen.", "contradicts"),
        ("Elle est née à Londres.", "Elle n'est pas née à Londres.", "contradicts"),
        ("Москва столица.", "Москва не столица.", "contradicts"),
    ],
)
def test_numbers_negations_and_units_are_read(claim: str, text: str, stance: str) -> None:
    assert WordReader().stances("What about the tower?", [claim], [text]) == [[stance]]


ORDERS = [
    ("Ann beat Bob.", "Bob beat Ann.", "silent"),
    ("Ann Lee beat Bob Cox.", "Bob Cox beat Ann Lee.", "silent"),
    ("Ann beat Bob in 1990.", "In 1990 Bob beat Ann.", "silent"),
    ("The dog bit the old man.", "The old man bit the dog.", "silent"),
    ("The king of Spain beat the duke of Alba.", "The duke of Alba beat the king of Spain.", "silent"),
    ("She lived in London and worked in Paris.", "She lived in Paris and worked in London.", "silent"),
    ("He flew from London to Paris.", "He flew from Paris to London.", "silent"),
    ("Der Hund biss den Mann.", "Der Mann biss den Hund.", "silent"),
    ("A is north of B.", "B is north of A.", "contradicts"),
    ("Ann is older than Bob.", "Bob is older than Ann.", "contradicts"),
    ("Rome has 3 hills and Oslo 5.", "Rome has 5 hills and Oslo 3.", "contradicts"),
    ("The mill is north of the church.", "The church is south of the mill.", "says"),
    ("Ann is as old as Bob.", "Bob is as old as Ann.", "says"),
    ("Ann married Bob.", "Bob married Ann.", "says"),
    ("Ankara is the capital.", "The capital is Ankara.", "says"),
    ("Eiffel designed the mill.", "The mill was designed by Eiffel.", "says"),
    ("Den Mann biss der Hund.", "Der Hund biss den Mann.", "says"),
    ("Ann beat Bob in 1990.", "In 1990 Ann beat Bob.", "says"),
    ("He lived in Rome, in Oslo and in Bern.", "He lived in Bern, in Oslo and in Rome.", "says"),
    ("It is red, green and blue.", "It is blue, green and red.", "says"),
    ("She was born in London in May.", "She was born in May in London.", "says"),
    ("She wrote in Rome and painted in Oslo.", "She painted in Oslo and wrote in Rome.", "says"),
]


@pytest.mark.parametrize(("claim", "text", "stance"), ORDERS)
def test_who_does_what_to_whom_is_read_by_order(claim: str, text: str, stance: str) -> None:
    reader = WordReader()
    assert reader.stances("What happened?", [claim], [text]) == [[stance]]
    assert reader.stances("What happened?", [text], [claim]) == [[stance]]
    assert len(reader.distinct("What happened?", [claim, text])) == 1 + (stance != "says")


def test_a_summary_is_read_clause_by_clause() -> None:
    assert clauses("Most likely (60 %) the mill bridge, or the church bridge; otherwise I cannot say.") == [
        "Most likely   the mill bridge",
        "the church bridge",
    ]
    assert clauses("5 %") == ["5 %"]


def test_more_claims_than_can_be_compared_are_refused(tmp_path: Path) -> None:
    letters = "abcdefghijklmnopqrst"
    pairs = [f"{first}{second}" for first in letters for second in letters]
    facts = [f"Qu{pair}{end}o sleeps." for pair in pairs for end in "aeio"]
    answers = [" ".join(facts[start : start + 100]) for start in range(0, len(facts), 100)]
    file = written(tmp_path / "many.json", [{"question": "Who sleeps?", "answers": answers}])
    refused = run("claims", file, "--json")
    assert (refused.code, refused.stdout) == (2, "")
    long = {"question": "Who?", "answers": [" ".join(facts)] * 2, "summary": "Quaaao sleeps."}
    summarised = written(tmp_path / "items.json", [long])
    scored = run("score", "--items", summarised, "--measures", "claims", "--json")
    assert '"too_many_claims"' in scored.stdout


def test_a_thousand_claims_that_differ_by_a_year_take_seconds() -> None:
    facts = [f"Painters renew the tower in the year {year} in brown." for year in range(1000, 2000)]
    started = time.perf_counter()
    found = distribution([" ".join(facts[start::20]) for start in range(20)])
    assert time.perf_counter() - started < 15
    assert {claim.support for claim in found.claims} == {Support(says=1, contradicts=19, silent=0)}

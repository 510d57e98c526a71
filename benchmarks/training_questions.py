"""Questions with contradictory evidence, made from templates, to train and test summaries on.

    python benchmarks/training_questions.py questions.jsonl --count 240 --seed 0

Only the model reads the evidence (``context``), so a judge cannot know the answers; what the evidence says,
and how often, is known by construction (``values`` and ``weights``). No two questions have the same text.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import NamedTuple

PEOPLE = "Anna Ben Clara David Emma Felix Grace Henry Ida Jonas Kate Leo Mia Noah Olga Paul".split()


class Topic(NamedTuple):
    """What is asked, of many things, and what witnesses may say."""

    name: str
    question: str
    """With ``{thing}``."""
    statement: str
    """With ``{thing}`` and ``{value}``."""
    things: str
    values: str


TOPICS = (
    Topic(
        "colour",
        "What colour was the {thing}?",
        "the {thing} was {value}",
        "car,bicycle,boat,hat,coat,tent,kite,van,umbrella,door,bucket,scarf,lamp,suitcase,horse blanket",
        "red,blue,green,yellow,black,white",
    ),
    Topic(
        "cause",
        "What broke the {thing}?",
        "the {value} broke the {thing}",
        "vase,window,fence,mirror,lamp post,teapot,bowl,chair,"
        "clock,roof tile,flower pot,jar,plate,bench,gate",
        "cat,wind,dog,ball,ladder,goat",
    ),
    Topic(
        "month",
        "In which month is the {thing}?",
        "the {thing} is in {value}",
        "fair,concert,wedding,race,harvest,exam,festival,auction,"
        "picnic,parade,election,book sale,regatta,play,ball",
        "March,April,May,June,July,October",
    ),
    Topic(
        "place",
        "Where is the {thing}?",
        "the {thing} is in the {value}",
        "key,letter,map,ring,passport,hammer,torch,wallet,phone,ticket,rope,camera,notebook,whistle,compass",
        "kitchen,garage,cellar,attic,garden,office",
    ),
    Topic(
        "day",
        "On which day does the {thing} open?",
        "the {thing} opens on {value}",
        "museum,library,market,pool,bakery,theatre,gallery,station shop,"
        "zoo,school,bank,cinema,clinic,archive,gym",
        "Monday,Tuesday,Thursday,Friday,Saturday,Sunday",
    ),
    Topic(
        "person",
        "Who painted the {thing}?",
        "{value} painted the {thing}",
        "wall,sign,barn,portrait,bridge,ceiling,mural,poster,"
        "shed,banner,church door,ship,staircase,tower,stage",
        "Rosa,Victor,Nina,Oscar,Tara,Simon",
    ),
    Topic(
        "number",
        "How many {thing} did the family bring?",
        "the family brought {value} {thing}",
        "apples,chairs,cakes,candles,books,blankets,games,bottles,"
        "boxes,lanterns,cups,melons,songs,tents,flags",
        "two,three,four,five,six,seven",
    ),
)

SHAPES = {"agree": (2,), "one each": (1, 1), "two to one": (2, 1), "three ways": (1, 1, 1)}
"""How many witnesses say each value."""


def make_questions(count: int, seed: int) -> list[dict[str, object]]:
    """Make questions; the first ones are the same whatever the count is.

    Raises:
        ValueError: the templates do not give as many different questions.
    """
    rng = random.Random(seed)
    pairs = [(topic, thing) for topic in TOPICS for thing in topic.things.split(",")]
    many = [(topic, thing, owner) for (topic, thing), owner in product(pairs, ("", "of the neighbours"))]
    if count > len(many):
        raise ValueError(f"there are {len(many)} different questions, not {count}")
    rng.shuffle(many)
    shapes = _shapes(rng)
    return [_question(rng, *each, next(shapes)) for each in many[:count]]


def _shapes(rng: random.Random) -> Iterator[str]:
    """Every shape equally often, in random order."""
    while True:
        names = list(SHAPES)
        rng.shuffle(names)
        yield from names


def _question(rng: random.Random, topic: Topic, thing: str, owner: str, shape: str) -> dict[str, object]:
    weights = SHAPES[shape]
    values = rng.sample(topic.values.split(","), len(weights))
    said = [value for value, weight in zip(values, weights, strict=True) for _ in range(weight)]
    rng.shuffle(said)
    names = rng.sample(PEOPLE, len(said))
    whole = f"{thing} {owner}".strip()
    sentences = []
    for name, value in zip(names, said, strict=True):
        statement = topic.statement.format(thing=whole, value=value)
        sentences.append(f"{name} says that {statement}.")
    text = topic.question.format(thing=whole)
    return {
        "id": "-".join([topic.name, *whole.split()]),
        "question": text,
        "context": " ".join(sentences),
        "kind": f"{topic.name}, {shape}",
        "gold": values[:1],
        "values": "|".join(values),
        "weights": "|".join(map(str, weights)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("--count", type=int, default=240)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    lines = [json.dumps(row) + "\n" for row in make_questions(options.count, options.seed)]
    options.output.write_text("".join(lines), "utf-8")


if __name__ == "__main__":
    main()

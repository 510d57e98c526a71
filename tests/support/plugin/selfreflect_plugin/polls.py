"""Polls, as in ``{"ask": "Capital of Oz?", "votes": {"Emerald City": 2, "Ruby Town": 1}}``."""

from collections.abc import Iterator, Sequence

from selfreflect.sources.layouts import Layout
from selfreflect.sources.rows import Row


class Polls(Layout):
    name = "polls"

    def matches(self, rows: Sequence[Row]) -> bool:
        return all(row.fields.keys() >= {"ask", "votes"} for row in rows)

    def items(self, rows: Sequence[Row]) -> Iterator[Row]:
        for row in rows:
            votes = row.fields["votes"]
            if not isinstance(votes, dict):
                raise row.error("'votes' must be an object")
            answers = [answer for answer, count in votes.items() for _ in range(count)]
            yield row._replace(fields={**row.fields, "question": row.text("ask"), "answers": answers})

    def explain(self) -> str:
        return "votes of a poll"

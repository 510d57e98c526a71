"""What tests of studies share: two metrics, made-up values of every summary, and tables by heading."""

from __future__ import annotations

from collections.abc import Callable

from selfreflect.render.table import Table
from selfreflect.sources.items import Item
from selfreflect.validate.base import MetricInfo, Undefined, Value, digest
from selfreflect.validate.study import Study

LOWER = MetricInfo(name="distance", better="lower", group="control", about="")
HIGHER = MetricInfo(name="agreement", better="higher", group="control", about="")


def measured(study: Study, metric: MetricInfo, score: Callable[[Item, str], float | None]) -> list[Value]:
    """A value of every summary, undefined where ``score`` gives None."""
    values = []
    for item in study.items:
        for name in item.summaries:
            number = score(item, name)
            values.append(
                Value(
                    metric=metric.name,
                    item=item.id,
                    summary=name,
                    digest=digest(item, name),
                    value=number,
                    undefined=Undefined(reason="blank", message="") if number is None else None,
                )
            )
    return values


def cells(table: Table) -> list[dict[str, object]]:
    """Each row by heading."""
    headings = [column.heading for column in table.columns]
    return [dict(zip(headings, row, strict=True)) for row in table.rows]

"""What tests of studies share: two metrics, made-up values of every summary, and tables by heading."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from selfreflect.sources.items import Item
from selfreflect.table import Cell, Table
from selfreflect.validate.base import MetricInfo, Undefined, Value, digest
from selfreflect.validate.study import Finding, Study

LOWER = MetricInfo(name="distance", better="lower", group="control", about="")
HIGHER = MetricInfo(name="agreement", better="higher", group="control", about="")


def made_value(metric: str, item: str, summary: str, number: float | None, by: str = "judge") -> Value:
    """A value of one summary by a judge, undefined where there is no number."""
    undefined = Undefined(reason="backend", message="no") if number is None else None
    return Value(
        metric=metric, item=item, summary=summary, digest="", by=by, value=number, undefined=undefined
    )


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


def shown(finding: Finding) -> tuple[Any, ...]:
    """All that a reader gets of a finding."""
    return finding.study, finding.tables, finding.says


def table(finding: Finding, title: str) -> Table:
    """The first table whose title begins so."""
    return next(table for table in finding.tables if table.title.startswith(title))


def rows(table: Table, **where: Cell) -> list[dict[str, Any]]:
    """Rows by heading, of those that hold ``where``."""
    headings = [column.heading for column in table.columns]
    by_heading = [dict(zip(headings, row, strict=True)) for row in table.rows]
    return [row for row in by_heading if row.items() >= where.items()]

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

"""The objects that all routes share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from selfreflect.app.grouping import Meaning
from selfreflect.app.jobs import JobQueue
from selfreflect.app.library import Library
from selfreflect.app.work import ModelChoices


@dataclass(frozen=True)
class Services:
    queue: JobQueue
    library: Library
    models: ModelChoices
    meaning: Meaning


async def _services(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


Shared = Annotated[Services, Depends(_services)]
"""Annotates the parameter of a route that takes the services of its application."""

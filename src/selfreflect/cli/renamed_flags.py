"""Flags under the names of an earlier release."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import typer
from typer.core import TyperCommand

RENAMED = {"--part": "--shard", "--engine": "--executor"}
"""These work for one release more, with a hint."""


class Command(TyperCommand):
    """A command that also takes its flags under their former names."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        flags = {flag for parameter in self.params for flag in parameter.opts}
        if "--device-map" in flags:
            _refuse_shard_without_numbers(args)
        renamed = {old: new for old, new in RENAMED.items() if new in flags}
        return super().parse_args(ctx, [_new_name(argument, renamed) for argument in args])


def _new_name(argument: str, renamed: dict[str, str]) -> str:
    flag, equals, value = argument.partition("=")
    if flag not in renamed:
        return argument
    typer.echo(f"{flag} is now called {renamed[flag]}; the old name will be removed.", err=True)
    return renamed[flag] + equals + value


def _refuse_shard_without_numbers(args: list[str]) -> None:
    """``--shard`` used to spread a model over GPUs and took no value."""
    for argument, following in pairwise([*args, ""]):
        if argument == "--shard" and not re.match(r"\d", following):
            raise typer.BadParameter(
                "to spread a model over all visible GPUs, use --device-map auto. "
                "--shard K/N now splits the questions, as in --shard 3/16."
            )

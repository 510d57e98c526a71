"""Help texts: commands and options in groups, at most a screen or two of them."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

COMMAND_GROUPS: Mapping[str, Sequence[str]] = {
    "Look": ("demo", "ask", "app"),
    "Your data": ("convert", "score", "import", "export", "validate"),
    "Runs": ("run", "questions", "answers", "summarize", "report", "compare", "config", "bench"),
    "Uncertainty": ("uncertainty", "calibrate", "claims"),
    "Train": ("dataset", "sayself"),
    "Serve": ("serve",),
}
MODEL, JUDGE, ESTIMATES, DETAILS = "Model", "Judge", "Estimates", "Where it runs, and details"
OPTION_GROUPS: Mapping[str, str] = {
    MODEL: "--model --base-url --num-answers --temperature --max-new-tokens --strategies --base",
    JUDGE: "--judge --measures --controls --budget",
    ESTIMATES: "--estimator --estimators --classes --correctness --gold --confidence --calibrator "
    "--when-unsure --below --method --risk --set --one-call",
    DETAILS: "--seed --judge-url --device --device-map --executor --ray-address --batch-size "
    "--max-connections --timeout --trust-remote-code --guesses --compat --judge-dtype "
    "--judge-revision --revision --extra-body --prompts --write-batch --read-batch --top-p "
    "--num-samples --summary-tokens --logprobs --top-logprobs --thinking --reader --shard --split --subset "
    "--separator --question-column --context-column --log --fresh --add-questions "
    "--similarity --sample-p-true --proxies --band --ask-candidates --ask-hypotheses --ignore-tools "
    "--allow-remote --words --variants --seeds "
    "--groups --parts --ratings --list-metrics --keep-texts --footer --writer --reward",
}
"""Flags by group. Others are common; the last group is explained by ``--help-all`` alone where a help
text would be long."""
COMMON = "Common"
MOST_LINES = 60
"""Of a help text at 80 columns, where ``--help-all`` does not ask for more."""
EXAMPLE_LINES = 3
LETTERS = (300, 160, 120, 90, 70, 55)
"""Of a shortened sentence: the first length with which a help text fits."""
ALL = "--help-all"
_NEEDS_ALL = "selfreflect.help_all"
_GROUP_OF = {flag: name for name, flags in OPTION_GROUPS.items() for flag in flags.split()}
# a dot inside of an abbreviation or a file name is followed by no capital letter
_FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
_SENTENCE_END = re.compile(r"(?<=[.;]) (?=[A-Z\[-])")
_DEFAULT = re.compile(r" \[default: [^\]]*\]")
Row = tuple[str, str]


def take_help_all(context: Any, words: list[str]) -> list[str]:
    """Read ``--help-all`` as ``--help`` with every option."""
    if ALL not in words:
        return words
    context.meta[_NEEDS_ALL] = True
    return ["--help" if word == ALL else word for word in words]


def write_commands(rows: Sequence[Row], formatter: Any) -> None:
    """Write commands by group."""
    texts = dict(rows)
    width = max((len(name) for name in texts), default=0)
    group_names = {name for names in COMMAND_GROUPS.values() for name in names}
    groups = {**COMMAND_GROUPS, "Commands": [name for name in texts if name not in group_names]}
    for title, names in groups.items():
        if pairs := [(name.ljust(width), texts[name]) for name in names if name in texts]:
            with formatter.section(title):
                formatter.write_dl(pairs)


def write_options(command: Any, context: Any, formatter: Any) -> None:
    """Write the options of a command by group: whole where that fits, else their first sentences and the
    names of the last group."""
    rows: dict[str, list[Row]] = {name: [] for name in (COMMON, *OPTION_GROUPS)}
    for parameter in command.get_params(context):
        if record := parameter.get_help_record(context):
            flag = next((name for name in parameter.opts if name in _GROUP_OF), "")
            rows[_GROUP_OF.get(flag, COMMON)].append(record)
    start = len(formatter.buffer)
    _write_groups(rows, formatter)
    if context.meta.get(_NEEDS_ALL):
        return
    for letters in LETTERS:
        if "".join(formatter.buffer).count("\n") <= MOST_LINES - EXAMPLE_LINES:
            return
        del formatter.buffer[start:]
        _write_short(rows, letters, formatter)


def _write_groups(rows: Mapping[str, Sequence[Row]], formatter: Any) -> None:
    for title, options in rows.items():
        if options:
            with formatter.section(title):
                formatter.write_dl(options, col_max=24)


def _write_short(rows: Mapping[str, Sequence[Row]], letters: int, formatter: Any) -> None:
    """Write each option in a sentence of some letters, and the options of the last group by name."""
    short_rows = {
        title: [(usage, _first_sentence(text, letters)) for usage, text in options]
        for title, options in rows.items()
        if title != DETAILS
    }
    short_rows[COMMON].append((ALL, "Show all options, and each in full."))
    _write_groups(short_rows, formatter)
    flags = [name for usage, _ in rows[DETAILS] for name in _FLAG.findall(usage)]
    if flags:
        with formatter.section(f"{DETAILS} ({ALL} explains them)"):
            width = formatter.width - formatter.current_indent
            for line in textwrap.wrap(", ".join(flags), width, break_on_hyphens=False):
                formatter.write(f"{'':{formatter.current_indent}}{line}\n")


def _first_sentence(text: str, letters: int) -> str:
    """Shorten a help text to its first sentence, to some letters of it, and to a short default."""
    required = "  [required]" if text.endswith("[required]") else ""
    defaults = _DEFAULT.findall(text)
    text = _DEFAULT.sub("", text.removesuffix("[required]")).strip()
    sentence = _SENTENCE_END.split(text)[0].rstrip(";")
    if len(sentence) > letters:
        cut = max(sentence.rfind(mark, 0, letters) for mark in (", ", "; ", ": ", " ("))
        cut = cut if cut > 0 else sentence.rfind(" ", 0, letters)
        sentence = f"{sentence[:cut]} …"
    default = next((text for text in defaults if len(text) < letters // 2), "")
    return sentence + default + required

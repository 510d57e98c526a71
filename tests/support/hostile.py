"""Texts that somebody may put into a question, an answer, a summary or a name in the hope that a page runs or
hides them."""

from __future__ import annotations

import re

from selfreflect.text import printable

_RUN = "window.pwned=1"

PAYLOADS: tuple[str, ...] = (
    f"<script>{_RUN}</script>",
    f"</script><script>{_RUN}</script>",
    f"<img src=x onerror={_RUN}>",
    f"<svg onload={_RUN}>",
    f"<svg><script>{_RUN}</script></svg>",
    f'"><img src=x onerror="{_RUN}">',
    f"' onmouseover='{_RUN}' x='",
    f'" autofocus onfocus="{_RUN}" x="',
    f"<a href=javascript:{_RUN}>click</a>",
    f"javascript:{_RUN}",
    f"<iframe srcdoc='<script>parent.{_RUN}</script>'></iframe>",
    f"<body onload={_RUN}>",
    f"<details open ontoggle={_RUN}>x</details>",
    f"<style>@import 'https://example.invalid/x.css';</style><script>{_RUN}</script>",
    "<link rel=stylesheet href=https://example.invalid/x.css>",
    "<meta http-equiv=refresh content='0;url=https://example.invalid'>",
    f"<base href=https://example.invalid/><script>{_RUN}</script>",
    f"<math><mtext></p><img src=x onerror={_RUN}></math>",
    f"<!--<img src='--><img src=x onerror={_RUN}//'>",
    f"<![CDATA[><script>{_RUN}</script>]]>",
    f"<template><script>{_RUN}</script></template>",
    f"&lt;script&gt;{_RUN}&lt;/script&gt;",
    f"{{{{ 7 * 7 }}}} {{% raw %}} ${{{_RUN}}} #{{7*7}}",
    "$\\frac{1}{0}$ \\input{/etc/passwd}",
    "=HYPERLINK('https://example.invalid','x')",
    "@SUM(1+1)*cmd|' /C calc'!A0",
    "-2+3+cmd",
    "safe \u202egnp.exe\u202c \u2066isolated\u2069 \u200f",
    "\ud800 lone \udfff \x00 \x1b[31m \x85 \u2028 \u2029 \ufeff",
    "broken \ufffd\xff\xfe utf-8 \u0301\u0301\u0301",
    "x" * 300_000,
)


def shown(text: str, limit: int = 200) -> str:
    """How a label of a page shows a text: what hides or reorders as escapes, on one line, cut."""
    line = flat(printable(text)) or "(blank)"
    return line if len(line) <= limit else line[: limit - 1] + "…"


def flat(text: str) -> str:
    """A text as a browser tells it, whose white space is not the point."""
    return re.sub(r"\s+", " ", text).strip()

"""An installation without torch: what needs no model works, and the rest says in one sentence what to
install."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from command import environment

RUN = Path(__file__).parents[1] / "data" / "witness" / "run"

PROGRAM = """
import json, sys
for name in ("torch", "transformers", "accelerate", "gguf"):
    sys.modules[name] = None
from typer.main import get_command
from selfreflect.cli import application
command = get_command(application())
codes = []
for arguments in json.loads(sys.argv[1]):
    try:
        command(arguments, prog_name="selfreflect")
    except SystemExit as end:
        codes.append(end.code or 0)
sys.stdout.flush()
print(codes)
"""


def test_without_torch_what_needs_no_model_works_and_the_rest_is_told_in_a_sentence(tmp_path: Path) -> None:
    items = tmp_path / "items.json"
    items.write_text(json.dumps([{"question": "Who?", "answers": ["I.", "You."], "summaries": {"a": "Me."}}]))
    page = tmp_path / "page.html"
    commands = [
        ["--help"],
        ["questions", "--questions", "bundled", "--limit", "2"],
        ["compare", str(RUN)],
        ["report", str(RUN), "--output", str(page), "--groups", "spelling"],
        ["score", "--items", str(items)],
        ["ask", "Who?"],
    ]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(commands)],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=120,
    )
    assert done.stdout.splitlines()[-1] == "[0, 0, 0, 0, 2, 2]", done.stderr
    assert "<svg" in page.read_text(encoding="utf-8")
    sentence = "error: the package torch is not installed. Install it with: pip install 'torch>="
    assert done.stderr.count(sentence) == 2
    assert "Traceback" not in done.stderr

"""Make the witness with today's code: ``python tests/data/witness/make.py``, some four minutes on two cores.

Run it only when a change of results is wanted and written down: the witness is worth what its age is. It
works in a scratch folder with relative paths, so that no name of this machine gets into the files.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "support"))

import witness as w


def main() -> None:
    for name in w.RECORDS:
        shutil.rmtree(w.WITNESS / name, ignore_errors=True)
    with tempfile.TemporaryDirectory() as scratch:
        made = w.workplace(Path(scratch) / "made")
        for command in w.MAKE.values():
            done = w.call(command, made)
            assert done.code == 0, done.stderr
        for name in w.RECORDS:  # without locks and plots: the ones hold process ids, the others are large
            shutil.copytree(made / name, w.WITNESS / name, ignore=shutil.ignore_patterns(".lock", "*.svg"))

        light = w.workplace(Path(scratch) / "light")
        outputs = {name: w.call(command, light) for name, command in w.CHEAP.items()}
        for name in ("report.md", "report.csv"):
            shutil.copy(light / name, w.WITNESS)
        write("page.json", w.page_data((light / "page.html").read_text(encoding="utf-8")))
        write("imported.json", w.records(light / "imported"))
        write("published.json", w.records(light / "published"))

        rest = w.JUDGED | w.ESTIMATED | w.COSTLY
        outputs |= {
            name: w.call(command, w.workplace(Path(scratch) / str(place)))
            for place, (name, command) in enumerate(rest.items())
        }
        write("outputs.json", {name: done.lines for name, done in outputs.items() if name not in w.COSTLY})
        write("shapes.json", {name: w.shape(done.lines) for name, done in outputs.items()})
        write("flags.json", {name: w.flags(w.call(f"{name} --help", light).stdout) for name in w.NAMES})


def write(name: str, value: object) -> None:
    (w.WITNESS / name).write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


main()

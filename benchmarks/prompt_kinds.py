"""How well the endpoint's rule tells questions from what should not be sampled.

python benchmarks/prompt_kinds.py                        # the 100 prompts with which the rule was made
python benchmarks/prompt_kinds.py prompt_kinds_new.json  # prompts that were written afterwards
python benchmarks/prompt_kinds.py prompt_kinds_languages.json  # and others, in English, German and French
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from pathlib import Path

from selfreflect.server.kinds import kind_of


def measure(path: Path) -> None:
    """Print precision and recall of questions, the rule's kinds for each kind, and every mistake."""
    rows = json.loads(path.read_text(encoding="utf-8"))
    began = time.perf_counter()
    kinds = [kind_of(row["prompt"]) for row in rows]
    milliseconds = 1000 * (time.perf_counter() - began) / len(rows)
    sampled = [kind == "question" for kind in kinds]
    right = sum(row["reflect"] and is_sampled for row, is_sampled in zip(rows, sampled, strict=True))
    wanted = sum(row["reflect"] for row in rows)
    print(f"{len(rows)} prompts, {wanted} of them questions; {milliseconds:.2f} ms each")
    print(f"precision {right / sum(sampled):.3f} ({right} of {sum(sampled)} that are sampled)")
    print(f"recall {right / wanted:.3f} ({right} of {wanted} questions)")
    for name in dict.fromkeys(row["kind"] for row in rows):
        found = Counter(kind for row, kind in zip(rows, kinds, strict=True) if row["kind"] == name)
        print(f"  {name}: {', '.join(f'{kind} {count}' for kind, count in found.most_common())}")
    for row, kind, is_sampled in zip(rows, kinds, sampled, strict=True):
        if row["reflect"] != is_sampled:
            print(f"  wrong: {kind} for {row['prompt']!r}")


if __name__ == "__main__":
    name = sys.argv[1] if len(sys.argv) > 1 else "prompt_kinds.json"
    measure(Path(__file__).parent / name)

"""Run ``tests/test_fuzz.py`` again and again with new seeds, for about so many seconds: ``make fuzz``."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time

EXAMPLES = 300
"""Examples of each test in one round."""


def main(seconds: float) -> int:
    until = time.monotonic() + seconds
    rounds = 0
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "tests/test_fuzz.py"]
    while (left := until - time.monotonic()) > 0:
        seed = random.SystemRandom().randrange(2**32)
        try:
            done = subprocess.run(
                [*command, f"--hypothesis-seed={seed}"],
                env={**os.environ, "FUZZ_EXAMPLES": str(EXAMPLES)},
                stdout=subprocess.PIPE,
                text=True,
                timeout=left,
                check=False,
            )
        except subprocess.TimeoutExpired:
            break
        if done.returncode:
            print(done.stdout)
            print(
                f"seed {seed}: paste the line that begins with @example above its test in tests/test_fuzz.py"
            )
            return 1
        rounds += 1
    print(f"nothing found in {rounds} whole rounds of {EXAMPLES} examples")
    return 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1])))

"""How often a question to ask back seems to tell much although its predicted replies are random.

    python benchmarks/asking_back.py

The endpoint asks the best of its candidates. Here each of them has the same number of replies, which are
predicted by chance, whatever the answer; the shares of the answers are any (a flat Dirichlet distribution).
"""

from __future__ import annotations

import numpy as np

from selfreflect.serve.clarify import CANDIDATES, OPTIONS, PREDICTIONS, corrected_gain

TRIALS = 4000
BITS = (0.3, 0.4, 0.5, 0.6)


def best_gain(rng: np.random.Generator, hypotheses: int, options: int) -> float:
    """The largest gain of the candidates, in bits."""
    shares = rng.dirichlet(np.ones(hypotheses))
    gains = []
    for _ in range(CANDIDATES):
        counts = rng.multinomial(PREDICTIONS, np.full(options, 1 / options), hypotheses)
        gains.append(corrected_gain(shares, counts / PREDICTIONS, PREDICTIONS))
    return max(gains)


def main() -> None:
    print("| replies | answers |", " | ".join(f"at least {bits} bits" for bits in BITS), "|")
    print("| --- " * (2 + len(BITS)) + "|")
    for options in range(OPTIONS[0], OPTIONS[1] + 1):
        for hypotheses in (2, 3, 4, 5, 15):
            rng = np.random.default_rng(0)
            gains = np.array([best_gain(rng, hypotheses, options) for _ in range(TRIALS)])
            cells = [f"{np.mean(gains >= bits):.1%}" for bits in BITS]
            print(f"| {options} | {hypotheses} |", " | ".join(cells), "|")


if __name__ == "__main__":
    main()

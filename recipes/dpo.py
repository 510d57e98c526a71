"""Train a model to prefer better summaries of its own answers, on pairs of `selfreflect dataset dpo`."""

from __future__ import annotations

import sys

from common import Rows, parser, run

from selfreflect.train.presets import TrainingPreset, preference_arguments
from selfreflect.train.trainers import prefer


def main() -> int:
    arguments = parser(__doc__).parse_args()

    def train(preset: TrainingPreset, rows: Rows) -> None:
        prefer(
            preset.model,
            rows,
            arguments.out,
            preset,
            arguments.seed,
            adapter=arguments.adapter,
            resume=arguments.resume,
        )

    return run("dpo", arguments, preference_arguments, train)


if __name__ == "__main__":
    sys.exit(main())

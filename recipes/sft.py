"""Train a model on the best summaries of its own answers, made by `selfreflect dataset sft` (or hedge)."""

from __future__ import annotations

import sys

from common import Rows, parser, run

from selfreflect.train.presets import TrainingPreset, supervised_arguments
from selfreflect.train.trainers import fine_tune


def main() -> int:
    arguments = parser(__doc__).parse_args()

    def train(preset: TrainingPreset, rows: Rows) -> None:
        fine_tune(
            preset.model,
            rows,
            arguments.out,
            preset,
            arguments.seed,
            adapter=arguments.adapter,
            resume=arguments.resume,
        )

    return run("sft", arguments, supervised_arguments, train)


if __name__ == "__main__":
    sys.exit(main())

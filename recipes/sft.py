"""Train a model on the best summaries of its own answers, made by `selfreflect dataset sft` (or hedge)."""

from __future__ import annotations

import sys

from common import Rows, parser, run

from selfreflect.train.trainers import AdapterTraining, TrainingPreset, supervised_arguments


def main() -> int:
    arguments = parser(__doc__).parse_args()

    def settings(preset: TrainingPreset, _: Rows) -> dict[str, object]:
        return supervised_arguments(preset, arguments.out, arguments.seed)

    return run("sft", arguments, settings, AdapterTraining.fine_tune)


if __name__ == "__main__":
    sys.exit(main())

"""Train a model to prefer better summaries of its own answers, on pairs of `selfreflect dataset dpo`."""

from __future__ import annotations

import sys

from common import Rows, parser, run

from selfreflect.train.trainers import AdapterTraining, TrainingPreset, preference_arguments


def main() -> int:
    arguments = parser(__doc__).parse_args()

    def settings(preset: TrainingPreset, _: Rows) -> dict[str, object]:
        return preference_arguments(preset, arguments.out, arguments.seed)

    return run("dpo", arguments, settings, AdapterTraining.prefer)


if __name__ == "__main__":
    sys.exit(main())

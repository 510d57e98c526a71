"""``python -m selfreflect`` is the command ``selfreflect``."""

import os
import signal
from typing import Any


def main() -> None:
    """Run the command line, which Ctrl-C ends without a traceback also while it is being loaded."""
    # a command in the background is started with its interrupts ignored, and stays so
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)
    from selfreflect.cli import main as run_command_line

    run_command_line()


def _leave(*_: Any) -> None:
    os._exit(130)


if __name__ == "__main__":
    main()

"""Entry point of ``python -m selfreflect``."""

import os
import signal
from typing import Any


def main() -> None:
    """Run the command line; Ctrl-C exits without a traceback, even during imports."""
    # a command in the background is started with its interrupts ignored, and stays so
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)
    from selfreflect.cli import main as run_command_line

    run_command_line()


def _leave(*_: Any) -> None:
    os._exit(130)


if __name__ == "__main__":
    main()

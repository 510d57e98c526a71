"""``python -m selfreflect`` is the command ``selfreflect``."""

from selfreflect.cli import main

main()

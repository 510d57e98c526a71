"""``python -m selfreflect`` is the command ``selfreflect``."""

from selfreflect.cli import main

if __name__ == "__main__":
    main()

"""The command, and ``python -m mdh_lift``."""

import gc
import os
import sys


def main() -> None:
    """Load the command line and run it.

    What is loaded stays: looking for garbage among it, then and later, is a tenth of a short run.
    """
    gc.disable()
    from mdh_lift import cli

    gc.freeze()
    gc.enable()
    cli.main()


def _without_working_directory() -> None:
    """``python -m`` looks for modules in the working directory first, which may be anybody's tree."""
    ours = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120 - no import yet
    if sys.path and sys.path[0] in ("", os.getcwd()) and ours != os.getcwd():  # noqa: PTH109
        del sys.path[0]


if __name__ == "__main__":
    _without_working_directory()
    main()

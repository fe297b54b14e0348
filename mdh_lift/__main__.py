"""The command, and ``python -m mdh_lift``."""

import gc


def main() -> None:
    """Load the command line and run it.

    What is loaded stays: looking for garbage among it, then and later, is a tenth of a short run.
    """
    gc.disable()
    from mdh_lift import cli

    gc.freeze()
    gc.enable()
    cli.main()


if __name__ == "__main__":
    main()

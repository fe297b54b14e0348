"""``python -m mdh_lift``."""

from mdh_lift.cli import main

main()

"""What holds for all tests.

No test is skipped for want of a program or a package: without gcc none is run, the packages of ``[dev,tune]``
are imported, and clang is one more compiler where it is installed.

Hypothesis draws the same examples in every CI run; on a developer's machine it keeps looking for new ones.
"""

from __future__ import annotations

import gc
import os
import shutil
import tempfile

import pytest
from hypothesis import HealthCheck, settings

from tests.compilers import NEEDED

# how long a draw takes says how busy the machine is
settings.register_profile("tests", suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("tests"), derandomize=True, database=None)
settings.load_profile("ci" if os.environ.get("CI") else "tests")


def pytest_collection_finish(session: pytest.Session) -> None:
    """What is loaded and collected stays, and is not looked through for garbage again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)  # 700, 10, 10 without: trees of expressions come in tens of thousands


def pytest_configure(config: pytest.Config) -> None:
    if not shutil.which(NEEDED):
        raise pytest.UsageError(f"the tests need {NEEDED}: see `Two commands` in README.md")
    if "POCL_CACHE_DIR" not in os.environ:  # that of the user stays as it is; processes of a run share one
        cache = tempfile.TemporaryDirectory(prefix="mdh-lift-pocl-")
        os.environ["POCL_CACHE_DIR"] = cache.name
        config.add_cleanup(cache.cleanup)

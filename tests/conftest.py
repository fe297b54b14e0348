"""Hypothesis draws the same examples in every CI run; on a developer's machine it keeps looking for new ones."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("ci", derandomize=True, database=None)
if os.environ.get("CI"):
    settings.load_profile("ci")

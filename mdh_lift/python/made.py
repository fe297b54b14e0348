"""What the decorator keeps between calls: for each combination of kinds the nest, and its kernels."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from frontend_py.read import FunctionRead
from lifter.lift import LiftedNest
from mdh_lift import entry
from mdh_lift.python import build
from mdh_lift.python.scope import RuntimeScope


@dataclass(eq=False)
class Made:
    """A kernel of one size class; ``extents``: arrays and their dimensions whose lengths it is told, too."""

    target: str
    library: ctypes.CDLL
    entry: Callable[[Any], int]
    extents: tuple[tuple[str, int], ...] = ()


@dataclass(eq=False)
class Specialization:
    """What is known for one combination of kinds: the nest and its kernels, or why there are none.

    ``made``: by whether arrays are on a device, and the size class.  ``inside``: for sizes, why a subscript
    may leave its array.  ``cases``: what kernels with these slots are verified with.
    """

    read: FunctionRead | None
    lifted: LiftedNest | None
    scope: RuntimeScope
    why: str = ""
    combines: bool = False  # the MDH project's meaning of `=`: the loops in Python mean something else
    made: dict[tuple[bool, tuple[int, ...]], Made | None] = field(default_factory=dict)
    inside: dict[tuple[Any, ...], str] = field(default_factory=dict)
    cases: dict[tuple[entry.Slot, ...], list[build.Case]] = field(default_factory=dict)

    @functools.cached_property
    def sizes(self) -> frozenset[str]:
        """Parameters that say how much there is to do."""
        assert self.lifted is not None
        return frozenset(entry.size_names(self.lifted.program))

    @functools.cached_property
    def written(self) -> frozenset[str]:
        assert self.lifted is not None
        stores = {s.buffer for p in self.lifted.programs for s in p.out.stores}
        return frozenset(stores | entry.written(self.lifted.nest.body))

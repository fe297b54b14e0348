"""Programs whose results hang on the last bit of what they compute on the way.

A loop that runs until a floating-point value passes a bound may run once more, or a hundred times more, where
that value is rounded another way: escape times, iterations until something converges.  Compilers contract
``a*b + c`` to one rounding in some loops and not in others, so the same statements in vectors count otherwise
(of Mandelbrot 2048 x 2048, 256 iterations, two).  Kernels of such programs round every product before it is
used, as the original does without optimisation: that is one of the two results that verification takes.

Shown right by tests/test_rounding.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from mdh_core.expr import COMPARISONS, Binary, Expr, If, ScalarType, Stmt, While, stmt_exprs, walk
from mdh_core.ir import MdhProgram


def rounds_products(program: MdhProgram) -> bool:
    """Whether a loop of the scalar function compares floating-point values.

    >>> from mdh_core.expr import DOUBLE, FLOAT, INT32, Assign, Binary, Const, Var
    >>> z, n = Var("z", DOUBLE), Var("n", INT32)
    >>> square = Assign(z, Binary("*", z, z, DOUBLE))
    >>> _decides((While(Binary("<=", z, Const(4.0, DOUBLE), INT32), (square,)),))
    True
    >>> _decides((While(Binary("<", n, Const(9, INT32), INT32), (square,)),))
    False
    """
    return _decides(program.hom.scalar.body)


def _decides(body: Sequence[Stmt]) -> bool:
    for s in body:
        match s:
            case While():
                if any(_compares_floats(n) for e in stmt_exprs((s,)) for n in walk(e)):
                    return True
            case If(then=then, other=other):
                if _decides(then) or _decides(other):
                    return True
            case _:
                pass
    return False


def _compares_floats(e: Expr) -> bool:
    if not (isinstance(e, Binary) and e.op in COMPARISONS):
        return False
    return any(isinstance(x.type, ScalarType) and x.type.is_float for x in (e.a, e.b))

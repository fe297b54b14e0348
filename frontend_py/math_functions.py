"""Functions of ``math`` and NumPy that a nest may call, by the functions of math.h that they are.

``math.f`` computes in ``double`` and returns a Python ``float``; ``np.f`` in the type of its argument.
"""

from __future__ import annotations

_SAME = "sqrt cbrt exp exp2 expm1 log log2 log10 log1p sin cos tan sinh cosh tanh"

# name in the library -> name in math.h
MATH_UNARY = {name: name for name in f"{_SAME} asin acos atan asinh acosh atanh erf erfc fabs".split()}
MATH_UNARY |= {"gamma": "tgamma", "lgamma": "lgamma"}
MATH_BINARY = {"pow": "pow", "atan2": "atan2", "fmod": "fmod", "hypot": "hypot", "copysign": "copysign"}
MATH_BINARY |= {"remainder": "remainder"}
MATH_INTEGER = {"floor": "floor", "ceil": "ceil", "trunc": "trunc"}  # the result is a Python int

NUMPY_UNARY = {name: name for name in f"{_SAME} floor ceil trunc rint fabs".split()}
NUMPY_UNARY |= {
    "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arcsinh": "asinh", "arccosh": "acosh",
    "arctanh": "atanh", "asin": "asin", "acos": "acos", "atan": "atan", "asinh": "asinh", "acosh": "acosh",
    "atanh": "atanh",
}  # fmt: skip
NUMPY_BINARY = {
    "power": "pow", "pow": "pow", "arctan2": "atan2", "atan2": "atan2", "fmod": "fmod", "hypot": "hypot",
    "fmin": "fmin", "fmax": "fmax", "copysign": "copysign",
}  # fmt: skip
NUMPY_OPERATORS = {
    "add": "+", "subtract": "-", "multiply": "*", "bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^",
    "less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">=", "equal": "==", "not_equal": "!=",
}  # fmt: skip

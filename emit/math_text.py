"""Functions of math.h for the lanes of a vector, as macros of GNU C.

    MDH_EXPF(F, I, x)    F: a vector type of ``float`` or ``double``, I: one of signed integers as wide
    in                   x: a value of type F
    out                  of type F, in every lane what the function returns, to within one unit in the last
                         place (those marked exact in ``LANES``: to the bit); NaN, infinities and zeros as
                         in C, signalling NaN aside

``errno`` is not set; which functions a nest may take from here is for ``mdh_core.lanes.has_lanes`` to say.

    exp    x = k ln 2 + r with |r| <= ln 2 / 2, k ln 2 in two parts of which the first is exact and the second
           is c; e^r = 1 + ((x - k ln 2) + (c + r^2 P(r))), so that what rounds is small; 2^k in two
           factors, as it may be smaller than a normal number or the result larger than one; where the result
           is 0 one factor is, since results that underflow cost many cycles.  AVX-512 has an instruction,
           which takes 40 times as long for a vector with a result that is smaller than a normal number, or
           0 (Intel): lanes with k < 1 - bias are scaled to multiples of the least number instead,
           e^r 2^(k + bias + bits - 1), which adding 2^bits rounds and the exclusive or with it makes bits
    floor  and its like: magnitudes below 2^23 or 2^52 are rounded by adding and subtracting that
    log    x = 2^k (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)); ``float``: f - f^2/2 + f^3 P(f); ``double``,
           with s = f / (2 + f): f - (f^2/2 - s (f^2/2 + s^2 P(s^2))), which is 2 artanh(s)

The polynomials were fitted for the least relative error (Lawson's weighted least squares, 40 digits): 3.3e-9,
4.1e-18, 5.9e-9 and 2.5e-18.  ``MDH_WHOLE`` keeps compilers that may reassociate (``-ffast-math`` of the
user) from joining the two parts of k ln 2, or cancelling what rounds to an integer.

Shown right by tests/test_math_lanes.py: values of all exponents against more exact ones.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from mdh_core.expr import Call, ScalarType
from mdh_core.lanes import LANES

_CHOOSE = (
    "#ifndef MDH_CHOOSE /* a where the mask is -1, b where it is 0 */",
    "#define MDH_CHOOSE(F, I, mask, a, b) ((F)(((I)(mask) & (I)(a)) | (~(I)(mask) & (I)(b))))",
    "#endif",
)
_FILLS = (
    "#ifndef MDH_FILLS /* whether a register holds it; clang has none for 8 bytes in an asm statement */",
    "#define MDH_FILLS(x) (sizeof(x) > 8 && sizeof(x) <= MDH_VECTOR_BYTES)",
    "#endif",
)
_WHOLE = (
    "#ifndef MDH_WHOLE /* the value is computed as it is written */",
    "#if defined(__SSE2__) || defined(__aarch64__)",
    "#define MDH_WHOLE(x) do { \\",
    '    if (MDH_FILLS(x)) MDH_KEEP(x); else __asm__("" : "+m"(x)); \\',
    "  } while (0)",
    "#else",
    '#define MDH_WHOLE(x) __asm__("" : "+m"(x))',
    "#endif",
    "#endif",
)


_CLAMP = (
    "#ifndef MDH_CLAMP /* x = v, but no less than low and no more than high; a NaN stays */",
    "#define MDH_CLAMPED(F, I, x, v, low, high) do { \\",
    "    const F mdh_above = MDH_CHOOSE(F, I, (v) < (low), (F){0} + (low), v); \\",
    "    x = MDH_CHOOSE(F, I, mdh_above > (high), (F){0} + (high), mdh_above); \\",
    "  } while (0)",
    "#if defined(__AVX__)",
    "#define MDH_CLAMP(F, I, x, v, kind, low, high) do { \\",
    "    if (MDH_FILLS(x)) { \\",
    "      const F mdh_low = (F){0} + (low), mdh_high = (F){0} + (high); \\",
    '      __asm__("vmax" kind " {%2, %1, %0|%0, %1, %2}" : "=v"(x) : "v"(mdh_low), "v"(v)); \\',
    '      __asm__("vmin" kind " {%2, %1, %0|%0, %1, %2}" : "=v"(x) : "v"(mdh_high), "v"(x)); \\',
    "    } else MDH_CLAMPED(F, I, x, v, low, high); \\",
    "  } while (0)",
    "#else",
    "#define MDH_CLAMP(F, I, x, v, kind, low, high) MDH_CLAMPED(F, I, x, v, low, high)",
    "#endif",
    "#endif",
)
_SCALE = (
    "#ifndef MDH_SCALE /* p times two to the k, which t ends with; 0 where the mask is 0 */",
    "#define MDH_SCALED(F, I, p, t, bits, bias, mask) do { \\",
    "    const I mdh_half = ((I)(t) >> 1) << (bits), mdh_one = ((I){0} + (bias)) << (bits); \\",
    "    const I mdh_rest = (((I)(t) << (bits)) - mdh_half + mdh_one) & (I)(mask); \\",
    "    p = p * (F)(mdh_half + mdh_one) * (F)mdh_rest; \\",
    "  } while (0)",
    "#if defined(__AVX512VL__) && defined(__AVX512DQ__) && defined(__GCC_ASM_FLAG_OUTPUTS__)",
    "/* lanes that would be smaller than a normal number are rounded to units of the least one, of bits 1 */",
    "#define MDH_SCALE(F, I, p, k, t, kind, bits, bias, mask) do { \\",
    "    if (MDH_FILLS(p)) { \\",
    "      const F mdh_least = (F){0} + (1 - (bias)); \\",
    "      F mdh_by = (k); \\",
    "      int mdh_any; \\",
    '      __asm__("vcmp" kind " {$17, %2, %1, %%k1|k1, %1, %2, 17}\\n\\t" \\',
    '              "kortestw {%%k1, %%k1|k1, k1}" \\',
    '              : "=@ccnz"(mdh_any) : "v"(mdh_by), "v"(mdh_least) : "k1"); \\',
    "      if (__builtin_expect(mdh_any, 0)) { \\",
    "        const F mdh_more = (F){0} + ((bias) + (bits) - 1); \\",
    "        const F mdh_units = (F)(((I){0} + ((bias) + (bits))) << (bits)); \\",
    '        __asm__("vcmp" kind " {$17, %2, %1, %%k1|k1, %1, %2, 17}\\n\\t" \\',
    '                "vadd" kind " {%3, %1, %1%{%%k1%}|%1%{k1%}, %1, %3}\\n\\t" \\',
    '                "vscalef" kind " {%1, %0, %0|%0, %0, %1}\\n\\t" \\',
    '                "vadd" kind " {%4, %0, %0%{%%k1%}|%0%{k1%}, %0, %4}\\n\\t" \\',
    '                "vxor" kind " {%4, %0, %0%{%%k1%}|%0%{k1%}, %0, %4}" \\',
    '                : "+v"(p), "+v"(mdh_by) : "v"(mdh_least), "v"(mdh_more), "v"(mdh_units) : "k1"); \\',
    '      } else __asm__("vscalef" kind " {%1, %0, %0|%0, %0, %1}" : "+v"(p) : "v"(mdh_by)); \\',
    "    } else MDH_SCALED(F, I, p, t, bits, bias, mask); \\",
    "  } while (0)",
    "#else",
    "#define MDH_SCALE(F, I, p, k, t, kind, bits, bias, mask) MDH_SCALED(F, I, p, t, bits, bias, mask)",
    "#endif",
    "#endif",
)


def _exp(t: ScalarType) -> list[str]:
    f = "f" if t.bits == 32 else ""
    low, high, shift, bits, mantissa, bias = (
        ("-104.0f", "89.0f", "0x1.8p23f", "0x1.715476p+0f", 23, 127)
        if f else
        ("-746.0", "710.0", "0x1.8p52", "0x1.71547652b82fep+0", 52, 1023)
    )  # fmt: skip
    coefficients = (
        ("0.00138131245f", "0.0083694207f", "0.0416684572f", "0.166665148f", "0.49999993f")
        if f else
        ("2.4998453028331942e-8", "2.7631674190725413e-7", "2.7557598850305311e-6", "2.4801489392537474e-5",
         "1.9841269484346899e-4", "1.3888888946877229e-3", "8.3333333335084907e-3", "4.1666666666519331e-2",
         "0.16666666666666385", "0.50000000000000117")
    )  # fmt: skip
    ln2 = _ln2(t)
    kind = "ps" if f else "pd"
    return [
        "const F mdh_v = (value);",
        "F mdh_x;",
        f'MDH_CLAMP(F, I, mdh_x, mdh_v, "{kind}", {low}, {high});',
        f"F mdh_t = mdh_x * {bits} + {shift};",
        "MDH_WHOLE(mdh_t);",
        f"const F mdh_k = mdh_t - {shift};",
        f"F mdh_y = mdh_x - mdh_k * {ln2[0]};",
        "MDH_WHOLE(mdh_y);",
        f"const F mdh_c = mdh_k * -{ln2[1]}, mdh_r = mdh_y + mdh_c;",
        *_polynomial("mdh_r", coefficients),
        "mdh_p = mdh_p * (mdh_r * mdh_r) + mdh_c + mdh_y;",
        "MDH_WHOLE(mdh_p);",
        f"mdh_p += 1.0{f};",
        f'MDH_SCALE(F, I, mdh_p, mdh_k, mdh_t, "{kind}", {mantissa}, {bias}, mdh_v >= {low});',
        "mdh_p;",
    ]


def _ln2(t: ScalarType) -> tuple[str, str]:
    """The logarithm of two in two parts; k times the first is exact for every exponent k."""
    if t.bits == 32:
        return "0x1.62e4p-1f", "0x1.7f7d1cp-20f"
    return "0x1.62e42fefp-1", "0x1.473de6af278edp-34"


def _polynomial(x: str, coefficients: tuple[str, ...]) -> list[str]:
    """``mdh_p``: Horner's rule, the coefficient of the highest power first."""
    first, second, *others = coefficients
    return [
        f"F mdh_p = {x} * {first} + {second};".replace("+ -", "- "),
        *(f"mdh_p = mdh_p * {x} + {c};".replace("+ -", "- ") for c in others),
    ]


def _log(t: ScalarType) -> list[str]:
    f = "f" if t.bits == 32 else ""
    least, scale, mantissa, mask, root = (
        ("0x1p-126f", "0x1p23f", 23, "0x7fffff", "0x3f3504f3")
        if f else
        ("0x1p-1022", "0x1p52", 52, "0xfffffffffffff", "0x3fe6a09e667f3bcd")
    )  # fmt: skip
    ln2 = _ln2(t)
    integer = f"(mdh_b >> {mantissa}) - (mdh_s & {mantissa})"
    if f:
        exponent = [f"const F mdh_k = __builtin_convertvector({integer}, F);"]
        rest = [
            *_polynomial("mdh_f", ("-0.0763419744f", "0.127614437f", "-0.131602330f", "0.142017800f",
                                   "-0.166233543f", "0.200012258f", "-0.250008211f", "0.333333317f")),
            "const F mdh_q = mdh_f * mdh_f;",
            f"F mdh_r = mdh_k * {ln2[1]} + mdh_q * mdh_f * mdh_p - 0.5f * mdh_q;",
        ]  # fmt: skip
    else:  # few machines convert integers of 64 bits
        exponent = [
            f"F mdh_k = (F)({integer} + 0x4338000000000000);",
            "MDH_WHOLE(mdh_k);",
            "mdh_k -= 0x1.8p52;",
        ]
        rest = [
            "const F mdh_d = mdh_f / (mdh_f + 2.0), mdh_z = mdh_d * mdh_d, mdh_q = 0.5 * mdh_f * mdh_f;",
            *_polynomial("mdh_z", ("0.14799073354278204", "0.15313754988082182", "0.18183575198009438",
                                   "0.22222198377790818", "0.28571428744148911", "0.39999999999407448",
                                   "0.66666666666667354")),
            f"F mdh_r = mdh_d * (mdh_p * mdh_z + mdh_q) + mdh_k * {ln2[1]} - mdh_q;",
        ]  # fmt: skip
    nan = f'__builtin_nan{f}("")'
    return [
        "const F mdh_v = (value), mdh_0 = {0};",
        f"const I mdh_s = (I)(mdh_v < {least});",
        # of negative lanes, which are replaced below, the difference may wrap
        f"typedef unsigned{'' if f else ' long long'} mdh_u __attribute__((vector_size(sizeof(I))));",
        f"const I mdh_b = (I)((mdh_u)MDH_CHOOSE(F, I, mdh_s, mdh_v * {scale}, mdh_v) - {root});",
        f"const F mdh_f = (F)((mdh_b & {mask}) + {root}) - 1.0{f};",
        *exponent,
        *rest,
        "MDH_WHOLE(mdh_r);",
        "mdh_r += mdh_f;",
        "MDH_WHOLE(mdh_r);",
        f"mdh_r += mdh_k * {ln2[0]};",
        f"const F mdh_e = MDH_CHOOSE(F, I, mdh_v == 0.0{f}, mdh_0 - __builtin_inf{f}(), mdh_v);",
        f"const F mdh_o = MDH_CHOOSE(F, I, mdh_v < 0.0{f}, mdh_0 + {nan}, mdh_e);",
        f"MDH_CHOOSE(F, I, (mdh_v > 0.0{f}) & (mdh_v < __builtin_inf{f}()), mdh_r, mdh_o);",
    ]


def _rounded(t: ScalarType, rest: list[str]) -> list[str]:
    """``mdh_r``: the argument's magnitude as the nearest integer, which ``rest`` turns into ``mdh_w``.

    Adding and subtracting a number whose last place is 1 rounds; larger numbers are integers.  Of what is
    rounded to zero the sign stays.
    """
    f, end = ("f", "0x1p23f") if t.bits == 32 else ("", "0x1p52")
    sign = "(-0x7fffffff - 1)" if f else "(-0x7fffffffffffffff - 1)"
    return [
        "const F mdh_v = (value), mdh_0 = {0};",
        f"const I mdh_s = (I)mdh_v & {sign};",
        "const F mdh_x = (F)((I)mdh_v ^ mdh_s);",
        f"F mdh_r = mdh_x + {end};",
        "MDH_WHOLE(mdh_r);",
        f"mdh_r -= {end};",
        *rest,
        f"MDH_CHOOSE(F, I, mdh_x < {end}, (F)((I)mdh_w | mdh_s), mdh_v);",
    ]


def _rint(t: ScalarType) -> list[str]:
    return _rounded(t, ["const F mdh_w = mdh_r - mdh_0;"])


def _trunc(t: ScalarType) -> list[str]:
    more = f"MDH_CHOOSE(F, I, mdh_r > mdh_x, mdh_0 + {_one(t)}, mdh_0)"
    return _rounded(t, [f"const F mdh_w = mdh_r - {more};"])


def _floor(t: ScalarType) -> list[str]:
    return _rounded(t, _next("mdh_y > mdh_v", "-", t))


def _ceil(t: ScalarType) -> list[str]:
    return _rounded(t, _next("mdh_y < mdh_v", "+", t))


def _next(condition: str, sign: str, t: ScalarType) -> list[str]:
    """The nearest integer with its sign, or the one beyond it."""
    return [
        "const F mdh_y = (F)((I)mdh_r | mdh_s);",
        f"const F mdh_w = mdh_y {sign} MDH_CHOOSE(F, I, {condition}, mdh_0 + {_one(t)}, mdh_0);",
    ]


def _round(t: ScalarType) -> list[str]:
    """Halves away from zero."""
    one = f"MDH_CHOOSE(F, I, {{}}, mdh_0 + {_one(t)}, mdh_0)"
    half = "0.5f" if t.bits == 32 else "0.5"
    return _rounded(t, [
        f"const F mdh_y = mdh_r - {one.format('mdh_r > mdh_x')};",
        f"const F mdh_w = mdh_y + {one.format(f'mdh_x - mdh_y >= {half}')};",
    ])  # fmt: skip


def _one(t: ScalarType) -> str:
    return "1.0f" if t.bits == 32 else "1.0"


def _copysign(t: ScalarType) -> list[str]:
    mask = "0x7fffffff" if t.bits == 32 else "0x7fffffffffffffff"
    return [f"(F)(((I)(value) & {mask}) | ((I)(other) & ~{mask}));"]


def _extremum(sign: str) -> list[str]:
    """NaN is passed over.  Of zeros of both signs, the second is the result of x86's library."""
    return [
        "const F mdh_v = (value), mdh_w = (other);",
        f"const F mdh_e = MDH_OF_EQUAL(F, I, mdh_v, mdh_w, {'&' if sign == '>' else '|'});",
        f"const F mdh_r = MDH_CHOOSE(F, I, mdh_v {sign} mdh_w, mdh_v, mdh_e);",
        "MDH_CHOOSE(F, I, mdh_w != mdh_w, mdh_v, mdh_r);",
    ]


def _fmin(t: ScalarType) -> list[str]:
    return _extremum("<")


def _fmax(t: ScalarType) -> list[str]:
    return _extremum(">")


_OF_EQUAL = (
    "#ifndef MDH_OF_EQUAL /* b; where b equals a, of +0 and -0 the one that the library returns */",
    "#if defined(__x86_64__) || defined(__i386__)",
    "#define MDH_OF_EQUAL(F, I, a, b, join) (b)",
    "#else",
    "#define MDH_OF_EQUAL(F, I, a, b, join) MDH_CHOOSE(F, I, (a) == (b), (I)(a) join (I)(b), b)",
    "#endif",
    "#endif",
)


def _fabs(t: ScalarType) -> list[str]:
    return [f"(F)((I)(value) & {'0x7fffffff' if t.bits == 32 else '0x7fffffffffffffff'});"]


def _sqrt(t: ScalarType) -> list[str]:
    """An instruction: the library's function sets ``errno``, so that compilers keep its calls."""
    kind = "s" if t.bits == 32 else "d"
    name = f"ROOT_P{kind.upper()}(mdh_r, mdh_v);"
    return [
        "const F mdh_v = (value);",
        "F mdh_r;",
        f"if (MDH_FILLS(mdh_v)) MDH_{name} else MDH_EACH_{name}",
        "mdh_r;",
    ]


def _root(t: ScalarType) -> tuple[str, ...]:
    kind, f = ("s", "f") if t.bits == 32 else ("d", "")
    name = f"MDH_ROOT_P{kind.upper()}"
    instructions = (
        ("#if defined(__AVX512F__)", "vsqrtp", "v"),
        ("#elif defined(__AVX__)", "vsqrtp", "x"),
        ("#elif defined(__SSE2__)", "sqrtp", "x"),
    )
    rows = []
    for condition, word, letter in instructions:
        asm = f'__asm__("{word}{kind} {{%1, %0|%0, %1}}" : "={letter}"(y) : "{letter}"(x))'
        rows += [condition, f"#define {name}(y, x) {asm}"]
    return (
        f"#ifndef {name} /* y = the square root of x */",
        *rows,
        "#else",
        f"#define {name}(y, x) MDH_EACH_ROOT_P{kind.upper()}(y, x)",
        "#endif",
        f"#define MDH_EACH_ROOT_P{kind.upper()}(y, x) \\",
        f"    for (unsigned mdh_l = 0; mdh_l < sizeof(x) / {t.size}; mdh_l++) \\",
        f"      (y)[mdh_l] = __builtin_sqrt{f}((x)[mdh_l])",
        "#endif",
    )


_BODIES = {
    "exp": _exp, "log": _log, "fabs": _fabs, "sqrt": _sqrt, "floor": _floor, "ceil": _ceil, "trunc": _trunc,
    "rint": _rint, "nearbyint": _rint, "round": _round, "copysign": _copysign, "fmin": _fmin, "fmax": _fmax,
}  # fmt: skip


def lanes_call(call: Call, real: str, integer: str, values: Sequence[str]) -> str:
    """The text of a call for vectors of the type ``real``; ``integer``: the type of their masks."""
    return f"{macro_name(call.function)}({real}, {integer}, {', '.join(values)})"


def macro_name(function: str) -> str:
    return f"MDH_{function.upper()}"


def math_macros(*functions: str) -> list[str]:
    """The definitions of functions' macros, with what they need but for ``MDH_KEEP``, each of it once."""
    blocks: dict[tuple[str, ...], None] = {}
    for function in functions:
        body = _BODIES[LANES[function].name](LANES[function].type)
        used = (
            ("MDH_CHOOSE", (_CHOOSE,)), ("MDH_CLAMP", (_CHOOSE, _FILLS, _CLAMP)),
            ("MDH_SCALE", (_FILLS, _SCALE)), ("MDH_OF_EQUAL", (_OF_EQUAL,)), ("MDH_WHOLE", (_FILLS, _WHOLE)),
            ("MDH_ROOT", (_FILLS, _root(LANES[function].type))),
        )  # fmt: skip
        blocks |= {b: None for word, more in used if any(word in row for row in body) for b in more}
        blocks[_macro(function, body)] = None
    return [line for block in blocks for line in block]


def _macro(function: str, body: Sequence[str]) -> tuple[str, ...]:
    name = macro_name(function)
    head = f"#define {name}(F, I, {'value, other' if any('(other)' in row for row in body) else 'value'})"
    if len(body) == 1:
        text = [f"{head} ({body[0].removesuffix(';')})"]
    else:
        rows = [f"    {row} \\" for row in body[:-1]]
        text = [f"{head} ({{ \\", *rows, f"    {body[-1]} }})"]
    text = [re.sub(r"\bmdh_([a-z0-9])\b", rf"mdh_{function}_\1", row) for row in text]  # calls may be nested
    return (f"#ifndef {name} /* {function} in every lane */", *text, "#endif")

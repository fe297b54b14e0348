"""Lifting: which operators are found, that the meaning is kept, and what is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from frontend_c.read import CompileCommand, read
from lifter.describe import program_json, to_json
from lifter.legality import why_not_well_defined
from lifter.lift import LiftedNest, lift
from lifter.loop_nest import Loop, LoopNest
from lifter.trees import exposed, exposed_from
from mdh_core.combine import CC, ps, pw, scalar_operator
from mdh_core.evaluate import EvaluationError
from mdh_core.expr import (
    FLOAT,
    INT32,
    INT64,
    UINT32,
    UINT64,
    Affine,
    Assign,
    Binary,
    Const,
    Load,
    Var,
    as_affine,
)
from mdh_core.guarded import when_stored
from mdh_core.ir import Buffer, Param
from mdh_core.source import SourceFile
from tests.lifting import RandomNest, check_meaning, lifted, nests, operators

CORPUS = Path(__file__).parent.parent / "corpus"

# name: (parameters, before the directive, nest, after the nest, operators)
ACCEPTED = {
    # ------------------------------------------------------------------ operators, all spellings
    "sum": ("float s, float *a, int n, float *r", "", "for (int i = 0; i < n; i++) s += a[i];", "*r = s;", "i:pw(+)"),
    "sum_reversed": ("float s, float *a, int n, float *r", "", "for (int i = 0; i < n; i++) s = a[i] + s;", "*r = s;", "i:pw(+)"),
    "difference": ("int s, int *a, int n, int *r", "", "for (int i = 0; i < n; i++) s -= a[i];", "*r = s;", "i:pw(+)"),
    "sum_of_three": ("int s, int *a, int *b, int n, int *r", "", "for (int i = 0; i < n; i++) s = a[i] + s - b[i];", "*r = s;", "i:pw(+)"),
    "product": ("int s, int *a, int n, int *r", "", "for (int i = 0; i < n; i++) s *= a[i];", "*r = s;", "i:pw(*)"),
    "bits": ("unsigned s, unsigned t, unsigned u, unsigned *a, int n, unsigned *r", "", "for (int i = 0; i < n; i++) { s &= a[i]; t |= a[i]; u = a[i] ^ u; }", "r[0] = s; r[1] = t; r[2] = u;", "i:pw(&, |, ^)"),
    "wrapping_sum": ("signed char s, int *a, int n, int *r", "", "for (int i = 0; i < n; i++) s += a[i];", "*r = s;", "i:pw(+)"),
    "wrapping_product": ("unsigned short s, unsigned char *a, int n, int *r", "", "for (int i = 0; i < n; i++) s *= a[i];", "*r = s;", "i:pw(*)"),
    "mixed_sign": ("unsigned s, int *a, int n, unsigned *r", "", "for (int i = 0; i < n; i++) s += a[i];", "*r = s;", "i:pw(+)"),
    "float_from_double": ("float s, double *a, int n, float *r", "", "for (int i = 0; i < n; i++) s += a[i];", "*r = s;", "i:pw(+)"),
    "and": ("int all, int *a, int n, int *r", "", "for (int i = 0; i < n; i++) all = all && a[i] > 0;", "*r = all;", "i:pw(&&)"),
    "or_right": ("int any, int *a, int n, int *r", "", "for (int i = 0; i < n; i++) any = a[i] > 0 || any;", "*r = any;", "i:pw(||)"),
    "bool_or": ("_Bool any, int *a, int n, int *r", "", "for (int i = 0; i < n; i++) any |= a[i] == 3;", "*r = any;", "i:pw(|)"),
    "found": ("int found, int *a, int n, int *r", "", "for (int i = 0; i < n; i++) if (a[i] == 3) found = 1;", "*r = found;", "i:pw(||)"),
    "found_two_loops": ("int found, int *a, int n, int m, int *r", "", "for (int i = 0; i < n; i++) for (int j = 0; j < m; j++) if (a[i * m + j] == 3) found = 7;", "*r = found;", "i:pw(||) j:pw(||)"),
    "none": ("int ok, int *a, int n, int *r", "", "for (int i = 0; i < n; i++) if (a[i] < 0) ok = 0;", "*r = ok;", "i:pw(&&)"),
    "max_if": ("int m, int *a, int n, int *r", "", "for (int i = 0; i < n; i++) if (a[i] > m) m = a[i];", "*r = m;", "i:pw(max)"),
    "max_if_ge": ("int m, int *a, int n, int *r", "", "for (int i = 0; i < n; i++) if (a[i] >= m) m = a[i];", "*r = m;", "i:pw(max)"),
    "max_if_reversed": ("int m, int *a, int n, int *r", "", "for (int i = 0; i < n; i++) if (m < a[i]) m = a[i];", "*r = m;", "i:pw(max)"),
    "max_not": ("int m, int *a, int n, int *r", "", "for (int i = 0; i < n; i++) if (!(m >= a[i])) m = a[i];", "*r = m;", "i:pw(max)"),
    "min_ternary_1": ("int m, int *a, int n, int *r", "", "for (int i = 0; i < n; i++) m = a[i] < m ? a[i] : m;", "*r = m;", "i:pw(min)"),
    "min_ternary_2": ("int m, int *a, int n, int *r", "", "for (int i = 0; i < n; i++) m = m < a[i] ? m : a[i];", "*r = m;", "i:pw(min)"),
    "min_ternary_3": ("int m, int *a, int n, int *r", "", "for (int i = 0; i < n; i++) m = m > a[i] ? a[i] : m;", "*r = m;", "i:pw(min)"),
    "min_ternary_4": ("double m, double *a, int n, double *r", "", "for (int i = 0; i < n; i++) m = a[i] >= m ? m : a[i];", "*r = m;", "i:pw(min)"),
    "max_else": ("float m, float *a, int n, float *r", "", "for (int i = 0; i < n; i++) { if (a[i] > m) m = a[i]; else m = m; }", "*r = m;", "i:pw(max)"),
    "max_small": ("signed char m, signed char *a, int n, int *r", "", "for (int i = 0; i < n; i++) m = a[i] > m ? a[i] : m;", "*r = m;", "i:pw(max)"),
    "max_widening": ("double m, float *a, int n, double *r", "", "for (int i = 0; i < n; i++) if (a[i] > m) m = a[i];", "*r = m;", "i:pw(max)"),
    "max_of_absolute": ("int m, int *a, int n, int *r", "", "for (int i = 0; i < n; i++) { int x = a[i] < 0 ? -a[i] : a[i]; if (x > m) m = x; }", "*r = m;", "i:pw(max)"),
    "max_guarded": ("int m, int *a, int *b, int n, int *r", "", "for (int i = 0; i < n; i++) if (b[i] > 2 && a[i] > m) m = a[i];", "*r = m;", "i:pw(max)"),
    "max_nested_guard": ("int m, int *a, int *b, int n, int *r", "", "for (int i = 0; i < n; i++) if (b[i] > 2) { if (a[i] > m) m = a[i]; }", "*r = m;", "i:pw(max)"),
    "fmin": ("float m, float *a, int n, float *r", "", "for (int i = 0; i < n; i++) m = fminf(a[i], m);", "*r = m;", "i:pw(min)"),
    "fmax_converted": ("float m, float *a, int n, float *r", "", "for (int i = 0; i < n; i++) m = fmax(m, a[i]);", "*r = m;", "i:pw(max)"),
    "own_max": ("int m, int *a, int n, int *r", "", "for (int i = 0; i < n; i++) m = larger(m, a[i]);", "*r = m;", "i:pw(max)"),
    "guarded_sum": ("float s, float *a, int n, float *r", "", "for (int i = 0; i < n; i++) if (a[i] > 0) s += a[i];", "*r = s;", "i:pw(+)"),
    "sum_of_branches": ("int s, int *a, int n, int *r", "", "for (int i = 0; i < n; i++) { if (a[i] > 2) s += a[i]; else s -= 1; }", "*r = s;", "i:pw(+)"),
    "count": ("int c, int *a, int n, int *r", "", "for (int i = 0; i < n; i++) if (a[i] == 2) c++;", "*r = c;", "i:pw(+)"),
    "several": ("double s, int m, int *a, int n, double *r", "", "for (int i = 0; i < n; i++) { s += a[i]; m = a[i] > m ? a[i] : m; }", "r[0] = s; r[1] = m;", "i:pw(+, max)"),
    # ------------------------------------------------------------------ arg-min and arg-max
    "argmin": ("int m, int at, int *a, int n, int *r", "", "for (int i = 0; i < n; i++) if (a[i] < m) { m = a[i]; at = i; }", "r[0] = m; r[1] = at;", "i:pw(argmin)"),
    "argmin_last": ("int m, int at, int *a, int n, int *r", "", "for (int i = 0; i < n; i++) if (a[i] <= m) { m = a[i]; at = i; }", "r[0] = m; r[1] = at;", "i:pw(argmin)"),
    "argmax_payload": ("int m, int at, int w, int *a, int *b, int n, int *r", "", "for (int i = 0; i < n; i++) if (m < a[i]) { at = i; m = a[i]; w = b[i]; }", "r[0] = m; r[1] = at; r[2] = w;", "i:pw(argmax)"),
    "argmax_ternary": ("int m, int at, int *a, int n, int *r", "", "for (int i = 0; i < n; i++) { at = a[i] > m ? i : at; m = a[i] > m ? a[i] : m; }", "r[0] = m; r[1] = at;", "i:pw(argmax)"),
    "argmin_2d": ("int m, int x, int y, int n, int k, int a[n][k], int *r", "", "for (int i = 0; i < n; i++) for (int j = 0; j < k; j++) if (a[i][j] < m) { m = a[i][j]; y = i; x = j; }", "r[0] = m; r[1] = x; r[2] = y;", "i:pw(argmin) j:pw(argmin)"),
    "argmin_2d_last": ("int m, int x, int n, int k, int a[n][k], int *r", "", "for (int i = 0; i < n; i++) for (int j = 0; j < k; j++) if (a[i][j] <= m) { m = a[i][j]; x = i * k + j; }", "r[0] = m; r[1] = x;", "i:pw(argmin) j:pw(argmin)"),
    "argmin_guarded": ("int m, int at, int *a, int *b, int n, int *r", "", "for (int i = 0; i < n; i++) if (b[i] > 0 && a[i] < m) { m = a[i]; at = b[i]; }", "r[0] = m; r[1] = at;", "i:pw(argmin)"),
    "argmin_guarded_last": ("int m, int at, int *a, int *b, int n, int *r", "", "for (int i = 0; i < n; i++) if (b[i] > 0 && a[i] <= m) { m = a[i]; at = i; }", "r[0] = m; r[1] = at;", "i:pw(argmin)"),
    "argmin_backwards": ("int m, int at, int *a, int n, int *r", "", "for (int i = n - 1; i >= 0; i--) if (a[i] < m) { m = a[i]; at = i; }", "r[0] = m; r[1] = at;", "i:pw(argmin)"),
    "argmax_from_first": ("int *a, int n, int *r", "int m = a[0], at = 0;", "for (int i = 1; i < n; i++) if (a[i] > m) { m = a[i]; at = i; }", "r[0] = m; r[1] = at;", "i:pw(argmax)"),
    "argmax_per_row": ("int n, int k, float a[n][k], int *at", "", "for (int i = 0; i < n; i++) { float m = -1e30f; int p = -1; for (int j = 0; j < k; j++) if (a[i][j] > m) { m = a[i][j]; p = j; } at[i] = p; }", "", "i:cc j:pw(argmax)"),
    "argmin_and_sum": ("int m, int at, int s, int *a, int n, int *r", "", "for (int i = 0; i < n; i++) { s += a[i]; if (a[i] < m) { m = a[i]; at = i; } }", "r[0] = m; r[1] = at; r[2] = s;", "i:pw(+, argmin)"),
    # ------------------------------------------------------------------ shapes
    "gemm": ("int n, int m, int k, double A[n][k], double B[k][m], double C[n][m]", "", "for (int i = 0; i < n; i++) for (int j = 0; j < m; j++) for (int l = 0; l < k; l++) C[i][j] += A[i][l] * B[l][j];", "", "i:cc j:cc l:pw(+)"),
    "gemm_ikj": ("int n, int m, int k, double A[n][k], double B[k][m], double C[n][m]", "", "for (int i = 0; i < n; i++) for (int l = 0; l < k; l++) for (int j = 0; j < m; j++) C[i][j] += A[i][l] * B[l][j];", "", "i:cc l:pw(+) j:cc"),
    "gemm_init": ("int n, int m, int k, double A[n][k], double B[k][m], double C[n][m]", "", "for (int i = 0; i < n; i++) for (int j = 0; j < m; j++) { C[i][j] = 0; for (int l = 0; l < k; l++) C[i][j] += A[i][l] * B[l][j]; }", "", "i:cc j:cc l:pw(+)"),
    "gemm_epilogue": ("int n, int m, int k, double al, double be, double A[n][k], double B[k][m], double C[n][m]", "", "for (int i = 0; i < n; i++) for (int j = 0; j < m; j++) { double acc = 0; for (int l = 0; l < k; l++) acc += A[i][l] * B[l][j]; C[i][j] = al * acc + be * C[i][j]; }", "", "i:cc j:cc l:pw(+)"),
    "gemm_scaled_first": ("int n, int m, int k, double be, double A[n][k], double B[k][m], double C[n][m]", "", "for (int i = 0; i < n; i++) for (int j = 0; j < m; j++) { C[i][j] *= be; for (int l = 0; l < k; l++) C[i][j] += A[i][l] * B[l][j]; }", "", "i:cc j:cc l:pw(+)"),
    "gemm_two_loops_init": ("int n, int m, int k, double A[n][k], double B[k][m], double C[n][m]", "", "for (int i = 0; i < n; i++) { for (int j = 0; j < m; j++) C[i][j] = 0; for (int l = 0; l < k; l++) for (int j = 0; j < m; j++) C[i][j] += A[i][l] * B[l][j]; }", "", "i:cc l:pw(+) j:cc"),
    "accumulate_row_sums": ("int n, int k, int s, int a[n][k], int *r", "", "for (int i = 0; i < n; i++) { int row = 0; for (int j = 0; j < k; j++) row += a[i][j]; s += row; }", "*r = s;", "i:pw(+) j:pw(+)"),
    "columns_of_row_sums": ("int n, int m, int k, int a[n][m][k], int *c", "", "for (int i = 0; i < n; i++) for (int j = 0; j < m; j++) { int acc = 0; for (int l = 0; l < k; l++) acc += a[i][j][l]; c[j] += acc; }", "", "i:pw(+) j:cc l:pw(+)"),
    "sum_all": ("int n, int k, int s, int a[n][k], int *r", "", "for (int i = 0; i < n; i++) for (int j = 0; j < k; j++) s += a[i][j];", "*r = s;", "i:pw(+) j:pw(+)"),
    "two_accumulators": ("int n, int k, int a[n][k], int *lo, int *su", "", "for (int i = 0; i < n; i++) { int l = 100, s = 0; for (int j = 0; j < k; j++) { if (a[i][j] < l) l = a[i][j]; s += a[i][j]; } lo[i] = l; su[i] = s; }", "", "i:cc j:pw(min, +)"),
    "combined_accumulators": ("int n, int k, int a[n][k], int *out", "", "for (int i = 0; i < n; i++) { int l = 100, s = 0; for (int j = 0; j < k; j++) { if (a[i][j] < l) l = a[i][j]; s += a[i][j]; } out[i] = s - l; }", "", "i:cc j:pw(min, +)"),
    "block": ("int n, int *a, int *r", "", "{ int s = 0; for (int i = 0; i < n; i++) s += a[i]; r[0] = 2 * s; }", "", "i:pw(+)"),
    "two_nests": ("int n, int *a, int *b, int *c", "", "{ for (int i = 0; i < n; i++) b[i] = a[i] + 1; for (int i = 0; i < n; i++) c[i] = b[n - 1 - i]; }", "", "i:cc; i:cc"),
    "mean_then_shift": ("int n, int s, int *a, int *b, int *r", "", "{ s = 0; for (int i = 0; i < n; i++) s += a[i]; for (int j = 0; j < n; j++) b[j] = a[j] - s; }", "*r = s;", "i:pw(+); j:cc"),
    "shift_by_private": ("int n, int *a, int *b", "int s;", "{ s = 0; for (int i = 0; i < n; i++) s += a[i]; s = s / 2; for (int j = 0; j < n; j++) b[j] = a[j] - s; }", "", "i:pw(+); j:cc"),
    "row_and_total": ("int n, int k, int s, int a[n][k], int *rows, int *r", "", "for (int i = 0; i < n; i++) { int row = 0; for (int j = 0; j < k; j++) row += a[i][j]; rows[i] = row; s += row; }", "*r = s;", "i:cc j:pw(+); i:pw(+) j:pw(+)"),
    "map_and_sum": ("int n, int s, int *a, int *b, int *r", "", "for (int i = 0; i < n; i++) { b[i] = 2 * a[i]; s += a[i]; }", "*r = s;", "i:cc; i:pw(+)"),
    "in_place_and_sum": ("int n, int s, int *a, int *r", "", "for (int i = 0; i < n; i++) { a[i] = 2 * a[i]; s += a[i]; }", "*r = s;", "i:pw(+); i:cc"),
    "chain": ("int n, int *a, int *b, int *c", "", "for (int i = 1; i < n; i++) { b[i] = a[i] + 1; c[i] = b[i - 1]; }", "", "i:cc; i:cc"),
    "epilogue_only": ("int n, int k, int a[n][k], int *b, int *c, int *d", "", "for (int i = 0; i < n; i++) { int s = 0; for (int j = 0; j < k; j++) s += a[i][j]; c[i] = s; d[i] = 3 * b[i]; }", "", "i:cc j:pw(+)"),
    "old_value": ("int n, int k, int a[n][k], int *w", "", "for (int i = 0; i < n; i++) for (int j = 0; j < k; j++) w[i] += a[i][j];", "", "i:cc j:pw(+)"),
    "even_and_odd": ("int n, int *a, int *b", "", "for (int i = 0; i < n; i++) { b[2 * i] = a[i]; b[2 * i + 1] = -a[i]; }", "", "i:cc"),
    "in_place": ("int n, int *a", "", "for (int i = 0; i < n; i++) a[i] = a[i] * 2 + i;", "", "i:cc"),
    "last_value": ("int n, int last, int *a, int *r", "", "for (int i = 0; i < n; i++) last = a[i];", "*r = last;", "i:cc"),
    "last_of_two_loops": ("int n, int k, int last, int a[n][k], int *r", "", "for (int i = 0; i < n; i++) for (int j = 0; j < k; j++) last = a[i][j];", "*r = last;", "i:cc j:cc"),
    "private_outside": ("int n, int *a, int *b", "int t;", "for (int i = 0; i < n; i++) { t = a[i]; b[i] = t * t; }", "", "i:cc"),
    "private_accumulator": ("int n, int k, int a[n][k], int *b", "int t; int i, j;", "for (i = 0; i < n; i++) { t = 0; for (j = 0; j < k; j++) t += a[i][j]; b[i] = t; }", "", "i:cc j:pw(+)"),
    "live_accumulator": ("int n, int k, int a[n][k], int *b, int *r", "int t = 5;", "for (int i = 0; i < n; i++) { t = 0; for (int j = 0; j < k; j++) t += a[i][j]; b[i] = t; }", "*r = t;", "i:cc j:pw(+)"),
    # ------------------------------------------------------------------ conditions and while
    "relu": ("int n, float *a, float *b", "", "for (int i = 0; i < n; i++) { if (a[i] > 0) b[i] = a[i]; else b[i] = 0; }", "", "i:cc"),
    "conditional_store": ("int n, int *a, int *b", "", "for (int i = 0; i < n; i++) if (a[i] > 2) b[i] = a[i];", "", "i:cc"),
    "conditional_locals": ("int n, int *a, int *b", "", "for (int i = 0; i < n; i++) { int x; if (a[i] > 2) { int y = a[i] * 2; x = y + 1; } else x = 5; b[i] = x; }", "", "i:cc"),
    "halves": ("int n, int *restrict lo, int *restrict hi, int *restrict x", "", "for (int i = 0; i + 1 < n; i += 2) { lo[i / 2] = x[i] + x[i + 1]; hi[i >> 1] = x[i] - x[i + 1]; }", "", "i:cc"),
    "shifted_quarters": ("int n, int *restrict a, int *restrict x", "", "for (long i = 0; i < n; i += 4) a[(2 * i + 8) / 4] = x[(i + 4) / 2 - 1];", "", "i:cc"),
    "diagonal": ("int n, int a[n][n]", "", "for (int i = 0; i < n; i++) for (int j = 0; j < n; j++) if (i == j) a[i][j] = 1;", "", "i:cc j:cc"),
    "not_self": ("int n, int *p, int *f", "", "for (int i = 0; i < n; i++) for (int j = 0; j < n; j++) if (i != j) f[i] += p[j] - p[i];", "", "i:cc j:pw(+)"),
    "lower_triangle": ("int n, int a[n][n], int *w", "", "for (int i = 0; i < n; i++) for (int j = 0; j < n; j++) if (j <= i) w[i] += a[i][j];", "", "i:cc j:pw(+)"),
    "padding": ("int n, int m, int *a, int *b", "", "for (int i = 0; i < n; i++) for (int j = 0; j < m; j++) { int s = 0; for (int q = 0; q < 3; q++) { int x = j + q - 1; if (x >= 0 && x < m) s += a[i * m + x]; } b[i * m + j] = s; }", "", "i:cc j:cc q:pw(+)"),
    "collatz": ("int n, int *a, int *b", "", "for (int i = 0; i < n; i++) { int x = a[i], steps = 0; while (x > 1 && steps < 20) { if (x % 2) x = 3 * x + 1; else x = x / 2; steps++; } b[i] = steps; }", "", "i:cc"),
    "collatz_sum": ("int n, int s, int *a, int *r", "", "for (int i = 0; i < n; i++) { int x = a[i], steps = 0; while (x > 1 && steps < 20) { x = x % 2 ? 3 * x + 1 : x / 2; steps++; } s += steps; }", "*r = s;", "i:pw(+)"),
    "nested_while": ("int n, int *a, int *b", "", "for (int i = 0; i < n; i++) { int s = 0; if (a[i] > 0) { int k = a[i]; while (k > 0) { int t = k; while (t > 0) { s += t; t--; } k = k - 1; } } b[i] = s; }", "", "i:cc"),
    "local_twice": ("int n, unsigned *a, unsigned h, unsigned *r", "", "for (int i = 0; i < n; i++) { unsigned x = a[i] * 2654435761u + 12345u * (unsigned)i + 3u; x = (x ^ (x >> 3)) * 77u + (x << 2) + 1u; x ^= x >> 2; h ^= x; }", "*r = h;", "i:pw(^)"),
    # ------------------------------------------------------------------ scans
    "scan": ("int n, int s, int *a, int *b", "", "for (int i = 0; i < n; i++) { s += a[i]; b[i] = s; }", "", "i:ps(+)"),
    "scan_final": ("int n, int s, int *a, int *b, int *r", "", "for (int i = 0; i < n; i++) { s += a[i]; b[i] = s; }", "*r = s;", "i:ps(+)"),
    "scan_epilogue": ("int n, int s, int *a, int *b", "", "for (int i = 0; i < n; i++) { s += a[i]; b[i] = 2 * s + a[i]; }", "", "i:ps(+)"),
    "scan_rows": ("int n, int k, int a[n][k], int b[n][k]", "", "for (int i = 0; i < n; i++) { int s = 0; for (int j = 0; j < k; j++) { s += a[i][j]; b[i][j] = s; } }", "", "i:cc j:ps(+)"),
    "scan_rows_total": ("int n, int k, int a[n][k], int b[n][k], int *t", "", "for (int i = 0; i < n; i++) { int s = 1; for (int j = 0; j < k; j++) { s += a[i][j]; b[i][j] = s; } t[i] = s; }", "", "i:cc j:ps(+); i:cc j:pw(+)"),
    "scan_in_place": ("int n, int *a", "", "for (int i = 1; i < n; i++) a[i] += a[i - 1];", "", "i:ps(+)"),
    "scan_other": ("int n, int *a, int *b", "", "for (int i = 1; i < n; i++) b[i] = b[i - 1] * a[i];", "", "i:ps(*)"),
    "scan_columns": ("int n, int k, int a[n][k], int b[n][k]", "", "for (int i = 1; i < n; i++) for (int j = 0; j < k; j++) b[i][j] = b[i - 1][j] + a[i][j];", "", "i:ps(+) j:cc"),
    "scan_backwards": ("int n, int *a, int *b", "", "for (int i = n - 2; i >= 0; i--) b[i] = b[i + 1] + a[i];", "", "i:ps(+)"),
    "scan_max": ("int n, int m, int *a, int *b", "", "for (int i = 0; i < n; i++) { if (a[i] > m) m = a[i]; b[i] = m; }", "", "i:ps(max)"),
    "scan_max_in_place": ("int n, int *a, int *b", "", "for (int i = 1; i < n; i++) b[i] = a[i] > b[i - 1] ? a[i] : b[i - 1];", "", "i:ps(max)"),
    "mbbs": ("int n, int k, int s, int a[n][k], int *b", "", "for (int i = 0; i < n; i++) { for (int j = 0; j < k; j++) s += a[i][j]; b[i] = s; }", "", "i:ps(+) j:pw(+)"),
    "mbbs_local": ("int n, int k, int a[n][k], int *b", "", "for (int i = 1; i < n; i++) { int acc = b[i - 1]; for (int j = 0; j < k; j++) acc += a[i][j]; b[i] = acc; }", "", "i:ps(+) j:pw(+)"),
    "mbbs_row_sum": ("int n, int k, int s, int a[n][k], int *b", "", "for (int i = 0; i < n; i++) { int row = 0; for (int j = 0; j < k; j++) row += a[i][j]; s += row; b[i] = s; }", "", "i:ps(+) j:pw(+)"),
    "two_scans": ("int n, int s, int m, int *a, int *b, int *c", "", "for (int i = 0; i < n; i++) { s += a[i]; if (a[i] > m) m = a[i]; b[i] = s; c[i] = m; }", "", "i:ps(+, max)"),
    "scan_and_sum": ("int n, int s, int q, int *a, int *b, int *r", "", "for (int i = 0; i < n; i++) { s += a[i]; b[i] = s; q += a[i] * a[i]; }", "*r = q;", "i:ps(+); i:pw(+)"),
    "column_scan": ("int n, int k, int a[n][k], int *w, int b[n][k]", "", "for (int i = 0; i < n; i++) for (int j = 0; j < k; j++) { w[j] += a[i][j]; b[i][j] = w[j]; }", "", "i:ps(+) j:cc"),
    # ------------------------------------------------------------------ loops and indices
    "strided": ("int n, int *a, int *b", "", "for (int i = 3; i < n; i += 2) b[i] = a[i - 3] + i;", "", "i:cc"),
    "downwards_by_two": ("int n, int *a, int *b", "", "for (int i = n; i > 1; i -= 2) b[i] = a[i - 2] + i;", "", "i:cc"),
    "inclusive": ("int n, int *a, int *b", "", "for (int i = 1; i <= n; i++) b[i] = a[n - i];", "", "i:cc"),
    "lower_parameter": ("int lo, int hi, int *a, int *b", "", "for (int i = lo; i < hi; i++) b[i] = a[i] * i;", "", "i:cc"),
    "flat": ("int n, int m, float *a, float *b", "", "for (int i = 0; i < n; i++) for (int j = 0; j < m; j++) b[j * n + i] = a[i * m + j];", "", "i:cc j:cc"),
    "flat_local_index": ("int n, int m, float *a, float *b", "", "for (int i = 0; i < n; i++) for (int j = 0; j < m; j++) { int p = i * m; p = p + j; b[p] = a[p]; }", "", "i:cc j:cc"),
    "flat_3d": ("int n, int m, int l, float *a, float *b", "", "for (int i = 0; i < n; i++) for (int j = 0; j < m; j++) for (int k = 0; k < l; k++) b[(i * m + j) * l + k] = a[k * n * m + i * m + j];", "", "i:cc j:cc k:cc"),
    "flat_stencil": ("int n, int m, float *a, float *b", "", "for (int i = 1; i < n - 1; i++) for (int j = 1; j < m - 1; j++) b[i * m + j] = a[(i - 1) * m + j] + a[(i + 1) * m + j] + a[i * m + j - 1] + a[i * m + j + 1];", "", "i:cc j:cc"),
    "flat_leading_dimension": ("int n, int m, int ld, float *a, float *b", "", "for (int i = 0; i < n; i++) for (int j = 0; j < m; j++) b[i * ld + j] = a[i * ld + j];", "", "i:cc j:cc"),
    "flat_constant": ("int n, int m, float *a, float *b", "", "for (int i = 0; i < n; i++) for (int j = 0; j < m; j++) b[i * 4 + j] = a[i + 4 * j];", "", "i:cc j:cc"),
    "flat_rgb": ("int n, int m, int *a, int *b", "", "for (int i = 0; i < n; i++) for (int j = 0; j < m; j++) for (int c = 0; c < 3; c++) b[(i * m + j) * 3 + c] = a[(i * m + j) * 3 + 2 - c];", "", "i:cc j:cc c:cc"),
    "flat_rows_by_two": ("int n, int m, int *a, int *b", "", "for (int i = 0; i < n; i++) for (int j = 0; j < m; j++) b[i * m + j] = a[2 * i * m + j] + a[(2 * i + 1) * m + j];", "", "i:cc j:cc"),
    "count_in_two_loops": ("int n, int m, int c, int b[n][m], int d[n][m], int *r", "", "for (int i = 0; i < n; i++) { c++; for (int j = 0; j < m; j++) b[i][j] = 1; for (int k = 0; k < m; k++) d[i][k] = 2; }", "*r = c;", "i:cc j:cc; i:pw(+); i:cc k:cc"),
    "reused_accumulator": ("int n, int m, int c, int b[n][m], int d[n][m], int *r, int *w", "", "for (int i = 0; i < n; i++) { c = 0; for (int j = 0; j < m; j++) c += b[i][j]; w[i] = c; c = 1; for (int k = 0; k < m; k++) c *= d[i][k]; }", "*r = c;", "i:cc j:pw(+); i:cc k:pw(*)"),
    "max_of_row_maxima": ("int n, int k, float m, float a[n][k], float *r", "", "for (int i = 0; i < n; i++) { float row = -INFINITY; for (int j = 0; j < k; j++) row = row >= a[i][j] ? row : a[i][j]; if (row > m) m = row; }", "*r = m;", "i:pw(max) j:pw(max)"),
    "loop_sum": ("int n, int s, int *r", "", "for (int i = 0; i < n; i++) s += i * i;", "*r = s;", "i:pw(+)"),
    # ------------------------------------------------------------------ records
    "complex_sum": ("int n, cplx s, cplx *a, cplx *r", "", "for (int i = 0; i < n; i++) { s.re += a[i].re; s.im += a[i].im; }", "*r = s;", "i:pw(+, +)"),
    "complex_map": ("int n, cplx *a, cplx *b", "", "for (int i = 0; i < n; i++) { b[i].re = a[i].im; b[i].im = -a[i].re; }", "", "i:cc"),
    "one_field": ("int n, cplx *a, cplx *b", "", "for (int i = 0; i < n; i++) b[i].re = a[i].im;", "", "i:cc"),
    "field_max": ("int n, int m, cplx *a, int *r", "", "for (int i = 0; i < n; i++) if (a[i].re > m) m = a[i].re;", "*r = m;", "i:pw(max)"),
}  # fmt: skip

PRELUDE = """
#include <math.h>
typedef struct { int re, im; } cplx;
static int larger(int a, int b) { return a > b ? a : b; }
static cplx add(cplx a, cplx b) { cplx c; c.re = a.re + b.re; c.im = a.im + b.im; return c; }
static void addp(cplx *r, const cplx *a, const cplx *b) { int re = a->re + b->re; int im = a->im + b->im; r->re = re; r->im = im; }
static int odd(int a, int b) { int c = a; if (b > 3) c = a + b; return c; }
"""


def program(parameters: str, before: str, nest: str, after: str, clauses: str = "") -> str:
    return f"{PRELUDE}\nvoid f({parameters})\n{{\n{before}\n#pragma mdh {clauses}\n{nest}\n{after}\n}}\n"


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted(name):
    parameters, before, nest, after, wanted = ACCEPTED[name]
    result = lifted(program(parameters, before, nest, after))
    assert operators(result) == wanted, [(d.code, d.message, d.label) for d in result.diagnostics]
    assert check_meaning(result) >= 3


WITH_CLAUSES = {
    "user": ("int n, cplx s, cplx *a, cplx *r", "combine_ops(pw(add))", "for (int i = 0; i < n; i++) s = add(s, a[i]);", "*r = s;", "i:pw(add)"),
    "user_right": ("int n, cplx s, cplx *a, cplx *r", "combine_ops(add)", "for (int i = 0; i < n; i++) s = add(a[i], s);", "*r = s;", "i:pw(add)"),
    "user_pointers": ("int n, cplx s, cplx *a, cplx *r", "combine_ops(i: pw(addp))", "for (int i = 0; i < n; i++) addp(&s, &s, &a[i]);", "*r = s;", "i:pw(addp)"),
    "user_scan": ("int n, cplx s, cplx *a, cplx *b", "combine_ops(ps(add))", "for (int i = 0; i < n; i++) { s = add(s, a[i]); b[i] = s; }", "", "i:ps(add)"),
    "by_iterator": ("int n, int k, int a[n][k], int *w", "combine_ops(j: pw(+), i: cc) out(w) inp(a)", "for (int i = 0; i < n; i++) for (int j = 0; j < k; j++) w[i] += a[i][j];", "", "i:cc j:pw(+)"),
    "tuple": ("int n, int s, int m, int *a, int *r", "combine_ops(pw(+, max))", "for (int i = 0; i < n; i++) { s += a[i]; if (a[i] > m) m = a[i]; }", "r[0] = s; r[1] = m;", "i:pw(+, max)"),
    "exact": ("float s, float *a, int n, float *r", "fp(exact)", "for (int i = 0; i < n; i++) s += a[i] - 1;", "*r = s;", "i:pw(+)"),
    "cc23": ("int n, int k, int a[n][k], int *w", "( w[i] : ++ , + )", "for (int i = 0; i < n; i++) for (int j = 0; j < k; j++) w[i] += a[i][j];", "", "i:cc j:pw(+)"),
}  # fmt: skip


@pytest.mark.parametrize("name", WITH_CLAUSES)
def test_with_clauses(name):
    parameters, clauses, nest, after, wanted = WITH_CLAUSES[name]
    result = lifted(program(parameters, "", nest, after, clauses))
    assert operators(result) == wanted, [(d.code, d.message, d.label) for d in result.diagnostics]
    assert check_meaning(result) >= 3


@pytest.mark.parametrize("seed", range(8))
def test_random_nests_keep_their_meaning(seed):
    """What is lifted means the same; what is not lifted says why."""
    found = 0
    for k in range(25):
        nest = RandomNest(1000 * seed + k)
        text = program(nest.PARAMETERS, "", nest.text(), "*r = s + u;")
        (read_nest,) = nests(text)
        result = lift(read_nest)
        if result.status == "refused":
            assert result.programs == () and result.diagnostics[0].severity == "error"
            continue
        try:
            check_meaning(result, 3, well_formed=False)
            found += 1
        except EvaluationError as error:  # the nest itself leaves an array or overflows
            assert "outside" in str(error) or "overflow" in str(error), (text, error)
    assert found >= 2


# --------------------------------------------------------------------------- the corpus


@pytest.mark.parametrize("name", ["gemm_epilogue", "mbbs", "user_op", "matmul_t", "mandelbrot", "argmax_payload"])
def test_corpus_keeps_its_meaning(name):
    path = CORPUS / f"{name}.c"
    sizes = ("-DN=4", "-DROWS=3", "-DCOLS=4", "-DWIDTH=5", "-DHEIGHT=4", "-DLIMIT=6")
    for nest in read(SourceFile(path.name, path.read_bytes()), CompileCommand(flags=sizes)).nests:
        assert check_meaning(lift(nest), 3) >= 2


# --------------------------------------------------------------------------- values by hand


def hand_built(value=None, upper="N", index=None, **rest):
    """``for (i = 0; i < upper; i++) y[i] = value``, without a frontend."""
    i = Var("i", INT32)
    x = Load("x", (i,), FLOAT)
    y = Load("y", index or (i,), FLOAT)
    body = (Assign(y, value or Binary("*", Const(2.0, FLOAT), x, FLOAT)),)
    loop = Loop("i", INT32, Const(0, INT32), Var(upper, INT32), 1, body)
    buffers = (Buffer("x", FLOAT, (None,)), Buffer("y", FLOAT, (None,)))
    return LoopNest("t.c::f::0", "f", "0", (Param("N", INT32),), buffers, (), (loop,), **rest)


def test_hand_built_nest():
    result = lift(hand_built())
    (p,) = result.programs
    assert operators(result) == "i:cc"
    assert [str(a.index[0]) for a in p.inp.accesses] == ["i"] and not p.inp.accesses[0].conditional
    assert [x.name for x in p.params] == ["N"] and {b.name for b in p.buffers} == {"x", "y"}
    assert [d.code for d in result.diagnostics] == ["MDH101", "MDH203"]


def test_index_of_data_by_hand():
    result = lift(hand_built(index=(Load("x", (Var("i", INT32),), INT32),)))
    assert (result.status, result.programs, operators(result)) == ("refused", (), "MDH214")


def test_lift_is_a_function():
    text = program("int n, float *a, float *b", "", "for (int i = 0; i < n; i++) b[i] = a[i] + a[i + 1];", "")
    assert lifted(text) == lifted(text)


def test_accesses_are_merged_and_conditional_ones_marked():
    result = lifted(
        program(
            "int n, int *a, int *b, int *c",
            "",
            "for (int i = 0; i < n; i++) c[i] = a[i] + a[i] * 2 + (a[i] > 0 ? b[i] : a[i + 1]);",
            "",
        )
    )
    assert [(a.buffer, str(a.index[0]), a.conditional) for a in result.programs[0].inp.accesses] == [
        ("a", "i", False),
        ("b", "i", True),
        ("a", "i + 1", True),
    ]


ROW = "for (int i = 0; i < n; i++) "


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (ROW + "y[i] = a[i] > 0 ? a[n - 1 - i] : 0;", []),
        (ROW + "y[i] = a[2 * i] + a[2 * i + 1] > 0 ? a[i] : 0;", []),
        (ROW + "y[i] = a[i]; " + ROW + "if (f[i]) y[i] += a[n - 1 - i];", []),
        (ROW + "{ if (f[i] > 2 && a[i] > 0) y[i] = a[i]; a[i] = 1; }", []),
        (ROW + "y[i] = a[i] > 0 ? a[i + 1] : 0;", ["i + 1"]),
        (ROW + "y[i] = a[2 * i] > 0 ? a[i] : 0;", ["i"]),
        (ROW + "y[i] = a[i] + (i > 0 ? a[i - 1] : 0);", ["i - 1"]),  # the condition keeps it inside
        (ROW + "y[i] = f[i] && a[i] > 0 ? a[i] : 7;", ["i"]),
        (ROW + "y[i] = f[i] ? a[i] : 7; for (int i = 1; i < n; i++) y[i] += a[i];", ["i"]),
        (ROW + "{ int k = 0; while (f[i] > k) { k += 1 + a[i]; } y[i] = f[i] > 2 ? a[i] : k; }", ["i"]),
    ],
)
def test_reads_under_a_condition_of_what_is_touched_without(body: str, expected: list[str]) -> None:
    """Such a cell may be read whether or not the condition holds; others may not be there."""
    nest = lifted(f"void f(int n, int *restrict a, int *restrict f, int *restrict y) {{\n#pragma mdh\n{{ {body} }} }}")
    assert nest.status == "lifted", nest.diagnostics
    found = [a for p in nest.programs for a in p.inp.accesses if a.buffer == "a" and a.conditional]
    assert [str(a.index[0]) for a in found] == expected


def assumed(head: str, body: str) -> list[str]:
    nest = lifted(f"#include <math.h>\nvoid f({head}) {{\n#pragma mdh\n{body}\n}}")
    assert nest.status == "lifted", nest.diagnostics
    return sorted({str(a) for p in nest.programs for a in p.assumptions})


SQUARE = "for (int i = 0; i < m; i++) for (int j = 0; j < m; j++) "


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (SQUARE + "A[i][j] = B[i][j];", ["-m + n"]),
        (SQUARE + "A[i][j] += 1;", ["-m + n"]),
        (SQUARE + "A[j][i] = 1;", ["-m + n"]),
        (SQUARE + "if (j < n) A[i][j] = 1;", []),
        (SQUARE + "C[i][j] = B[i][j + 3];", ["-m + 100"]),  # B is only read
        ("for (int i = 0; i < 20; i++) for (int j = 0; j < 100; j++) C[i][j] = 1;", []),
        ("for (int i = 0; i < n; i++) for (int j = i; j < n; j++) A[i][j] = A[i][j] + 1;", []),
        ("for (int j = 0; j < m; j++) A[3][j] = B[3][j];", []),  # no other line is touched
        ("for (int j = 0; j < m; j++) A[k][j] = A[k][j] + 1;", []),
        # one of several bounds
        (
            "for (int i = 1; i < m; i++) for (int j = 1; j < m - 1; j++)"
            " A[i][j] = fabs(A[i-1][j] - A[i][j-1]) + A[i-1][j+1];",
            ["-m + n"],
        ),
    ],
)  # fmt: skip
def test_lines_of_arrays_are_as_long_as_loops_say(body: str, expected: list[str]) -> None:
    """Beyond the end of a line is the next one: two points might meet in one cell."""
    assert assumed("int n, int m, int k, double A[n][n], double B[n][n], double C[20][100]", body) == expected


@pytest.mark.parametrize("m", ["m", "z"])
@pytest.mark.parametrize("flat", [True, False])
def test_wavefronts_ask_for_no_more_than_they_need(m: str, flat: bool) -> None:
    """A cell of the line is w - i, which is at most m - 1 and at most w: the latter would need twice as much."""
    body = f"for (int i = 1; i < {m}; i++) for (int j = 1; j < {m}; j++)"
    if flat:
        body += " A[i*n + j] = fabs(A[(i-1)*n + j] - A[i*n + j-1]);"
    else:
        body += " A[i][j] = fabs(A[i-1][j] - A[i][j-1]);"
    expected = {"m": "-m + n", "z": "n - z"}[m]
    assert assumed(f"int n, int {m}, double {'*A' if flat else 'A[n][n]'}", body) == [expected]


def test_lines_walked_by_a_loop_with_a_step() -> None:
    body = (
        "for (int t = 2; t < n; t += 2) for (int j = 0; j < m; j++)"
        " A[j][t] = fabs(A[j][t-2] - A[j][t-1]) + A[j][t];"
    )
    assert assumed("int n, int m, double A[1000][1000]", body) == ["-n + 1000"]


def test_assumptions_of_a_leading_dimension():
    nest = "for (int i = 0; i < n; i++) for (int j = 0; j < m; j++) b[i * ld + j] = a[i * ld + j];"
    (p,) = lifted(program("int n, int m, int ld, int *a, int *b", "", nest, "")).programs
    assert [str(a) for a in p.assumptions] == ["ld - m"]
    assert [str(e) for e in p.buffer("b").extents] == ["None", "ld"]
    (p,) = lifted(program("int n, int m, int ld, int *a, int *b", "", nest, "", "assume(m <= ld)")).programs
    assert p.assumptions == ()


def test_initial_value_and_epilogue():
    nest = (
        "for (int i = 0; i < n; i++) { int s = 3; for (int j = 0; j < n; j++) s += a[j]; b[i] = 2 * s + b[i]; }"
    )
    (p,) = lifted(program("int n, int *a, int *b", "", nest, "")).programs
    assert p.out.initial == (Const(3, INT32),)
    assert p.out.stores[0].plain is None and program_json(p)["outputs"][0]["accumulates"]


def test_final_values_of_iterators():
    nest = "for (i = 2; i < n; i += 3) for (j = m; j > 0; j--) w[i] += a[j];"
    result = lifted(program("int n, int m, int *a, int *w", "int i, j;", nest, "w[0] = i + j;"))
    assert [(f.name, str(f.lower), str(f.size), f.step, [str(s) for s in f.outer]) for f in result.iterators_final] == [
        ("j", "m", "m", -1, ["ceil((n - 2)/3)"]),
        ("i", "2", "ceil((n - 2)/3)", 3, []),
    ]


def test_json():
    text = program(
        "int n, int k, float A[n][k], float v[k], float *w",
        "",
        "for (int i = 0; i < n; i++) for (int j = 0; j < k; j++) w[i] += A[i][j] * v[j];",
        "",
    )
    source = SourceFile("t.c", text.encode())
    (nest,) = nests(text)
    found = to_json(lift(nest), source)
    assert found["status"] == "lifted" and found["name"] == "t.c::f::0" and found["line"] > 1
    (hom,) = found["program"]
    assert hom == {
        "kind": "md_hom",
        "dims": [{"name": "i", "extent": "n", "op": "cc"}, {"name": "j", "extent": "k", "op": "pw(+)"}],
        "inputs": [
            {"buffer": "A", "type": "float", "accesses": [["i", "j"]]},
            {"buffer": "v", "type": "float", "accesses": [["j"]]},
        ],
        "outputs": [{"buffer": "w", "type": "float", "accesses": [["i"]], "accumulates": True}],
        "scalar_function": "A[0] * v[0]",
    }
    assert [d["code"] for d in found["diagnostics"]] == ["MDH101", "MDH203", "MDH301"]


@pytest.mark.parametrize(("fp", "code"), [("exact", "MDH304"), ("deterministic", "MDH301"), ("fast", "MDH301")])
def test_floating_point_policy(fp, code):
    nest = "for (int i = 0; i < n; i++) s += a[i];"
    result = lifted(program("int n, float s, float *a, float *r", "", nest, "*r = s;", f"fp({fp})"))
    assert [d.code for d in result.diagnostics] == ["MDH101", code] and result.programs[0].fp == fp


def test_positions_start_before_the_first_index():
    """So that the initial value wins ties with `<` and loses them with `<=`, as in the loop."""
    for name in ("argmin", "argmin_last"):
        result = lifted(program(*ACCEPTED[name][:4]))
        assert result.programs[0].out.initial[-1] == Const(-1, INT64)


def test_legality():
    plus, times = scalar_operator("+", FLOAT), scalar_operator("*", FLOAT)
    assert why_not_well_defined((CC, pw(plus), CC, pw(plus))) is None
    assert why_not_well_defined((ps(plus), pw(plus))) is None
    assert "interchange" in why_not_well_defined((pw(plus), CC, pw(times)))
    assert "interchange" in why_not_well_defined((ps(plus), pw(times)))
    assert why_not_well_defined((pw(plus), pw(scalar_operator("+", INT32)))) is not None


def test_refusal_names_places_and_help():
    result = lifted(program("int n, int *a", "", "for (int i = 1; i < n; i++) a[i] = a[i + 1] * a[i - 1];", ""))
    (d,) = result.diagnostics
    assert d.code == "MDH213" and d.span and d.related and d.help
    assert d.notes == ("a cell is read 1 iteration of `i` before it is written",)
    assert "`a[i + 1]`" in d.message and "`a[i]`" in d.message


def test_diagnostics_do_not_depend_on_the_hash_seed(tmp_path: Path) -> None:
    """The same place of the same access is named in every run."""
    (tmp_path / "f.c").write_text(
        "void f(int t, int n, float a[n][n], float b[n][n])\n{\n#pragma mdh\n"
        "    for (int k = 0; k < t; k++) {\n"
        "        for (int i = 1; i < n - 1; i++)\n            for (int j = 1; j < n - 1; j++)\n"
        "                b[i][j] = a[i-1][j] + a[i+1][j] + a[i][j-1] + a[i][j+1];\n"
        "        for (int i = 1; i < n - 1; i++)\n            for (int j = 1; j < n - 1; j++)\n"
        "                a[i][j] = b[i][j];\n    }\n}\n"
    )
    root = Path(__file__).parent.parent
    told = set()
    for seed in ("0", "1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(root)}
        command = [sys.executable, "-m", "mdh_lift", "show", "--as", "json", "f.c"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment)
        told.add(done.stdout)
    assert len(told) == 1 and '"MDH102"' in told.pop()


def test_exposed_from_each_statement_on() -> None:
    """The same as asked for every rest of the list alone."""
    text = """
void f(int n, int m, int *x, int a, int b)
{
    int s = 0, t;
#pragma mdh
    for (int i = 0; i < n; i++) {
        t = a + s;
        if (x[i] > 0) { s = b; a = 1; } else { s = 2; }
        for (int j = 0; j < m; j++)
            x[j] += s + t;
        int u = t * a;
        b = u + s;
    }
}
"""
    (nest,) = nests(text)
    (loop,) = nest.body
    assert isinstance(loop, Loop)
    rests = [exposed(loop.body[k:]) for k in range(len(loop.body) + 1)]
    assert exposed_from(loop.body) == rests
    assert rests[0] >= {"a", "s", "b"} and "a" in rests[-3] and "a" not in rests[-2]


BOUNDS = {
    "for (int i = 0, j = n - 1; i < j; i++, j -= w[i]) a[i] += a[j];": "compute `j` from `i`",
    "for (int i = 0; i < n; i++) { a[i] = 0; if (i > 3) n = 7; }": "copy that into a variable before the loop",
    "for (int i = 0; i < n; i++) for (int c = 9; c >= w[i]; c--) a[c] += 1;": "guard the body with an `if`",
    "for (int i = 0; i < n; i++) for (int c = 0; c < a[0]; c++) a[i] += w[c];": "guard the body with an `if`",
    "for (int i = 0; i < w[0]; i++) a[i] *= 2;": "copy the bound into a variable before the nest",
}


@pytest.mark.parametrize("loop", BOUNDS)
def test_help_for_bounds_that_change(loop):
    """What is advised can be done without another meaning."""
    text = f"void f(int n, int *restrict a, const int *restrict w)\n{{\n#pragma mdh\n{loop}\n}}\n"
    result = read(SourceFile("t.c", text.encode()), CompileCommand())
    found = [d for r in result.refused for d in r.diagnostics] or list(lift(result.nests[0]).diagnostics)
    assert found[0].code == "MDH202" and BOUNDS[loop] in found[0].help, found


def test_a_sum_that_a_condition_resets_says_so():
    body = "for (int i = 0; i < n; i++) { if (w[i]) s = 0; s += w[i]; a[i] = s; }"
    nest = lifted(f"void f(int n, int *a, const int *w)\n{{\nint s = 0;\n#pragma mdh\n{body}\n}}\n")
    assert nest.status == "refused" and "replaced under a condition" in nest.diagnostics[0].label


def test_only_what_divides_evenly_is_a_quotient() -> None:
    """``(2*i + 1) / 2`` is not linear where ``i`` may be negative, ``4u*n / 4`` not where the product wraps."""
    i = Var("i", INT64)
    even = Binary("+", Binary("*", Const(6, INT64), i, INT64), Const(-4, INT64), INT64)
    assert as_affine(Binary("/", even, Const(2, INT64), INT64)) == Affine.of("i", 3) - 2
    assert as_affine(Binary(">>", even, Const(1, INT64), INT64)) == Affine.of("i", 3) - 2
    assert as_affine(Binary("/", even, Const(3, INT64), INT64)) is None
    assert as_affine(Binary("/", even, Const(-2, INT64), INT64)) is None
    n = Var("n", UINT32)
    assert as_affine(Binary("/", Binary("*", n, Const(4, UINT32), UINT32), Const(4, UINT32), UINT32)) is None
    u, two = Var("u", UINT64), Const(2, UINT64)
    twice = Binary("*", two, u, UINT64)
    assert as_affine(Binary("/", twice, two, UINT64)) == Affine.of("u")
    assert as_affine(Binary("/", Binary("-", twice, two, UINT64), two, UINT64)) is None, "0 - 2 wraps"


@pytest.mark.parametrize(
    ("body", "label", "advice"),
    [
        ("{ if (x[i] < m) { m = x[i]; at = i + at; } }", "the variables depend on one another", "`struct`"),
        ("{ at = (at + x[i]) % 65521; m = (m + at) % 65521; }", "the variables depend on one another", "`struct`"),
        ("{ if (x[i] < m || x[i] > 9) { m = x[i]; at = i; } }", "and not as the value and the position of an extremum", "m = x; at = i;"),
        ("{ if (x[i] == m) at = i; }", "keeps the value of the last iteration", "`if (… && e > x) x = e;`"),
    ],
)  # fmt: skip
def test_what_is_said_of_variables_that_are_carried(body: str, label: str, advice: str) -> None:
    text = "int f(int n, const int *x, int m) { int at = -1;\n#pragma mdh\nfor (int i = 0; i < n; i++) BODY return m + at; }"
    (d,) = [d for d in lifted(text.replace("BODY", body)).diagnostics if d.severity == "error"]
    assert d.code == "MDH207" and label in d.label and advice in d.help, d


@pytest.mark.parametrize(
    "loop",
    ["while (n-- > 0) *a++ = *b++ * 2;", "while (i < n) { a[i] = b[i] * 2; i++; }", "do { a[i] = b[i] * 2; i++; } while (i < n);"],
)  # fmt: skip
def test_a_directive_may_stand_above_other_loops(loop: str) -> None:
    nest = lifted(f"void f(int n, float *restrict a, const float *restrict b) {{ int i = 0;\n#pragma mdh\n{loop}\n}}")
    assert nest.status == "lifted" and len(nest.programs) == 1, nest.diagnostics
    assert nest.nest.span.end - nest.nest.span.start == len(loop)


def test_a_loop_of_unknown_length_goes_inside() -> None:
    """Where each cell belongs to one iteration of the loop inside it, and nothing else is kept from one to the
    next."""
    head = "void f(int n, int m, int q, const int *restrict p, const double *restrict v, double y[restrict n][m], double z[restrict n][m][q], double *restrict w)"
    loop, inner = "for (int k = p[i]; k < p[i + 1]; k++)", "for (int j = 0; j < m; j++)"

    def found(body: str) -> str:
        return operators(lifted(f"{head} {{\n#pragma mdh\nfor (int i = 0; i < n; i++) {{ {body} }} }}"))

    for body in (f"{loop} {inner} y[i][j] += v[k];", f"{loop} {{ double a = v[k]; {inner} y[i][j] += a; }}", f"{loop} {inner} y[i][m - 1 - j] *= v[k + j];"):
        assert found(body) == "i:cc j:cc", body
    assert found(f"{loop} {inner} for (int l = 0; l < q; l++) z[i][j][l] -= v[k];") == "i:cc j:cc l:cc"
    for body in (
        f"{loop} {inner} y[i][j / 2] += v[k];",  # two iterations change one cell
        f"{loop} {inner} y[i][(signed char)j] += v[k];",
        f"{loop} {inner} y[i][j] += y[i][0];",
        f"{loop} for (int j = 0; j < k; j++) y[i][j] += v[k];",
        f"double a = 0; {loop} {inner} {{ a += v[k]; y[i][j] += a; }}",
        f"{loop} {{ double a = v[k]; {inner} {{ a = a / 2; y[i][j] += a; }} }}",
        f"{loop} {{ w[k] = 0; {inner} y[i][j] += v[k]; }}",
    ):  # fmt: skip
        assert not found(body).startswith("i:cc j:cc"), body


def test_what_helps_where_a_row_might_be_written() -> None:
    """`restrict` on what is written lifts it; where it is, the loop itself is in the way."""
    loop = "for (int k = p[i]; k < p[i + 1]; k++) s += v[k] * x[c[k]];"
    nest = f"#pragma mdh\nfor (int i = 0; i < n; i++) {{ double s = 0; {loop} y[i] = s; }}"
    head = "void f(int n, const int *p, const int *c, const double *v, const double *x, double *{}y)"
    refused = lifted(f"{head.format('')} {{\n{nest}\n}}").diagnostics[0]
    assert refused.code == "MDH202" and refused.help.startswith("declare `y` as `restrict`, or name it with")
    assert operators(lifted(f"{head.format('restrict ')} {{\n{nest}\n}}")) == "i:cc"
    every = "noalias(y, p) noalias(y, c) noalias(y, v) noalias(y, x)"
    assert operators(lifted(f"{head.format('')} {{\n{nest.replace('mdh', 'mdh ' + every)}\n}}")) == "i:cc"
    stored = nest.replace("s += v[k]", "y[k] = s += v[k]").replace("y[k] = s +=", "y[k] =")
    again = lifted(f"{head.format('restrict ')} {{\n{stored}\n}}").diagnostics[0]
    assert again.code == "MDH202" and "guard the body" in again.help


def test_a_cell_that_a_loop_of_unknown_length_updates_is_a_variable() -> None:
    """Only the one cell of its array, at subscripts that stay; not touched where the loop does not run."""
    head = "void f(int n, const int *restrict p, const int *restrict col, const double *restrict v, double *restrict y, double z[restrict n][3])"
    loop = "for (int k = p[i]; k < p[i + 1]; k++)"

    def found(body: str) -> str:
        return operators(lifted(f"{head} {{\n#pragma mdh\nfor (int i = 0; i < n; i++) {{ {body} }} }}"))

    for body in (f"y[i] = 0; {loop} y[i] += v[k];", f"{loop} y[i] += v[k];", f"{loop} {{ z[i][1] += v[k]; y[i]++; }}", f"{loop} y[i] += v[k]; {loop} y[i] *= v[k];", f"y[i] = 0; {loop} if (v[k] > 0) y[i] += v[k]; y[i] *= 2;"):
        assert found(body) == "i:cc", body
    for body in (f"{loop} y[k] += v[k];", f"{loop} y[i] += y[k];", f"{loop} {{ y[i] += v[k]; y[i + 1] = 0; }}", f"{loop} z[i][k % 3] += v[k];", f"{loop} y[col[k]] += v[k];"):
        assert found(body).startswith("MDH"), body
    (p,) = lifted(f"{head} {{\n#pragma mdh\nfor (int i = 0; i < n; i++) {{ {loop} y[i] += v[k]; }} }}").programs
    (kept,) = [a for a in p.inp.accesses if a.buffer == "y"]
    assert kept.conditional
    taken, _ = when_stored(p, p.out.stores[0], p.hom.scalar.results[0])
    assert taken is not None


def test_loops_of_unknown_length_in_branches_update_cells() -> None:
    """The store stands behind the branch, under its condition and the loop's; what differs stays refused."""
    head = "void f(int n, const int *restrict p, const double *restrict v, double *restrict y, const double *restrict w, double z[restrict n][3])"
    loop = "for (int k = p[i]; k < p[i + 1]; k++)"

    def found(body: str) -> LiftedNest:
        return lifted(f"{head} {{\n#pragma mdh\nfor (int i = 0; i < n; i++) {{ {body} }} }}")

    for body in (
        f"if (w[i] > 0) {loop} y[i] += v[k];",
        f"if (w[i] > 0) {{ y[i] = 0; {loop} y[i] += v[k]; }}",
        f"if (w[i] > 0) {{ double f = w[i] * 2; {loop} y[i] += f * v[k]; y[i] *= 2; }}",
        f"if (y[i] > 0) {loop} y[i] += v[k];",
        f"if (w[i] > 0) {loop} {{ y[i] += v[k]; z[i][1] -= v[k]; }}",
        f"if (w[i] > 0) {loop} y[i] += v[k]; else y[i] = 0;",
        f"if (w[i] > 0) y[i] = 3; else {loop} y[i] -= v[k];",
        f"if (w[i] > 0) {loop} y[i] += v[k]; else {loop} y[i] -= v[k];",
        f"if (w[i] <= 0) continue; {loop} y[i] += v[k];",
        f"if (w[i] > 0) if (w[i] < 4) {loop} y[i] += v[k];",
        f"if (w[i] > 0) {{ double s = 0; {loop} s += v[k]; y[i] = s; }}",
        f"if (w[i] > 0) {{ double s = 1; {loop} s += v[k]; y[i] += s; z[i][2] = s * w[i]; }} else y[i] = 2;",
    ):
        nest = found(body)
        assert operators(nest) == "i:cc", body
        assert check_meaning(nest, trials=30) > 5, body
    for body in (
        f"if (w[i] > 0) {loop} y[k] += v[k];",
        f"if (w[i] > 0) {{ {loop} y[i] += v[k]; y[i + 1] = 0; }}",
        f"if (w[i] > 0) {{ {loop} y[i] += v[k]; y[p[i]] = 3; }}",
        f"if (w[i] > 0) {{ double s = 0; {loop} {{ s += v[k]; y[k] = s; }} y[i] = s; }}",
        "if (w[i] > 0) { int m = p[i] + 3; for (int k = p[i]; k < m; k++) y[i] += v[k]; }",
    ):
        assert operators(found(body)) == "MDH202", body
    (p,) = found(f"if (w[i] > 0) {loop} y[i] += v[k];").programs
    assert [a.conditional for a in p.inp.accesses if a.buffer in "py"] == [True, True, True]

/* The generic half of a harness program; the struct definitions and `confine.h` are put in front of this text.

   usage: prog SPEC FD key=N           see `confine.h`; without key=N nothing is limited and lines have no key

   SPEC is a file of lines; each "case" runs when its "end" is reached:
     enough SECONDS
     case ID verify|bench
     set KEY VALUE                   see `struct spec`
     set plain FILE                  a shared library with the original compiled another way: its result counts, too
     p NAME VALUE                    value of a parameter (others come from the generator)
     c NAME COUNT                    elements of an array
     d NAME STEP                     elements from one diagonal element of an array to the next
     b NAME BOUND FIRST              an array of indices: values from FIRST to BOUND - 1, at random
     a NAME BOUND FIRST              the same, ascending
     end
   Results are JSON lines on descriptor FD, each behind the key.  The last line is {"done":1}. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fenv.h>
#include <float.h>
#include <math.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

extern void omp_set_num_threads(int) __attribute__((weak));

enum { MAX_ARGS = 256, CANARY = 0xA5, POISON = 0xCD, NAN_POISON = 0xFF, LARGE = 1 << 22 };
enum role { PARAM, ARRAY, SCALAR, ITERATOR };
enum data { EXACT, REAL, EXACT_PRODUCT, REAL_PRODUCT, POSITIVE, DOMINANT, DENORMAL };
enum which { ORIGINAL = 1, CANDIDATE = 2, PLAIN = 4 };
enum special { NANS = 1, INFINITIES = 2, ZEROS = 4, DENORMALS = 8, EXTREMES = 16 };

struct spec {
    long id;
    char mode[16];
    uint64_t seed;
    int data, threads, bitwise, at_start;
    int special, every;       /* which special values stand among the others, and one of how many is */
    int zero_signs;           /* -0 is no 0 */
    int loose;                /* where roundings took place, only finite values are compared */
    int offset;               /* elements from the start of a page to the first array; others differ by their number */
    double length;            /* of the longest chain of combined values, for the tolerance */
    int alias, aliased;       /* overlap mode: array `aliased` starts `shift` elements into array `alias` */
    long shift;
    int which, min_rounds, max_rounds;
    double budget, hard;      /* seconds: enough with min_rounds; enough in any case */
    double limit;             /* seconds: a candidate slower than this is cut off */
    int warm;                 /* the candidate runs once before its time and its values count */
    int resident;             /* its times are those with its arrays on the device already */
    int huge_pages;           /* large arrays ask for pages of 2 MiB, as NumPy does for its own */
    char value[MAX_ARGS][64]; /* text of a given parameter */
    unsigned long count[MAX_ARGS], diagonal[MAX_ARGS], below[MAX_ARGS]; /* below: how many indices */
    long first[MAX_ARGS];
    int ascending[MAX_ARGS];
};

struct region {
    char *map, *base;
    size_t map_bytes, bytes, inner; /* inner: accessible bytes, from map + page on */
    int borrowed;
};

struct copy {
    struct region region[MAX_ARGS];
    void *slot[MAX_ARGS];
};

static struct spec spec;
static char plain_path[768];
static void (*plain)(void **); /* the original, compiled another way */
static size_t page;

/* ------------------------------------------------------------------ leaving */

static void finish(const char *kind, const char *detail)
{
    say("{\"event\":\"%s\",\"case\":%ld,\"detail\":\"%s\"}\n", kind, spec.id, detail);
    _exit(strcmp(kind, "no_memory") == 0 ? 98 : 97);
}

static int find(const char *name)
{
    for (int a = 0; a < mdh_arg_count; a++)
        if (strcmp(mdh_args[a].name, name) == 0)
            return a;
    finish("bad_spec", "unknown argument name");
    return -1;
}

/* ------------------------------------------------------------------ memory */

static size_t whole_pages(size_t bytes)
{
    return (bytes + page - 1) / page * page;
}

/* Inaccessible pages directly before and behind; the array touches the one behind, or lies `lead` bytes behind the one
   before.  `asks`: for pages of 2 MiB, which touching much memory once is faster with. */
static void guarded(struct region *r, size_t bytes, int at_start, size_t lead, int asks)
{
    size_t inner = whole_pages(bytes + lead);
    r->map_bytes = inner + 2 * page;
    r->map = mmap(NULL, r->map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (r->map == MAP_FAILED || (inner && mprotect(r->map + page, inner, PROT_READ | PROT_WRITE)))
        finish("no_memory", "an array of the test program could not be allocated");
#ifdef MADV_HUGEPAGE
    if (asks && inner >= LARGE)
        madvise(r->map + page, inner, MADV_HUGEPAGE); /* a hint: what it cannot have stays as it is */
#endif
    r->bytes = bytes;
    r->inner = inner;
    r->base = r->map + page + (at_start ? lead : inner - bytes);
    r->borrowed = 0;
    memset(r->map + page, CANARY, (size_t)(r->base - r->map) - page);
    memset(r->base + bytes, CANARY, (size_t)(r->map + page + inner - (r->base + bytes)));
}

static int is_canary(const char *from, const char *to)
{
    for (; from < to; from++)
        if ((unsigned char)*from != CANARY)
            return 0;
    return 1;
}

static int canary_intact(const struct region *r)
{
    return r->borrowed || !r->map || (is_canary(r->map + page, r->base)
        && is_canary(r->base + r->bytes, r->map + page + r->inner));
}

static size_t bytes_of(int a)
{
    return mdh_args[a].role == ARRAY ? spec.count[a] * mdh_args[a].size : mdh_args[a].size;
}

static void allocate(struct copy *c)
{
    memset(c, 0, sizeof *c);
    for (int a = 0; a < mdh_arg_count; a++) {
        size_t bytes = bytes_of(a);
        if (a == spec.alias) {
            size_t other = spec.shift * mdh_args[a].size + bytes_of(spec.aliased);
            bytes = bytes > other ? bytes : other;
        }
        if (a != spec.aliased)
            guarded(&c->region[a], bytes, spec.at_start || spec.offset,
                    spec.offset ? (size_t)(spec.offset + a) * mdh_args[a].size : 0, 1);
    }
    if (spec.aliased >= 0) {
        struct region *r = &c->region[spec.aliased];
        r->borrowed = 1;
        r->bytes = bytes_of(spec.aliased);
        r->base = c->region[spec.alias].base + spec.shift * mdh_args[spec.alias].size;
    }
    for (int a = 0; a < mdh_arg_count; a++)
        c->slot[a] = c->region[a].base;
}

static void release(struct copy *c)
{
    for (int a = 0; a < mdh_arg_count; a++)
        if (c->region[a].map && !c->region[a].borrowed)
            munmap(c->region[a].map, c->region[a].map_bytes);
}

/* ------------------------------------------------------------------ data */

static uint64_t mix(uint64_t x)
{
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

static double real_value(uint64_t h, int data)
{
    double unit = (double)(h >> 40) / 16777216.0; /* [0, 1) in 24 bits: exact as a float */
    switch (data) {
    case REAL: return 2 * unit - 1;
    case REAL_PRODUCT: return (h & 1 ? -1 : 1) * (0.75 + unit / 2);
    case EXACT_PRODUCT: return h % 16 == 0 ? 2 : h % 16 == 1 ? 0.5 : h & 16 ? -1 : 1;
    case POSITIVE: return (double)(1 + h % 3);
    case DOMINANT: return 0.5 + unit;
    default: return (double)(h % 5) - 2;
    }
}

/* Well conditioned data for nests that divide and take roots: the diagonal of a matrix exceeds the sums of its rows
   and columns, the elements of a vector add up to less than one, and nothing but the rest of a matrix is negative. */
static double dominant_value(uint64_t h, int a, size_t e)
{
    double unit = real_value(h, DOMINANT) - 0.5;
    if (mdh_args[a].role != ARRAY)
        return 0.5 + unit;
    if (spec.diagonal[a] == 0)
        return (0.25 + unit / 2) / (double)(spec.count[a] ? spec.count[a] : 1);
    return e % spec.diagonal[a] ? 2 * unit - 1 : (double)spec.diagonal[a] + 1 + unit;
}

static int64_t integer_value(uint64_t h, int data, int is_signed)
{
    switch (data) {
    case REAL: return is_signed ? (int64_t)(h % 201) - 100 : (int64_t)(h % 251);
    case REAL_PRODUCT:
    case EXACT_PRODUCT: return h % 16 == 0 ? 2 : is_signed && h & 16 ? -1 : 1;
    case POSITIVE:
    case DOMINANT: return (int64_t)(1 + h % 3);
    default: return is_signed ? (int64_t)(h % 7) - 3 : (int64_t)(h % 8);
    }
}

static void put_integer(char *p, int bits, int64_t v)
{
    int8_t b = (int8_t)v;
    int16_t s = (int16_t)v;
    int32_t i = (int32_t)v;
    switch (bits) { /* sizes that the compiler knows: no call for each element */
    case 8: memcpy(p, &b, 1); break;
    case 16: memcpy(p, &s, 2); break;
    case 32: memcpy(p, &i, 4); break;
    default: memcpy(p, &v, 8);
    }
}

static void put_real(char *p, int bits, double v)
{
    float f = (float)v;
    if (bits == 32)
        memcpy(p, &f, 4);
    else
        memcpy(p, &v, 8);
}

static double get_real(const char *p, int bits)
{
    float f;
    double d;
    if (bits == 32)
        return memcpy(&f, p, 4), f;
    return memcpy(&d, p, 8), d;
}

/* Sums of these are exact, whatever their order: all are multiples of one small denormal number. */
static double denormal_value(uint64_t h, int bits)
{
    return ((double)(h % 9) - 4) * (bits == 32 ? 0x1p-140 : 0x1p-1060);
}

/* A special value for a field, or 0: the usual data.  Only arrays that are no indices have them. */
static int put_special(char *p, const struct mdh_field *f, uint64_t h, int absolute, int a)
{
    int r = (int)(h >> 20 & 15), kinds = 0, chosen[4];
    double v;
    if (!spec.special || mdh_args[a].role != ARRAY || spec.below[a] || h % (uint64_t)spec.every)
        return 0;
    if (f->kind == 1 || f->kind == 2) {
        uint64_t top = f->kind == 1 ? ((uint64_t)1 << (f->bits - 1)) - 1 : UINT64_MAX >> (64 - f->bits);
        if (!(spec.special & EXTREMES))
            return 0;
        put_integer(p, f->bits, (int64_t)(r % 4 == 0 ? top : r % 4 == 1 ? top - 1 : r % 4 == 2 ? top + 1 : ~(uint64_t)0));
        return 1;
    }
    if (f->kind != 0)
        return 0;
    for (int kind = NANS; kind <= DENORMALS; kind *= 2)
        if (spec.special & kind)
            chosen[kinds++] = kind;
    if (kinds == 0)
        return 0;
    switch (chosen[(h >> 24) % (uint64_t)kinds]) {
    case NANS: v = NAN; break;
    case INFINITIES: v = INFINITY; break;
    case DENORMALS: v = f->bits == 32 ? (r & 2 ? 0x1p-149 : 0x1.8p-128) : (r & 2 ? 0x1p-1074 : 0x1.8p-1024); break;
    default: v = 0;
    }
    if (r & 1)
        v = -v;
    put_real(p, f->bits, absolute ? fabs(v) : v);
    return 1;
}

static void put_value(char *p, const struct mdh_field *f, uint64_t h, int data, int absolute, int a, size_t e)
{
    double v;
    if (put_special(p, f, h, absolute, a))
        return;
    if (f->kind == 0) {
        v = data == DOMINANT ? dominant_value(h, a, e)
          : data == DENORMAL && mdh_args[a].role != PARAM ? denormal_value(h, f->bits) : real_value(h, data);
        put_real(p, f->bits, absolute ? fabs(v) : v);
    } else if (f->kind == 3)
        *p = (char)(spec.below[a] == 1 ? spec.first[a] : (int64_t)(h >> 13 & 1)); /* nothing else is a bool */
    else if (spec.below[a])
        put_integer(p, f->bits, spec.first[a] + (int64_t)(spec.ascending[a]
            ? (double)e / (double)spec.count[a] * (double)spec.below[a] : (double)(h % spec.below[a])));
    else
        put_integer(p, f->bits, integer_value(h, data, f->kind == 1));
}

static void put_given(char *p, const struct mdh_field *f, const char *text)
{
    if (f->kind == 0)
        put_real(p, f->bits, strtod(text, NULL));
    else if (f->kind == 3)
        *p = (char)(strtol(text, NULL, 10) != 0);
    else
        put_integer(p, f->bits, f->kind == 1 ? strtoll(text, NULL, 10) : (int64_t)strtoull(text, NULL, 10));
}

/* Element e, field f of argument a depends on (seed, a, f, e) only.  What is never read is poisoned. */
static void fill(struct copy *c, int a, int absolute)
{
    const struct mdh_arg *arg = &mdh_args[a];
    size_t n = arg->role == ARRAY ? spec.count[a] : 1;
    char *p = c->slot[a];
    int data = arg->role == PARAM && (spec.data == EXACT || spec.data == DENORMAL)
        ? POSITIVE : spec.data; /* a factor of 0 would hide much */
    memset(p, arg->flags & 2 ? 0 : spec.special ? NAN_POISON : POISON, n * arg->size);
    if (arg->role == ITERATOR)
        *p = 77;
    if (spec.value[a][0]) {
        put_given(p, &arg->field[0], spec.value[a]);
        return;
    }
    if (!(arg->flags & 2) || arg->role == ITERATOR)
        return;
    if (arg->role == PARAM && arg->fields == 1 && arg->field[0].kind != 0 && arg->field[0].kind != 3)
        finish("bad_spec", "no value for an integer parameter");
    for (int f = 0; f < arg->fields; f++) {
        uint64_t base = mix(mix(spec.seed * 1021 + (uint64_t)a) + (uint64_t)f);
        for (size_t e = 0; e < n; e++)
            put_value(p + e * arg->size + arg->field[f].offset, &arg->field[f], mix(base + e), data, absolute, a, e);
    }
}

static void fill_all(struct copy *c, int absolute)
{
    for (int a = 0; a < mdh_arg_count; a++)
        fill(c, a, absolute);
}

/* ------------------------------------------------------------------ running */

static void set_threads(int n)
{
    if (omp_set_num_threads)
        omp_set_num_threads(n);
}

static int call(struct copy *c, int which)
{
    if (which == CANDIDATE)
        return mdh_run_candidate(c->slot);
    if (which == PLAIN)
        plain(c->slot);
    else
        mdh_run_original(c->slot);
    return 1;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void phase(const char *name)
{
    say("{\"phase\":\"%s\",\"case\":%ld,\"at\":%.6f}\n", name, spec.id, now());
}

/* ------------------------------------------------------------------ comparing */

struct verdict {
    unsigned long mismatches, undetermined, differs; /* differs: the original's results, compiled in two ways */
    int arg, field;
    size_t index;
    double got, expected, tolerance;
    int64_t got_integer, expected_integer;
    double max_abs, max_rel, max_ulp;
    double error, bound;      /* the largest difference and what was allowed there, in ulp of the scale */
};

/* What the original gives besides its result, to tell how far roundings may reach. */
struct reach {
    struct copy absolute;   /* on absolute values */
    struct copy up, down;   /* rounding upward, downward */
    const struct copy *plain; /* compiled another way; NULL where there is none */
    double start[MAX_ARGS]; /* largest magnitude of an argument before the nest */
};

/* Of one floating-point field of one argument: the largest magnitude; how far a result moves with the rounding mode at
   most, as a share of its scale and of the usual error. */
struct scale {
    double norm, moves, amplified;
};

static int64_t ordered(double v, int bits)
{
    int64_t d;
    int32_t i;
    float f = (float)v;
    if (bits == 32)
        return memcpy(&i, &f, 4), i < 0 ? (int64_t)INT32_MIN - i : i;
    return memcpy(&d, &v, 8), d < 0 ? INT64_MIN - d : d;
}

static double distance(int64_t a, int64_t b)
{
    return (double)(a > b ? (uint64_t)a - (uint64_t)b : (uint64_t)b - (uint64_t)a);
}

static int64_t get_integer(const char *p, int bits)
{
    int8_t b;
    int16_t s;
    int32_t i;
    int64_t v;
    switch (bits) {
    case 8: return memcpy(&b, p, 1), b;
    case 16: return memcpy(&s, p, 2), s;
    case 32: return memcpy(&i, p, 4), i;
    default: return memcpy(&v, p, 8), v;
    }
}

static int same_bits(const char *x, const char *y, int bits)
{
    return get_integer(x, bits) == get_integer(y, bits);
}

static void note(struct verdict *v, int a, int f, size_t e, double got, double expected, double tolerance)
{
    if (v->mismatches++ == 0) {
        v->arg = a, v->field = f, v->index = e;
        v->got = got, v->expected = expected, v->tolerance = tolerance;
    }
}

/* Rounding errors come to about 4 eps (length + 8) scale, with scale the largest of |expected|, |the nest on
   absolute values| and the magnitudes in the array before and after the nest. */
static double usual_error(int bits, double scale)
{
    double smallest = bits == 32 ? 0x1p-149 : 0x1p-1074; /* what underflows rounds to a multiple of it */
    return 4 * (spec.length + 8) * ((bits == 32 ? (double)FLT_EPSILON : DBL_EPSILON) * scale + smallest);
}

static double real_at(const struct copy *c, int a, size_t at, int bits)
{
    return get_real((const char *)c->slot[a] + at, bits);
}

static double larger(double a, double b)
{
    return isfinite(b) && b > a ? b : a;
}

static double scale_at(const struct reach *r, const struct scale *s, int a, size_t at, int bits, double w)
{
    return larger(larger(s->norm, fabs(w)), fabs(real_at(&r->absolute, a, at, bits)));
}

/* How far the result moves with the rounding mode; not finite where even its kind (finite, NaN, sign) does. */
static double spread_at(const struct reach *r, int a, size_t at, int bits, double w)
{
    double up = real_at(&r->up, a, at, bits), down = real_at(&r->down, a, at, bits);
    double other = r->plain ? real_at(r->plain, a, at, bits) : w;
    if (!isfinite(w))
        return (isnan(w) ? isnan(up) && isnan(down) && isnan(other) : up == w && down == w && other == w)
            ? 0 : INFINITY;
    return isfinite(up) && isfinite(down) && isfinite(other)
        ? fmax(fmax(fabs(up - w), fabs(down - w)), fabs(other - w)) : INFINITY;
}

/* A result that moves by more than this share of its scale is hardly determined by the nest and its input. */
static double determined(int bits)
{
    return bits == 32 ? 1e-2 : 1e-4;
}

static struct scale scale_of(int a, int f, const struct copy *want, const struct reach *r)
{
    const struct mdh_arg *arg = &mdh_args[a];
    struct scale s = {r->start[a], 0, 0};
    size_t n = arg->role == ARRAY ? spec.count[a] : 1;
    int bits = arg->field[f].bits;
    for (size_t e = 0; e < n; e++)
        s.norm = larger(s.norm, fabs(real_at(want, a, e * arg->size + arg->field[f].offset, bits)));
    for (size_t e = 0; e < n; e++) {
        size_t at = e * arg->size + arg->field[f].offset;
        double w = real_at(want, a, at, bits);
        double scale = scale_at(r, &s, a, at, bits, w), spread = spread_at(r, a, at, bits, w);
        if (scale > 0 && isfinite(spread)) {
            s.moves = fmax(s.moves, spread / scale);
            s.amplified = fmax(s.amplified, spread / usual_error(bits, scale));
        }
    }
    return s;
}

/* The largest difference from the expected value that roundings explain; infinite where nothing is known.  Where some
   results are hardly determined, those that move more than usual are compared by order of magnitude. */
static double tolerance_of(const struct reach *r, const struct scale *s, int a, size_t at, int bits, double w)
{
    double scale = scale_at(r, s, a, at, bits, w), spread = spread_at(r, a, at, bits, w);
    double usual = usual_error(bits, scale);
    if (!isfinite(spread))
        return INFINITY;
    if (s->moves > determined(bits))
        return spread <= usual ? usual + 8 * spread : 64 * fmax(spread, s->moves * scale);
    return fmax(fmax(usual, fmin(4 * s->amplified * usual, determined(bits) / 10 * scale)), 8 * spread);
}

/* Equal as far as the case asks: NaN equals NaN, whatever its payload. */
static int same_real(const char *x, const char *y, int bits)
{
    double v = get_real(x, bits), w = get_real(y, bits);
    if (same_bits(x, y, bits) || (isnan(v) && isnan(w)))
        return 1;
    return !spec.bitwise && v == w && !(spec.zero_signs && v == 0);
}

static void compare_real(struct verdict *v, int a, int f, size_t e, const char *want, const char *other,
                         const char *have, const struct reach *r, const struct scale *s)
{
    int bits = mdh_args[a].field[f].bits;
    size_t at = e * mdh_args[a].size + mdh_args[a].field[f].offset;
    double w = get_real(want, bits), h = get_real(have, bits), tolerance = 0, difference, ulp, unit;
    v->differs += !same_real(want, other, bits);
    if (same_real(want, have, bits) || same_real(other, have, bits))
        return;
    if (r && spec.loose && !(isfinite(w) && isfinite(h))) {
        v->undetermined++;
        return;
    }
    difference = fabs(w - h);
    if (r) {
        tolerance = tolerance_of(r, s, a, at, bits, w);
        if (w == h && spread_at(r, a, at, bits, w) > 0)
            return; /* zeros of values that roundings move */
        if (tolerance > determined(bits) * fmax(s->norm, fabs(w)))
            v->undetermined++;
        else if (tolerance > 0 && isfinite(difference)) {
            unit = usual_error(bits, scale_at(r, s, a, at, bits, w)) / (4 * (spec.length + 8));
            if (unit > 0 && difference / unit > v->error)
                v->error = difference / unit, v->bound = tolerance / unit;
        }
        if (tolerance > DBL_MAX)
            return;
    }
    if (isfinite(w) && isfinite(h)) {
        ulp = distance(ordered(w, bits), ordered(h, bits));
        v->max_abs = fmax(v->max_abs, difference);
        v->max_ulp = fmax(v->max_ulp, ulp);
        if (w != 0)
            v->max_rel = fmax(v->max_rel, difference / fabs(w));
    } else
        tolerance = 0;
    if (w == h || !(difference <= tolerance))
        note(v, a, f, e, h, w, tolerance);
}

static void compare_integer(struct verdict *v, int a, int f, size_t e, const char *want, const char *other,
                            const char *have)
{
    int bits = mdh_args[a].field[f].bits;
    v->differs += !same_bits(want, other, bits);
    if (same_bits(want, have, bits) || same_bits(other, have, bits))
        return;
    if (v->mismatches == 0) {
        v->got_integer = get_integer(have, bits);
        v->expected_integer = get_integer(want, bits);
    }
    note(v, a, f, e, NAN, NAN, 0);
}

/* `other`: the result of the original compiled another way, or `want` again. */
static void compare(struct verdict *v, int a, const struct copy *want, const struct copy *other,
                    const struct copy *have, const struct reach *r)
{
    const struct mdh_arg *arg = &mdh_args[a];
    size_t n = arg->role == ARRAY ? spec.count[a] : 1;
    const char *w = want->slot[a], *o = other->slot[a], *h = have->slot[a];
    if (arg->role == PARAM || (memcmp(w, h, n * arg->size) == 0 && memcmp(w, o, n * arg->size) == 0))
        return;
    for (int f = 0; f < arg->fields; f++) {
        struct scale s = {0, 0, 0};
        if (r && arg->field[f].kind == 0)
            s = scale_of(a, f, want, r);
        for (size_t e = 0; e < n; e++) {
            size_t at = e * arg->size + arg->field[f].offset;
            if (arg->field[f].kind == 0)
                compare_real(v, a, f, e, w + at, o + at, h + at, r, &s);
            else
                compare_integer(v, a, f, e, w + at, o + at, h + at);
        }
    }
}

/* The original once more: on absolute values, and with other rounding modes. */
static void run_again(struct reach *r)
{
    allocate(&r->absolute), fill_all(&r->absolute, 1);
    for (int a = 0; a < mdh_arg_count; a++) {
        size_t n = mdh_args[a].role == ARRAY ? spec.count[a] : 1;
        r->start[a] = 0;
        for (int f = 0; f < mdh_args[a].fields; f++)
            for (size_t e = 0; mdh_args[a].field[f].kind == 0 && (mdh_args[a].flags & 2) && e < n; e++)
                r->start[a] = larger(r->start[a], fabs(real_at(&r->absolute, a,
                    e * mdh_args[a].size + mdh_args[a].field[f].offset, mdh_args[a].field[f].bits)));
    }
    call(&r->absolute, ORIGINAL);
    allocate(&r->up), fill_all(&r->up, 0);
    fesetround(FE_UPWARD), call(&r->up, ORIGINAL);
    allocate(&r->down), fill_all(&r->down, 0);
    fesetround(FE_DOWNWARD), call(&r->down, ORIGINAL);
    fesetround(FE_TONEAREST);
}

static void put_json_number(double v)
{
    if (isfinite(v))
        say("%.17g", v);
    else
        say(isnan(v) ? "\"nan\"" : v > 0 ? "\"inf\"" : "\"-inf\"");
}

static void report_mismatch(const struct verdict *v)
{
    const struct mdh_arg *arg = &mdh_args[v->arg];
    const struct mdh_field *f = &arg->field[v->field];
    say(",\"array\":\"%s\",\"field\":\"%s\",\"index\":%zu,\"got\":", arg->name, f->name, v->index);
    if (f->kind == 0) {
        put_json_number(v->got);
        say(",\"expected\":");
        put_json_number(v->expected);
        say(",\"tolerance\":");
        put_json_number(v->tolerance);
    } else
        say("%lld,\"expected\":%lld", (long long)v->got_integer, (long long)v->expected_integer);
}

static const char *damaged(const struct copy *c)
{
    for (int a = 0; a < mdh_arg_count; a++)
        if (!canary_intact(&c->region[a]))
            return mdh_args[a].name;
    return "";
}

static void load_plain(void)
{
    void *library = plain_path[0] && !plain ? dlopen(plain_path, RTLD_LAZY | RTLD_LOCAL) : NULL;
    if (library)
        *(void **)&plain = dlsym(library, "mdh_run_original");
    if (plain_path[0] && !plain)
        finish("no_plain", "the original compiled without optimisation cannot be loaded");
}

static int inexact_call(struct copy *c, int which)
{
    feclearexcept(FE_ALL_EXCEPT);
    call(c, which);
    return fetestexcept(FE_INEXACT) != 0;
}

/* Whether another order may round where the original's order did not: partial sums of numbers of both signs may be
 * small in one and large in the other, those of their absolute values are as large as they can be. */
static int is_order_inexact(void)
{
    static struct copy absolute;
    int inexact;
    if (spec.data != REAL && spec.data != REAL_PRODUCT && spec.data != DOMINANT)
        return 0; /* small integers */
    allocate(&absolute), fill_all(&absolute, 1);
    inexact = inexact_call(&absolute, ORIGINAL);
    release(&absolute);
    return inexact;
}

/* Comparisons take no longer together than the specification wants, as far as those before tell: the first
 * one always runs, one more only if the longest so far would still fit. */
static double enough, began, longest;
static int left_out;

static int is_too_much(void)
{
    if (began == 0)
        began = now();
    return enough > 0 && longest > 0 && now() - began + longest > enough;
}

static void verify_case(void)
{
    static struct copy want, have, other;
    static struct reach reach;
    struct verdict v;
    const char *by_original, *by_candidate;
    int inexact, rounded, handled;
    double start;
    if (is_too_much()) {
        left_out++;
        return;
    }
    start = now();
    memset(&v, 0, sizeof v);
    load_plain();
    allocate(&want), fill_all(&want, 0);
    allocate(&have), fill_all(&have, 0);
    set_threads(1);
    phase("original");
    inexact = inexact_call(&want, ORIGINAL);
    if (plain) {
        allocate(&other), fill_all(&other, 0);
        inexact |= inexact_call(&other, PLAIN);
    }
    reach.plain = plain ? &other : NULL;
    rounded = !spec.bitwise && (inexact || is_order_inexact());
    if (rounded)
        run_again(&reach);
    by_original = damaged(&want); /* before the candidate runs, whose stray writes may hit these arrays, too */
    set_threads(spec.threads);
    phase("candidate");
    handled = call(&have, CANDIDATE);
    by_candidate = damaged(&have);
    if (!*by_candidate && !*by_original)
        by_candidate = damaged(&want);
    phase("compare");
    for (int a = 0; a < mdh_arg_count; a++)
        compare(&v, a, &want, plain ? &other : &want, &have, rounded ? &reach : NULL);
    say("{\"verify\":%ld,\"handled\":%d,\"inexact\":%d,\"mismatches\":%lu,\"undetermined\":%lu,"
            "\"differs\":%lu,\"damaged\":\"%s\",\"original_damaged\":\"%s\",\"max_abs\":%.17g,"
            "\"max_rel\":%.17g,\"max_ulp\":%.17g,\"error\":%.6g,\"bound\":%.6g",
            spec.id, handled != 0, rounded || inexact, v.mismatches, v.undetermined, v.differs, by_candidate, by_original,
            v.max_abs, v.max_rel, v.max_ulp, v.error, v.bound);
    if (v.mismatches)
        report_mismatch(&v);
    say("}\n");
    if (v.mismatches || *by_candidate || *by_original) {
        say("{\"done\":1}\n"); /* one is enough */
        _exit(0);
    }
    release(&want), release(&have);
    if (plain)
        release(&other);
    if (rounded)
        release(&reach.absolute), release(&reach.up), release(&reach.down);
    longest = fmax(longest, now() - start);
}

/* ------------------------------------------------------------------ measuring */

/* All values of all outputs in one number; -0 counts as 0 and every NaN as one. */
static uint64_t digest(const struct copy *c)
{
    uint64_t h = 0;
    for (int a = 0; a < mdh_arg_count; a++) {
        const struct mdh_arg *arg = &mdh_args[a];
        size_t n = arg->role == ARRAY ? spec.count[a] : 1;
        if (arg->role == PARAM || !(arg->flags & 1))
            continue;
        for (size_t e = 0; e < n; e++)
            for (int f = 0; f < arg->fields; f++) {
                const char *p = (const char *)c->slot[a] + e * arg->size + arg->field[f].offset;
                uint64_t bits = (uint64_t)get_integer(p, arg->field[f].bits);
                if (arg->field[f].kind == 0) {
                    double v = get_real(p, arg->field[f].bits);
                    bits = isnan(v) ? 1 : v == 0 ? 0 : bits;
                }
                h = (h ^ bits) * 0x9E3779B97F4A7C15u, h ^= h >> 29;
            }
    }
    return h;
}

static struct copy bench, pristine;

static int is_refreshed(int a)
{
    return mdh_args[a].role == ARRAY && mdh_args[a].flags == 3;
}

static void restore(void)
{
    for (int a = 0; a < mdh_arg_count; a++)
        if (is_refreshed(a))
            memcpy(bench.slot[a], pristine.slot[a], bytes_of(a));
        else if (mdh_args[a].role == SCALAR || mdh_args[a].role == ITERATOR)
            fill(&bench, a, 0);
}

/* Where an array begins in its first page.  A load whose last twelve bits are those of a store before it may be taken
   to wait for it: arrays a few lines apart, one read and the other written, cost twice or three times as much in a
   sixth of all processes.  So no two of seven arrays are nearer to each other than nine lines, in different sets. */
static size_t place_of(int a)
{
    return 9 * 64 * (size_t)(a % 7);
}

static void prepare_bench(void)
{
    memset(&bench, 0, sizeof bench);
    memset(&pristine, 0, sizeof pristine);
    for (int a = 0; a < mdh_arg_count; a++) {
        guarded(&bench.region[a], whole_pages(bytes_of(a) + place_of(a)), 1, 0, spec.huge_pages);
        bench.slot[a] = bench.region[a].base + place_of(a);
        if (is_refreshed(a)) {
            guarded(&pristine.region[a], bytes_of(a), 1, 0, 1);
            pristine.slot[a] = pristine.region[a].base;
            fill(&pristine, a, 0);
        }
    }
    fill_all(&bench, 0);
}

static double timed(int which)
{
    double start;
    restore();
    start = now();
    call(&bench, which);
    return now() - start;
}

/* The first run of each: its values go into a digest, its time decides how often the next ones repeat. */
static double first_run(int which)
{
    int inexact, handled;
    double seconds;
    for (int a = 0; a < mdh_arg_count; a++)
        if (mdh_args[a].flags & 1)
            fill(&bench, a, 0);
    if (which == CANDIDATE && spec.warm) { /* a device is found, kernels are compiled, memory is reserved */
        call(&bench, which);
        for (int a = 0; a < mdh_arg_count; a++)
            if (mdh_args[a].flags & 1)
                fill(&bench, a, 0);
    }
    set_threads(which == ORIGINAL ? 1 : spec.threads);
    phase(which == ORIGINAL ? "original" : "candidate");
    feclearexcept(FE_ALL_EXCEPT);
    seconds = now();
    handled = call(&bench, which);
    seconds = now() - seconds;
    inexact = fetestexcept(FE_INEXACT) != 0;
    set_threads(spec.threads);
    say("{\"first\":\"%s\",\"handled\":%d,\"inexact\":%d,\"digest\":\"%016llx\",\"seconds\":%.9g}\n",
            which == ORIGINAL ? "original" : "candidate", handled != 0, inexact, (unsigned long long)digest(&bench),
            seconds);
    return seconds;
}

static int repeats(int which)
{
    double seconds = timed(which), again;
    if (seconds > 1e-3)
        return 1;
    again = timed(which);
    seconds = again < seconds ? again : seconds;
    return seconds > 2e-5 ? 1 : seconds < 5e-8 ? 1000 : (int)(5e-5 / seconds) + 1;
}

static double sample(int which, int n)
{
    double sum = 0;
    for (int k = 0; k < n; k++)
        sum += timed(which);
    return sum / n;
}

/* A first run is slower than others: pages are touched and threads begin.  One this many times over the limit
 * is cut off without a second, and one that takes even longer in the middle. */
#define CLEARLY 4
#define HOPELESS 8
#define LEAST_SECONDS 0.05 /* for a first run */

static char given_up[160];

static void give_up(int number)
{
    (void)number;
    put(given_up, strlen(given_up));
    _exit(0);
}

/* The process ends with a `cut` line after so many seconds; 0: no longer. */
static void give_up_after(double seconds)
{
    struct itimerval timer = {0};
    if (seconds > 0) {
        seconds = seconds > LEAST_SECONDS ? seconds : LEAST_SECONDS;
        snprintf(given_up, sizeof given_up, "%s{\"cut\":%.9g,\"unfinished\":1}\n%s{\"done\":1}\n", key, seconds, key);
        signal(SIGALRM, give_up);
        timer.it_value.tv_sec = (time_t)seconds;
        timer.it_value.tv_usec = (suseconds_t)((seconds - (double)timer.it_value.tv_sec) * 1e6);
    }
    setitimer(ITIMER_REAL, &timer, NULL);
}

static void bench_case(void)
{
    int n[3] = {0, 0, 0}, rounds = 0;
    double start, elapsed, t[3], first = 0;
    prepare_bench();
    for (int w = ORIGINAL; w <= CANDIDATE; w++)
        if (spec.which & w) {
            double seconds;
            int resident = w == CANDIDATE && spec.resident;
            if (resident) {
                first_run(w);
                mdh_begin_candidate(bench.slot);
                timed(w); /* copies */
            }
            if (w == CANDIDATE && spec.limit > 0)
                give_up_after(HOPELESS * spec.limit);
            seconds = resident ? timed(w) : first_run(w);
            give_up_after(0);
            first += seconds;
            if (w == CANDIDATE && spec.limit > 0
                && (seconds > CLEARLY * spec.limit || (seconds > spec.limit && timed(w) > spec.limit))) {
                say("{\"cut\":%.9g}\n", seconds);
                return;
            }
        }
    if (spec.which == ORIGINAL && first > spec.hard)
        return; /* what a first run loses does not count in so long a one */
    for (int w = ORIGINAL; w <= CANDIDATE; w++)
        if (spec.which & w)
            n[w] = repeats(w);
    phase("timing");
    start = now();
    do {
        t[1] = t[2] = -1;
        for (int k = 0; k < 2; k++) {
            int w = (rounds + k) % 2 ? CANDIDATE : ORIGINAL;
            if (spec.which & w)
                t[w] = sample(w, n[w]);
        }
        say("{\"t\":[%.9g,%.9g]}\n", t[1], t[2]);
        rounds++;
        elapsed = now() - start;
    } while (rounds < spec.max_rounds && elapsed < spec.hard
             && (rounds < spec.min_rounds || elapsed < spec.budget));
    if (spec.resident)
        mdh_end_candidate(bench.slot);
    release(&bench), release(&pristine);
}

/* ------------------------------------------------------------------ the specification */

static void new_case(long id, const char *mode)
{
    memset(&spec, 0, sizeof spec);
    spec.id = id;
    snprintf(spec.mode, sizeof spec.mode, "%s", mode);
    spec.alias = spec.aliased = -1;
    spec.threads = 1, spec.every = 1, spec.length = 1, spec.which = 3, spec.min_rounds = 3, spec.max_rounds = 1000;
}

static void set(const char *key, const char *value)
{
    double v = strtod(value, NULL);
    if (!strcmp(key, "seed")) spec.seed = strtoull(value, NULL, 10);
    else if (!strcmp(key, "data")) spec.data = (int)v;
    else if (!strcmp(key, "threads")) spec.threads = (int)v;
    else if (!strcmp(key, "bitwise")) spec.bitwise = (int)v;
    else if (!strcmp(key, "at_start")) spec.at_start = (int)v;
    else if (!strcmp(key, "huge_pages")) spec.huge_pages = (int)v;
    else if (!strcmp(key, "special")) spec.special = (int)v;
    else if (!strcmp(key, "every")) spec.every = (int)v;
    else if (!strcmp(key, "zero_signs")) spec.zero_signs = (int)v;
    else if (!strcmp(key, "loose")) spec.loose = (int)v;
    else if (!strcmp(key, "offset")) spec.offset = (int)v;
    else if (!strcmp(key, "plain")) snprintf(plain_path, sizeof plain_path, "%s", value);
    else if (!strcmp(key, "length")) spec.length = v;
    else if (!strcmp(key, "alias")) spec.alias = find(value);
    else if (!strcmp(key, "aliased")) spec.aliased = find(value);
    else if (!strcmp(key, "shift")) spec.shift = (long)v;
    else if (!strcmp(key, "which")) spec.which = (int)v;
    else if (!strcmp(key, "min_rounds")) spec.min_rounds = (int)v;
    else if (!strcmp(key, "max_rounds")) spec.max_rounds = (int)v;
    else if (!strcmp(key, "budget")) spec.budget = v;
    else if (!strcmp(key, "hard")) spec.hard = v;
    else if (!strcmp(key, "limit")) spec.limit = v;
    else if (!strcmp(key, "warm")) spec.warm = (int)v;
    else if (!strcmp(key, "resident")) spec.resident = (int)v;
    else finish("bad_spec", "unknown key");
}

static void line_of_spec(const char *line)
{
    char word[16], a[256], b[768];
    int n = sscanf(line, "%15s %255s %767[^\n]", word, a, b);
    if (n < 1)
        return;
    if (!strcmp(word, "enough") && n == 2) enough = strtod(a, NULL);
    else if (!strcmp(word, "case") && n == 3) new_case(strtol(a, NULL, 10), b);
    else if (!strcmp(word, "set") && n == 3) set(a, b);
    else if (!strcmp(word, "p") && n == 3) snprintf(spec.value[find(a)], 64, "%.63s", b);
    else if (!strcmp(word, "c") && n == 3) spec.count[find(a)] = strtoul(b, NULL, 10);
    else if (!strcmp(word, "d") && n == 3) spec.diagonal[find(a)] = strtoul(b, NULL, 10);
    else if ((!strcmp(word, "b") || !strcmp(word, "a")) && n == 3) {
        char *rest;
        const long bound = strtol(b, &rest, 10), first = strtol(rest, NULL, 10);
        spec.below[find(a)] = bound > first ? (unsigned long)(bound - first) : 1;
        spec.first[find(a)] = first;
        spec.ascending[find(a)] = word[0] == 'a';
    }
    else if (!strcmp(word, "end")) {
        if (!strcmp(spec.mode, "verify"))
            verify_case();
        else
            bench_case();
    } else
        finish("bad_spec", "unknown line");
}

int main(int argc, char **argv)
{
    char line[1024];
    FILE *f;
    if (argc < 3 || mdh_arg_count > MAX_ARGS)
        return 96;
    prepare(argc, argv, NULL); /* where the C library did not do it */
    out = atoi(argv[2]);
    page = (size_t)sysconf(_SC_PAGESIZE);
    f = fopen(argv[1], "r");
    if (!f)
        finish("bad_spec", "the specification cannot be read");
    if (confined) {
        if (omp_set_num_threads)
            omp_set_num_threads(1); /* the runtime sets itself up, for which it may write */
        confined = confine_nests();
    }
    say("{\"confined\":%d}\n", confined);
    while (fgets(line, sizeof line, f))
        line_of_spec(line);
    fclose(f);
    say("{\"done\":1,\"left_out\":%d}\n", left_out);
    _exit(0); /* what the user's file does at its end is not asked for */
}

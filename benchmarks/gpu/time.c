/* The end of a program that times a candidate on a GPU: tuning/driver.c stands in front of this text.

   usage: prog SPEC INPUTS EXPECTED FLUSH RUNS MOST LIMIT

   SPEC is one case as driver.c reads it, INPUTS and EXPECTED have a file per argument: what it is before and after the
   nest (serve.c writes both).  The nest runs once with these inputs, and its results are compared; then floating-point
   inputs get values with all their bits, the nest runs again, and stays on the device for RUNS to MOST timed runs, with
   FLUSH bytes written before each.  One above LIMIT milliseconds, not the first, is the last.

   prints {"problem": WHY} or {"ms": [MILLISECONDS, ...]} */
#undef main
#include <fcntl.h>
#include <sys/stat.h>

float bench_time(int (*call)(void **), void **slots, size_t flush, int *handled);

enum { WARM = 2, LONGEST = 1000 };
static const double warm_seconds = 0.1, enough_seconds = 0.3; /* clocks rise while the device works */

static void give_reason(const char *why, const char *name, size_t at, double got, double expected)
{
    if (name)
        printf("{\"problem\": \"%s: %s[%zu] is %.9g, not %.9g\"}\n", why, name, at, got, expected);
    else
        printf("{\"problem\": \"%s\"}\n", why);
    fflush(stdout);
    _exit(0); /* a device that has failed may fail again where the process ends */
}

/* The bytes of a file, which may be written without changing it. */
static void *mapped(const char *directory, int a)
{
    char path[4096];
    struct stat about;
    size_t bytes = bytes_of(a);
    void *memory;
    int file;
    snprintf(path, sizeof path, "%s/%s", directory, mdh_args[a].name);
    file = open(path, O_RDONLY);
    if (file < 0 || fstat(file, &about) || (size_t)about.st_size != bytes)
        give_reason("an input or an expected result is missing", NULL, 0, 0, 0);
    memory = bytes ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0) : malloc(1);
    close(file);
    if (!memory || memory == MAP_FAILED)
        give_reason("no memory", NULL, 0, 0, 0);
    return memory;
}

static int is_compared(int a)
{
    return (mdh_args[a].role == ARRAY && (mdh_args[a].flags & 1)) || mdh_args[a].role == SCALAR;
}

/* Inputs are small integers, so that sums are exact where they fit; what is divided is only nearly so. */
static void compare_with(int a, const char *want, const char *have)
{
    const struct mdh_arg *arg = &mdh_args[a];
    size_t n = arg->role == ARRAY ? spec.count[a] : 1;
    if (memcmp(want, have, n * arg->size) == 0)
        return;
    for (int f = 0; f < arg->fields; f++) {
        int bits = arg->field[f].bits;
        double largest = 0;
        for (size_t e = 0; arg->field[f].kind == 0 && e < n; e++)
            largest = larger(largest, fabs(get_real(want + e * arg->size + arg->field[f].offset, bits)));
        for (size_t e = 0; e < n; e++) {
            const char *w = want + e * arg->size + arg->field[f].offset;
            const char *h = have + e * arg->size + arg->field[f].offset;
            if (memcmp(w, h, (size_t)bits / 8) == 0)
                continue;
            if (arg->field[f].kind != 0)
                give_reason("wrong", arg->name, e, (double)get_integer(h, bits), (double)get_integer(w, bits));
            if (!(fabs(get_real(w, bits) - get_real(h, bits)) <= (bits == 32 ? 2e-5 : 1e-11) * largest))
                give_reason("wrong", arg->name, e, get_real(h, bits), get_real(w, bits));
        }
    }
}

/* Between -1 and 1, with all bits of their mantissas. */
static void refill(int a, char *p)
{
    uint64_t state = mix((uint64_t)a + 1);
    size_t n = mdh_args[a].role == ARRAY ? spec.count[a] : 0;
    if (!(mdh_args[a].flags & 2) || mdh_args[a].fields != 1 || mdh_args[a].field[0].kind != 0)
        return;
    for (size_t e = 0; e < n; e++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        if (mdh_args[a].size == sizeof(float))
            ((float *)p)[e] = (float)((double)(int64_t)state * 0x1p-63);
        else
            ((double *)p)[e] = (double)(int64_t)state * 0x1p-63;
    }
}

int main(int argc, char **argv)
{
    static struct copy data;
    char line[1024];
    float times[LONGEST], limit;
    int handled = 0, runs = 0, least, most;
    size_t flush;
    double begun, started;
    FILE *f;
    if (argc != 8 || mdh_arg_count > MAX_ARGS)
        return 96;
    flush = strtoull(argv[4], NULL, 10), least = atoi(argv[5]), most = atoi(argv[6]);
    limit = (float)atof(argv[7]);
    most = most < LONGEST ? most : LONGEST;
    out = 2;
    page = (size_t)sysconf(_SC_PAGESIZE);
    f = fopen(argv[1], "r");
    if (!f)
        return 96;
    while (fgets(line, sizeof line, f))
        if (strcmp(line, "end\n"))
            line_of_spec(line);
    fclose(f);
    for (int a = 0; a < mdh_arg_count; a++)
        data.slot[a] = mapped(argv[2], a);
    if (!mdh_run_candidate(data.slot))
        give_reason("declined", NULL, 0, 0, 0);
    for (int a = 0; a < mdh_arg_count; a++)
        if (is_compared(a))
            compare_with(a, mapped(argv[3], a), data.slot[a]);
    for (int a = 0; a < mdh_arg_count; a++)
        refill(a, data.slot[a]);
    if (!mdh_run_candidate(data.slot))
        give_reason("declined", NULL, 0, 0, 0);
    begun = started = now();
    for (int k = 0; runs < most && (runs < least || now() - started < enough_seconds); k++) {
        float t = bench_time(mdh_run_candidate, data.slot, flush, &handled);
        if (t < 0 || !handled)
            give_reason("failed while it was timed", NULL, 0, 0, 0);
        if (k > 0 && t > limit)
            runs = 0, most = 1;
        else if (k < WARM || (runs == 0 && now() - begun < warm_seconds)) {
            started = now();
            continue;
        }
        times[runs++] = t;
    }
    printf("{\"ms\": [");
    for (int r = 0; r < runs; r++)
        printf("%s%.6g", r ? ", " : "", times[r]);
    printf("]}\n");
    fflush(stdout);
    _exit(0);
}

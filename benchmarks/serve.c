/* The end of a program of the benchmarks: tuning/driver.c stands in front of this text, its `main` with another name.

   usage: prog SPEC DIRECTORY original|candidate [dump]

   SPEC is one case as driver.c reads it, without "end".  The nest runs once; its outputs go into DIRECTORY, one file
   per argument, and with "dump" what all arguments were before, into DIRECTORY/inputs.  Then one line says how long that took,
   and every line of the standard input asks for one more: the seconds of a call, over calls of at least a tenth of a
   second.  Before them comes a pause, for threads of the peer before may spin a while as they wait for work. */
#undef main

enum { PAUSE_MICROSECONDS = 200000 };
static const double least_seconds = 0.1, warm_seconds = 0.1;

static void dump(const char *directory, int a, const void *data)
{
    char path[4096];
    FILE *f;
    snprintf(path, sizeof path, "%s/%s", directory, mdh_args[a].name);
    f = fopen(path, "wb");
    if (!f || fwrite(data, 1, bytes_of(a), f) != bytes_of(a) || fclose(f))
        exit(95);
}

static double per_call(int which, double least)
{
    double spent = 0;
    long calls = 0;
    while (spent < least) {
        spent += timed(which);
        calls++;
    }
    return spent / (double)calls;
}

int main(int argc, char **argv)
{
    char line[1024];
    int which, handled;
    double first;
    FILE *f;
    if (argc < 4 || mdh_arg_count > MAX_ARGS)
        return 96;
    out = 2;
    page = (size_t)sysconf(_SC_PAGESIZE);
    which = strcmp(argv[3], "original") ? CANDIDATE : ORIGINAL;
    f = fopen(argv[1], "r");
    if (!f)
        return 96;
    while (fgets(line, sizeof line, f))
        if (strcmp(line, "end\n"))
            line_of_spec(line);
    fclose(f);
    prepare_bench();
    if (argc > 4) {
        char inputs[4096];
        snprintf(inputs, sizeof inputs, "%s/inputs", argv[2]);
        for (int a = 0; a < mdh_arg_count; a++)
            dump(inputs, a, bench.slot[a]);
    }
    set_threads(spec.threads);
    first = now();
    handled = call(&bench, which);
    first = now() - first;
    for (int a = 0; a < mdh_arg_count; a++)
        if ((mdh_args[a].role == ARRAY && (mdh_args[a].flags & 1)) || mdh_args[a].role == SCALAR)
            dump(argv[2], a, bench.slot[a]);
    printf("{\"first\": %.9g, \"handled\": %d}\n", first, handled != 0);
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        usleep(PAUSE_MICROSECONDS);
        if (first < least_seconds)
            per_call(which, warm_seconds);
        printf("%.9g\n", per_call(which, least_seconds));
        fflush(stdout);
    }
    return 0;
}

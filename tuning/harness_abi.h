/* What the subject (user's file, original nest, candidate) shows the driver. No header, no C99 type needed. */
struct mdh_field {
    const char *name;
    unsigned long offset;
    int kind; /* 0 floating point, 1 signed, 2 unsigned, 3 bool */
    int bits;
};
struct mdh_arg {
    const char *name;
    int role; /* 0 parameter, 1 array, 2 scalar of the enclosing function, 3 iterator declared outside */
    unsigned long size; /* bytes of one element */
    int fields;
    const struct mdh_field *field;
    int flags; /* 1 written, 2 read */
};
extern const struct mdh_arg mdh_args[];
extern const int mdh_arg_count;
void mdh_run_original(void **mdh_slot) __attribute__((visibility("default")));
void mdh_begin_candidate(void **mdh_slot); /* from here on its arrays stay where it computes, until the end */
void mdh_end_candidate(void **mdh_slot);
int mdh_run_candidate(void **mdh_slot); /* nonzero: the kernel ran, zero: it declined and the original ran */

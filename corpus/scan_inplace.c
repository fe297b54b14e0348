/* Prefix sum through the output array itself: the nest reads what it wrote one step before. */
#include <stdio.h>
#include <stdlib.h>

#ifndef N
#define N 100003
#endif

void row_offsets(long *out, const int *a, int n)
{
    int i;

    out[0] = a[0];
#pragma mdh
    for (i = 1; i < n; i++)
        out[i] = out[i - 1] + a[i];
}

int main(void)
{
    const int n = N;
    int *a = malloc(n * sizeof *a);
    long *out = malloc(n * sizeof *out);
    long expected = 0;
    int bad = 0;

    if (!a || !out)
        return 2;
    for (int i = 0; i < n; i++) {
        a[i] = i * 31 % 13;
        out[i] = -1;
    }
    row_offsets(out, a, n);
    for (int i = 0; i < n && !bad; i++) {
        expected += a[i];
        if (out[i] != expected) {
            printf("scan_inplace: mismatch at %d got %ld expected %ld\n", i, out[i], expected);
            bad = 1;
        }
    }
    free(a);
    free(out);
    if (!bad)
        puts("scan_inplace: ok");
    return bad;
}

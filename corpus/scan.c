/* Inclusive prefix sum with a carried scalar. */
#include <stdio.h>
#include <stdlib.h>

#ifndef N
#define N 100003
#endif

void prefix_sum(float *out, const float *a, int n)
{
    float s = 0.0f;
#pragma mdh
    for (int i = 0; i < n; i++) {
        s += a[i];
        out[i] = s;
    }
}

int main(void)
{
    const int n = N;
    float *a = calloc(n + 1, sizeof *a);
    float *out = calloc(n + 1, sizeof *out);
    int bad = 0;

    if (!a || !out)
        return 2;
    for (int i = 0; i < n; i++)
        a[i] = (float)(((unsigned)i * 2654435761u >> 13) % 3) - 1.0f;   /* sums stay exact */
    prefix_sum(out, a, n);
    /* the first is the first, and neighbours differ by the element */
    for (int i = n - 1; i >= 0 && !bad; i--) {
        float expected = i ? out[i - 1] + a[i] : a[0];
        if (out[i] != expected) {
            printf("scan: mismatch at %d got %g expected %g\n", i, out[i], expected);
            bad = 1;
        }
    }
    free(a);
    free(out);
    if (!bad)
        puts("scan: ok");
    return bad;
}

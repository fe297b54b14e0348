/* Largest element by a guarded assignment; starts from the first element, so the loop starts at one. */
#include <stdio.h>
#include <stdlib.h>

#ifndef N
#define N 100003
#endif

float largest(const float *a, int n)
{
    float best = a[0];
#pragma mdh
    for (int i = 1; i < n; i++) {
        if (a[i] > best)
            best = a[i];
    }
    return best;
}

int main(void)
{
    const int n = N;
    float *a = malloc(n * sizeof *a);
    int bad = 0;

    if (!a)
        return 2;
    /* the maximum at either end, and in the middle; all values negative */
    for (int place = 0; place < 3 && !bad; place++) {
        const int at = place * (n - 1) / 2;
        for (int i = 0; i < n; i++)
            a[i] = -5.0f - (float)((unsigned)i * 2654435761u >> 20);
        a[at] = -2.0f;
        float got = largest(a, n);
        if (got != -2.0f) {
            printf("reduce_max: mismatch at %d got %g expected -2\n", at, got);
            bad = 1;
        }
    }
    free(a);
    if (!bad)
        puts("reduce_max: ok");
    return bad;
}

/* Value and position of the smallest element; the first one wins. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#ifndef N
#define N 100003
#endif

long nearest(const int *distance, long n, int *shortest)
{
    int best = INT_MAX;
    long at = -1;

#pragma mdh
    for (long i = 0; i < n; i++)
        if (distance[i] < best) {
            best = distance[i];
            at = i;
        }
    *shortest = best;
    return at;
}

int main(void)
{
    const long n = N;
    int *distance = calloc(n + 1, sizeof *distance);
    int got = 0, expected = INT_MAX;
    long at, expected_at = -1;

    if (!distance)
        return 2;
    for (long i = 0; i < n; i++)            /* few distinct values: many ties */
        distance[i] = 100 + (int)(((unsigned long)i * 2654435761u >> 9) % 1000);
    if (n > 0 && n % 2 == 0)                /* tables of even size end in the only minimum */
        distance[n - 1] = 99;
    at = nearest(distance, n, &got);
    for (long i = n - 1; i >= 0; i--)
        if (distance[i] <= expected)
            expected = distance[i], expected_at = i;
    free(distance);
    if (at != expected_at || got != expected) {
        printf("argmin: mismatch at result got (%d, %ld) expected (%d, %ld)\n", got, at, expected, expected_at);
        return 1;
    }
    puts("argmin: ok");
    return 0;
}

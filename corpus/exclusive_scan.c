/* Where each bucket starts: the sum of the counts before it. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#ifndef N
#define N 100003
#endif

void exclusive_scan(int n, const uint32_t *count, uint32_t *start)
{
    uint32_t run = 0;

#pragma mdh
    for (int i = 0; i < n; i++) {
        start[i] = run;
        run += count[i];
    }
}

int main(void)
{
    uint32_t *count = calloc(N + 1, sizeof *count), *start = calloc(N + 1, sizeof *start);
    uint32_t left = 0;
    int bad = 0;

    if (!count || !start)
        return 2;
    for (int i = 0; i < N; i++) {
        count[i] = (uint32_t)i * 31u % 13u;
        left += count[i];
    }
    exclusive_scan(N, count, start);
    for (int i = N - 1; i >= 0 && !bad; i--) {  /* from the grand total down */
        left -= count[i];
        if (start[i] != left) {
            printf("exclusive_scan: mismatch at %d got %u expected %u\n", i, start[i], left);
            bad = 1;
        }
    }
    free(count);
    free(start);
    if (!bad)
        puts("exclusive_scan: ok");
    return bad;
}

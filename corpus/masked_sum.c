/* Sum and minimum of the elements that a mask and a limit admit. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#ifndef N
#define N 100003
#endif

void masked_sum(int n, int limit, const int *a, const unsigned char *mask, long *total, int *least)
{
    int i;
    long sum;
    int low;

    sum = 0;
    low = INT_MAX;
#pragma mdh
    for (i = 0; i < n; i++) {
        if (mask[i] && a[i] < limit) {
            sum += a[i];
            if (a[i] < low)
                low = a[i];
        }
    }
    *total = sum;
    *least = low;
}

static int by_value(const void *a, const void *b)
{
    return (*(const int *)a > *(const int *)b) - (*(const int *)a < *(const int *)b);
}

int main(void)
{
    const int limit = 700;
    int *a = calloc(N + 1, sizeof *a), *kept = calloc(N + 1, sizeof *kept);
    unsigned char *mask = calloc(N + 1, 1);
    long total = -1, expected = 0;
    int least = -1, count = 0;

    if (!a || !kept || !mask)
        return 2;
    for (int i = 0; i < N; i++) {
        a[i] = (int)((unsigned)i * 2654435761u >> 21) - 1000;
        mask[i] = (unsigned char)(i % 3 == 1 || i % 7 == 2);
        if (mask[i])
            kept[count++] = a[i];
    }
    masked_sum(N, limit, a, mask, &total, &least);
    if (count > 0)
        qsort(kept, count, sizeof *kept, by_value);
    for (int i = 0; i < count && kept[i] < limit; i++)
        expected += kept[i];
    if (count == 0 || kept[0] >= limit)
        kept[0] = INT_MAX;
    if (total != expected || least != kept[0]) {
        printf("masked_sum: mismatch at result got (%ld, %d) expected (%ld, %d)\n", total, least, expected, kept[0]);
        return 1;
    }
    free(a);
    free(kept);
    free(mask);
    puts("masked_sum: ok");
    return 0;
}

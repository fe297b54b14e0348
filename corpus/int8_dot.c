/* Quantised inner product: eight-bit inputs, thirty-two-bit accumulation. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#ifndef N
#define N 100003
#endif

int32_t int8_dot(const int8_t *__restrict a, const int8_t *__restrict b, int n)
{
    int32_t acc = 0;
#pragma mdh
    for (int i = 0; i < n; i++)
        acc += (int32_t)a[i] * (int32_t)b[i];
    return acc;
}

int main(void)
{
    const int n = N;
    int8_t *a = calloc(n + 1, 1), *b = calloc(n + 1, 1);
    int64_t expected = 0;

    if (!a || !b)
        return 2;
    for (int i = 0; i < n; i++) {           /* extremes at first, then values whose sums cannot overflow */
        a[i] = (int8_t)(i < 8 ? -128 : (int)((unsigned)i * 2654435761u >> 20) % 21 - 10);
        b[i] = (int8_t)(i < 8 ? (i % 2 ? 127 : -128) : (int)((unsigned)i * 40503u >> 7) % 21 - 10);
        expected += a[i] * b[i];
    }
    int32_t got = int8_dot(a, b, n);
    free(a);
    free(b);
    if (got != expected) {
        printf("int8_dot: mismatch at result got %ld expected %ld\n", (long)got, (long)expected);
        return 1;
    }
    puts("int8_dot: ok");
    return 0;
}

/* Product of integers; the result is written through a pointer that already holds a factor. */
#include <stdio.h>
#include <stdlib.h>

#ifndef N
#define N 100003
#endif

void multiply_all(long long *prod, const int *factor, unsigned n)
{
    unsigned i;
#pragma mdh
    for (i = 0u; i < n; i++)
        *prod *= factor[i];
}

int main(void)
{
    const unsigned n = N;
    int *factor = calloc(n + 1, sizeof *factor);
    long long prod = 3, expected = 3;
    unsigned twos = 0, negative = 0;

    if (!factor)
        return 2;
    for (unsigned i = 0; i < n; i++) {      /* signs everywhere, and at most twenty factors of two */
        factor[i] = i * 2654435761u >> 31 ? -1 : 1;
        negative ^= factor[i] < 0;
        if (i % (n / 20 + 1) == n / 40) {
            factor[i] *= 2;
            twos++;
        }
    }
    multiply_all(&prod, factor, n);
    free(factor);
    expected <<= twos;
    if (negative)
        expected = -expected;
    if (prod != expected) {
        printf("reduce_prod_int: mismatch at result got %lld expected %lld\n", prod, expected);
        return 1;
    }
    puts("reduce_prod_int: ok");
    return 0;
}

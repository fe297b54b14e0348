/* Histogram with weights: every element adds its weight to the bin that an index array names. */
#include <stdio.h>
#include <stdlib.h>

#ifndef E
#define E 50021
#endif
#ifndef B
#define B 67
#endif

void weighted_histogram(size_t ne, size_t nb, const unsigned short *bin, const double *weight, double hist[nb])
{
    size_t e;

#pragma mdh
    for (e = 0; e < ne; e++)
        hist[bin[e]] += weight[e];
}

int main(void)
{
    const size_t elements = E;
    unsigned short *bin = calloc(elements + 1, sizeof *bin);
    double *weight = calloc(elements + 1, sizeof *weight);
    double hist[B];

    if (!bin || !weight)
        return 2;
    for (size_t e = 0; e < elements; e++) {
        bin[e] = (unsigned short)((e * 2654435761u >> 12) % B);
        weight[e] = (double)(e % 23) * 0.25 - 2.0;
    }
    for (int b = 0; b < B; b++)
        hist[b] = (double)b;
    weighted_histogram(elements, B, bin, weight, hist);
    for (int b = B - 1; b >= 0; b--) {
        double expected = b;
        for (size_t e = elements; e-- > 0;)
            if (bin[e] == b)
                expected += weight[e];
        if (hist[b] != expected) {
            printf("weighted_histogram: mismatch at %d got %g expected %g\n", b, hist[b], expected);
            return 1;
        }
    }
    free(bin);
    free(weight);
    puts("weighted_histogram: ok");
    return 0;
}

/* Generalised histograms: the largest weight per bin, and the weighted count per bin. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#ifndef E
#define E 10007
#endif
#ifndef B
#define B 53
#endif

#define MAX(a, b) ((a) > (b) ? (a) : (b))

void histo_max(int32_t *best, const uint16_t *key, const int32_t *weight, const uint16_t *bin, size_t ne, size_t nb)
{
#pragma mdh
    for (size_t e = 0; e < ne; e++)
        for (size_t b = 0; b < nb; b++)
            best[b] = MAX(best[b], key[e] == bin[b] ? weight[e] : INT32_MIN);
}

void histo_weighted(double *total, const uint16_t *key, const int32_t *weight, const uint16_t *bin,
                    size_t ne, size_t nb)
{
#pragma mdh
    for (size_t e = 0; e < ne; e++)
        for (size_t b = 0; b < nb; b++) {
            double share = 0.0;
            if (key[e] == bin[b])
                share = 0.5 * weight[e];
            total[b] = share + total[b];
        }
}

int main(void)
{
    const size_t elements = E;
    uint16_t *key = calloc(elements + 1, sizeof *key);
    int32_t *weight = calloc(elements + 1, sizeof *weight);
    uint16_t bin[B];
    int32_t best[B], best_expected[B];
    double total[B];
    long twice_expected[B];

    if (!key || !weight)
        return 2;
    for (int b = 0; b < B; b++) {
        bin[b] = (uint16_t)(B - 1 - b);
        best[b] = best_expected[b] = -10 + b % 3;
        total[b] = 0.0;
        twice_expected[b] = 0;
    }
    for (size_t e = 0; e < elements; e++) {
        key[e] = (uint16_t)((e * 2654435761u >> 11) % (B + 2));
        weight[e] = (int32_t)((e * 40503u >> 3) % 201) - 100;
        if (key[e] < B) {
            int b = B - 1 - key[e];
            twice_expected[b] += weight[e];
            if (weight[e] > best_expected[b])
                best_expected[b] = weight[e];
        }
    }
    histo_max(best, key, weight, bin, E, B);
    histo_weighted(total, key, weight, bin, E, B);
    free(key);
    free(weight);
    for (int b = 0; b < B; b++) {
        if (best[b] != best_expected[b]) {
            printf("gen_histo: mismatch at best[%d] got %d expected %d\n", b, best[b], best_expected[b]);
            return 1;
        }
        if (total[b] * 2.0 != (double)twice_expected[b]) {
            printf("gen_histo: mismatch at total[%d] got %g expected %g\n", b, total[b], twice_expected[b] / 2.0);
            return 1;
        }
    }
    puts("gen_histo: ok");
    return 0;
}

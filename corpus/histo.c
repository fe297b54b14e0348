/* Histogram as a nest over elements and bins, on static arrays: the outer dimension is the reduced one. */
#include <stdio.h>

#ifndef E
#define E 20011
#endif
#ifndef B
#define B 61
#endif

static int elems[E];
static int bins[B];
static int out[B];

static void histogram(void)
{
    int e, b;
#pragma mdh
    for (e = 0; e < E; e++)
        for (b = 0; b < B; b++)
            out[b] += (elems[e] == bins[b]) ? 1 : 0;
}

int main(void)
{
    static int count[3 * B + 1];

    for (int e = 0; e < E; e++) {
        elems[e] = (int)((unsigned)e * 2654435761u >> 8) % (2 * B + 1);  /* some elements are in no bin */
        count[elems[e]]++;
    }
    for (int b = 0; b < B; b++) {
        bins[b] = 2 * b;
        out[b] = b % 2;
    }
    histogram();
    for (int b = 0; b < B; b++)
        if (out[b] != b % 2 + count[2 * b]) {
            printf("histo: mismatch at %d got %d expected %d\n", b, out[b], b % 2 + count[2 * b]);
            return 1;
        }
    puts("histo: ok");
    return 0;
}

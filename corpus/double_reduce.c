/* Sum and maximum of one channel of an interleaved signal: two reductions over one dimension, step two. */
#include <stdio.h>
#include <stdlib.h>

#ifndef N
#define N 50021
#endif

typedef struct {
    double sum;
    int peak;
} level;

level left_level(const short *samples, int frames)
{
    double sum = 0;
    int peak = -32768;

#pragma mdh
    for (int i = 0; i < 2 * frames; i += 2) {
        sum += samples[i];
        peak = samples[i] > peak ? samples[i] : peak;
    }
    level result = {sum, peak};
    return result;
}

int main(void)
{
    const long n = N;
    short *samples = calloc(2 * n + 1, sizeof *samples);
    long sum = 0;
    int peak = -32768;

    if (!samples)
        return 2;
    for (long i = 0; i < 2 * n; i++)
        samples[i] = (short)((i & 1) ? 30000 : (int)(((unsigned long)i * 2654435761u >> 9) % 2001) - 1500);
    if (n > 0)
        samples[2 * n - 2] = 1900;          /* the last frame holds the peak */
    level got = left_level(samples, N);
    for (long f = n; f-- > 0;) {
        sum += samples[f * 2];
        if (peak < samples[f * 2])
            peak = samples[f * 2];
    }
    free(samples);
    if (got.sum != (double)sum || got.peak != peak) {
        printf("double_reduce: mismatch at result got (%g, %d) expected (%ld, %d)\n", got.sum, got.peak, sum, peak);
        return 1;
    }
    puts("double_reduce: ok");
    return 0;
}

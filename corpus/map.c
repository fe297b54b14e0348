/* A point-wise map: a polynomial, clamped by an if statement. */
#include <stdio.h>
#include <stdlib.h>

#ifndef N
#define N 100003
#endif

void shade(float *restrict dst, const float *restrict src, int n)
{
#pragma mdh
    for (int i = 0; i < n; i++) {
        float x = src[i];
        float y = (x * x - 3.0f * x) * 0.5f + 1.0f;
        if (y > 100.0f)
            y = 100.0f;
        dst[i] = y;
    }
}

int main(void)
{
    const int n = N;
    float *src = calloc(n + 1, sizeof *src);
    float *dst = calloc(n + 1, sizeof *dst);
    int bad = 0;

    if (!src || !dst)
        return 2;
    for (int i = 0; i < n; i++)
        src[i] = (float)(i % 61 - 30);
    shade(dst, src, n);
    for (int i = 0; i < n && !bad; i++) {
        int x = i % 61 - 30;
        int twice = x * (x - 3) + 2;
        float expected = twice > 200 ? 100.0f : (float)twice / 2.0f;
        if (dst[i] != expected) {
            printf("map: mismatch at %d got %g expected %g\n", i, dst[i], expected);
            bad = 1;
        }
    }
    free(src);
    free(dst);
    if (!bad)
        puts("map: ok");
    return bad;
}

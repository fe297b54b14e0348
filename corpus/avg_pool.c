/* Mean over windows side by side; channels last, linearised; what does not fill a window is dropped. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#ifndef H
#define H 62
#endif
#ifndef W
#define W 49
#endif
#ifndef C
#define C 6
#endif
#ifndef K
#define K 2
#endif

void avg_pool(int h, int w, int c, int k, int oh, int ow, const double *img, double *out)
{
    (void)h;
#pragma mdh noalias(img, out)
    for (int y = 0; y < oh; y++)
        for (int x = 0; x < ow; x++)
            for (int ch = 0; ch < c; ch++) {
                double sum = 0.0;
                for (int dy = 0; dy < k; dy++)
                    for (int dx = 0; dx < k; dx++)
                        sum += img[((y * k + dy) * w + x * k + dx) * c + ch];
                out[(y * ow + x) * c + ch] = sum / (k * k);
            }
}

int main(void)
{
    const int oh = H / K, ow = W / K, cells = oh * ow * C;
    double *img = malloc((size_t)H * W * C * sizeof *img), *out = malloc((cells + 1) * sizeof *out);
    long *sum = calloc(cells + 1, sizeof *sum);
    int bad = 0;

    if (!img || !out || !sum)
        return 2;
    for (int x = 0; x < H * W * C; x++) {       /* every value goes to its window */
        const int row = x / C / W / K, column = x / C % W / K;
        const long v = (long)((unsigned)x * 2654435761u >> 24) - 100;
        img[x] = (double)v;
        if (row < oh && column < ow)
            sum[(row * ow + column) * C + x % C] += v;
    }
    avg_pool(H, W, C, K, oh, ow, img, out);
    for (int x = 0; x < cells && !bad; x++)
        if (!(fabs(out[x] * (K * K) - (double)sum[x]) <= 1e-9)) {
            printf("avg_pool: mismatch at %d got %g expected %g\n", x, out[x], (double)sum[x] / (K * K));
            bad = 1;
        }
    free(img);
    free(out);
    free(sum);
    if (!bad)
        puts("avg_pool: ok");
    return bad;
}

/* Recursive edge filter after Deriche: the derivative along every row, by one filter from the left and one from the
   right, then smoothing along every column, from above and from below. Second-order recurrences, carried in scalars. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#ifndef H
#define H 61
#endif
#ifndef W
#define W 83
#endif

void deriche(int h, int w, float b1, float b2, float gain, float a0, float a1, float a2, float a3,
             const float img[h][w], float fwd[h][w], float bwd[h][w], float edge[h][w])
{
    int i, j;
    float xp, xpp, yp, ypp;

#pragma mdh
    {
        for (i = 0; i < h; i++) {
            xp = 0.0f;
            yp = 0.0f;
            ypp = 0.0f;
            for (j = 0; j < w; j++) {
                fwd[i][j] = xp + b1 * yp + b2 * ypp;
                xp = img[i][j];
                ypp = yp;
                yp = fwd[i][j];
            }
        }
        for (i = 0; i < h; i++) {
            xp = 0.0f;
            yp = 0.0f;
            ypp = 0.0f;
            for (j = w - 1; j >= 0; j--) {
                bwd[i][j] = xp + b1 * yp + b2 * ypp;
                xp = img[i][j];
                ypp = yp;
                yp = bwd[i][j];
            }
        }
        for (i = 0; i < h; i++)
            for (j = 0; j < w; j++)
                edge[i][j] = gain * (fwd[i][j] - bwd[i][j]);

        for (j = 0; j < w; j++) {
            xp = 0.0f;
            yp = 0.0f;
            ypp = 0.0f;
            for (i = 0; i < h; i++) {
                fwd[i][j] = a0 * edge[i][j] + a1 * xp + b1 * yp + b2 * ypp;
                xp = edge[i][j];
                ypp = yp;
                yp = fwd[i][j];
            }
        }
        for (j = 0; j < w; j++) {
            xp = 0.0f;
            xpp = 0.0f;
            yp = 0.0f;
            ypp = 0.0f;
            for (i = h - 1; i >= 0; i--) {
                bwd[i][j] = a2 * xp + a3 * xpp + b1 * yp + b2 * ypp;
                xpp = xp;
                xp = edge[i][j];
                ypp = yp;
                yp = bwd[i][j];
            }
        }
        for (i = 0; i < h; i++)
            for (j = 0; j < w; j++)
                edge[i][j] = fwd[i][j] + bwd[i][j];
    }
}

#define TAPS 90     /* the responses below are nothing beyond */

int main(void)
{
    const double alpha = 0.5, r = exp(-alpha), gain = -(1 - r) * (1 - r);
    const double k = (1 - r) * (1 - r) / (1 + 2 * alpha * r - r * r);
    float (*img)[W] = malloc(sizeof(float[H][W])), (*edge)[W] = malloc(sizeof(float[H][W]));
    float (*fwd)[W] = malloc(sizeof(float[H][W])), (*bwd)[W] = malloc(sizeof(float[H][W]));
    double (*slope)[W] = malloc(sizeof(double[H][W]));
    double odd[TAPS], even[TAPS];
    int bad = 0;

    if (!img || !edge || !fwd || !bwd || !slope)
        return 2;
    for (int i = 0; i < H; i++)
        for (int j = 0; j < W; j++) {
            img[i][j] = (float)((unsigned)(i * 131 + j * 17) % 29u) + (i > j ? 40.0f : 0.0f);
            edge[i][j] = fwd[i][j] = bwd[i][j] = -999.0f;
        }
    deriche(H, W, (float)(2 * r), (float)(-r * r), (float)gain, (float)k, (float)(k * r * (alpha - 1)),
            (float)(k * r * (alpha + 1)), (float)(-k * r * r), (const float (*)[W])img, fwd, bwd, edge);

    /* the same filters as convolutions: responses m r^(m-1), odd, and (1 + alpha m) r^m, even */
    for (int m = 0; m < TAPS; m++) {
        odd[m] = gain * m * pow(r, m - 1);
        even[m] = k * (1 + alpha * m) * pow(r, m);
    }
    for (int j = 0; j < W; j++)
        for (int i = 0; i < H; i++) {
            slope[i][j] = 0.0;
            for (int m = 1; m < TAPS; m++) {
                slope[i][j] += j >= m ? odd[m] * img[i][j - m] : 0.0;
                slope[i][j] -= j + m < W ? odd[m] * img[i][j + m] : 0.0;
            }
        }
    for (int j = 0; j < W && !bad; j++)
        for (int i = 0; i < H && !bad; i++) {
            double expected = even[0] * slope[i][j];
            for (int m = 1; m < TAPS; m++) {
                expected += i >= m ? even[m] * slope[i - m][j] : 0.0;
                expected += i + m < H ? even[m] * slope[i + m][j] : 0.0;
            }
            if (!(fabs(edge[i][j] - expected) <= 2e-3)) {
                printf("deriche: mismatch at [%d][%d] got %g expected %g\n", i, j, edge[i][j], expected);
                bad = 1;
            }
        }
    free(img);
    free(edge);
    free(fwd);
    free(bwd);
    free(slope);
    if (!bad)
        puts("deriche: ok");
    return bad;
}

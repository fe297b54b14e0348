/* The nearest centre of every point, the first of equally near ones, and how far it is. */
#include <float.h>
#include <stdio.h>
#include <stdlib.h>

#ifndef N
#define N 3001
#endif
#ifndef K
#define K 13
#endif
#ifndef D
#define D 5
#endif

void kmeans_assign(int n, int k, int d, const float *point, const float *centre, int *nearest, float *distance)
{
    int i, c, x, which;
    float best;

#pragma mdh
    for (i = 0; i < n; i++) {
        best = FLT_MAX;
        which = 0;
        for (c = 0; c < k; c++) {
            float far = 0.0f;
            for (x = 0; x < d; x++) {
                float diff = point[i * d + x] - centre[c * d + x];
                far += diff * diff;
            }
            if (far < best) {
                best = far;
                which = c;
            }
        }
        nearest[i] = which;
        distance[i] = best;
    }
}

int main(void)
{
    float *point = malloc(N * D * sizeof *point), *centre = malloc(K * D * sizeof *centre);
    float *distance = malloc(N * sizeof *distance);
    int *nearest = malloc(N * sizeof *nearest);
    int bad = 0;

    if (!point || !centre || !distance || !nearest)
        return 2;
    for (int x = 0; x < N * D; x++)
        point[x] = (float)((int)((unsigned)x * 2654435761u >> 20) % 16 - 8);
    for (int x = 0; x < K * D; x++)
        centre[x] = (float)((int)((unsigned)(x + 77) * 2246822519u >> 20) % 16 - 8);
    kmeans_assign(N, K, D, point, centre, nearest, distance);
    for (int i = 0; i < N && !bad; i++) {
        int which = -1;
        long best = 0;                          /* |c|^2 - 2 p c is smallest where the distance is */
        for (int c = K - 1; c >= 0; c--) {
            long score = 0;
            for (int x = 0; x < D; x++)
                score += (long)centre[c * D + x] * ((long)centre[c * D + x] - 2 * (long)point[i * D + x]);
            if (which < 0 || score <= best) {
                best = score;
                which = c;
            }
        }
        for (int x = 0; x < D; x++)
            best += (long)point[i * D + x] * (long)point[i * D + x];
        if (nearest[i] != which || distance[i] != (float)best) {
            printf("kmeans_assign: mismatch at %d got (%d, %g) expected (%d, %ld)\n", i, nearest[i], distance[i],
                   which, best);
            bad = 1;
        }
    }
    free(point);
    free(centre);
    free(distance);
    free(nearest);
    if (!bad)
        puts("kmeans_assign: ok");
    return bad;
}

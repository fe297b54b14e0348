/* One seven-point Jacobi step on linearised boxes; the neighbours are named scalars inside the nest. */
#include <stdio.h>
#include <stdlib.h>

#ifndef N1
#define N1 23
#endif
#ifndef N2
#define N2 29
#endif
#ifndef N3
#define N3 31
#endif

#define AT(i, j, k) ((((size_t)(i)) * (n2 + 2) + (j)) * (n3 + 2) + (k))

void jacobi3d(float *restrict out, const float *restrict in, size_t n1, size_t n2, size_t n3)
{
    const float c = 0.125f;

#pragma mdh
    for (size_t i = 0; i < n1; i++)
        for (size_t j = 0; j < n2; j++)
            for (size_t k = 0; k < n3; k++) {
                const float centre = in[AT(i + 1, j + 1, k + 1)];
                const float x = in[AT(i, j + 1, k + 1)] + in[AT(i + 2, j + 1, k + 1)];
                const float y = in[AT(i + 1, j, k + 1)] + in[AT(i + 1, j + 2, k + 1)];
                const float z = in[AT(i + 1, j + 1, k)] + in[AT(i + 1, j + 1, k + 2)];

                out[(i * n2 + j) * n3 + k] = c * (centre + x + y + z);
            }
}

#undef AT

static float small(size_t n)
{
    return (float)((n * 2654435761u >> 9) % 17) - 8.0f;
}

int main(void)
{
    const size_t box = (size_t)(N1 + 2) * (N2 + 2) * (N3 + 2), cells = (size_t)N1 * N2 * N3;
    float *in = malloc(box * sizeof *in);
    float *out = calloc(cells + 1, sizeof *out);
    const long plane = (long)(N2 + 2) * (N3 + 2), row = N3 + 2;
    const long offsets[7] = {0, -plane, plane, -row, row, -1, 1};
    int bad = 0;

    if (!in || !out)
        return 2;
    for (size_t x = 0; x < box; x++)
        in[x] = small(x);

    jacobi3d(out, in, N1, N2, N3);

    for (size_t x = 0; x < cells && !bad; x++) {
        size_t k = x % N3, j = x / N3 % N2, i = x / N3 / N2;
        const float *at = in + (i + 1) * plane + (j + 1) * row + (k + 1);
        float expected = 0.0f;
        for (int o = 0; o < 7; o++)
            expected += at[offsets[o]];
        expected /= 8.0f;
        if (out[x] != expected) {
            printf("jacobi3d: mismatch at (%zu,%zu,%zu) got %g expected %g\n", i, j, k, out[x], expected);
            bad = 1;
        }
    }
    free(in);
    free(out);
    if (!bad)
        puts("jacobi3d: ok");
    return bad;
}

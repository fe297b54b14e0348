/* Escape times: the scalar function depends on the indices only and holds a while loop of its own.
   Once in doubles, once in fixed point (which no choice of floating-point contraction can change). */
#include <complex.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#ifndef WIDTH
#define WIDTH 97
#endif
#ifndef HEIGHT
#define HEIGHT 61
#endif
#ifndef LIMIT
#define LIMIT 50
#endif

void mandelbrot(int *count, int height, int width, int limit)
{
#pragma mdh
    for (int y = 0; y < height; y++) {
        for (int x = 0; x < width; x++) {
            const double cr = -2.0 + 3.0 * x / width, ci = -1.25 + 2.5 * y / height;
            double zr = 0.0, zi = 0.0;
            int n = 0;
            while (n < limit && zr * zr + zi * zi <= 4.0) {
                const double next = zr * zr - zi * zi + cr;
                zi = 2.0 * zr * zi + ci;
                zr = next;
                n++;
            }
            count[y * width + x] = n;
        }
    }
}

/* Q24 numbers. The points lie on a power-of-two raster that starts at -2 - 1.25i. */
#define ONE (1L << 24)

void mandelbrot_fixed(uint16_t (*count)[WIDTH])
{
    long x, y;
#pragma mdh
    for (y = 0; y <= HEIGHT - 1; y++)
        for (x = 0; x <= WIDTH - 1; x++) {
            int64_t zr = 0, zi = 0, t;
            uint16_t n = 0;
            while (zr * zr + zi * zi <= 4 * ONE * ONE && n < LIMIT) {
                t = (zr * zr - zi * zi) / ONE + (x * (3 * ONE / WIDTH) - 2 * ONE);
                zi = zr * zi / (ONE / 2) + (y * (5 * ONE / 2 / HEIGHT) - 5 * ONE / 4);
                zr = t;
                n = (uint16_t)(n + 1);
            }
            count[y][x] = n;
        }
}

static int escape_time(double re, double im)
{
    const double complex c = re + im * _Complex_I;
    double complex z = 0;
    int n;
    for (n = 0; n < LIMIT; n++) {
        if (creal(z) * creal(z) + cimag(z) * cimag(z) > 4.0)
            break;
        z = z * z + c;
    }
    return n;
}

static int escape_time_fixed(int64_t cr, int64_t ci)
{
    int64_t re = 0, im = 0;
    int n = 0;
    for (; n < LIMIT; n++) {
        int64_t rr = re * re, ii = im * im, ri = 2 * re * im;
        if (rr + ii > 4 * ONE * ONE)
            break;
        re = (rr - ii) / ONE + cr;
        im = ri / ONE + ci;
    }
    return n;
}

int main(void)
{
    int *count = malloc(sizeof(int[HEIGHT][WIDTH]));
    uint16_t (*fixed)[WIDTH] = malloc(sizeof(uint16_t[HEIGHT][WIDTH]));
    const long cells = (long)HEIGHT * WIDTH, step = cells / 20000 + 1;
    long differ = 0, samples = 0;
    int bad = 0;

    if (!count || !fixed)
        return 2;
    mandelbrot(count, HEIGHT, WIDTH, LIMIT);
    mandelbrot_fixed(fixed);
    for (long c = 0; c < cells && !bad; c = c + step < cells || c + 1 == cells ? c + step : cells - 1) {
        long x = c % WIDTH, y = c / WIDTH;
        int exact = escape_time_fixed(x * (3 * ONE / WIDTH) - 2 * ONE, y * (5 * ONE / 2 / HEIGHT) - 5 * ONE / 4);
        samples++;
        differ += count[c] != escape_time(-2.0 + 3.0 * (double)x / WIDTH, -1.25 + 2.5 * (double)y / HEIGHT);
        if (fixed[y][x] != exact) {
            printf("mandelbrot: mismatch at [%ld][%ld] got %d expected %d\n", y, x, fixed[y][x], exact);
            bad = 1;
        }
    }
    /* a point that escapes late may turn on the last bit, as a fused multiply-add sets it */
    if (!bad && differ * 200 > samples) {
        printf("mandelbrot: mismatch at %ld of %ld points got another count expected the same\n", differ, samples);
        bad = 1;
    }
    free(count);
    free(fixed);
    if (!bad)
        puts("mandelbrot: ok");
    return bad;
}

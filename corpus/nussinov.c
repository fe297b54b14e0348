/* Folding of an RNA strand after Nussinov: the largest number of bonds within every stretch i..j, from short stretches
   to long ones; a stretch may fall into two. */
#include <stdio.h>
#include <stdlib.h>

#ifndef N
#define N 120
#endif

#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define HAIRPIN 3   /* no fewer bases within the innermost bond */

/* Bases are 0..3 for A, C, G, U; A bonds with U, C with G. */
static inline int bond(int a, int b)
{
    return a + b == 3 ? 1 : 0;
}

void nussinov(int n, const int *base, int table[n][n])
{
    int i, j, k;

#pragma mdh
    for (i = n - 1; i >= 0; i--) {
        table[i][i] = 0;
        for (j = i + 1; j < n; j++) {
            int best = MAX(table[i][j - 1], table[i + 1][j]);

            if (j - i > HAIRPIN)
                best = MAX(best, table[i + 1][j - 1] + bond(base[i], base[j]));
            for (k = i + 1; k < j; k++)
                best = MAX(best, table[i][k] + table[k + 1][j]);
            table[i][j] = best;
        }
    }
}

static int base[N];
static int (*memo)[N];

/* Base i is free or bonds with one of the others. */
static int bonds(int i, int j)
{
    int best;

    if (j - i <= HAIRPIN)
        return 0;
    if (memo[i][j] >= 0)
        return memo[i][j];
    best = bonds(i + 1, j);
    for (int k = j; k > i + HAIRPIN; k--)
        if (base[i] == 3 - base[k]) {
            int with = 1 + bonds(i + 1, k - 1) + bonds(k + 1, j);
            best = with > best ? with : best;
        }
    return memo[i][j] = best;
}

int main(void)
{
    int (*table)[N] = malloc(sizeof(int[N][N]));
    int bad = 0;

    memo = malloc(sizeof(int[N][N]));
    if (!table || !memo)
        return 2;
    for (int i = 0; i < N; i++) {
        base[i] = (int)((unsigned)i * 2654435761u >> 13) % 4;
        for (int j = 0; j < N; j++)
            table[i][j] = memo[i][j] = -1;
    }
    nussinov(N, base, table);
    for (int i = 0; i < N && !bad; i++)
        for (int j = 0; j < N && !bad; j++) {
            int expected = j < i ? -1 : bonds(i, j);    /* nothing is written below the diagonal */
            if (table[i][j] != expected) {
                printf("nussinov: mismatch at [%d][%d] got %d expected %d\n", i, j, table[i][j], expected);
                bad = 1;
            }
        }
    free(table);
    free(memo);
    if (!bad)
        puts("nussinov: ok");
    return bad;
}

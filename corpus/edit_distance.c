/* Table of edit distances between the prefixes of two strings. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef N
#define N 211
#endif
#ifndef M
#define M 173
#endif

#define MIN(a, b) ((a) < (b) ? (a) : (b))

void edit_distance(int n, int m, const char *s, const char *t, int d[restrict n + 1][m + 1])
{
    int i, j;

#pragma mdh
    {
        for (i = 0; i <= n; i++)
            d[i][0] = i;
        for (j = 1; j <= m; j++)
            d[0][j] = j;
        for (i = 1; i <= n; i++)
            for (j = 1; j <= m; j++) {
                int change = d[i - 1][j - 1] + (s[i - 1] == t[j - 1] ? 0 : 1);
                int gap = MIN(d[i - 1][j], d[i][j - 1]) + 1;
                d[i][j] = MIN(change, gap);
            }
    }
}

static char s[N + 1], t[M + 1];
static int (*memo)[M + 1];

/* Equal ends cost nothing; otherwise one of the three edits at the end. */
static int distance(int i, int j)
{
    int one, best;

    if (i == 0 || j == 0)
        return i + j;
    if (memo[i][j] >= 0)
        return memo[i][j];
    if (s[i - 1] == t[j - 1])
        return memo[i][j] = distance(i - 1, j - 1);
    best = distance(i, j - 1);
    if ((one = distance(i - 1, j)) < best)
        best = one;
    if ((one = distance(i - 1, j - 1)) < best)
        best = one;
    return memo[i][j] = best + 1;
}

int main(void)
{
    int (*d)[M + 1] = malloc(sizeof(int[N + 1][M + 1]));
    int bad = 0;

    memo = malloc(sizeof(int[N + 1][M + 1]));
    if (!d || !memo)
        return 2;
    memset(memo, -1, sizeof(int[N + 1][M + 1]));
    for (int i = 0; i < N; i++)
        s[i] = (char)('a' + ((unsigned)i * 2654435761u >> 15) % 4);
    for (int j = 0; j < M; j++)
        t[j] = (char)('a' + ((unsigned)(j + j / 9) * 2654435761u >> 15) % 4);
    edit_distance(N, M, s, t, d);
    for (int j = 0; j <= M && !bad; j++)
        for (int i = 0; i <= N && !bad; i++)
            if (d[i][j] != distance(i, j)) {
                printf("edit_distance: mismatch at [%d][%d] got %d expected %d\n", i, j, d[i][j], distance(i, j));
                bad = 1;
            }
    free(d);
    free(memo);
    if (!bad)
        puts("edit_distance: ok");
    return bad;
}

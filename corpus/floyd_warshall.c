/* Shortest paths between all pairs, in place. Row and column k stay as they are in step k because no distance is
   negative. */
#include <stdio.h>
#include <stdlib.h>

#ifndef N
#define N 89
#endif

#define FAR 1000000

void floyd_warshall(int n, int dist[n][n])
{
    int i, j, k;

#pragma mdh
    for (k = 0; k < n; k++)
        for (i = 0; i < n; i++)
            for (j = 0; j < n; j++)
                dist[i][j] = dist[i][j] <= dist[i][k] + dist[k][j] ? dist[i][j] : dist[i][k] + dist[k][j];
}

/* About four edges out of every node; some nodes cannot be reached. */
static int edge(int from, int to)
{
    unsigned h = ((unsigned)from * 7919u + (unsigned)to * 104729u) * 2654435761u >> 8;

    if (from == to)
        return 0;
    return to % 11 != 5 && h % N < 4 ? (int)(h >> 9) % 50 + 1 : FAR;
}

int main(void)
{
    int (*dist)[N] = malloc(sizeof(int[N][N]));
    int near[N], done[N], bad = 0;

    if (!dist)
        return 2;
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            dist[i][j] = edge(i, j);
    floyd_warshall(N, dist);

    /* Dijkstra's algorithm from every node, or from some of many */
    for (int from = 0; from < N && !bad; from += 1 + N / 100) {
        for (int j = 0; j < N; j++) {
            near[j] = j == from ? 0 : FAR;
            done[j] = 0;
        }
        for (;;) {
            int at = -1;
            for (int j = 0; j < N; j++)
                if (!done[j] && near[j] < FAR && (at < 0 || near[j] < near[at]))
                    at = j;
            if (at < 0)
                break;
            done[at] = 1;
            for (int j = 0; j < N; j++)
                if (near[at] + edge(at, j) < near[j])
                    near[j] = near[at] + edge(at, j);
        }
        for (int j = 0; j < N && !bad; j++)
            if (dist[from][j] != near[j]) {
                printf("floyd_warshall: mismatch at [%d][%d] got %d expected %d\n", from, j, dist[from][j], near[j]);
                bad = 1;
            }
    }
    free(dist);
    if (!bad)
        puts("floyd_warshall: ok");
    return bad;
}

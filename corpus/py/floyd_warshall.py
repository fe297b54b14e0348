"""Shortest paths between all pairs, in place. No distance is negative."""

from mdh_lift import mdh


@mdh
def floyd_warshall(n: "int32", dist: "int32[n, n]"):
    for k in range(n):
        for i in range(n):
            for j in range(n):
                dist[i, j] = dist[i, j] if dist[i, j] <= dist[i, k] + dist[k, j] else dist[i, k] + dist[k, j]

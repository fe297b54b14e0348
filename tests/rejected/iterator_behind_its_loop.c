void f(int n, int m, const int *restrict width, float *restrict x, int middle)
{
    int s, w;
#pragma mdh
    for (w = 0; w < 3; w++) {
        for (s = w; s < middle; s += 3) //! MDH006
            x[s] *= 2;
        for (; s < n; s += 3)
            x[s] *= 3;
        if (width[w] > 2)
            s++;
        x[m + s] = 0;
    }
}

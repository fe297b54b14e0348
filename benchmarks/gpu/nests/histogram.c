/* Counts per bin: the bin is the element. */
#ifndef E
#define E 20011
#endif
#ifndef B
#define B 61
#endif

void histogram(int n, int bins, int count[restrict bins], const int bin[restrict n])
{
#pragma mdh
    for (int i = 0; i < n; i++)
        count[bin[i]] += 1;
}

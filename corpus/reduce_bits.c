/* Three reductions of one static array at once, into globals: common bits, all bits, parity bits. */
#include <stdint.h>
#include <stdio.h>

#ifndef N
#define N 100003
#endif

uint32_t word[N];
uint32_t common, any, parity;

void fold_bits(void)
{
#pragma mdh
    for (int i = 0; i < N; i++) {
        common &= word[i];
        any |= word[i];
        parity ^= word[i];
    }
}

int main(void)
{
    uint32_t all = 0, none = 0, odd = 0;

    for (uint32_t i = 0; i < N; i++)
        word[i] = (i * 2654435761u & 0x00fffff0u) | 0x50000000u;
    common = 0xf0ffffffu;
    any = 0x3u;
    parity = 0xffu;
    fold_bits();
    for (int bit = 0; bit < 32; bit++) {    /* one bit position after the other */
        long ones = 0;
        for (long i = 0; i < N; i++)
            ones += word[i] >> bit & 1u;
        all |= (uint32_t)(ones == N) << bit;
        none |= (uint32_t)(ones > 0) << bit;
        odd |= (uint32_t)(ones % 2) << bit;
    }
    all &= 0xf0ffffffu;
    none |= 0x3u;
    odd ^= 0xffu;
    if (common != all || any != none || parity != odd) {
        printf("reduce_bits: mismatch at result got %08x %08x %08x expected %08x %08x %08x\n",
               common, any, parity, all, none, odd);
        return 1;
    }
    puts("reduce_bits: ok");
    return 0;
}

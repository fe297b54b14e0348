/* Order-independent hash of a table: every word is mixed with its position, the mixes are xored.
   The scalar function uses the iterator as a value; the arithmetic wraps on purpose. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#ifndef N
#define N 100003
#endif

#define GOLDEN UINT64_C(0x9e3779b97f4a7c15)
#define MIX(x) (((x) ^ ((x) >> 31)) * UINT64_C(0xbf58476d1ce4e5b9))

uint64_t hash_table(const uint64_t *restrict word, size_t n, uint64_t seed)
{
    uint64_t hash = seed;
#pragma mdh
    for (size_t i = 0; i < n; i++) {
        uint64_t x = word[i] + (uint64_t)(i + 1) * GOLDEN;  /* position matters */
        x = MIX(x);
        x ^= x >> 29;
        hash ^= x;
    }
    return hash;
}

int main(void)
{
    const size_t n = N;
    uint64_t *word = calloc(n + 1, sizeof *word);
    uint64_t even = 0, odd = 0, position = 0;

    if (!word)
        return 2;
    for (size_t i = 0; i < n; i++)
        word[i] = ~(uint64_t)i * (i % 7 + 1);
    uint64_t got = hash_table(word, n, 42);
    for (size_t i = 0; i < n; i++) {        /* positions by repeated addition, two interleaved halves */
        position += GOLDEN;
        uint64_t mixed = word[i] + position;
        mixed ^= mixed >> 31;
        mixed *= UINT64_C(0xbf58476d1ce4e5b9);
        *(i % 2 ? &odd : &even) ^= mixed ^ mixed >> 29;
    }
    free(word);
    if (got != (42 ^ even ^ odd)) {
        printf("uint64_xor_hash: mismatch at result got %016" PRIx64 " expected %016" PRIx64 "\n",
               got, 42 ^ even ^ odd);
        return 1;
    }
    puts("uint64_xor_hash: ok");
    return 0;
}

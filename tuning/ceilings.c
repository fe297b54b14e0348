/* The limits of a machine.  Arguments: bytes of each array, and anything where large ones ask for pages of 2 MiB.
   Prints one JSON object, the best of seven runs.

   read    every core sums its part of an array, from one, two or four places at once; bytes per second
   copy    every core copies with ordinary stores; bytes per second, read and written
   triad   c = b + 3 a; bytes per second, read and written
   update  every core changes its part of an array in place, from one, two or four places; bytes, read and written
   move    every core copies with stores past the caches, from one, two or four places; bytes, read and written
   peak    independent vector FMAs in registers, single and double precision; operations per second
   round_trip  a line goes from the first core to the one that is furthest away and back; seconds, 0 with one thread

   What a store brings into a cache before it overwrites it is not counted. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <omp.h>
#if defined(__linux__)
#include <sched.h>
#endif
#if defined(__SSE__)
#include <immintrin.h>
#define FENCE _mm_sfence()
#else
#define FENCE (void)0
#endif
#if defined(__AVX512F__)
#define BYTES 64
#define PAST(to, what) _mm512_stream_ps((float *)(to), (__m512)(what))
#elif defined(__AVX__)
#define BYTES 32
#define PAST(to, what) _mm256_stream_ps((float *)(to), (__m256)(what))
#elif defined(__SSE__)
#define BYTES 16
#define PAST(to, what) _mm_stream_ps((float *)(to), (__m128)(what))
#else
#define BYTES 16
#define PAST(to, what) (*(to) = (what))
#endif
#define ACCUMULATORS 12
typedef float vf __attribute__((vector_size(BYTES)));
typedef double vd __attribute__((vector_size(BYTES)));
static volatile double sink;
static double larger(double x, double y) { return x > y ? x : y; }

/* Over an array of so many floats: enough for a time that the start of the threads does not matter to. */
#define PASSES(n) (1 + (1L << 24) / (n))

/* Every core goes over its part of an array, BODY on eight vectors at a time.  A core that has several places at once has more
   on the way: its part is cut into so many, which are gone over side by side. */
#define SWEEP(NAME, BODY)                                                                    \
  static double NAME(float *a, float *b, long n, int places) {                               \
    double t = omp_get_wtime(), total = 0;                                                   \
    long passes = PASSES(n), vectors = 0;                                                    \
    _Pragma("omp parallel reduction(+:total, vectors)") {                                    \
      vf s[8] = {{0}}, *v = (vf *)a, *w = (vf *)b;                                           \
      long parts = omp_get_num_threads(), me = omp_get_thread_num();                         \
      long m = n / (BYTES / 4), from = m * me / parts, to = m * (me + 1) / parts;            \
      long part = (to - from) / places / 8 * 8;                                              \
      for (long p = 0; p < passes; p++)                                                      \
        for (long i = from; i < from + part; i += 8)                                         \
          for (long j = i; j < i + places * part; j += part) {                               \
            _Pragma("GCC unroll 8")                                                          \
            for (int k = 0; k < 8; k++) BODY;                                                \
          }                                                                                  \
      FENCE;                                                                                 \
      for (int k = 0; k < 8; k++) total += s[k][0] + v[k][0] + w[k][0];                      \
      vectors = part * places;                                                               \
    }                                                                                        \
    sink = total;                                                                            \
    return (double)BYTES * vectors * passes / (omp_get_wtime() - t);                         \
  }
SWEEP(read_vectors, s[k] += v[j + k])
SWEEP(update_vectors, v[j + k] = v[j + k] * 0.5f + 0.5f)
SWEEP(move_vectors, PAST(w + j + k, v[j + k]))

static double triad_bytes(float *restrict c, const float *restrict b, const float *restrict a, long n) {
  double t = omp_get_wtime();
  long passes = PASSES(n);
#pragma omp parallel
  for (long p = 0; p < passes; p++) {
#pragma omp for simd schedule(static) nowait
    for (long i = 0; i < n; i++) c[i] = b[i] + 3.0f * a[i];
    __asm__ volatile("" ::: "memory");
  }
  return 12.0 * n * passes / (omp_get_wtime() - t);
}

static double copy_bytes(float *restrict b, const float *restrict a, long n) {
  double t = omp_get_wtime();
  long passes = PASSES(n);
#pragma omp parallel
  for (long p = 0; p < passes; p++) {
#pragma omp for simd schedule(static) nowait
    for (long i = 0; i < n; i++) b[i] = a[i];
    __asm__ volatile("" ::: "memory");
  }
  return 8.0 * n * passes / (omp_get_wtime() - t);
}

#define PEAK(NAME, V, T)                                                     \
  static double NAME(void) {                                                 \
    long rounds = 4000000;                                                   \
    double t = omp_get_wtime(), total = 0;                                   \
    int threads = 1;                                                         \
    _Pragma("omp parallel reduction(+:total)") {                             \
      V s[ACCUMULATORS], x, y;                                               \
      for (unsigned k = 0; k < sizeof(V) / sizeof(T); k++) x[k] = (T)0.999, y[k] = (T)0.001; \
      for (int k = 0; k < ACCUMULATORS; k++) s[k] = x;                       \
      for (long r = 0; r < rounds; r++) {                                    \
        _Pragma("GCC unroll 12")                                             \
        for (int k = 0; k < ACCUMULATORS; k++) s[k] = s[k] * x + y;          \
      }                                                                      \
      for (int k = 0; k < ACCUMULATORS; k++) total += s[k][0];               \
      _Pragma("omp master") threads = omp_get_num_threads();                 \
    }                                                                        \
    sink = total;                                                            \
    return 2.0 * rounds * ACCUMULATORS * (sizeof(V) / sizeof(T)) * threads / (omp_get_wtime() - t); \
  }
PEAK(peak_float, vf, float)
PEAK(peak_double, vd, double)

#define TRIPS 64          /* of a sample; threads that have to share a core take seconds for more */
#define SAMPLES 400       /* at most so many, */
#define SECONDS 0.02      /* and for so long */

/* Two threads change a cell in turn, as soon as they see what the other wrote: the best sample.  0: one thread only. */
static double trip_between(int here, int there) {
  static __attribute__((aligned(256))) long cell;
  double best = 0;
  cell = 0;
#pragma omp parallel num_threads(2)
  if (omp_get_num_threads() == 2) {
    int me = omp_get_thread_num();
#if defined(__linux__)
    cpu_set_t before, own;
    CPU_ZERO(&own);
    CPU_SET(me ? there : here, &own);
    sched_getaffinity(0, sizeof before, &before);
    sched_setaffinity(0, sizeof own, &own);
#endif
#pragma omp barrier
    if (me) {
      for (long seen = 0, now; (now = __atomic_load_n(&cell, __ATOMIC_ACQUIRE)) >= 0;)
        if (now > seen) __atomic_store_n(&cell, seen = now + 1, __ATOMIC_RELEASE);
    } else {
      double begin = omp_get_wtime();
      long turn = 0;
      for (int k = 0; k < SAMPLES && omp_get_wtime() - begin < SECONDS; k++) {
        double t = omp_get_wtime();
        for (int i = 0; i < TRIPS; i++, turn += 2) {
          __atomic_store_n(&cell, turn + 1, __ATOMIC_RELEASE);
          while (__atomic_load_n(&cell, __ATOMIC_ACQUIRE) != turn + 2);
        }
        t = (omp_get_wtime() - t) / TRIPS;
        if (!k || t < best) best = t;
      }
      __atomic_store_n(&cell, -1, __ATOMIC_RELEASE);
    }
#if defined(__linux__)
    sched_setaffinity(0, sizeof before, &before);
#endif
  }
  return best;
}

static double round_trip(void) {
  if (omp_get_max_threads() < 2) return 0;
#if defined(__linux__)
  double furthest = 0;
  cpu_set_t cores;
  int first = -1;
  if (!sched_getaffinity(0, sizeof cores, &cores)) {
    for (int c = 0; c < CPU_SETSIZE; c++)
      if (CPU_ISSET(c, &cores)) {
        if (first >= 0) furthest = larger(furthest, trip_between(first, c));
        else first = c;
      }
    return furthest;
  }
#endif
  return omp_get_num_procs() < 2 ? 0 : trip_between(0, 0);
}

/* Large arrays may ask for pages of 2 MiB, as NumPy's do. */
static float *array(long n, int asks) {
  char *a = aligned_alloc(64, 4 * n);
#ifdef MADV_HUGEPAGE
  if (a && asks && 4 * n >= 1L << 22) madvise(a - (size_t)a % 4096, 4 * n, MADV_HUGEPAGE);
#endif
  return (float *)a;
}

int main(int argc, char **argv) {
  long n = argc > 1 ? atol(argv[1]) / 4 / 512 * 512 : 1L << 26;
  if (n < 512) n = 512;
  float *a = array(n, argc > 2), *b = array(n, argc > 2), *d = array(n, argc > 2);
  if (!a || !b || !d) return 1;
#pragma omp parallel for
  for (long i = 0; i < n; i++) a[i] = 1, b[i] = 0, d[i] = 0;
  double trip = round_trip(); /* before the others have the cores at work */
  double read = 0, copy = 0, triad = 0, update = 0, move = 0, single = 0, twice = 0;
  for (int r = 0; r < 7; r++) {
    copy = larger(copy, copy_bytes(b, a, n)), triad = larger(triad, triad_bytes(d, b, a, n));
    for (int places = 1; places <= 4; places *= 2) {
      read = larger(read, read_vectors(a, b, n, places));
      update = larger(update, 2 * update_vectors(d, b, n, places));
      move = larger(move, 2 * move_vectors(a, b, n, places));
    }
    single = larger(single, peak_float()), twice = larger(twice, peak_double());
  }
  printf("{\"read\": %g, \"copy\": %g, \"triad\": %g, ", read, copy, triad);
  printf("\"update\": %g, \"move\": %g, \"round_trip\": %g, ", update, move, trip);
  printf("\"peak_float\": %g, \"peak_double\": %g}\n", single, twice);
  return 0;
}

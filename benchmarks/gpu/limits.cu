/* The limits of a device: bandwidth of a copy, single-precision FMA peak.

   usage: prog BYTES ROUNDS

   copy   four elements of 16 bytes a thread, from one array of BYTES to another; bytes read and written per second
   peak   ROUNDS times 16 independent FMAs in each of 2048 threads per multiprocessor; operations per second
   Both the median of eleven runs behind a warm one, timed by events. */
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>

#define RUNS 11
#define THREADS 256

static __global__ void __launch_bounds__(256, 1) set_all(float *x, long n)
{
  const long step = (long)gridDim.x * THREADS;
  for (long i = (long)blockIdx.x * THREADS + threadIdx.x; i < n; i += step) x[i] = (float)(i % 1021) * 0.37f;
}

static __global__ void __launch_bounds__(256, 1) copy_all(float4 *to, const float4 *from, long n)
{
  const long first = (long)blockIdx.x * (4 * THREADS) + threadIdx.x;
  if (first + 3 * THREADS < n) {
    const float4 a = from[first], b = from[first + THREADS];
    const float4 c = from[first + 2 * THREADS], d = from[first + 3 * THREADS];
    to[first] = a;
    to[first + THREADS] = b;
    to[first + 2 * THREADS] = c;
    to[first + 3 * THREADS] = d;
  } else {
    for (long i = first; i < n; i += THREADS) to[i] = from[i];
  }
}

static __global__ void __launch_bounds__(256, 1) multiply_add(float *x, float by, float more, int rounds)
{
  float v[16];
#pragma unroll
  for (int k = 0; k < 16; k++) v[k] = (float)(threadIdx.x + k);
  for (int r = 0; r < rounds; r++) {
#pragma unroll
    for (int k = 0; k < 16; k++) v[k] = v[k] * by + more;
  }
  float sum = 0;
#pragma unroll
  for (int k = 0; k < 16; k++) sum += v[k];
  if (sum == 12345.678f) x[0] = sum;
}

static int by_value(const void *a, const void *b)
{
  return (*(const float *)a > *(const float *)b) - (*(const float *)a < *(const float *)b);
}

static float median(float *times)
{
  qsort(times, RUNS, sizeof(float), by_value);
  return times[RUNS / 2] / 1000;
}

static void stop(const char *what)
{
  fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(cudaGetLastError()));
  exit(1);
}

int main(int argc, char **argv)
{
  const long bytes = argc > 1 ? atol(argv[1]) / 16 * 16 : 1L << 30;
  const int rounds = argc > 2 ? atoi(argv[2]) : 1 << 15;
  const long n = bytes / 16;
  int processors = 1;
  float times[RUNS], ignored, copied, computed;
  cudaEvent_t first, last;
  void *a, *b;
  if (cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0) != cudaSuccess) stop("device");
  if (cudaEventCreate(&first) != cudaSuccess || cudaEventCreate(&last) != cudaSuccess) stop("events");
  if (cudaMalloc(&a, bytes) != cudaSuccess || cudaMalloc(&b, bytes) != cudaSuccess) stop("memory");
  set_all<<<processors, THREADS>>>((float *)a, 4 * n);
  for (int r = -1; r < RUNS; r++) {
    cudaEventRecord(first);
    copy_all<<<(n + 4 * THREADS - 1) / (4 * THREADS), THREADS>>>((float4 *)b, (const float4 *)a, n);
    cudaEventRecord(last);
    if (cudaEventSynchronize(last) != cudaSuccess) stop("copy");
    cudaEventElapsedTime(r < 0 ? &ignored : &times[r], first, last);
  }
  copied = median(times);
  const int blocks = processors * 2048 / THREADS;
  for (int r = -1; r < RUNS; r++) {
    cudaEventRecord(first);
    multiply_add<<<blocks, THREADS>>>((float *)a, 0.999f, 0.001f, rounds);
    cudaEventRecord(last);
    if (cudaEventSynchronize(last) != cudaSuccess) stop("peak");
    cudaEventElapsedTime(r < 0 ? &ignored : &times[r], first, last);
  }
  computed = median(times);
  if (cudaGetLastError() != cudaSuccess) stop("limits");
  printf("{\"copy\": %.6g, \"peak\": %.6g}\n", 2.0 * bytes / copied, 2.0 * 16 * rounds * THREADS * blocks / computed);
  return 0;
}

/* cuBLAS, loaded when it runs: neither its headers nor its library need to be where nvcc looks.

   usage: prog FLUSH LIBRARY... < cases      the first library that loads is taken

   A case is a line: its name, an operation (dot, gemv, gemm, bmm) and extents.  Matrices have contiguous rows, which
   are columns to cuBLAS: C = A B is asked for as C' = B' A'.  Prints a line of JSON for each. */
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef void *handle_t;
enum { PLAIN = 0, TRANSPOSED = 1, ON_DEVICE = 1, RUNS = 30, WARM = 3 };
static const double warm_seconds = 0.1; /* clocks rise while the device works */
static int (*create)(handle_t *);
static int (*pointer_mode)(handle_t, int);
static int (*sdot)(handle_t, int, const float *, int, const float *, int, float *);
static int (*sgemv)(handle_t, int, int, int, const float *, const float *, int, const float *, int, const float *,
                    float *, int);
static int (*sgemm)(handle_t, int, int, int, int, int, const float *, const float *, int, const float *, int,
                    const float *, float *, int);
static int (*sgemm_strided)(handle_t, int, int, int, int, int, const float *, const float *, int, long long,
                            const float *, int, long long, const float *, float *, int, long long, int);

static double now()
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static __global__ void set_all(float *x, long n, unsigned seed)
{
  const long step = (long)gridDim.x * blockDim.x;
  for (long i = (long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
    unsigned h = (unsigned)i * 2654435761u + seed;
    h ^= h >> 15, h *= 2246822519u, h ^= h >> 13, h *= 3266489917u, h ^= h >> 16;
    x[i] = (float)h * 4.656612873e-10f - 1.0f;
  }
}

static float *random_array(long n, unsigned seed)
{
  float *x;
  if (cudaMalloc((void **)&x, n * sizeof(float)) != cudaSuccess) return NULL;
  set_all<<<1024, 256>>>(x, n, seed);
  return x;
}

static int call(handle_t h, const char *what, const long *e, float *c, const float *a, const float *b,
                const float *one, const float *zero)
{
  if (!strcmp(what, "dot")) return sdot(h, (int)e[0], a, 1, b, 1, c);
  if (!strcmp(what, "gemv"))
    return sgemv(h, TRANSPOSED, (int)e[1], (int)e[0], one, a, (int)e[1], b, 1, one, c, 1);
  if (!strcmp(what, "gemm"))
    return sgemm(h, PLAIN, PLAIN, (int)e[1], (int)e[0], (int)e[2], one, b, (int)e[1], a, (int)e[2], one, c, (int)e[1]);
  return sgemm_strided(h, PLAIN, PLAIN, (int)e[2], (int)e[1], (int)e[3], one, b, (int)e[2], e[3] * e[2], a, (int)e[3],
                       e[1] * e[3], zero, c, (int)e[2], e[1] * e[2], (int)e[0]);
}

/* One element against the sum over the device's own data, so that a call with wrong arguments is not timed. */
static int is_right(const char *what, const long *e, const float *c, const float *before, const float *a,
                    const float *b)
{
  long depth = e[0], row = 0, cell = 0, b_step = 1, cells = 1;
  double sum = 0;
  float got, old = 0;
  if (!strcmp(what, "gemv")) depth = e[1], cells = e[0], cell = e[0] - 1, row = cell * depth;
  if (!strcmp(what, "gemm")) depth = e[2], cells = e[1], cell = 1 < e[1], row = 0, b_step = e[1];
  if (!strcmp(what, "bmm")) depth = e[3], cells = e[2], cell = 1 < e[2], row = 0, b_step = e[2];
  const long b_first = b_step > 1 ? cell : 0, b_last = b_first + (depth - 1) * b_step + 1;
  float *x = (float *)malloc(depth * sizeof(float)), *y = (float *)malloc(b_last * sizeof(float));
  if (!x || !y || cell >= (cells > 1 ? cells : 1)) return 0;
  cudaMemcpy(x, a + row, depth * sizeof(float), cudaMemcpyDeviceToHost);
  cudaMemcpy(y, b, b_last * sizeof(float), cudaMemcpyDeviceToHost);
  cudaMemcpy(&got, c + cell, sizeof got, cudaMemcpyDeviceToHost);
  if (strcmp(what, "dot") && strcmp(what, "bmm")) cudaMemcpy(&old, before + cell, sizeof old, cudaMemcpyDeviceToHost);
  double scale = 1;
  for (long k = 0; k < depth; k++) {
    const double product = (double)x[k] * y[b_first + k * b_step];
    sum += product, scale += product < 0 ? -product : product;
  }
  free(x), free(y);
  const double apart = got - (sum + old);
  return (apart < 0 ? -apart : apart) <= 1e-4 * scale;
}

static void measure(handle_t h, const char *name, const char *what, const long *e, size_t flush, void *written)
{
  long of_a, of_b, of_c;
  float one = 1, zero = 0, *scalars;
  if (!strcmp(what, "dot")) of_a = of_b = e[0], of_c = 1;
  else if (!strcmp(what, "gemv")) of_a = e[0] * e[1], of_b = e[1], of_c = e[0];
  else if (!strcmp(what, "gemm")) of_a = e[0] * e[2], of_b = e[2] * e[1], of_c = e[0] * e[1];
  else of_a = e[0] * e[1] * e[3], of_b = e[0] * e[3] * e[2], of_c = e[0] * e[1] * e[2];
  float *a = random_array(of_a, 1), *b = random_array(of_b, 2), *c = random_array(of_c, 3);
  float *before = random_array(of_c, 3);
  cudaEvent_t first, last;
  cudaEventCreate(&first), cudaEventCreate(&last);
  if (!a || !b || !c || !before || cudaMalloc((void **)&scalars, 2 * sizeof(float)) != cudaSuccess) {
    printf("{\"case\": \"%s\", \"problem\": \"no memory\"}\n", name);
    return;
  }
  cudaMemcpy(scalars, &one, sizeof one, cudaMemcpyHostToDevice);
  cudaMemcpy(scalars + 1, &zero, sizeof zero, cudaMemcpyHostToDevice);
  int answer = call(h, what, e, c, a, b, scalars, scalars + 1);
  if (answer || cudaDeviceSynchronize() != cudaSuccess)
    printf("{\"case\": \"%s\", \"problem\": \"cuBLAS answers %d\"}\n", name, answer);
  else if (!is_right(what, e, c, before, a, b))
    printf("{\"case\": \"%s\", \"problem\": \"wrong\"}\n", name);
  else {
    const double began = now();
    for (int r = -WARM; r < RUNS; r++) {
      float ms = 0;
      if (flush) cudaMemsetAsync(written, 0, flush);
      cudaEventRecord(first);
      call(h, what, e, c, a, b, scalars, scalars + 1);
      cudaEventRecord(last);
      cudaEventSynchronize(last);
      cudaEventElapsedTime(&ms, first, last);
      if (r == -1 && now() - began < warm_seconds) r--;
      if (r == 0) printf("{\"case\": \"%s\", \"ms\": [", name);
      if (r >= 0) printf("%s%.6g", r ? ", " : "", ms);
    }
    printf("]}\n");
  }
  fflush(stdout);
  cudaFree(a), cudaFree(b), cudaFree(c), cudaFree(before), cudaFree(scalars);
}

int main(int argc, char **argv)
{
  char line[512], name[128], what[32];
  const size_t flush = argc > 1 ? strtoull(argv[1], NULL, 10) : 0;
  void *library = NULL, *written = NULL;
  handle_t h = NULL;
  for (int k = 2; k < argc && !library; k++) library = dlopen(argv[k], RTLD_NOW | RTLD_GLOBAL);
  if (!library) {
    printf("{\"problem\": \"no cuBLAS\"}\n");
    return 0;
  }
  *(void **)&create = dlsym(library, "cublasCreate_v2");
  *(void **)&pointer_mode = dlsym(library, "cublasSetPointerMode_v2");
  *(void **)&sdot = dlsym(library, "cublasSdot_v2");
  *(void **)&sgemv = dlsym(library, "cublasSgemv_v2");
  *(void **)&sgemm = dlsym(library, "cublasSgemm_v2");
  *(void **)&sgemm_strided = dlsym(library, "cublasSgemmStridedBatched");
  if (!create || !pointer_mode || !sdot || !sgemv || !sgemm || !sgemm_strided || create(&h) || pointer_mode(h, ON_DEVICE)
      || (flush && cudaMalloc(&written, flush) != cudaSuccess)) {
    printf("{\"problem\": \"cuBLAS does not start\"}\n");
    return 0;
  }
  while (fgets(line, sizeof line, stdin)) {
    long e[4] = {1, 1, 1, 1};
    if (sscanf(line, "%127s %31s %ld %ld %ld %ld", name, what, e, e + 1, e + 2, e + 3) < 3) continue;
    measure(h, name, what, e, flush, written);
  }
  return 0;
}

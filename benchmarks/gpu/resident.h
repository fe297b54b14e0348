/* In front of an emitted CUDA file: its data stay on the device between the runs that are timed, and its launches are
   timed by events.  The host function of the file is called as ever; while `bench_held` is set, its copies between host
   and device and its waits do nothing, and the memory that it keeps from call to call has the data of the call before. */
#include <cuda_runtime.h>
#include <stdio.h>

static int bench_held;

static inline cudaError_t bench_copy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind)
{
  return bench_held && kind != cudaMemcpyDeviceToDevice ? cudaSuccess : cudaMemcpy(to, from, bytes, kind);
}

static inline cudaError_t bench_copy_async(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                                           cudaStream_t stream = 0)
{
  return bench_held && kind != cudaMemcpyDeviceToDevice ? cudaSuccess : cudaMemcpyAsync(to, from, bytes, kind, stream);
}

static inline cudaError_t bench_wait()
{
  return bench_held ? cudaGetLastError() : cudaDeviceSynchronize();
}

/* Milliseconds of a call, behind a write of `flush` bytes that leaves nothing of the data in the caches and the device
   at work while the call is issued; negative where a call of CUDA fails. */
extern "C" float bench_time(int (*call)(void **), void **slots, size_t flush, int *handled)
{
  static void *written;
  static cudaEvent_t first, last;
  float milliseconds = -1;
  if (!first && (cudaEventCreate(&first) != cudaSuccess || cudaEventCreate(&last) != cudaSuccess)) return -1;
  if (flush && !written && cudaMalloc(&written, flush) != cudaSuccess) return -1;
  if (flush && cudaMemsetAsync(written, 0, flush) != cudaSuccess) return -1;
  cudaEventRecord(first);
  bench_held = 1;
  *handled = call(slots);
  bench_held = 0;
  cudaEventRecord(last);
  if (cudaDeviceSynchronize() != cudaSuccess || cudaGetLastError() != cudaSuccess) return -1;
  return cudaEventElapsedTime(&milliseconds, first, last) == cudaSuccess ? milliseconds : -1;
}

#define cudaMemcpy bench_copy
#define cudaMemcpyAsync bench_copy_async
#define cudaDeviceSynchronize bench_wait

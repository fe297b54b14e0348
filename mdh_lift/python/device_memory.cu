/* What the decorator asks CUDA about arrays in device memory; compiled together with each emitted file. */

/* Waits for the work of a stream: what it computes is about to be read by another one. */
extern "C" int mdh_held_wait(void *stream)
{
  return cudaStreamSynchronize((cudaStream_t)stream) == cudaSuccess;
}

/* The number of the device whose memory an address is in; -1: memory of the host, for all that CUDA knows. */
extern "C" int mdh_held_on(const void *address)
{
  cudaPointerAttributes about;
  if (cudaPointerGetAttributes(&about, address) != cudaSuccess) {
    cudaGetLastError();
    return -1;
  }
  return about.type == cudaMemoryTypeDevice || about.type == cudaMemoryTypeManaged ? about.device : -1;
}

/* The number of the device on which kernels run now. */
extern "C" int mdh_held_here(void)
{
  int device = 0;
  return cudaGetDevice(&device) == cudaSuccess ? device : -1;
}

/* A copy of host memory on the device, and back: what kernels are verified with. */
extern "C" void *mdh_held_new(const void *host, size_t bytes)
{
  void *memory = NULL;
  if (cudaMalloc(&memory, bytes ? bytes : 1) != cudaSuccess) return NULL;
  return bytes && cudaMemcpy(memory, host, bytes, cudaMemcpyHostToDevice) != cudaSuccess ? NULL : memory;
}

extern "C" int mdh_held_back(void *host, void *memory, size_t bytes)
{
  const int copied = !bytes || cudaMemcpy(host, memory, bytes, cudaMemcpyDeviceToHost) == cudaSuccess;
  return cudaFree(memory) == cudaSuccess && copied;
}

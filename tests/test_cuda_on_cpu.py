"""The CPU as a strict GPU: right kernels give right results in every order of threads, wrong ones are reported."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tuning.cuda_on_cpu import command, translated

ORDERS = ("forward", "reverse", "shuffled:7")
FOUND = 86

# Kernels as they are emitted, and a host that runs the one that it is asked for.
TEXT = r"""
#include <stdio.h>
#include <string.h>
#include <cuda_runtime.h>

#define TILE 4
struct pair { int key; float value; int more[2]; };

static __device__ float product(float a, float b) { return a * b; }
static __device__ float first_of(const float *a, long i) { return a[i]; }

static __global__ void __launch_bounds__(TILE * TILE) matmul(
    const long n,
    const float *__restrict__ A, // in rows
    const float *__restrict__ B,
    float *__restrict__ C)
{
  __shared__ float A_tile[TILE * TILE];
  __shared__ __align__(16) float B_tile[16];
  const long i = (long)blockIdx.y * TILE + threadIdx.y, j = (long)blockIdx.x * TILE + threadIdx.x;
  const int here = threadIdx.y * TILE + threadIdx.x;
  float acc = 0;
  for (long k = 0; k < n; k += TILE) {
    A_tile[here] = A[i * n + k + threadIdx.x];
    B_tile[here] = B[(k + threadIdx.y) * n + j];
    __syncthreads();
    for (int l = 0; l < TILE; l++)
      acc += product(A_tile[threadIdx.y * TILE + l], B_tile[l * TILE + threadIdx.x]);
    __syncthreads();
  }
  C[i * n + j] += acc;
}

static __global__ void matmul_without_second_barrier(const long n, const float *A, const float *B, float *C)
{
  __shared__ float A_tile[16];
  __shared__ float B_tile[16];
  const int here = threadIdx.y * TILE + threadIdx.x;
  float acc = 0;
  for (long k = 0; k < n; k += TILE) {
    A_tile[here] = A[threadIdx.y * n + k + threadIdx.x];
    B_tile[here] = B[(k + threadIdx.y) * n + threadIdx.x];
    __syncthreads();
    for (int l = 0; l < TILE; l++)
      acc += A_tile[threadIdx.y * TILE + l] * B_tile[l * TILE + threadIdx.x];
  }
  C[here] = acc;
}

static __global__ void reduce(const int n, const double *__restrict__ x, double *__restrict__ sums)
{
  __shared__ double partial[2];
  double v = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    v += x[i];
  for (int d = 16; d > 0; d /= 2)
    v += __shfl_down_sync(0xffffffff, v, d);
  if (threadIdx.x % 32 == 0)
    partial[threadIdx.x / 32] = v;
  __syncthreads();
  if (threadIdx.x == 0)
    sums[blockIdx.x] = partial[0] + partial[1];
}

static __global__ void lanes(int *out, float *tops)
{
  __shared__ int row[32];
  const int t = threadIdx.x;
  row[t] = t;
  __syncwarp();
  const int other = row[31 - t];
  out[t] = __shfl_xor_sync(0xffffffff, t, 1) * 100 + __shfl_up_sync(0xffffffff, t, 2);
  out[32 + t] = __shfl_sync(0xffffffff, t, 3, 8) * 100 + other;
  if (t < 16)
    tops[t] = __shfl_down_sync(0x0000ffff, (float)t, 4, 16);
}

static __global__ void no_syncwarp(int *out)
{
  __shared__ int row[32];
  row[threadIdx.x] = threadIdx.x;
  out[threadIdx.x] = row[31 - threadIdx.x];
}

static __global__ void shuffle_as_syncwarp(int *out)
{
  __shared__ int row[32];
  row[threadIdx.x] = threadIdx.x;
  const int t = __shfl_xor_sync(0xffffffff, threadIdx.x, 1);
  out[threadIdx.x] = row[t];
}

static __global__ void count(const int n, const int *x, int *h)
{
  __shared__ int local[4];
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (threadIdx.x < 4)
    local[threadIdx.x] = 0;
  __syncthreads();
  if (i < n)
    atomicAdd(&local[x[i]], 1);
  __syncthreads();
  if (threadIdx.x < 4)
    atomicAdd(&h[threadIdx.x], local[threadIdx.x]);
}

static __global__ void count_plain(const int n, const int *x, int *h)
{
  if (threadIdx.x < n)
    h[x[threadIdx.x]] += 1;
}

static __global__ void read_among_atomics(int *h, int *out)
{
  atomicMax(h, (int)threadIdx.x);
  out[threadIdx.x] = h[0];
}

static __global__ void read_after_atomic(int *h, int *out)
{
  if (threadIdx.x == 0) atomicAdd(h, 1); else out[0] = h[0];
}

// the thread that writes is the last of those that read, and in the block that came last
static __global__ void read_by_two(int *C)
{
  const int v = C[0];
  if (threadIdx.x == 1) C[0] = v + 1;
}

static __global__ void read_by_blocks(int *C)
{
  const int v = C[0];
  __syncthreads();
  if (blockIdx.x == 1) C[0] = v + 1;
}

static __global__ void atomics(int *i, unsigned *u, unsigned long long *l, double *d, float *out)
{
  atomicMin(&i[0], -(int)threadIdx.x);
  atomicMax(&i[1], threadIdx.x);
  atomicOr(&u[0], 1u << threadIdx.x);
  atomicXor(u + 1, 1u << threadIdx.x);
  atomicAnd(&u[2], ~(1u << threadIdx.x));
  atomicAdd(l, 3);
  unsigned long long *const bits = (unsigned long long *)d;
  unsigned long long seen, expected = __double_as_longlong(0.0);
  while ((seen = atomicCAS(bits, expected, __double_as_longlong(__longlong_as_double(expected) + 0.5))) != expected)
    expected = seen;
  if (blockIdx.x == 1 && threadIdx.x == 0)
    out[0] = atomicExch(&out[1], 2.5f);
}

static __global__ void neighbours(float *C) { C[(blockIdx.x * blockDim.x + threadIdx.x) / 3] = 1; }

static __global__ void through_global(int *C, const int barrier)
{
  C[threadIdx.x] = threadIdx.x;
  if (barrier) __syncthreads();
  const int next = C[(threadIdx.x + 1) % blockDim.x];
  __syncthreads();
  C[threadIdx.x] = next;
}

static __global__ void some_at_barrier(int *C)
{
  if (threadIdx.x < 5)
    __syncthreads();
  C[threadIdx.x] = 1;
}

static __global__ void two_barriers()
{
  if (threadIdx.x < 32)
    __syncthreads();
  else
    __syncwarp();
}

static __global__ void lane_that_never_comes(int *C)
{
  if (threadIdx.x != 3)
    C[threadIdx.x] = __shfl_sync(0xffffffff, 1, 0);
  else
    __syncthreads();
}

static __global__ void beyond_shared(const int i)
{
  __shared__ float first[8];
  __shared__ float second[8];
  first[threadIdx.x % 4] = second[threadIdx.x % 4] = 0;
  if (threadIdx.x == 3) first[i] = 1;
}

static __global__ void write_at(double *A, const long i) { if (threadIdx.x == 1) A[i] = 4; }

static __global__ void write_both(double *A, const long i, const long j) { A[i] = 1; A[j] = 2; }

static __global__ void shifted(const long first, const long n, const double *A, double *C)
{
  for (long i = first + threadIdx.x; i < first + n; i += blockDim.x) {
    const double *__restrict__ p = A + i;
    C[i] = *p + p[0] + A[i];
  }
}

static __device__ void set(float *p, float v) { *p = v; }

static __global__ void locals(float *C)
{
  float v[4] = {1, 2, 3, 4}, w = C[threadIdx.x] > 0 ? C[threadIdx.x] : 0.5f;
  float *p = v + 1;
  const float *const last = &v[3];
  set(v, w);
  for (; p <= last; p++) *p += fmaxf(w, first_of(v, 3)) + min(C[threadIdx.x], 1.0f);
  C[threadIdx.x] = v[0] + v[1] + v[2] + v[3];
  if (C) C[threadIdx.x] *= -C[threadIdx.x];
}

static __global__ void dynamic(const int n, const float *x, double *y, const int barrier)
{
  extern __shared__ unsigned char mdh_shared[];
  float *const A_tile = (float *)mdh_shared;
  double *const B_tile = (double *)(mdh_shared + 64);
  const int t = threadIdx.x;
  A_tile[t] = first_of(x, t);
  if (barrier) __syncthreads();
  B_tile[t] = A_tile[n - 1 - t];
  __syncthreads();
  y[t] = B_tile[n - 1 - t];
}

static __global__ void records(const int n, const struct pair *p, struct pair *q)
{
  const int i = threadIdx.x;
  __shared__ int total;
  if (i == 0) total = 0;
  __syncthreads();
  if (i < n) {
    struct pair s = p[i];
    s.more[0] = p[i].key;
    q[i] = s;
    q[i].value = p[n - 1 - i].value;
    q[i].more[1] += p[q[i].key - 1].more[1];
    atomicAdd(&total, q[i].more[1]);
  }
  __syncthreads();
  if (i == 0) q[0].key = total;
}

static __global__ void fields_apart(struct pair *q)
{
  if (threadIdx.x == 0) q[0].key = 1; else q[0].value = q[1].value;
}

static __global__ void fields_together(struct pair *q)
{
  if (threadIdx.x == 0) q[0].key = 1; else { struct pair s = q[0]; q[1] = s; }
}

static __global__ void bytes(unsigned char *C) { C[threadIdx.x] = threadIdx.x; }

static __global__ void stale(int *C)
{
  __shared__ int row[2];
  if (blockIdx.x == 0) row[threadIdx.x] = 5;
  __syncthreads();
  C[blockIdx.x * 2 + threadIdx.x] = row[threadIdx.x];
}

static __global__ void ahead(int *C)
{
  for (int k = 0; k < 3; k++) {
    C[threadIdx.x + 1] = C[threadIdx.x];
    __syncthreads();
  }
}

static __global__ void turns(int *C) { C[atomicAdd(&C[63], 1)] = blockIdx.x * blockDim.x + threadIdx.x; }

static __global__ void too_much_shared(int *C)
{
  __shared__ double row[4096];
  extern __shared__ double more[];
  row[threadIdx.x] = more[threadIdx.x] = 0;
  if (threadIdx.x == 0) C[0] = 1;
}

extern void other_unit(int *C);

template <class T> static T *up(const T *host, long n)
{
  T *device;
  if (cudaMalloc(&device, n * sizeof(T))) { puts("no memory"); exit(3); }
  cudaMemcpy(device, host, n * sizeof(T), cudaMemcpyHostToDevice);
  return device;
}
template <class T> static void down(T *host, T *device, long n)
{
  cudaMemcpy(host, device, n * sizeof(T), cudaMemcpyDeviceToHost);
  cudaFree(device);
}
static void failed(cudaError_t error) { printf("%d %s\n", error, cudaGetErrorString(error)); }

int main(int argc, char **argv)
{
  const char *name = argv[1];
  const int number = argc > 2 ? atoi(argv[2]) : 0;
#define CASE(text) if (!strcmp(name, #text))
  float f[64], g[64]; double d[256]; int x[64], c[64];
  for (int i = 0; i < 64; i++) { f[i] = i % 7; g[i] = i % 5 - 2; x[i] = i % 4; c[i] = 0; }
  for (int i = 0; i < 256; i++) d[i] = i;
  CASE(matmul) {
    float C[64];
    for (int i = 0; i < 64; i++) C[i] = 1;
    float *A_dev = up(f, 64), *B_dev = up(g, 64), *C_dev = up(C, 64);
    matmul<<<dim3(2, 2), dim3(TILE, TILE)>>>(8, A_dev, B_dev, C_dev);
    down(C, C_dev, 64);
    int wrong = 0;
    for (int i = 0; i < 8; i++) for (int j = 0; j < 8; j++) {
      float s = 1;
      for (int k = 0; k < 8; k++) s += f[8 * i + k] * g[8 * k + j];
      wrong += s != C[8 * i + j];
    }
    printf("%d wrong\n", wrong);
    matmul<<<1, 32>>>(8, A_dev, B_dev, C_dev); // beyond its launch bounds
    failed(cudaGetLastError());
  }
  CASE(missing) matmul_without_second_barrier<<<1, dim3(4, 4)>>>(number, up(f, 64), up(g, 64), up(f, 64));
  CASE(reduce) {
    double sums[2], *sums_dev = up(d, 2);
    reduce<<<2, 64>>>(200, up(d, 256), sums_dev);
    down(sums, sums_dev, 2);
    printf("%g\n", sums[0] + sums[1]);
  }
  CASE(lanes) {
    int *c_dev = up(c, 64); float *f_dev = up(f, 64);
    lanes<<<1, 32>>>(c_dev, f_dev);
    down(c, c_dev, 64); down(f, f_dev, 64);
    int wrong = 0;
    for (int t = 0; t < 32; t++) {
      wrong += c[t] != (t ^ 1) * 100 + (t < 2 ? t : t - 2);
      wrong += c[32 + t] != (t / 8 * 8 + 3) * 100 + 31 - t;
      wrong += t < 16 && f[t] != (t < 12 ? t + 4 : t);
    }
    printf("%d wrong\n", wrong);
  }
  CASE(no_syncwarp) no_syncwarp<<<1, 32>>>(up(c, 64));
  CASE(shuffle_as_syncwarp) shuffle_as_syncwarp<<<1, 32>>>(up(c, 64));
  CASE(count) {
    int *h_dev = up(c, 4);
    count<<<4, 16>>>(62, up(x, 64), h_dev);
    down(c, h_dev, 4);
    printf("%d %d %d %d\n", c[0], c[1], c[2], c[3]);
  }
  CASE(count_plain) count_plain<<<1, 16>>>(number, up(x, 64), up(c, 64));
  CASE(read_among_atomics) read_among_atomics<<<1, 4>>>(up(c, 1), up(c, 4));
  CASE(read_after_atomic) read_after_atomic<<<1, 2>>>(up(c, 1), up(c, 1));
  CASE(read_by_two) read_by_two<<<1, 2>>>(up(c, 1));
  CASE(read_by_blocks) read_by_blocks<<<2, 1>>>(up(c, 1));
  CASE(atomics) {
    int i[2] = {0, 0}, *i_dev = up(i, 2); unsigned u[3] = {0, 0, ~0u}, *u_dev = up(u, 3);
    unsigned long long l = 0, *l_dev = up(&l, 1);
    double z = 0, *z_dev = up(&z, 1); float o[2] = {0, 1}, *o_dev = up(o, 2);
    atomics<<<2, 4>>>(i_dev, u_dev, l_dev, z_dev, o_dev);
    down(i, i_dev, 2); down(u, u_dev, 3); down(&l, l_dev, 1); down(&z, z_dev, 1); down(o, o_dev, 2);
    printf("%d %d %u %u %x %llu %g %g %g\n", i[0], i[1], u[0], u[1], u[2], l, z, o[0], o[1]);
  }
  CASE(neighbours) neighbours<<<1, 3>>>(up(f, 64));
  CASE(blocks) neighbours<<<3, 1>>>(up(f, 64));
  CASE(through_global) through_global<<<1, 4>>>(up(c, 4), number);
  CASE(some_at_barrier) some_at_barrier<<<2, 8>>>(up(c, 64));
  CASE(two_barriers) two_barriers<<<1, 40>>>();
  CASE(lane_that_never_comes) lane_that_never_comes<<<1, 32>>>(up(c, 64));
  CASE(beyond_shared) beyond_shared<<<1, 4>>>(number);
  CASE(write_at) { double *A = up(d, 10); up(d, 64); write_at<<<1, 4>>>(A, number); }
  CASE(other_allocation) { double *A = up(d, 1), *B = up(d, 1); write_both<<<1, 1>>>(A, 0, B - A); }
  CASE(host_pointer) write_at<<<1, 4>>>(d, 0);
  CASE(freed) { double *A = up(d, 10); cudaFree(A); write_at<<<1, 4>>>(A, 0); }
  CASE(host_reads_device) { double *A = up(d, 10); printf("%g\n", A[0]); }
  CASE(biased) {
    double *A = up(d + 20, 10), *C = up(d, 10);
    shifted<<<1, 4>>>(1000020, 10, A - 1000020, C - 1000020);
    down(d, C, 10);
    printf("%g %g\n", d[0], d[9]);
  }
  CASE(locals) { float *C = up(f, 64); locals<<<1, 2>>>(C); down(f, C, 64); printf("%g\n", f[0]); }
  CASE(dynamic) {
    double *y_dev = up(d, 16);
    dynamic<<<1, 16, 64 + 128>>>(16, up(f, 64), y_dev, number);
    down(d, y_dev, 16);
    printf("%g %g %g\n", d[1], d[6], d[15]);
  }
  CASE(dynamic_too_short) dynamic<<<1, 16, 64 + 120>>>(16, up(f, 64), up(d, 16), 1);
  CASE(records) {
    struct pair p[4], q[4];
    for (int i = 0; i < 4; i++) p[i] = {i + 1, i + 0.5f, {7, i}};
    struct pair *q_dev = up(p, 4);
    records<<<1, 8>>>(4, up(p, 4), q_dev);
    down(q, q_dev, 4);
    printf("%d %d %g %d %d\n", q[0].key, q[3].key, q[3].value, q[3].more[0], q[3].more[1]);
  }
  struct pair pairs[2] = {};
  CASE(fields_apart) fields_apart<<<1, 2>>>(up(pairs, 2));
  CASE(fields_together) fields_together<<<1, 2>>>(up(pairs, 2));
  CASE(bytes) bytes<<<1, 8>>>((unsigned char *)up(c, 64));
  CASE(stale) { int *C = up(c, 4); stale<<<2, 2>>>(C); down(c, C, 4); printf("%x %x\n", c[0], c[2]); }
  CASE(ahead) ahead<<<1, 4>>>(up(c, 64));
  CASE(ahead_twice) { int *C = up(c, 64); for (int k = 0; k < 2; k++) ahead<<<1, 1>>>(C + k); }
  CASE(turns) {
    int *C = up(c, 64);
    turns<<<4, 8>>>(C);
    down(c, C, 64);
    for (int k = 0; k < 32; k++) printf("%d ", c[k]);
  }
  CASE(fresh) {
    unsigned char *m;
    failed(cudaMalloc(&m, 4));
    cudaMemcpyAsync(c, m, 4, cudaMemcpyDeviceToHost, 0);
    printf("%x\n", c[0]);
    cudaMemset(m, 1, 4);
    cudaMemcpy(c, m, 4, cudaMemcpyDefault);
    printf("%x\n", c[0]);
    failed(cudaMemcpy(m, x, 5, cudaMemcpyHostToDevice));
    failed(cudaMemcpy(x, c, 4, cudaMemcpyDeviceToHost));
    failed(cudaFree(m + 1));
  }
  CASE(limits) {
    int *C = up(c, 64);
    const dim3 grids[] = {1, 1, 1u << 31, dim3(1, 65536), 0};
    const int blocks[] = {1025, 0, 1, 1, 1};
    for (int k = 0; k < 5; k++) { stale<<<grids[k], blocks[k]>>>(C); failed(cudaPeekAtLastError()); cudaGetLastError(); }
    failed(cudaGetLastError());
    cudaStream_t stream; cudaStreamCreate(&stream);
    stale<<<1, 2, 49153, stream>>>(C); failed(cudaGetLastError());
    failed(cudaFuncSetAttribute(stale, cudaFuncAttributeMaxDynamicSharedMemorySize, 65536));
    stale<<<1, 2, 49153, stream>>>(C); failed(cudaGetLastError());
    too_much_shared<<<1, 2, 16384>>>(C); failed(cudaGetLastError());
    too_much_shared<<<1, 2, 16392>>>(C); failed(cudaGetLastError());
    stale<<<2, 2>>>(C); failed(cudaGetLastError());
    failed(cudaFuncSetAttribute(stale, cudaFuncAttributeMaxDynamicSharedMemorySize, 227 * 1024 + 1));
    cudaStreamDestroy(stream);
  }
  CASE(devices) {
    int n = -1; cudaDeviceProp p; float time; cudaEvent_t a, b;
    failed(cudaGetDeviceCount(&n));
    void *m; printf("%d\n", n); failed(cudaMalloc(&m, 4)); failed(cudaSetDevice(1));
    stale<<<1, 1>>>((int *)m); failed(cudaGetLastError());
    cudaEventCreate(&a); cudaEventCreate(&b); cudaEventRecord(a); cudaEventRecord(b); cudaEventSynchronize(b);
    cudaEventElapsedTime(&time, a, b);
    cudaGetDeviceProperties(&p, 0); cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, 0);
    printf("%d %d %d %d\n", p.maxThreadsPerBlock, p.warpSize, n, time >= 0);
  }
  CASE(memory) {
    char *a, *b;
    failed(cudaMalloc(&a, 600)); failed(cudaMalloc(&b, 600)); failed(cudaFree(a)); failed(cudaMalloc(&b, 600));
  }
  CASE(units) {
    int *C = up(c, 8);
    stale<<<2, 2>>>(C);
    other_unit(C);
    other_unit(C + 4);
    down(c, C, 8);
    printf("%d %d\n", c[0], c[7]);
  }
  return cudaDeviceSynchronize() != cudaSuccess && strcmp(name, "devices");
}
"""

OTHER = r"""// a second file, without the include: nvcc has it
static __global__ void add(int *C) { C[threadIdx.x] += 10; }
void other_unit(int *C) { add<<<1, 4>>>(C); }
"""

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One program with all kernels, as compiling takes longer than running them."""
    directory: Path = tmp_path_factory.mktemp("cuda")
    for name, text in (("cases.cpp", TEXT), ("other.cpp", OTHER)):
        (directory / name).write_text(translated(text))
    build = command("g++", directory / "cases.cpp", directory / "cases", str(directory / "other.cpp"))
    subprocess.run(build, check=True)

    def run(*case: object, **environment: str) -> subprocess.CompletedProcess[str]:
        arguments = [str(directory / "cases"), *map(str, case)]
        return subprocess.run(arguments, env=environment, capture_output=True, text=True, timeout=60)

    return run


def right(done: subprocess.CompletedProcess[str]) -> str:
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def reported(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == FOUND, done
    line = re.fullmatch("cuda-on-cpu: kernel (.*)\n", done.stderr)
    assert line, done.stderr
    return line[1]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("case", "output"),
    [
        ("matmul", "0 wrong\n701 too many resources requested for launch\n"),
        ("reduce", "19900\n"),
        ("lanes", "0 wrong\n"),
        ("count", "16 16 15 15\n"),
        ("biased", "60 87\n"),
        ("dynamic 1", "1 6 1\n"),
        ("records", "12 4 0.5 4 6\n"),
        ("locals", "-462.25\n"),
        ("through_global 1", ""),
        ("fields_apart", ""),
        ("bytes", ""),
    ],
)
def test_right_kernels(run: Run, case: str, output: str, order: str) -> None:
    assert right(run(*case.split(), MDH_FIBERS=order)) == output


def test_orders_are_different(run: Run) -> None:
    def turns(order: str) -> list[int]:
        return [int(number) for number in right(run("turns", MDH_FIBERS=order)).split()]

    forward = list(range(32))
    assert turns("forward") == forward and turns("reverse") == forward[::-1]
    shuffled = turns("shuffled:1")
    assert sorted(shuffled) == forward and shuffled == turns("shuffled:1")
    assert len({tuple(turns(order)) for order in ("shuffled", "shuffled:1", "shuffled:2", "forward")}) == 4


def test_atomics(run: Run) -> None:
    assert right(run("atomics")) == "-3 3 15 0 fffffff0 24 4 1 2.5\n"


@pytest.mark.parametrize("order", ORDERS)
def test_a_missing_second_barrier(run: Run, order: str) -> None:
    assert right(run("missing", 4, MDH_FIBERS=order)) == ""  # one round needs no second one
    line = reported(run("missing", 8, MDH_FIBERS=order))
    assert line.startswith("matmul_without_second_barrier: data race in shared memory on ")
    assert re.search(r" [AB]_tile\[\d+\]: .* (wrote, .* reads|read, .* writes), and no barrier", line)


@pytest.mark.parametrize("order", ORDERS)
def test_a_race_between_blocks(run: Run, order: str) -> None:
    line = reported(run("blocks", MDH_FIBERS=order))
    one, two = re.findall(r"block \((\d),0,0\) thread \(0,0,0\)", line)
    assert "neighbours: data race in global memory on C[0]" in line and one != two


@pytest.mark.parametrize(
    ("case", "what"),
    [
        ("count_plain 5", "count_plain: data race in global memory on h[0]: block (0,0,0) thread (0,0,0) wrote, "
         "block (0,0,0) thread (4,0,0) writes, and no barrier orders them"),
        ("read_among_atomics", "data race in global memory on h[0]: block (0,0,0) thread (0,0,0) read, "
         "block (0,0,0) thread (1,0,0) changes atomically"),
        ("read_after_atomic", "thread (0,0,0) changed atomically, block (0,0,0) thread (1,0,0) reads"),
        ("read_by_two", "thread (0,0,0) read, block (0,0,0) thread (1,0,0) writes"),
        ("read_by_blocks", "block (0,0,0) thread (0,0,0) read, block (1,0,0) thread (0,0,0) writes"),
        ("through_global 0", "data race in global memory on C[1]: block (0,0,0) thread (0,0,0) read, "
         "block (0,0,0) thread (1,0,0) writes"),
        ("neighbours", "data race in global memory on C[0]"),
        ("no_syncwarp", "data race in shared memory on row["),
        ("dynamic 0", "data race in shared memory on A_tile["),
        ("ahead", "data race in global memory on C[1]"),
        ("fields_together", "data race in global memory on q[0]"),
        ("some_at_barrier", "divergent barrier in block (0,0,0): thread (0,0,0) waits at __syncthreads in line "),
        ("two_barriers", "divergent barrier in block (0,0,0): thread (0,0,0) waits at __syncthreads in line "),
        ("lane_that_never_comes", "thread (0,0,0) waits at __shfl_sync in line "),
        ("beyond_shared 8", "index outside of shared memory: first[8] of block (0,0,0) thread (3,0,0), "
         "indices from 0 to 7 are inside"),
        ("beyond_shared -1", "index outside of shared memory: first[-1]"),
        ("write_at 10", "write_at: index outside of device memory: A[10] of block (0,0,0) thread (1,0,0), "
         "its address lies in no device allocation"),
        ("write_at -1", "index outside of device memory: A[-1]"),
        ("other_allocation", "indices from 0 to 0 are inside"),
        ("host_pointer", "index outside of device memory: A[0]"),
        ("freed", "index outside of device memory: A[0]"),
        ("dynamic_too_short", "index outside of shared memory: B_tile[15]"),
    ],
)  # fmt: skip
def test_what_is_reported(run: Run, case: str, what: str) -> None:
    assert what in reported(run(*case.split()))


def test_reports_name_lines_of_the_cuda_file(run: Run) -> None:
    kernel = TEXT[: TEXT.index("static __global__ void some_at_barrier")].count("\n") + 1
    line = reported(run("some_at_barrier"))
    assert f"__syncthreads in line {kernel + 3}, thread (5,0,0) has ended" in line


@pytest.mark.parametrize("order", ORDERS)
def test_no_histogram_without_collisions_is_reported(run: Run, order: str) -> None:
    assert right(run("count_plain", 4, MDH_FIBERS=order)) == ""


def test_launches_order_accesses(run: Run) -> None:
    """Each element is written by one launch and read by the next one."""
    assert right(run("ahead_twice")) == ""


def test_shuffles_may_order_accesses_or_not(run: Run) -> None:
    assert right(run("shuffle_as_syncwarp")) == ""
    line = reported(run("shuffle_as_syncwarp", MDH_SHUFFLES="values"))
    assert "data race in shared memory on row[" in line
    assert right(run("lanes", MDH_SHUFFLES="values")) == "0 wrong\n"


def test_shared_memory_of_a_block_is_new(run: Run) -> None:
    assert right(run("stale")) == "5 a5a5a5a5\n"


def test_device_memory_is_new_and_apart(run: Run) -> None:
    fresh, *errors = right(run("fresh")).split("\n", 1)
    assert fresh == "0 no error"
    assert errors == ["a5a5a5a5\n1010101\n" + 3 * "1 invalid argument\n"]
    assert run("host_reads_device").returncode < 0  # a signal, as with a GPU


def test_launches_beyond_limits_fail(run: Run) -> None:
    configuration, argument, good = "9 invalid configuration argument", "1 invalid argument", "0 no error"
    expected = [configuration] * 5 + [good, argument, good, good, good, argument, good, argument]
    assert right(run("limits")).splitlines() == expected


def test_devices_and_memory_that_are_not_there(run: Run) -> None:
    none, invalid, good = "100 no CUDA-capable device is detected", "101 invalid device ordinal", "0 no error"
    assert run("devices", MDH_SHIM_DEVICES="0").stdout.splitlines() == [
        none,
        "0",
        none,
        none,
        none,
        "1024 32 132 1",
    ]
    one, two = (run("devices", MDH_SHIM_DEVICES=str(n)).stdout.splitlines() for n in (1, 2))
    assert one[:4] == [good, "1", good, invalid] and two[:4] == [good, "2", good, good]
    full = "2 out of memory"
    assert right(run("memory", MDH_SHIM_MEMORY="1000")).splitlines() == [good, full, good, good]
    assert right(run("memory")).splitlines() == [good] * 4


def test_counts_over_two_units(run: Run) -> None:
    done = run("units", MDH_SHIM_COUNT="1")
    assert (done.returncode, done.stdout) == (0, "15 10\n")
    assert json.loads(done.stderr) == {
        "to_device": {"calls": 1, "bytes": 32},
        "to_host": {"calls": 1, "bytes": 32},
        "launches": {"stale": 1, "add": 2},
    }


def test_an_unknown_order_is_refused(run: Run) -> None:
    assert run("count", MDH_FIBERS="random").returncode == 2


def test_translation_keeps_lines_and_the_host() -> None:
    text = translated(TEXT)
    assert text.count("\n") == TEXT.count("\n")
    host = TEXT.index("template <class T> static T *up")
    assert TEXT[host : TEXT.index("int main")] in text
    assert translated("int f(int *a)\n{ return *a; }\n").endswith("#line 1\nint f(int *a)\n{ return *a; }\n")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("__shared__ __align__(16) double x[32];", "MDH_SHARED(double, x, (32), 16);"),
        ("__shared__ int flag;", "MDH_SHARED_VALUE(int, flag, 1);"),
        ("extern __shared__ __align__(16) unsigned char m[];", "MDH_DYNAMIC(unsigned char, m);"),
        ("float *p;", "mdh::Pointer<float> p;"),
        ("for (int *p = a + (1, 2); p != b; ++p) ;", 'for (mdh::Pointer<int> p = mdh::named<int>("p",  a + (1, 2)); p != b; ++p) ;'),
        ("b = (const struct s *)a;", "b = (mdh::Pointer<const struct s>)a;"),
        ("a[b[i].x].y.z = a->x;", "MDH_FIELD(MDH_FIELD(a[MDH_FIELD(b[i], x)], y), z) = MDH_FIELD((a)[0], x);"),
        ("float v[2] = {a * b, c * d}; v[0] = a * b;", "float v[2] = {a * b, c * d}; v[0] = a * b;"),
        ("return a * b;", "return a * b;"),
    ],
)  # fmt: skip
def test_translated_statements(before: str, after: str) -> None:
    frame = "__device__ int f(int i)\n{{\n  {}\n}}\n"
    assert translated(frame.format(before)).endswith(frame.format(after))


@pytest.mark.parametrize(
    "text",
    [
        "__device__ int global_counter;",
        "__device__ int table[4] = {1, 2, 3, 4};",
        "__global__ void f(float **a) {}",
        "__global__ void f(float (*a)[4]) {}",
        "__global__ void f(float a[4]) {}",
        "__device__ void f(float &a) {}",
        "__global__ void f() { __shared__ float a[4][4]; }",
        "__global__ void f() { __shared__ float a[4], b[4]; }",
        "__global__ void f(float *a) { float *p = a, *q = a; }",
        "__global__ void f(float *a) { float *p[4]; }",
    ],
)
def test_what_would_run_unchecked_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="`"):
        translated(text)

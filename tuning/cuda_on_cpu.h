/* CUDA on the CPU, for tests: kernels run here as a strict GPU would run them, one thread after another.

   The text that is compiled against this header comes from cuda_on_cpu.py, which turns pointers of device
   code into mdh::Pointer, shared arrays into mdh::Array and launches into mdh::launch.  Each thread of a
   block is a fiber, blocks run one after another, and every access of shared or device memory is looked at.
   Reported, with one line on stderr and exit status 86, are
     data race          two threads, one of them writing, without a barrier of their block in between.
                        Atomics do not race with atomics; threads of a warp are also ordered by __syncwarp
                        and by shuffles.  Blocks of one launch are never ordered.  A race is found in any
                        order of fibers
     divergent barrier  some threads of a block wait where others do not come
     index outside      of the shared array, or of the device allocation; also an address that is not aligned

   Environment:
     MDH_FIBERS         forward | reverse | shuffled[:SEED]: the order of threads in a block, and of blocks
     MDH_SHUFFLES       values: shuffles exchange values but order no accesses (as CUDA's documentation says)
     MDH_SHIM_DEVICES   how many devices there are (1)
     MDH_SHIM_MEMORY    bytes of device memory
     MDH_SHIM_COUNT     1: copies and launches as one line of JSON on stderr, at exit
     MDH_SHIM_FAIL      KIND:N, the N-th (1, 2, ...) allocation (memory), copy, launch or wait fails; KIND:N+ from then on

   Limits.  Streams run at once, so a missing synchronisation is not found.  Local arrays of a thread and
   pointers in structs are not looked at.  Of dynamic shared memory only the whole is known: an index outside
   of one part of it is found as a race or as a wrong value.  Where a launch needs too much static and
   dynamic shared memory together, it fails at the declaration: shared arrays stand before the first store.
   What a parameter points into is learned from its first access: one that hits another allocation first is
   found by the next one.  Of the lanes that read an element two are remembered, so partial masks of
   __syncwarp may hide a race.  sizeof a shared array or a pointer is not that of CUDA; `auto x = a[i]` is no
   copy. */
#ifndef MDH_CUDA_ON_CPU_H
#define MDH_CUDA_ON_CPU_H

#include <algorithm>
#include <cmath>
#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))

/* ---- types of CUDA ------------------------------------------------------------------------------------- */

struct uint3 { unsigned x, y, z; };

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

struct alignas(8) int2 { int x, y; };
struct alignas(16) int4 { int x, y, z, w; };
struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(16) double2 { double x, y; };
struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(16) long2 { long x, y; };
struct alignas(16) ulong2 { unsigned long x, y; };

enum cudaError_t {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInitializationError = 3,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorInvalidMemcpyDirection = 21,
    cudaErrorInsufficientDriver = 35,
    cudaErrorNoDevice = 100,
    cudaErrorInvalidDevice = 101,
    cudaErrorInvalidResourceHandle = 400,
    cudaErrorLaunchOutOfResources = 701,
    cudaErrorUnknown = 999
};

enum cudaMemcpyKind {
    cudaMemcpyHostToHost = 0,
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost = 2,
    cudaMemcpyDeviceToDevice = 3,
    cudaMemcpyDefault = 4
};

enum cudaMemoryType {
    cudaMemoryTypeUnregistered = 0,
    cudaMemoryTypeHost = 1,
    cudaMemoryTypeDevice = 2,
    cudaMemoryTypeManaged = 3
};

struct cudaPointerAttributes {
    cudaMemoryType type;
    int device;
    void *devicePointer, *hostPointer;
};

enum cudaDeviceAttr {
    cudaDevAttrMaxThreadsPerBlock = 1,
    cudaDevAttrMaxBlockDimX = 2,
    cudaDevAttrMaxBlockDimY = 3,
    cudaDevAttrMaxBlockDimZ = 4,
    cudaDevAttrMaxGridDimX = 5,
    cudaDevAttrMaxGridDimY = 6,
    cudaDevAttrMaxGridDimZ = 7,
    cudaDevAttrMaxSharedMemoryPerBlock = 8,
    cudaDevAttrWarpSize = 10,
    cudaDevAttrMaxRegistersPerBlock = 12,
    cudaDevAttrClockRate = 13,
    cudaDevAttrMultiProcessorCount = 16,
    cudaDevAttrMemoryClockRate = 36,
    cudaDevAttrGlobalMemoryBusWidth = 37,
    cudaDevAttrMaxThreadsPerMultiProcessor = 39,
    cudaDevAttrComputeCapabilityMajor = 75,
    cudaDevAttrComputeCapabilityMinor = 76,
    cudaDevAttrMaxSharedMemoryPerMultiprocessor = 81,
    cudaDevAttrMaxSharedMemoryPerBlockOptin = 97
};

enum cudaFuncAttribute {
    cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
    cudaFuncAttributePreferredSharedMemoryCarveout = 9
};

struct cudaDeviceProp {
    char name[256];
    std::size_t totalGlobalMem, sharedMemPerBlock, sharedMemPerBlockOptin, sharedMemPerMultiprocessor;
    int regsPerBlock, warpSize, maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3], major, minor;
    int multiProcessorCount, maxThreadsPerMultiProcessor, l2CacheSize;
};

struct CUstream_st { int unused; };
struct CUevent_st { timespec at; bool recorded; };
typedef CUstream_st *cudaStream_t;
typedef CUevent_st *cudaEvent_t;
enum { cudaStreamDefault = 0, cudaStreamNonBlocking = 1, cudaEventDefault = 0, cudaEventDisableTiming = 2 };

inline uint3 threadIdx, blockIdx;
inline dim3 blockDim, gridDim;
constexpr int warpSize = 32;

namespace mdh {

constexpr unsigned WARP = 32, MAX_THREADS = 1024;
constexpr std::size_t SHARED = 48 * 1024, SHARED_OPT_IN = 227 * 1024;
constexpr std::size_t STACK = 256 * 1024; /* of a fiber; pages count only when they are used */
constexpr int FOUND = 86;                 /* exit status of a report */
constexpr int FRESH = 0xA5;               /* bytes of memory that nobody has written */

/* ---- who touched an element ---------------------------------------------------------------------------- */

/* A phase is the time of one block between two barriers.  Phases are counted through the whole process, so
   that "before this block" and "before this launch" are comparisons.  Phase 0: nobody. */
struct Access {
    std::uint32_t phase = 0;
    std::uint32_t thread : 10, clock : 22; /* the clock counts meetings in its warp in this phase */
    Access() : thread(0), clock(0) {}
};

static_assert(sizeof(Access) == 8, "there are seven for every element");

/* Enough of the last accesses to find one that a new access races with, if there is any: of two threads of
   the block that came last (one of them is another thread than the new one), and of another block (barriers
   do not help). */
struct Readers {
    Access last, before, elsewhere;
};

struct Cell {
    Access write;
    Readers read, atomic;
};

enum Kind { READ, WRITE, ATOMIC };

/* Memory of one allocation or one shared array.  Cells stand for `granule` bytes each: the size of the
   accesses so far, or what divides them all. */
struct Region {
    char *begin = nullptr;
    std::size_t size = 0;
    bool shared = false;
    std::size_t granule = 0;
    std::vector<Cell> cells;

    bool holds(const char *at, std::size_t bytes) const
    {
        return at >= begin && bytes <= size && static_cast<std::size_t>(at - begin) <= size - bytes;
    }

    void divide(std::size_t offset, std::size_t bytes)
    {
        if (granule && bytes % granule == 0 && offset % granule == 0)
            return;
        const std::size_t finer = std::gcd(std::gcd(granule, bytes), offset);
        std::vector<Cell> divided(size / finer + 1);
        for (std::size_t k = 0; granule && k < divided.size(); k++)
            divided[k] = cells[k * finer / granule];
        cells.swap(divided);
        granule = finer;
    }
};

/* What a pointer is called in reports, and the memory that it stays in: known for shared arrays; for a
   parameter it is the allocation that its first access in a launch hits, as the pointer itself may point
   anywhere (a[first] is the first element). */
struct Buffer {
    const char *name;
    Region *region = nullptr;
    std::uint32_t launch = 0; /* in which `region` was found */
    bool fixed = false;
    bool dynamic = false; /* all of dynamic shared memory: pointers into it get names of their own */
    constexpr explicit Buffer(const char *name) : name(name) {}
};

struct Array : Buffer {
    Region memory;
    std::size_t alignment;
    std::uint32_t counted = 0, filled = 0; /* launch and block that have seen the declaration */

    Array(const char *name, std::size_t size, std::size_t alignment) : Buffer(name), alignment(alignment)
    {
        memory.begin = static_cast<char *>(std::aligned_alloc(256, (size + 255) / 256 * 256));
        memory.size = size;
        memory.shared = true;
        region = &memory;
        fixed = true;
    }
};

/* ---- fibers -------------------------------------------------------------------------------------------- */

enum State { READY, AT_BARRIER, IN_WARP, ENDED };

struct Fiber {
    ucontext_t start;
    jmp_buf at;
    bool entered = false;
    char *stack = nullptr;
    State state = ENDED;
    const char *operation = ""; /* what it waits for, where, and with whom */
    int line = 0;
    unsigned mask = 0;
    int source = -1; /* lane whose value a shuffle takes; -1: its own */
    std::uint64_t value = 0, taken = 0;
};

struct Shape {
    dim3 grid, block;
    std::size_t shared;
    Shape(dim3 grid, dim3 block, std::size_t shared = 0, cudaStream_t = nullptr)
        : grid(grid), block(block), shared(shared)
    {
    }
    unsigned threads() const { return block.x * block.y * block.z; }
};

struct Copies {
    unsigned long calls = 0, bytes = 0;
};

inline void enter();

/* The device and the one launch that runs on it. */
struct Machine {
    /* host side */
    int devices = 1, device = 0;
    std::size_t total = std::size_t(80) << 30, used = 0;
    cudaError_t last_error = cudaSuccess;
    std::map<const char *, std::unique_ptr<Region>> allocations; /* by their first byte */
    std::map<const void *, std::size_t> opted_in;                /* kernel: bytes of dynamic shared memory */
    bool counting = false;
    std::string fails; /* calls of this kind fail: the one with this number, or all from then on */
    unsigned long fails_at = 0, calls_of_kind = 0;
    bool fails_on = false;
    Copies to_device, to_host;
    std::map<std::string, unsigned long> launched;

    /* order of fibers */
    bool reverse = false, shuffled = false;
    std::uint64_t seed = 0;
    bool shuffles_order = true;

    /* the launch */
    const char *kernel = "";
    void (*body)(const void *arguments) = nullptr;
    const void *arguments = nullptr;
    std::uint32_t launch = 0, phase = 0, launch_first = 0, block_first = 0;
    std::vector<std::pair<std::uint32_t, std::uint64_t>> started; /* first phases of blocks */
    std::size_t static_bytes = 0, shared_limit = 0;
    Region dynamic;
    std::map<const char *, Buffer> tiles; /* named pointers into dynamic shared memory */
    cudaError_t refused = cudaSuccess;

    /* the block */
    unsigned threads = 0;
    std::vector<std::unique_ptr<Fiber>> fibers;
    jmp_buf scheduler;
    int current = -1; /* thread that runs; -1: the host */
    /* clocks[t][l]: how far thread t has met lane l of its warp in this phase; a vector clock */
    std::uint32_t clocks[MAX_THREADS][WARP] = {};
    bool met = false;

    Machine()
    {
        const auto text = [](const char *name) {
            const char *value = std::getenv(name);
            return std::string(value ? value : "");
        };
        const std::string order = text("MDH_FIBERS");
        reverse = order == "reverse";
        shuffled = order.rfind("shuffled", 0) == 0;
        if (shuffled && order.size() > 9)
            seed = std::strtoull(order.c_str() + 9, nullptr, 10);
        if (!order.empty() && order != "forward" && !reverse && order != "shuffled" &&
            order.rfind("shuffled:", 0) != 0) {
            std::fprintf(stderr, "cuda-on-cpu: MDH_FIBERS is forward, reverse or shuffled[:SEED]\n");
            std::_Exit(2);
        }
        shuffles_order = text("MDH_SHUFFLES") != "values";
        if (!text("MDH_SHIM_DEVICES").empty())
            devices = std::atoi(text("MDH_SHIM_DEVICES").c_str());
        if (!text("MDH_SHIM_MEMORY").empty())
            total = std::strtoull(text("MDH_SHIM_MEMORY").c_str(), nullptr, 10);
        counting = text("MDH_SHIM_COUNT") == "1";
        const std::string failing = text("MDH_SHIM_FAIL");
        const std::size_t colon = failing.find(':');
        if (colon != std::string::npos) {
            fails = failing.substr(0, colon);
            fails_at = std::strtoul(failing.c_str() + colon + 1, nullptr, 10);
            fails_on = failing.back() == '+';
        }
    }

    ~Machine()
    {
        if (!counting)
            return;
        std::string names;
        for (const auto &[name, times] : launched)
            names += (names.empty() ? "\"" : ", \"") + name + "\": " + std::to_string(times);
        std::fprintf(stderr,
                     "{\"to_device\": {\"calls\": %lu, \"bytes\": %lu}, "
                     "\"to_host\": {\"calls\": %lu, \"bytes\": %lu}, \"launches\": {%s}}\n",
                     to_device.calls, to_device.bytes, to_host.calls, to_host.bytes, names.c_str());
    }

    /* -- reports -- */

    static std::string triple(std::uint64_t number, const dim3 &of)
    {
        return "(" + std::to_string(number % of.x) + "," + std::to_string(number / of.x % of.y) + "," +
               std::to_string(number / of.x / of.y) + ")";
    }

    std::string thread_name(unsigned thread) const { return "thread " + triple(thread, blockDim); }

    std::string block_name(std::uint32_t at) const
    {
        const auto earlier = [](std::uint32_t phase, const auto &block) { return phase < block.first; };
        const auto next = std::upper_bound(started.begin(), started.end(), at, earlier);
        return "block " + triple(std::prev(next)->second, gridDim);
    }

    std::string here() const { return block_name(phase) + " " + thread_name(static_cast<unsigned>(current)); }

    /* Ends without destructors: they would run on the stack of a fiber. */
    [[noreturn]] void report(const std::string &what) const
    {
        std::fflush(stdout);
        std::fprintf(stderr, "cuda-on-cpu: kernel %s: %s\n", kernel, what.c_str());
        std::fflush(stderr);
        std::_Exit(FOUND);
    }

    /* -- host side -- */

    cudaError_t result(cudaError_t error)
    {
        if (error != cudaSuccess)
            last_error = error;
        return error;
    }

    /* Fails with "no device" where there is none, as every call does then. */
    cudaError_t result(bool good, cudaError_t error = cudaErrorInvalidValue)
    {
        return result(devices < 1 ? cudaErrorNoDevice : good ? cudaSuccess : error);
    }

    /* Whether this call is one that is to fail. */
    bool fails_now(const char *kind)
    {
        if (fails != kind)
            return false;
        calls_of_kind++;
        return fails_on ? calls_of_kind >= fails_at : calls_of_kind == fails_at;
    }

    Region *find(const char *at, std::size_t bytes) const
    {
        auto next = allocations.upper_bound(at);
        if (next == allocations.begin())
            return nullptr;
        Region *region = std::prev(next)->second.get();
        return region->holds(at, bytes) ? region : nullptr;
    }

    static std::size_t pages(std::size_t size)
    {
        const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
        return (size + page - 1) / page * page;
    }

    /* The host cannot touch device memory: it is there during copies and launches only.  Pages around it
       never are, so that two allocations do not touch. */
    void protect(int how) const
    {
        for (const auto &allocation : allocations)
            mprotect(allocation.second->begin, pages(allocation.second->size), how);
    }

    cudaError_t allocate(void **pointer, std::size_t size)
    {
        if (devices < 1)
            return result(cudaErrorNoDevice);
        *pointer = nullptr;
        if (size == 0)
            return cudaSuccess;
        if (fails_now("memory") || size > total || used > total - size)
            return result(cudaErrorMemoryAllocation);
        void *map = mmap(nullptr, pages(size) + 2 * pages(1), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (map == MAP_FAILED)
            return result(cudaErrorMemoryAllocation);
        auto region = std::make_unique<Region>();
        region->begin = static_cast<char *>(map) + pages(1);
        region->size = size;
        mprotect(region->begin, pages(size), PROT_READ | PROT_WRITE);
        std::memset(region->begin, FRESH, size);
        mprotect(region->begin, pages(size), PROT_NONE);
        used += size;
        *pointer = region->begin;
        allocations[region->begin] = std::move(region);
        return cudaSuccess;
    }

    cudaError_t release(void *pointer)
    {
        if (devices < 1)
            return result(cudaErrorNoDevice);
        if (!pointer)
            return cudaSuccess;
        const auto found = allocations.find(static_cast<char *>(pointer));
        if (found == allocations.end())
            return result(cudaErrorInvalidValue);
        used -= found->second->size;
        munmap(found->second->begin - pages(1), pages(found->second->size) + 2 * pages(1));
        allocations.erase(found);
        return cudaSuccess;
    }

    cudaError_t copy(void *to, const void *from, std::size_t size, cudaMemcpyKind kind)
    {
        if (devices < 1 || size == 0)
            return result(devices < 1 ? cudaErrorNoDevice : cudaSuccess);
        if (fails_now("copy"))
            return result(cudaErrorUnknown);
        /* one byte is enough to tell device memory; all of them have to be in it */
        const auto on_device = [&](const void *p) { return find(static_cast<const char *>(p), 1); };
        const auto good = [&](const void *p, bool device) {
            return device ? find(static_cast<const char *>(p), size) != nullptr : !on_device(p);
        };
        bool up = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
        bool down = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
        if (kind == cudaMemcpyDefault) {
            up = on_device(to);
            down = on_device(from);
        }
        if (!good(to, up) || !good(from, down))
            return result(cudaErrorInvalidValue);
        if (up != down) {
            Copies &copies = up ? to_device : to_host;
            copies.calls++;
            copies.bytes += size;
        }
        protect(PROT_READ | PROT_WRITE);
        std::memmove(to, from, size);
        protect(PROT_NONE);
        return cudaSuccess;
    }

    cudaError_t fill(void *to, int value, std::size_t size)
    {
        if (devices < 1 || size == 0)
            return result(devices < 1 ? cudaErrorNoDevice : cudaSuccess);
        if (!find(static_cast<char *>(to), size))
            return result(cudaErrorInvalidValue);
        protect(PROT_READ | PROT_WRITE);
        std::memset(to, value, size);
        protect(PROT_NONE);
        return cudaSuccess;
    }

    /* -- accesses -- */

    /* Whether an access took place before what the current thread does now, in every execution. */
    bool ordered(const Access &before, bool shared) const
    {
        if (before.phase < block_first) /* shared memory is another one in each block */
            return shared || before.phase < launch_first;
        const unsigned thread = static_cast<unsigned>(current);
        if (before.phase < phase || before.thread == thread)
            return true;
        return before.thread / WARP == thread / WARP && clocks[thread][before.thread % WARP] >= before.clock;
    }

    const Access *unordered(const Readers &readers, bool shared) const
    {
        for (const Access *access : {&readers.last, &readers.before, &readers.elsewhere})
            if (!ordered(*access, shared))
                return access;
        return nullptr;
    }

    void remember(Readers &readers, const Access &now) const
    {
        if (readers.last.phase < block_first) {
            readers.elsewhere = readers.last;
            readers.before = Access();
        } else if (readers.last.thread != now.thread) {
            readers.before = readers.last;
        }
        readers.last = now;
    }

    [[gnu::noinline]] void check(const void *address, std::size_t size, std::size_t alignment, Buffer *buffer,
                                 const char *origin, Kind kind)
    {
        if (current < 0)
            return; /* a function for both sides, called by the host */
        const char *at = static_cast<const char *>(address);
        const auto element = [&] {
            return (buffer ? std::string(buffer->name) : "a pointer") + "[" +
                   std::to_string((at - origin) / static_cast<std::ptrdiff_t>(size)) + "]";
        };
        Region *region = buffer && (buffer->fixed || buffer->launch == launch) ? buffer->region : nullptr;
        if (!region) {
            region = find(at, size);
            if (region && buffer) {
                buffer->region = region;
                buffer->launch = launch;
            }
        }
        if (!region || !region->holds(at, size)) {
            const char *stack = fibers[static_cast<std::size_t>(current)]->stack;
            if (!region && at >= stack && at < stack + STACK)
                return; /* its own variables */
            std::string range = ", its address lies in no device allocation";
            if (region) {
                const std::ptrdiff_t bytes = static_cast<std::ptrdiff_t>(size), from = region->begin - origin;
                const std::ptrdiff_t end = from + static_cast<std::ptrdiff_t>(region->size);
                range = ", indices from " + std::to_string(from / bytes) + " to " +
                        std::to_string(end / bytes - 1) + " are inside";
            }
            const std::string memory = region && region->shared ? "shared" : "device";
            report("index outside of " + memory + " memory: " + element() + " of " + here() + range);
        }
        if (reinterpret_cast<std::uintptr_t>(at) % alignment)
            report("address not aligned: " + element() + " of " + here() + " needs a multiple of " +
                   std::to_string(alignment));
        const std::size_t offset = static_cast<std::size_t>(at - region->begin);
        region->divide(offset, size);
        const std::size_t first = offset / region->granule, count = size / region->granule;
        const unsigned thread = static_cast<unsigned>(current);
        Access now;
        now.phase = phase;
        now.thread = thread & (MAX_THREADS - 1);
        now.clock = clocks[thread][thread % WARP] & 0x3fffff;
        for (std::size_t k = first; k < first + count; k++) {
            Cell &cell = region->cells[k];
            const char *did = "wrote";
            const Access *other = ordered(cell.write, region->shared) ? nullptr : &cell.write;
            if (!other && kind != READ && (other = unordered(cell.read, region->shared)))
                did = "read";
            if (!other && kind != ATOMIC && (other = unordered(cell.atomic, region->shared)))
                did = "changed atomically";
            if (other) {
                const std::string memory = region->shared ? "shared" : "global";
                const std::string who = block_name(other->phase) + " " + thread_name(other->thread);
                const char *changes = kind == WRITE ? " writes" : " changes atomically";
                report("data race in " + memory + " memory on " + element() + ": " + who + " " + did + ", " +
                       here() + (kind == READ ? " reads" : changes) + ", and no barrier orders them");
            }
            if (kind == WRITE)
                cell.write = now;
            else
                remember(kind == READ ? cell.read : cell.atomic, now);
        }
    }

    /* A thread comes to the declaration of a shared array: the first one of a block finds it unwritten. */
    void declared(Array &array)
    {
        if (array.counted != launch) {
            array.counted = launch;
            static_bytes = (static_bytes + array.alignment - 1) / array.alignment * array.alignment;
            static_bytes += array.memory.size;
            if (!fits(static_bytes)) {
                refused = cudaErrorInvalidValue;
                leave();
            }
        }
        if (array.filled != block_first) {
            array.filled = block_first;
            std::memset(array.memory.begin, FRESH, array.memory.size);
        }
    }

    bool fits(std::size_t bytes) const
    {
        return bytes <= SHARED && bytes + dynamic.size <= SHARED_OPT_IN &&
               (bytes + dynamic.size <= SHARED || dynamic.size <= shared_limit);
    }

    /* -- fibers -- */

    Fiber &fiber() { return *fibers[static_cast<std::size_t>(current)]; }

    /* A context is entered once; then jumps are enough.  They make no system call. */
    [[gnu::noinline]] void leave()
    {
        if (!_setjmp(fiber().at))
            _longjmp(scheduler, 1);
    }

    [[gnu::noinline]] void go_on()
    {
        if (_setjmp(scheduler))
            return;
        if (fiber().entered)
            _longjmp(fiber().at, 1);
        fiber().entered = true;
        setcontext(&fiber().start);
    }

    void prepare(Fiber &made)
    {
        if (!made.stack) {
            const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
            void *map = mmap(nullptr, STACK, PROT_READ | PROT_WRITE, flags, -1, 0);
            if (map == MAP_FAILED || mprotect(map, pages(1), PROT_NONE)) {
                std::fprintf(stderr, "cuda-on-cpu: no memory for the stack of a fiber\n");
                std::_Exit(2);
            }
            made.stack = static_cast<char *>(map);
        }
        getcontext(&made.start);
        made.start.uc_stack.ss_sp = made.stack;
        made.start.uc_stack.ss_size = STACK;
        made.start.uc_link = nullptr;
        makecontext(&made.start, enter, 0);
        made.entered = false;
    }

    template <class Number> std::vector<Number> order(Number count)
    {
        std::vector<Number> numbers(count);
        std::iota(numbers.begin(), numbers.end(), Number(0));
        if (reverse)
            std::reverse(numbers.begin(), numbers.end());
        for (Number left = shuffled ? count : 0; left > 1; left--)
            std::swap(numbers[left - 1], numbers[random() % left]);
        return numbers;
    }

    /* splitmix64; <random> would take longer to compile than the rest of a small test */
    std::uint64_t random()
    {
        std::uint64_t z = seed += 0x9e3779b97f4a7c15;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
        z = (z ^ z >> 27) * 0x94d049bb133111eb;
        return z ^ z >> 31;
    }

    void next_phase()
    {
        phase++;
        if (met || phase == block_first)
            std::memset(clocks, 0, threads * sizeof clocks[0]);
        met = false;
        for (unsigned t = 0; t < threads; t++) {
            clocks[t][t % WARP] = 1;
            fibers[t]->state = READY;
        }
    }

    /* Lets the threads go on that wait for one another in a warp and are complete; whether there were any. */
    bool meet(unsigned thread)
    {
        const Fiber &asked = *fibers[thread];
        const unsigned base = thread / WARP * WARP, lanes = std::min(WARP, threads - base);
        unsigned members = 0;
        for (unsigned lane = 0; lane < lanes; lane++) {
            const Fiber &other = *fibers[base + lane];
            if (!(asked.mask >> lane & 1) || other.state == ENDED)
                continue;
            if (other.state != IN_WARP || other.mask != asked.mask)
                return false;
            if (std::strcmp(other.operation, asked.operation))
                return false;
            members |= 1u << lane;
        }
        const bool orders = shuffles_order || !std::strcmp(asked.operation, "__syncwarp");
        std::uint32_t joined[WARP] = {};
        for (unsigned lane = 0; lane < lanes; lane++) {
            if (!(members >> lane & 1))
                continue;
            Fiber &member = *fibers[base + lane];
            if (member.source < 0)
                member.taken = member.value;
            else if (members >> member.source & 1)
                member.taken = fibers[base + static_cast<unsigned>(member.source)]->value;
            else
                std::memset(&member.taken, FRESH, sizeof member.taken); /* undefined in CUDA */
            for (unsigned l = 0; l < WARP; l++)
                joined[l] = std::max(joined[l], clocks[base + lane][l]);
        }
        for (unsigned lane = 0; lane < lanes; lane++) {
            if (!(members >> lane & 1))
                continue;
            fibers[base + lane]->state = READY;
            if (orders) {
                std::copy(joined, joined + WARP, clocks[base + lane]);
                clocks[base + lane][lane]++;
                met = true;
            }
        }
        return true;
    }

    std::string situation(unsigned thread) const
    {
        const Fiber &f = *fibers[thread];
        if (f.state == ENDED)
            return "has ended";
        const std::string place = std::string(f.operation) + " in line " + std::to_string(f.line);
        char mask[32];
        std::snprintf(mask, sizeof mask, " for lanes 0x%08x", f.mask);
        return "waits at " + place + (f.state == IN_WARP ? mask : "");
    }

    /* All threads wait or have ended. */
    void barrier_or_report()
    {
        unsigned waiting = 0;
        while (fibers[waiting]->state == ENDED)
            waiting++;
        for (unsigned t = 0; t < threads; t++)
            if (situation(t) != situation(waiting))
                report("divergent barrier in " + block_name(phase) + ": " + thread_name(waiting) + " " +
                       situation(waiting) + ", " + thread_name(t) + " " + situation(t));
        if (fibers[waiting]->state != AT_BARRIER)
            report("divergent barrier in " + block_name(phase) + ": " + thread_name(waiting) + " " +
                   situation(waiting) + ", and they do not come");
    }

    void run_block(std::uint64_t number)
    {
        blockIdx = {static_cast<unsigned>(number % gridDim.x),
                    static_cast<unsigned>(number / gridDim.x % gridDim.y),
                    static_cast<unsigned>(number / gridDim.x / gridDim.y)};
        block_first = phase + 1;
        started.emplace_back(block_first, number);
        if (dynamic.size)
            std::memset(dynamic.begin, FRESH, dynamic.size);
        next_phase();
        for (std::vector<unsigned> turn = order(threads);;) {
            for (unsigned t : turn) {
                if (fibers[t]->state != READY)
                    continue;
                current = static_cast<int>(t);
                threadIdx = {t % blockDim.x, t / blockDim.x % blockDim.y, t / blockDim.x / blockDim.y};
                go_on();
                current = -1;
                if (refused != cudaSuccess)
                    return;
            }
            bool moved = false, ended = true, same = true;
            for (unsigned t = 0; t < threads; t++) {
                if (fibers[t]->state == IN_WARP)
                    moved |= meet(t);
                ended &= fibers[t]->state == ENDED;
                same &= fibers[t]->state == AT_BARRIER && fibers[t]->line == fibers[0]->line;
            }
            if (ended)
                return;
            if (moved)
                continue;
            if (!same)
                barrier_or_report();
            next_phase();
            turn = order(threads);
        }
    }

    cudaError_t why_not(const void *function, unsigned bound, const Shape &shape)
    {
        if (devices < 1)
            return cudaErrorNoDevice;
        const dim3 &g = shape.grid, &b = shape.block;
        if (!g.x || !g.y || !g.z || g.x >= 1u << 31 || g.y > 65535 || g.z > 65535)
            return cudaErrorInvalidConfiguration;
        if (!b.x || !b.y || !b.z || b.x > 1024 || b.y > 1024 || b.z > 64 || shape.threads() > MAX_THREADS)
            return cudaErrorInvalidConfiguration;
        const auto opted = opted_in.find(function);
        shared_limit = opted == opted_in.end() ? 0 : opted->second;
        if (shape.shared > std::max(SHARED, shared_limit))
            return cudaErrorInvalidValue;
        return bound && shape.threads() > bound ? cudaErrorLaunchOutOfResources : cudaSuccess;
    }

    void run(const char *name, const void *function, unsigned bound, const Shape &shape,
             void (*thread_body)(const void *), const void *of)
    {
        if (result(fails_now("launch") ? cudaErrorUnknown : why_not(function, bound, shape)) != cudaSuccess)
            return;
        kernel = name;
        body = thread_body;
        arguments = of;
        gridDim = shape.grid;
        blockDim = shape.block;
        threads = shape.threads();
        while (fibers.size() < threads) {
            fibers.push_back(std::make_unique<Fiber>());
            prepare(*fibers.back());
        }
        const std::unique_ptr<char, decltype(&std::free)> memory(
            static_cast<char *>(std::aligned_alloc(1024, (shape.shared / 1024 + 1) * 1024)), &std::free);
        dynamic = Region();
        dynamic.begin = memory.get();
        dynamic.size = shape.shared;
        dynamic.shared = true;
        launch++;
        launch_first = phase + 1;
        static_bytes = 0;
        refused = cudaSuccess;
        started.clear();
        protect(PROT_READ | PROT_WRITE);
        for (std::uint64_t number : order(std::uint64_t(gridDim.x) * gridDim.y * gridDim.z)) {
            run_block(number);
            if (refused != cudaSuccess) { /* fibers that are under way begin anew next time */
                for (auto &left : fibers)
                    prepare(*left);
                break;
            }
        }
        protect(PROT_NONE);
        if (result(refused) == cudaSuccess)
            launched[name]++;
    }

    /* -- what threads wait for -- */

    void barrier(int line)
    {
        if (current < 0)
            return;
        Fiber &f = fiber();
        f.state = AT_BARRIER;
        f.operation = "__syncthreads";
        f.line = line;
        leave();
    }

    std::uint64_t warp(const char *operation, int line, unsigned mask, int source, std::uint64_t value)
    {
        Fiber &f = fiber();
        f.state = IN_WARP;
        f.operation = operation;
        f.line = line;
        f.mask = mask;
        f.source = source;
        f.value = value;
        if (!(mask >> static_cast<unsigned>(current) % WARP & 1))
            report("divergent barrier: " + here() + " " + situation(static_cast<unsigned>(current)) +
                   " and is none of them");
        leave();
        return f.taken;
    }
};

inline Machine machine;

inline void enter()
{
    for (;;) {
        machine.body(machine.arguments);
        machine.fiber().state = ENDED;
        machine.leave();
    }
}

/* ---- checked pointers and elements --------------------------------------------------------------------- */

template <class T> class Ref;

template <class T> class Pointer {
  public:
    Pointer() = default;
    Pointer(std::nullptr_t) {}
    Pointer(T *address) : address_(address), origin_(bytes(address)) {}
    template <class U, std::enable_if_t<std::is_same_v<const U, T> && !std::is_same_v<U, T>, int> = 0>
    Pointer(const Pointer<U> &p) : address_(p.raw()), buffer_(p.buffer()), origin_(p.origin())
    {
    }
    template <class U, std::enable_if_t<!std::is_same_v<const U, T> && !std::is_same_v<U, T>, int> = 0>
    explicit Pointer(const Pointer<U> &p) : address_((T *)p.raw()), buffer_(p.buffer()), origin_(p.origin())
    {
    }
    template <class U, std::enable_if_t<!std::is_convertible_v<U *, T *>, int> = 0>
    explicit Pointer(U *address) : Pointer((T *)address)
    {
    }
    Pointer(T *address, Buffer *buffer, const char *origin)
        : address_(address), buffer_(buffer), origin_(origin)
    {
    }

    /* the elements count from here, and reports name `buffer` */
    void of(Buffer &buffer)
    {
        buffer_ = &buffer;
        origin_ = bytes(address_);
    }

    T *raw() const { return address_; }
    Buffer *buffer() const { return buffer_; }
    const char *origin() const { return origin_; }
    void check(Kind kind) const
    {
        machine.check((const void *)address_, sizeof(T), alignof(T), buffer_, origin_, kind);
    }

    Ref<T> operator[](std::ptrdiff_t i) const { return Ref<T>(*this + i); }
    Ref<T> operator*() const { return Ref<T>(*this); }
    /* integers, as a biased pointer lies outside of what it was computed from */
    Pointer operator+(std::ptrdiff_t i) const
    {
        const std::uintptr_t to =
            reinterpret_cast<std::uintptr_t>(address_) + static_cast<std::uintptr_t>(i) * sizeof(T);
        return Pointer(reinterpret_cast<T *>(to), buffer_, origin_);
    }
    friend Pointer operator+(std::ptrdiff_t i, const Pointer &p) { return p + i; }
    Pointer operator-(std::ptrdiff_t i) const { return *this + -i; }
    std::ptrdiff_t operator-(const Pointer &other) const { return address_ - other.address_; }
    Pointer &operator+=(std::ptrdiff_t i) { return *this = *this + i; }
    Pointer &operator-=(std::ptrdiff_t i) { return *this = *this - i; }
    Pointer &operator++() { return *this += 1; }
    Pointer &operator--() { return *this -= 1; }
    Pointer operator++(int) { return std::exchange(*this, *this + 1); }
    Pointer operator--(int) { return std::exchange(*this, *this - 1); }
    explicit operator bool() const { return address_ != nullptr; }
    explicit operator std::size_t() const { return reinterpret_cast<std::size_t>(address_); }
    friend bool operator==(const Pointer &a, const Pointer &b) { return a.address_ == b.address_; }
    friend bool operator!=(const Pointer &a, const Pointer &b) { return a.address_ != b.address_; }
    friend bool operator<(const Pointer &a, const Pointer &b) { return a.address_ < b.address_; }
    friend bool operator>(const Pointer &a, const Pointer &b) { return b < a; }
    friend bool operator<=(const Pointer &a, const Pointer &b) { return !(b < a); }
    friend bool operator>=(const Pointer &a, const Pointer &b) { return !(a < b); }

  private:
    static const char *bytes(const volatile void *p) { return (const char *)p; }

    T *address_ = nullptr;
    Buffer *buffer_ = nullptr;
    const char *origin_ = nullptr;
};

/* An element: reads when it is converted, writes when it is assigned to. */
template <class T> class Ref {
  public:
    typedef std::remove_cv_t<T> Value;

    explicit Ref(const Pointer<T> &at) : at_(at) {}
    Ref(const Ref &) = default;

    operator Value() const
    {
        at_.check(READ);
        return *at_.raw();
    }
    Pointer<T> operator&() const { return at_; }

    const Ref &operator=(const Ref &other) const { return assign(other); }
    const Ref &operator=(const Value &value) const { return assign(value); }
    template <class V> const Ref &operator=(const V &value) const { return assign(value); }
    const Ref &operator++() const { return *this += 1; }
    const Ref &operator--() const { return *this -= 1; }
    Value operator++(int) const { return changed([](Value &v) { return v++; }); }
    Value operator--(int) const { return changed([](Value &v) { return v--; }); }

#define MDH_COMPOUND(op)                                                                                     \
    template <class V> const Ref &operator op(const V &value) const                                          \
    {                                                                                                        \
        changed([&value](Value &v) { return v op value; });                                                  \
        return *this;                                                                                        \
    }
    MDH_COMPOUND(+=)
    MDH_COMPOUND(-=)
    MDH_COMPOUND(*=)
    MDH_COMPOUND(/=)
    MDH_COMPOUND(%=)
    MDH_COMPOUND(&=)
    MDH_COMPOUND(|=)
    MDH_COMPOUND(^=)
    MDH_COMPOUND(<<=)
    MDH_COMPOUND(>>=)
#undef MDH_COMPOUND

  private:
    template <class V> const Ref &assign(const V &value) const
    {
        const Value converted = value;
        at_.check(WRITE);
        *at_.raw() = converted;
        return *this;
    }
    /* a thread that reads and writes an element races with nobody that it does not race with by writing */
    template <class Change> Value changed(const Change &change) const
    {
        at_.check(WRITE);
        Value value = *at_.raw();
        const Value result = change(value);
        *at_.raw() = value;
        return result;
    }

    Pointer<T> at_;
};

/* An array as a field of an element. */
template <class T, std::size_t N> class Ref<T[N]> {
  public:
    explicit Ref(const Pointer<T[N]> &at) : at_(at) {}
    Ref<T> operator[](std::ptrdiff_t i) const
    {
        if (i < 0 || i >= static_cast<std::ptrdiff_t>(N))
            machine.report("index outside of an array in " +
                           std::string(at_.buffer() ? at_.buffer()->name : "a pointer") + ": " +
                           std::to_string(i) + " of " + machine.here());
        return Ref<T>(Pointer<T>(&(*at_.raw())[0], at_.buffer(), at_.origin()) + i);
    }

  private:
    Pointer<T[N]> at_;
};

template <class T> struct Plain { typedef std::remove_cv_t<std::remove_reference_t<T>> type; };
template <class T> struct Plain<Ref<T>> { typedef std::remove_cv_t<T> type; };
template <class T> struct Plain<const Ref<T>> : Plain<Ref<T>> {};
template <class T> struct Plain<const Ref<T> &> : Plain<Ref<T>> {};
template <class T> using plain = typename Plain<T>::type;

template <class S, class F, class R> auto field(const Ref<S> &of, F R::*member)
{
    typedef std::remove_reference_t<decltype(std::declval<S &>().*member)> Field;
    const Pointer<S> at = &of;
    return Ref<Field>(Pointer<Field>(&(at.raw()->*member), at.buffer(), at.origin()));
}

template <class S, class F, class R> auto &field(S &of, F R::*member)
{
    return of.*member;
}

/* A local pointer; one into dynamic shared memory is a buffer of its own. */
template <class T> Pointer<T> named(const char *name, Pointer<T> pointer)
{
    if (pointer.buffer() && pointer.buffer()->dynamic) {
        Buffer &tile = machine.tiles.try_emplace(name, name).first->second;
        tile.region = &machine.dynamic;
        tile.fixed = true;
        pointer.of(tile);
    }
    return pointer;
}

template <class T> Pointer<T> shared(Array &array)
{
    machine.declared(array);
    return Pointer<T>(reinterpret_cast<T *>(array.memory.begin), &array, array.memory.begin);
}

template <class T> Pointer<T> dynamic(Buffer &buffer)
{
    buffer.region = &machine.dynamic;
    buffer.fixed = buffer.dynamic = true;
    return Pointer<T>(reinterpret_cast<T *>(machine.dynamic.begin), &buffer, machine.dynamic.begin);
}

/* ---- launches, barriers, atomics ----------------------------------------------------------------------- */

template <class P> P given(P value)
{
    return value;
}

template <class... P, class... A>
void launch(const char *name, void (*kernel)(P...), unsigned bound, const Shape &shape, A &&...arguments)
{
    static_assert(sizeof...(P) == sizeof...(A), "as many arguments as the kernel has parameters");
    typedef std::tuple<void (*)(P...), P...> Call;
    const Call call{kernel, given<P>(std::forward<A>(arguments))...};
    const auto body = [](const void *of) {
        std::apply([](auto called, const auto &...values) { called(values...); },
                   *static_cast<const Call *>(of));
    };
    machine.run(name, reinterpret_cast<const void *>(kernel), bound, shape, body, &call);
}

template <class T> T exchanged(const char *operation, int line, unsigned mask, T value, int source)
{
    static_assert(std::is_arithmetic_v<T> && sizeof(T) <= 8, "a type of a shuffle");
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    bits = machine.warp(operation, line, mask, source, bits);
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

/* The lane that lies `distance` away, or -1 where that is outside of the `width` lanes around this one. */
inline int lane_by(int distance, int width)
{
    const int lane = machine.current % 32, first = lane / width * width, to = lane + distance;
    return to < first || to >= first + width ? -1 : to;
}

/* An element offers its value. */
template <class V> plain<V> shfl(int line, unsigned mask, const V &offered, int from, int width = 32)
{
    const int lane = machine.current % 32, source = lane / width * width + (from & (width - 1));
    return exchanged<plain<V>>("__shfl_sync", line, mask, offered, source);
}

template <class V> plain<V> shfl_up(int line, unsigned mask, const V &offered, unsigned by, int width = 32)
{
    const int source = lane_by(-static_cast<int>(by), width);
    return exchanged<plain<V>>("__shfl_up_sync", line, mask, offered, source);
}

template <class V> plain<V> shfl_down(int line, unsigned mask, const V &offered, unsigned by, int width = 32)
{
    const int source = lane_by(static_cast<int>(by), width);
    return exchanged<plain<V>>("__shfl_down_sync", line, mask, offered, source);
}

template <class V> plain<V> shfl_xor(int line, unsigned mask, const V &offered, int lanes, int width = 32)
{
    const int lane = machine.current % 32, to = lane ^ lanes; /* lower groups may be read, higher ones not */
    const int source = to >= (lane / width + 1) * width ? -1 : to;
    return exchanged<plain<V>>("__shfl_xor_sync", line, mask, offered, source);
}

inline void sync_warp(int line, unsigned mask = 0xffffffffu)
{
    if (machine.current >= 0)
        machine.warp("__syncwarp", line, mask, -1, 0);
}

template <class T, class... Types> constexpr bool one_of = (std::is_same_v<T, Types> || ...);

template <class T, class Change> T atomically(const Pointer<T> &at, const Change &change)
{
    at.check(ATOMIC);
    const T old = *at.raw();
    *at.raw() = change(old);
    return old;
}

template <class T> using same = typename std::common_type<T>::type; /* not deduced from: values convert */

} // namespace mdh

/* What CUDA itself takes, and no more: a type that it lacks does not compile here either. */
#define MDH_ATOMIC(name, result, ...)                                                                        \
    template <class T> T name(const mdh::Pointer<T> &at, mdh::same<T> value)                                 \
    {                                                                                                        \
        static_assert(mdh::one_of<T, __VA_ARGS__>, "no " #name " for this type");                            \
        return mdh::atomically(at, [value](T old) -> T { return result; });                                  \
    }
MDH_ATOMIC(atomicAdd, old + value, int, unsigned, unsigned long long, float, double)
MDH_ATOMIC(atomicSub, old - value, int, unsigned)
MDH_ATOMIC(atomicMin, old < value ? old : value, int, unsigned, long long, unsigned long long)
MDH_ATOMIC(atomicMax, old > value ? old : value, int, unsigned, long long, unsigned long long)
MDH_ATOMIC(atomicAnd, old & value, int, unsigned, unsigned long long)
MDH_ATOMIC(atomicOr, old | value, int, unsigned, unsigned long long)
MDH_ATOMIC(atomicXor, old ^ value, int, unsigned, unsigned long long)
MDH_ATOMIC(atomicExch, (static_cast<void>(old), value), int, unsigned, unsigned long long, float)
#undef MDH_ATOMIC

template <class T> T atomicCAS(const mdh::Pointer<T> &at, mdh::same<T> expected, mdh::same<T> value)
{
    static_assert(mdh::one_of<T, int, unsigned, unsigned long long, unsigned short>,
                  "no atomicCAS for this type");
    return mdh::atomically(at, [=](T old) -> T { return old == expected ? value : old; });
}

template <class T> T __ldg(const mdh::Pointer<T> &at)
{
    return *at;
}

template <class A, class B> auto min(const A &a, const B &b)
{
    typedef std::common_type_t<mdh::plain<A>, mdh::plain<B>> Value;
    const Value x = a, y = b;
    return y < x ? y : x;
}

template <class A, class B> auto max(const A &a, const B &b)
{
    typedef std::common_type_t<mdh::plain<A>, mdh::plain<B>> Value;
    const Value x = a, y = b;
    return x < y ? y : x;
}

/* bits as another type; the value of an element converts */
template <class To, class From> To mdh_bits(From value)
{
    static_assert(sizeof(To) == sizeof(From), "of equal size");
    To bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}
inline int __float_as_int(float value) { return mdh_bits<int>(value); }
inline unsigned __float_as_uint(float value) { return mdh_bits<unsigned>(value); }
inline float __int_as_float(int value) { return mdh_bits<float>(value); }
inline float __uint_as_float(unsigned value) { return mdh_bits<float>(value); }
inline long long __double_as_longlong(double value) { return mdh_bits<long long>(value); }
inline double __longlong_as_double(long long value) { return mdh_bits<double>(value); }

inline void __threadfence() {}
inline void __threadfence_block() {}

#define __syncthreads() mdh::machine.barrier(__LINE__)
#define __syncwarp(...) mdh::sync_warp(__LINE__ __VA_OPT__(, ) __VA_ARGS__)
#define __shfl_sync(...) mdh::shfl(__LINE__, __VA_ARGS__)
#define __shfl_up_sync(...) mdh::shfl_up(__LINE__, __VA_ARGS__)
#define __shfl_down_sync(...) mdh::shfl_down(__LINE__, __VA_ARGS__)
#define __shfl_xor_sync(...) mdh::shfl_xor(__LINE__, __VA_ARGS__)

/* what cuda_on_cpu.py writes */
#define MDH_SHARED(type, name, count, alignment)                                                             \
    static mdh::Array name##_mdh(#name, sizeof(type) * (count),                                              \
                                 alignof(type) > (alignment) ? alignof(type) : (alignment));                 \
    const mdh::Pointer<type> name = mdh::shared<type>(name##_mdh)
#define MDH_SHARED_VALUE(type, variable, alignment)                                                          \
    MDH_SHARED(type, variable##_mdh_array, 1, alignment);                                                    \
    variable##_mdh_array_mdh.name = #variable;                                                               \
    const mdh::Ref<type> variable = variable##_mdh_array[0]
#define MDH_DYNAMIC(type, name)                                                                              \
    static mdh::Buffer name##_mdh(#name);                                                                    \
    const mdh::Pointer<type> name = mdh::dynamic<type>(name##_mdh)
#define MDH_PARAMETER(parameter)                                                                             \
    static mdh::Buffer parameter##_mdh(#parameter);                                                          \
    parameter.of(parameter##_mdh)
#define MDH_FIELD(element, name) mdh::field(element, &mdh::plain<decltype(element)>::name)

/* ---- the host's calls ---------------------------------------------------------------------------------- */

inline const char *cudaGetErrorString(cudaError_t error)
{
    switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInitializationError: return "initialization error";
    case cudaErrorInvalidConfiguration: return "invalid configuration argument";
    case cudaErrorInvalidMemcpyDirection: return "invalid copy direction for memcpy";
    case cudaErrorInsufficientDriver: return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorNoDevice: return "no CUDA-capable device is detected";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    case cudaErrorInvalidResourceHandle: return "invalid resource handle";
    case cudaErrorLaunchOutOfResources: return "too many resources requested for launch";
    case cudaErrorUnknown: break;
    }
    return "unknown error";
}

inline cudaError_t cudaPeekAtLastError() { return mdh::machine.last_error; }
inline cudaError_t cudaGetLastError() { return std::exchange(mdh::machine.last_error, cudaSuccess); }

inline cudaError_t cudaGetDeviceCount(int *count)
{
    *count = std::max(mdh::machine.devices, 0);
    return mdh::machine.result(true);
}

inline cudaError_t cudaGetDevice(int *device)
{
    *device = mdh::machine.device;
    return mdh::machine.result(true);
}

inline cudaError_t cudaSetDevice(int device)
{
    const cudaError_t error =
        mdh::machine.result(device >= 0 && device < mdh::machine.devices, cudaErrorInvalidDevice);
    if (error == cudaSuccess)
        mdh::machine.device = device;
    return error;
}

inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int device)
{
    *properties = cudaDeviceProp{"CPU", mdh::machine.total, mdh::SHARED, mdh::SHARED_OPT_IN, 228 * 1024,
                                 65536, 32, 1024, {1024, 1024, 64}, {2147483647, 65535, 65535}, 9, 0,
                                 132, 2048, 50 << 20};
    return mdh::machine.result(device >= 0 && device < mdh::machine.devices, cudaErrorInvalidDevice);
}

inline cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device)
{
    cudaDeviceProp p;
    const cudaError_t error = cudaGetDeviceProperties(&p, device);
    switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock: *value = p.maxThreadsPerBlock; break;
    case cudaDevAttrMaxBlockDimX: *value = p.maxThreadsDim[0]; break;
    case cudaDevAttrMaxBlockDimY: *value = p.maxThreadsDim[1]; break;
    case cudaDevAttrMaxBlockDimZ: *value = p.maxThreadsDim[2]; break;
    case cudaDevAttrMaxGridDimX: *value = p.maxGridSize[0]; break;
    case cudaDevAttrMaxGridDimY: *value = p.maxGridSize[1]; break;
    case cudaDevAttrMaxGridDimZ: *value = p.maxGridSize[2]; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = static_cast<int>(p.sharedMemPerBlock); break;
    case cudaDevAttrWarpSize: *value = p.warpSize; break;
    case cudaDevAttrMaxRegistersPerBlock: *value = p.regsPerBlock; break;
    case cudaDevAttrMultiProcessorCount: *value = p.multiProcessorCount; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = p.maxThreadsPerMultiProcessor; break;
    case cudaDevAttrComputeCapabilityMajor: *value = p.major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = p.minor; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
        *value = static_cast<int>(p.sharedMemPerMultiprocessor);
        break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = static_cast<int>(p.sharedMemPerBlockOptin); break;
    default: return mdh::machine.result(cudaErrorInvalidValue);
    }
    return error;
}

inline cudaError_t cudaMalloc(void **pointer, std::size_t size)
{
    return mdh::machine.allocate(pointer, size);
}

template <class T> cudaError_t cudaMalloc(T **pointer, std::size_t size)
{
    void *memory = nullptr;
    const cudaError_t error = mdh::machine.allocate(&memory, size);
    if (error == cudaSuccess)
        *pointer = static_cast<T *>(memory);
    return error;
}

inline cudaError_t cudaFree(void *pointer) { return mdh::machine.release(pointer); }

inline cudaError_t cudaMemGetInfo(std::size_t *free, std::size_t *total)
{
    *free = mdh::machine.total - mdh::machine.used;
    *total = mdh::machine.total;
    return mdh::machine.result(true);
}

template <class T> cudaError_t cudaMallocHost(T **pointer, std::size_t size)
{
    *pointer = static_cast<T *>(std::malloc(size ? size : 1));
    return mdh::machine.result(*pointer != nullptr, cudaErrorMemoryAllocation);
}

inline cudaError_t cudaFreeHost(void *pointer)
{
    std::free(pointer);
    return mdh::machine.result(true);
}

inline cudaError_t cudaMemcpy(void *to, const void *from, std::size_t size, cudaMemcpyKind kind)
{
    return mdh::machine.copy(to, from, size, kind);
}

inline cudaError_t cudaMemcpyAsync(void *to, const void *from, std::size_t size, cudaMemcpyKind kind,
                                   cudaStream_t = nullptr)
{
    return mdh::machine.copy(to, from, size, kind);
}

/* Memory that cudaMallocHost made is not told from other memory of the host. */
inline cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *attributes, const void *pointer)
{
    if (mdh::machine.find(static_cast<const char *>(pointer), 1))
        *attributes = {cudaMemoryTypeDevice, mdh::machine.device, const_cast<void *>(pointer), nullptr};
    else
        *attributes = {cudaMemoryTypeUnregistered, -1, nullptr, nullptr};
    return mdh::machine.result(true);
}

inline cudaError_t cudaMemset(void *to, int value, std::size_t size)
{
    return mdh::machine.fill(to, value, size);
}

inline cudaError_t cudaMemsetAsync(void *to, int value, std::size_t size, cudaStream_t = nullptr)
{
    return mdh::machine.fill(to, value, size);
}

inline cudaError_t cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute attribute, int value)
{
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize)
        return mdh::machine.result(true);
    const bool good = value >= 0 && static_cast<std::size_t>(value) <= mdh::SHARED_OPT_IN;
    if (good)
        mdh::machine.opted_in[kernel] = static_cast<std::size_t>(value);
    return mdh::machine.result(good);
}

template <class... P>
cudaError_t cudaFuncSetAttribute(void (*kernel)(P...), cudaFuncAttribute attribute, int value)
{
    return cudaFuncSetAttribute(reinterpret_cast<const void *>(kernel), attribute, value);
}

inline cudaError_t cudaDeviceSynchronize()
{
    return mdh::machine.result(!mdh::machine.fails_now("wait"), cudaErrorUnknown);
}

inline cudaError_t cudaDeviceReset() { return mdh::machine.result(true); }

inline cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    *stream = new CUstream_st();
    return mdh::machine.result(true);
}

inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned)
{
    return cudaStreamCreate(stream);
}
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return mdh::machine.result(true); }

inline cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    delete stream;
    return mdh::machine.result(true);
}

inline cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    *event = new CUevent_st();
    return mdh::machine.result(true);
}

inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned) { return cudaEventCreate(event); }

inline cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t = nullptr)
{
    clock_gettime(CLOCK_MONOTONIC, &event->at);
    event->recorded = true;
    return mdh::machine.result(true);
}

inline cudaError_t cudaEventSynchronize(cudaEvent_t) { return mdh::machine.result(true); }

inline cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end)
{
    *milliseconds = static_cast<float>(static_cast<double>(end->at.tv_sec - start->at.tv_sec) * 1e3 +
                                       static_cast<double>(end->at.tv_nsec - start->at.tv_nsec) / 1e6);
    return mdh::machine.result(start->recorded && end->recorded, cudaErrorInvalidResourceHandle);
}

inline cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    delete event;
    return mdh::machine.result(true);
}

#endif

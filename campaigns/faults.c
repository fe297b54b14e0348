/* A library to be preloaded: the n-th call that touches files below one directory fails, or the process dies at it.

   fault_arm(root, at, error, mode)   from now on calls are counted; root: absolute, without links
       mode 0 the call `at` fails with `error`     1 it and all that follow, but not those that remove
            2 SIGKILL before it                    3 SIGKILL after it
            4 half of a write is done, then SIGKILL (other calls: nothing)
            5 half of a write is done, the next write fails with `error` (other calls: as 0)
   fault_count()                      calls so far;  fault_name(): of the call `at`, or empty */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static char root[PATH_MAX];
static long at, count;
static int error, mode, half_done;
static char name[32];

void fault_arm(const char *directory, long when, int number, int how)
{
    snprintf(root, sizeof root, "%s", directory);
    at = when, error = number, mode = how, count = 0, half_done = 0, name[0] = 0;
}

long fault_count(void) { return count; }
const char *fault_name(void) { return name; }

static int below(const char *path)
{
    char absolute[2 * PATH_MAX];
    const size_t length = strlen(root);
    if (!length || !path)
        return 0;
    if (path[0] != '/') {
        char here[PATH_MAX];
        if (!getcwd(here, sizeof here))
            return 0;
        snprintf(absolute, sizeof absolute, "%s/%s", here, path);
        path = absolute;
    }
    return !strncmp(path, root, length) && (path[length] == '/' || !path[length]);
}

static int open_below(int fd)
{
    char link[64], path[PATH_MAX];
    ssize_t n;
    if (!root[0])
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    n = readlink(link, path, sizeof path - 1);
    if (n <= 0)
        return 0;
    path[n] = 0;
    return below(path);
}

/* 1: fail now. */
static int strikes(const char *what, int removes)
{
    count++;
    if (half_done && !strncmp(what, "write", 5)) {
        half_done = 0;
        errno = error;
        return 1;
    }
    if (count == at)
        snprintf(name, sizeof name, "%s", what);
    if (count == at && mode == 2)
        kill(getpid(), SIGKILL);
    if ((mode == 0 || mode == 5) && count == at) {
        errno = error;
        return 1;
    }
    if (mode == 1 && at && count >= at && (!removes || count == at)) {
        errno = error;
        return 1;
    }
    return 0;
}

static void after(void)
{
    if (root[0] && count == at && mode == 3)
        kill(getpid(), SIGKILL);
}

#define REAL(f) ((__typeof__(&f))dlsym(RTLD_NEXT, #f))
#define GUARD(inside, what, removes) \
    const int in = (inside); \
    if (in && strikes(what, removes)) \
        return -1
#define DONE(call) \
    do { \
        const __typeof__(call) result = (call); \
        const int kept = errno; \
        if (in) \
            after(); \
        errno = kept; \
        return result; \
    } while (0)

#define OPEN(f) \
    int f(const char *path, int flags, ...) \
    { \
        va_list rest; \
        mode_t bits = 0; \
        if (flags & (O_CREAT | O_TMPFILE)) { \
            va_start(rest, flags), bits = va_arg(rest, mode_t), va_end(rest); \
        } \
        GUARD(below(path), flags & (O_WRONLY | O_RDWR | O_CREAT) ? "open for writing" : "open", 0); \
        DONE(REAL(f)(path, flags, bits)); \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(f) \
    int f(int directory, const char *path, int flags, ...) \
    { \
        va_list rest; \
        mode_t bits = 0; \
        if (flags & (O_CREAT | O_TMPFILE)) { \
            va_start(rest, flags), bits = va_arg(rest, mode_t), va_end(rest); \
        } \
        GUARD(directory == AT_FDCWD ? below(path) : open_below(directory), "openat", 0); \
        DONE(REAL(f)(directory, path, flags, bits)); \
    }
OPENAT(openat)
OPENAT(openat64)

static int halves(int in)
{
    return in && (mode == 4 || mode == 5) && count + 1 == at;
}

/* Half of it, then what the mode says. */
#define WRITE(f, parameters, arguments, half_arguments) \
    ssize_t f parameters \
    { \
        const int in = open_below(fd); \
        if (halves(in) && length > 1) { \
            const ssize_t n = REAL(f) half_arguments; \
            count++, half_done = 1; \
            snprintf(name, sizeof name, "half a write"); \
            if (mode == 4) \
                kill(getpid(), SIGKILL); \
            return n; \
        } \
        if (in && strikes("write", 0)) \
            return -1; \
        DONE(REAL(f) arguments); \
    }
WRITE(write, (int fd, const void *data, size_t length), (fd, data, length), (fd, data, length / 2))
WRITE(pwrite, (int fd, const void *data, size_t length, off_t o), (fd, data, length, o), (fd, data, length / 2, o))
WRITE(pwrite64, (int fd, const void *data, size_t length, off64_t o), (fd, data, length, o), (fd, data, length / 2, o))

#define OF_FD(f, parameters, arguments) \
    int f parameters \
    { \
        GUARD(open_below(fd), #f, 0); \
        DONE(REAL(f) arguments); \
    }
OF_FD(fsync, (int fd), (fd))
OF_FD(fdatasync, (int fd), (fd))
OF_FD(ftruncate, (int fd, off_t to), (fd, to))
OF_FD(ftruncate64, (int fd, off64_t to), (fd, to))
OF_FD(fchmod, (int fd, mode_t bits), (fd, bits))
OF_FD(fchown, (int fd, uid_t user, gid_t group), (fd, user, group))

#define OF_PATH(f, parameters, arguments, path, removes) \
    int f parameters \
    { \
        GUARD(below(path), #f, removes); \
        DONE(REAL(f) arguments); \
    }
OF_PATH(rename, (const char *from, const char *to), (from, to), to, 0)
OF_PATH(link, (const char *from, const char *to), (from, to), to, 0)
OF_PATH(linkat, (int d, const char *from, int e, const char *to, int flags), (d, from, e, to, flags), to, 0)
OF_PATH(renameat, (int d, const char *from, int e, const char *to), (d, from, e, to), to, 0)
OF_PATH(unlink, (const char *path), (path), path, 1)
OF_PATH(mkdir, (const char *path, mode_t bits), (path, bits), path, 0)
OF_PATH(rmdir, (const char *path), (path), path, 1)
OF_PATH(chmod, (const char *path, mode_t bits), (path, bits), path, 0)

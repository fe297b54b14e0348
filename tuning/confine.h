/* What the program under test cannot do, and cannot forge.  Put in front of the driver by `harness.driver_text`.

   The program is started as `prog SPEC FD key=N`.  Before any constructor of the user's file runs, one line is read
   from descriptor N:
     KEY AS CPU FSIZE CORE NPROC CONFINE      a word without blanks; limits; whether system calls are filtered
   Every line of results begins with KEY, which stands nowhere but in this process's memory: a line without it is not
   ours.  Where the kernel can (Linux on x86-64 and AArch64), system calls that a computation does not need end the
   program with an `event` line that names them: from the start those that make processes or reach other ones, and as
   soon as nests run those that change files or open connections, too.  What it writes to descriptors that it has is
   limited and read by the parent.  Everything ends with the parent. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { LOST_RESULTS = 95 }; /* exit status: the descriptor for results is closed */

static int out = -1;
static char key[48]; /* with a blank at its end; empty: nobody asked for one */
static pid_t own;

/* ------------------------------------------------------------------ results */

static void put(const char *text, size_t length)
{
    while (length) {
        const ssize_t done = write(out, text, length);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            _exit(LOST_RESULTS);
        text += done, length -= (size_t)done;
    }
}

/* As printf, to the results; a line goes out when it is complete, and at once. */
static void say(const char *format, ...)
{
    static char line[1 << 14];
    static size_t filled;
    va_list arguments;
    if (own && getpid() != own)
        _exit(LOST_RESULTS); /* a copy of us has nothing to say */
    if (!filled)
        filled = (size_t)snprintf(line, sizeof line, "%s", key);
    va_start(arguments, format);
    filled += (size_t)vsnprintf(line + filled, sizeof line - filled, format, arguments);
    va_end(arguments);
    if (filled >= sizeof line)
        _exit(LOST_RESULTS);
    if (line[filled - 1] == '\n') {
        put(line, filled);
        filled = 0;
    }
}

/* ------------------------------------------------------------------ system calls */

#if defined(__linux__) && ((defined(__x86_64__) && !defined(__ILP32__)) || defined(__aarch64__)) \
    && defined(__has_include)
#if __has_include(<linux/seccomp.h>)
#define CAN_FILTER
#endif
#endif

#ifdef CAN_FILTER
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>

#ifdef __x86_64__
#define ARCHITECTURE AUDIT_ARCH_X86_64
#else
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#endif
#ifndef SECCOMP_RET_KILL_PROCESS
#define SECCOMP_RET_KILL_PROCESS 0x80000000U
#endif

struct call {
    int number;
    const char *name;
};

/* Processes, and what reaches others than this one. */
static const struct call never[] = {
#ifdef __NR_fork
    {__NR_fork, "fork"}, {__NR_vfork, "vfork"},
#endif
    {__NR_execve, "execve"}, {__NR_execveat, "execveat"}, {__NR_setsid, "setsid"}, {__NR_setpgid, "setpgid"},
    {__NR_ptrace, "ptrace"}, {__NR_process_vm_readv, "process_vm_readv"},
    {__NR_process_vm_writev, "process_vm_writev"}, {__NR_rt_sigqueueinfo, "rt_sigqueueinfo"},
    {__NR_rt_tgsigqueueinfo, "rt_tgsigqueueinfo"}, {__NR_unshare, "unshare"}, {__NR_setns, "setns"},
    {__NR_mount, "mount"}, {__NR_umount2, "umount2"}, {__NR_chroot, "chroot"}, {__NR_pivot_root, "pivot_root"},
    {__NR_reboot, "reboot"}, {__NR_init_module, "init_module"}, {__NR_finit_module, "finit_module"},
    {__NR_bpf, "bpf"}, {__NR_open_by_handle_at, "open_by_handle_at"},
#ifdef __NR_pidfd_send_signal
    {__NR_pidfd_send_signal, "pidfd_send_signal"},
#endif
#ifdef __NR_pidfd_open
    {__NR_pidfd_open, "pidfd_open"},
#endif
};

/* Files and connections. */
static const struct call not_in_nests[] = {
#ifdef __NR_unlink
    {__NR_creat, "creat"}, {__NR_unlink, "unlink"}, {__NR_rename, "rename"}, {__NR_link, "link"},
    {__NR_symlink, "symlink"}, {__NR_mkdir, "mkdir"}, {__NR_rmdir, "rmdir"}, {__NR_mknod, "mknod"},
    {__NR_chmod, "chmod"}, {__NR_chown, "chown"}, {__NR_lchown, "lchown"}, {__NR_utime, "utime"},
    {__NR_utimes, "utimes"}, {__NR_futimesat, "futimesat"},
#endif
#ifdef __NR_renameat
    {__NR_renameat, "renameat"},
#endif
    {__NR_unlinkat, "unlinkat"}, {__NR_renameat2, "renameat2"}, {__NR_linkat, "linkat"},
    {__NR_symlinkat, "symlinkat"}, {__NR_mkdirat, "mkdirat"}, {__NR_mknodat, "mknodat"},
    {__NR_fchmodat, "fchmodat"}, {__NR_fchownat, "fchownat"}, {__NR_utimensat, "utimensat"},
    {__NR_truncate, "truncate"}, {__NR_setxattr, "setxattr"}, {__NR_lsetxattr, "lsetxattr"},
    {__NR_removexattr, "removexattr"}, {__NR_lremovexattr, "lremovexattr"}, {__NR_socket, "socket"},
    {__NR_connect, "connect"}, {__NR_bind, "bind"}, {__NR_acct, "acct"}, {__NR_setrlimit, "setrlimit"},
};

/* Known only by their arguments; names for the message. */
static const struct call by_argument[] = {
    {__NR_clone, "clone"}, {__NR_kill, "kill"}, {__NR_tgkill, "tgkill"}, {__NR_tkill, "tkill"},
    {__NR_prlimit64, "prlimit64"}, {__NR_prctl, "prctl"}, {__NR_openat, "openat for writing"},
#ifdef __NR_open
    {__NR_open, "open for writing"},
#endif
};

#define COUNT(table) (sizeof(table) / sizeof *(table))

static const char *name_of(int number)
{
    for (size_t k = 0; k < COUNT(never); k++)
        if (never[k].number == number)
            return never[k].name;
    for (size_t k = 0; k < COUNT(not_in_nests); k++)
        if (not_in_nests[k].number == number)
            return not_in_nests[k].name;
    for (size_t k = 0; k < COUNT(by_argument); k++)
        if (by_argument[k].number == number)
            return by_argument[k].name;
    return "of unknown name";
}

static void forbidden(int number, siginfo_t *info, void *context)
{
    char text[200];
    (void)number, (void)context;
    const int length = snprintf(text, sizeof text, "%s{\"event\":\"forbidden\",\"detail\":\"system call %s\"}\n", key,
                                name_of(info->si_syscall));
    if (getpid() == own)
        put(text, (size_t)length);
    _exit(LOST_RESULTS);
}

static struct sock_filter filter[4 * (COUNT(never) + COUNT(not_in_nests)) + 64];
static unsigned short filled_filter;

static void rule(unsigned short code, unsigned value, unsigned char yes, unsigned char no)
{
    filter[filled_filter++] = (struct sock_filter){code, yes, no, value};
}

enum { NUMBER = offsetof(struct seccomp_data, nr), FIRST = offsetof(struct seccomp_data, args) };

static void answer(unsigned what)
{
    rule(BPF_RET | BPF_K, what, 0, 0);
}

static void load(unsigned at)
{
    rule(BPF_LD | BPF_W | BPF_ABS, at, 0, 0);
}

static void refuse(const struct call *calls, size_t count)
{
    for (size_t k = 0; k < count; k++) {
        rule(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)calls[k].number, 0, 1);
        answer(SECCOMP_RET_TRAP);
    }
}

/* Refused unless an argument is one of two values. */
static void only_with(int number, int argument, unsigned value, unsigned other)
{
    rule(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number, 0, 5);
    load(FIRST + 8 * (unsigned)argument);
    rule(BPF_JMP | BPF_JEQ | BPF_K, value, 2, 0);
    rule(BPF_JMP | BPF_JEQ | BPF_K, other, 1, 0);
    answer(SECCOMP_RET_TRAP);
    answer(SECCOMP_RET_ALLOW);
}

/* Refused if an argument has (or has not) one of these bits. */
static void with_bits(int number, int argument, unsigned bits, int refused)
{
    rule(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number, 0, 4);
    load(FIRST + 8 * (unsigned)argument);
    rule(BPF_JMP | BPF_JSET | BPF_K, bits, refused ? 0 : 1, refused ? 1 : 0);
    answer(SECCOMP_RET_TRAP);
    answer(SECCOMP_RET_ALLOW);
}

static void absent(int number)
{
    rule(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number, 0, 1);
    answer(SECCOMP_RET_ERRNO | ENOSYS); /* the C library then uses the older call, or none */
}

static void begin_filter(void)
{
    filled_filter = 0;
    load(offsetof(struct seccomp_data, arch));
    rule(BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0);
    answer(SECCOMP_RET_KILL_PROCESS);
    load(NUMBER);
#ifdef __x86_64__
    rule(BPF_JMP | BPF_JGE | BPF_K, 0x40000000, 0, 1); /* x32 */
    answer(SECCOMP_RET_KILL_PROCESS);
#endif
}

/* Flags: all threads; and no slower machine code, which measurements would show. */
static int install_filter(void)
{
    struct sock_fprog program = {filled_filter, filter};
    answer(SECCOMP_RET_ALLOW);
    program.len = filled_filter;
    return syscall(__NR_seccomp, 1 /* SECCOMP_SET_MODE_FILTER */, 1u | 4u, &program) == 0;
}

static int confine_at_start(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = forbidden;
    action.sa_flags = SA_SIGINFO;
    if (sigaction(SIGSYS, &action, NULL) || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        return 0;
    begin_filter();
    refuse(never, COUNT(never));
#ifdef __NR_clone3
    absent(__NR_clone3); /* its flags are in memory, where a filter cannot look */
#endif
#ifdef __NR_io_uring_setup
    absent(__NR_io_uring_setup);
#endif
    with_bits(__NR_clone, 0, CLONE_THREAD, 0);
    only_with(__NR_kill, 0, (unsigned)own, (unsigned)own);
    only_with(__NR_tgkill, 0, (unsigned)own, (unsigned)own);
    only_with(__NR_tkill, 0, (unsigned)own, (unsigned)own);
    only_with(__NR_prlimit64, 0, 0, (unsigned)own);
    rule(BPF_JMP | BPF_JEQ | BPF_K, __NR_prctl, 0, 4);
    load(FIRST);
    rule(BPF_JMP | BPF_JEQ | BPF_K, PR_SET_PDEATHSIG, 0, 1);
    answer(SECCOMP_RET_TRAP);
    answer(SECCOMP_RET_ALLOW);
    return install_filter();
}

static int confine_nests(void)
{
    const unsigned writes = O_ACCMODE | O_CREAT | O_TRUNC;
    begin_filter();
    refuse(not_in_nests, COUNT(not_in_nests));
#ifdef __NR_openat2
    absent(__NR_openat2);
#endif
#ifdef __NR_open
    with_bits(__NR_open, 1, writes, 1);
#endif
    with_bits(__NR_openat, 2, writes, 1);
    only_with(__NR_prlimit64, 2, 0, 0); /* the superuser could raise them */
    return install_filter();
}
#else
static int confine_at_start(void)
{
    return 0;
}

static int confine_nests(void)
{
    return 0;
}
#endif

/* ------------------------------------------------------------------ files, by Landlock */

#if defined(__linux__) && defined(O_PATH)
struct landlock_rule {
    unsigned long long allowed;
    int directory;
} __attribute__((packed));

enum { WRITES = 1 << 1, CHANGES = 0x1ff0, REFERS = 1 << 13, TRUNCATES = 1 << 14 }; /* CHANGES: make, remove */

/* From the start, files change only in the working directory and where runtimes keep shared memory; elsewhere a call
   ends with EACCES.  An old kernel has no Landlock; then constructors of the user's file are not held back. */
static void protect_files(void)
{
    static const char *const places[] = {".", "/dev/shm", "/dev/null"};
    enum { CREATE_RULESET = 444, ADD_RULE = 445, RESTRICT_SELF = 446, PATH_BENEATH = 1, VERSION = 1 };
    const long version = syscall(CREATE_RULESET, NULL, 0, VERSION);
    unsigned long long handled = WRITES | CHANGES;
    long rules;
    if (version < 1)
        return;
    handled |= (version >= 2 ? REFERS : 0) | (version >= 3 ? TRUNCATES : 0);
    rules = syscall(CREATE_RULESET, &handled, sizeof handled, 0);
    if (rules < 0)
        return;
    for (size_t k = 0; k < sizeof places / sizeof *places; k++) {
        struct landlock_rule rule = {k < 2 ? handled : handled & (WRITES | TRUNCATES), -1};
        rule.directory = open(places[k], O_PATH | O_CLOEXEC);
        if (rule.directory < 0)
            continue;
        syscall(ADD_RULE, rules, PATH_BENEATH, &rule, 0);
        close(rule.directory);
    }
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    syscall(RESTRICT_SELF, rules, 0);
    close((int)rules);
}
#else
static void protect_files(void)
{
}
#endif

/* ------------------------------------------------------------------ before all constructors */

static int confined;

static void limit_to(int resource, unsigned long long value)
{
    struct rlimit r = {value, value};
    setrlimit(resource, &r);
}

static void prepare(int argc, char **argv, char **environment)
{
    static const int resources[] = {RLIMIT_AS, RLIMIT_CPU, RLIMIT_FSIZE, RLIMIT_CORE, RLIMIT_NPROC};
    char text[256], *at, *end;
    size_t length = 0;
    int from;
    (void)environment;
    if (own || argc != 4 || strncmp(argv[3], "key=", 4))
        return; /* started by something else than `runner.py` */
    own = getpid();
    out = atoi(argv[2]);
    from = atoi(argv[3] + 4);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (length < sizeof text - 1) {
        const ssize_t got = read(from, text + length, sizeof text - 1 - length);
        if (got <= 0)
            break;
        length += (size_t)got;
    }
    text[length] = 0;
    at = strchr(text, ' ');
    if (!at || (size_t)(at - text) >= sizeof key - 1)
        _exit(LOST_RESULTS); /* the parent is gone */
    memcpy(key, text, (size_t)(at - text) + 1);
    from = open("/dev/null", O_RDONLY | O_CLOEXEC);
    dup2(from, 0);
    close(from);
    from = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC); /* where memory ends, we go first */
    if (from >= 0 && write(from, "1000", 4) < 0)
        errno = 0;
    close(from);
    for (size_t k = 0; k < sizeof resources / sizeof *resources; k++, at = end)
        limit_to(resources[k], strtoull(at, &end, 10));
    if (strtol(at, NULL, 10)) {
        protect_files();
        confined = confine_at_start();
    }
    memset(text, 0, sizeof text);
}

__attribute__((section(".preinit_array"), used)) static void (*const prepare_first)(int, char **, char **) = prepare;

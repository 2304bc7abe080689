/* What a command must not be able to do in a sandbox. Prints `NAME<TAB>done`, or the error, for each of 45 attempts.
 * Usage: probes OUTSIDE WORKSPACE PID TCP_PORT UDP_PORT ID */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/vm_sockets.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

static const char *outside, *workspace, *id;
static pid_t target;

/* Four buffers in turn. */
static const char *in(const char *folder, const char *name) {
    static char text[4][4096];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(text[turn], sizeof text[turn], "%s/%s", folder, name);
    return text[turn];
}

static void tell(const char *name, int ok) {
    if (ok)
        printf("%s\tdone\n", name);
    else
        printf("%s\t%s\n", name, strerror(errno));
    fflush(stdout);
}

static int creates(const char *path) {
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0644);
    return fd >= 0 && write(fd, "x", 1) == 1;
}

static int reads(const char *path) {
    char text[16];
    int fd = open(path, O_RDONLY);
    return fd >= 0 && read(fd, text, sizeof text) > 0;
}

static int appends(const char *path) {
    int fd = open(path, O_WRONLY | O_APPEND);
    return fd >= 0 && write(fd, "\n[core]\n\thooksPath = x\n", 23) == 23;
}

static int internet(int type, int port) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, type, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to) != 0 || send(fd, "x", 1, MSG_NOSIGNAL) != 1)
        return 0;
    /* A datagram to nobody is sent, too; the one after it is refused. */
    return type == SOCK_STREAM || send(fd, "x", 1, MSG_NOSIGNAL) == 1;
}

static int local(const char *name, int is_abstract) {
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    size_t length = offsetof(struct sockaddr_un, sun_path) + is_abstract + strlen(name);
    strncpy(to.sun_path + is_abstract, name, sizeof to.sun_path - 2);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    return fd >= 0 && connect(fd, (struct sockaddr *)&to, length) == 0;
}

/* In a child: what it does must not change the attempts after it. */
static int in_child(int (*attempt)(void)) {
    int status = 0;
    pid_t child = fork();
    if (child == 0) _exit(attempt() ? 0 : (errno ? errno : 1));
    if (child < 0 || waitpid(child, &status, 0) < 0) return 0;
    errno = WIFEXITED(status) ? WEXITSTATUS(status) : EPERM;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static int traces(void) {
    if (ptrace(PTRACE_SEIZE, target, 0, 0) != 0) return 0;
    return 1;
}

static int makes_user_namespace(void) {
    if (unshare(CLONE_NEWUSER) == 0) return 1;
    int first = errno;
    if (syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0) >= 0) return 1;
    errno = first;
    return 0;
}

static int types(void) {
    int terminal = posix_openpt(O_RDWR | O_NOCTTY);
    if (terminal < 0 || unlockpt(terminal) != 0) return 0;
    int other = open(ptsname(terminal), O_RDWR | O_NOCTTY);
    if (other < 0 || setsid() < 0 || ioctl(other, TIOCSCTTY, 0) != 0) return 0;
    return ioctl(other, TIOCSTI, "x") == 0;
}

static int mounts(void) { return mount("none", in(workspace, "folder"), "tmpfs", 0, "") == 0; }

static int has_block_device(void) {
    char name[64];
    FILE *all = fopen("/proc/partitions", "r");
    errno = ENOENT;
    while (all && fscanf(all, "%*[^\n]\n") >= 0) {
        if (fscanf(all, "%*d %*d %*d %63s", name) == 1 && open(in("/dev", name), O_RDONLY) >= 0) return 1;
    }
    /* The device may be made where its node is missing. */
    const char *made = in(workspace, "block");
    return mknod(made, S_IFBLK | 0600, makedev(254, 0)) == 0 && open(made, O_RDONLY) >= 0;
}

static int uses_ring(void) {
    char parameters[256] = {0};
    return syscall(425, 4, parameters) >= 0;
}

static int makes_map(void) {
    struct { unsigned type, key, value, count; } map = {2, 4, 4, 1};
    return syscall(SYS_bpf, 0, &map, sizeof map) >= 0;
}

/* How the target runs. Each attempt leaves it able to go on. */
static int limits(pid_t process) {
    struct rlimit none = {0, 0};
    return prlimit(process, RLIMIT_CORE, &none, 0) == 0;
}

static int pins(void) {
    cpu_set_t first;
    CPU_ZERO(&first);
    CPU_SET(0, &first);
    return sched_setaffinity(target, sizeof first, &first) == 0;
}

static int reschedules(void) {
    struct sched_param none = {0};
    return sched_setscheduler(target, SCHED_BATCH, &none) == 0;
}

static int changes_attributes(void) {
    int flags = 0, fd = open(in(outside, "changed"), O_RDONLY);
    if (fd < 0 || ioctl(fd, 0x80086601, &flags) != 0) return 0;
    flags |= 0x40; /* not for dump(8) */
    return ioctl(fd, 0x40086602, &flags) == 0;
}

/* A program with the rights of its owner. */
static int is_setuid(const char *path) {
    struct stat about;
    int found = stat(path, &about) == 0 && (about.st_mode & S_ISUID);
    unlink(path);
    return found;
}

static int opens2(void) {
    unsigned long how[3] = {O_WRONLY | O_CREAT, 04755, 0};
    int fd = syscall(437, AT_FDCWD, in(workspace, "by-openat2"), how, sizeof how);
    return fd >= 0 && is_setuid(in(workspace, "by-openat2"));
}

/* The file itself, and the folder that it is in. */
static int changes_git_config(void) {
    if (appends(in(workspace, ".git/config"))) return 1;
    int first = errno;
    if (rename(in(workspace, ".git"), in(workspace, "git-moved")) == 0 && mkdir(in(workspace, ".git"), 0755) == 0)
        return creates(in(workspace, ".git/config"));
    errno = first;
    return 0;
}

int main(int count, char **words) {
    if (count != 7) return 2;
    outside = words[1], workspace = words[2], target = atoi(words[3]), id = words[6];
    const struct timespec times[2] = {{1, 0}, {1, 0}};
    char text[4200];

    tell("create", creates(in(outside, "created")));
    tell("truncate", truncate(in(outside, "truncated"), 0) == 0);
    tell("chmod", chmod(in(outside, "changed"), 0666) == 0);
    tell("utimens", utimensat(AT_FDCWD, in(outside, "changed"), times, 0) == 0);
    tell("setxattr", setxattr(in(outside, "changed"), "user.probe", "x", 1, 0) == 0);
    tell("link", link(in(outside, "changed"), in(workspace, "linked")) == 0 ||
                     link(in(workspace, "file"), in(outside, "linked")) == 0);
    tell("symlink", symlink("/", in(outside, "symlink")) == 0);
    snprintf(text, sizeof text, "/proc/1/root%s", in(outside, "changed"));
    tell("/proc/1/root", reads(text));
    snprintf(text, sizeof text, "/proc/self/root%s", in(outside, "changed"));
    tell("/proc/self/root", reads(text));
    tell("masked secret", reads(in(workspace, ".env")));
    tell("kill", kill(target, SIGCONT) == 0);
    tell("ptrace", in_child(traces));
    snprintf(text, sizeof text, "/proc/%d/mem", target);
    tell("mem", open(text, O_RDONLY) >= 0);
    snprintf(text, sizeof text, "/proc/%d/environ", target);
    tell("environ", reads(text));
    tell("TCP", internet(SOCK_STREAM, atoi(words[4])));
    tell("UDP", internet(SOCK_DGRAM, atoi(words[5])));
    tell("unix socket by path", local(in(outside, "socket"), 0));
    tell("abstract unix socket", local(id, 1));
    tell("raw socket", socket(AF_INET, SOCK_RAW, IPPROTO_ICMP) >= 0 || socket(AF_PACKET, SOCK_RAW, 0) >= 0);
    tell("netlink", socket(AF_NETLINK, SOCK_RAW, 0) >= 0);
    tell("vsock", socket(AF_VSOCK, SOCK_STREAM, 0) >= 0);
    tell("io_uring", uses_ring());
    tell("mount", in_child(mounts));
    tell("user namespace", in_child(makes_user_namespace));
    tell("mknod", mknod(in(workspace, "device"), S_IFCHR | 0600, makedev(1, 1)) == 0);
    tell("block device", has_block_device());
    snprintf(text, sizeof text, "/dev/shm/%s", id);
    tell("/dev/shm", creates(text));
    snprintf(text, sizeof text, "/tmp/%s", id);
    tell("host /tmp", creates(text));
    tell("git config", changes_git_config());
    tell("missing config file", creates(in(workspace, ".envrc")));
    tell("TIOCSTI", in_child(types));
    tell("bpf", makes_map());
    struct stat about;
    tell("file metadata", stat(in(outside, "changed"), &about) == 0);
    snprintf(text, sizeof text, "/proc/%d/cmdline", target);
    tell("process list", reads(text));
    tell("prlimit", limits(target));
    tell("prlimit of the supervisor", limits(getppid()));
    tell("sched_setaffinity", pins());
    tell("sched_setscheduler", reschedules());
    tell("setpriority", setpriority(PRIO_PROCESS, target, 5) == 0);
    tell("ioprio_set", syscall(SYS_ioprio_set, 1, target, (2 << 13) | 7) == 0);
    tell("FS_IOC_SETFLAGS", changes_attributes());
    tell("setuid chmod", chmod(in(workspace, "file"), 04755) == 0);
    tell("setuid open", open(in(workspace, "opened"), O_WRONLY | O_CREAT, 04755) >= 0 && is_setuid(in(workspace, "opened")));
    tell("setuid mknod", mknod(in(workspace, "made"), S_IFREG | 04755, 0) == 0 && is_setuid(in(workspace, "made")));
    tell("setuid openat2", opens2());
    tell("keyctl", syscall(SYS_add_key, "user", id, "x", 1, -2) >= 0);
    return 0;
}

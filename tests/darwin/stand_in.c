/* A stand-in for Seatbelt on Linux, loaded with LD_PRELOAD: it asks a table of rules (tests/darwin/rule_table.py)
 * before the C library's functions for files, sockets, signals and programs do their work, and fails with EPERM as
 * the Sandbox kernel extension does.
 *
 * It is no sandbox. A static program, a raw system call, or a call inside the C library passes it by. It shows
 * which rules a profile has to have for programs that call the C library.
 *
 * Which operation a call needs: the hooks that SandboxMirror (github.com/steven-michaud/SandboxMirror) and the
 * call chains of the kernel extension show. rename: file-write-unlink on the old name, file-write-create on the new
 * one, and, because the hook calls that of unlink, file-write-unlink on a file that is replaced. open:
 * file-write-create for a new file, otherwise file-read-data and file-write-data. link: file-link on the old name,
 * file-write-create on the new one, and no right on it that the old name does not have ("forbidden-link-priv" in the
 * kernel's log).
 * A second sandbox in a process fails ("forbidden-sandbox-reinit").
 *
 * Paths are real paths. A terminal is /dev/ttysN, as on macOS. Names in /proc that belong to another process stand for
 * questions about that process (process-info-pidinfo); other names in /proc and /sys are not checked, because macOS has
 * neither folder. Compared letters keep their case, as the volume below is one of Linux.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <ctype.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <regex.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <utime.h>

#define TABLE "SEATBELT_STAND_IN_TABLE"
#define LABEL "SEATBELT_STAND_IN_LABEL"
#define COMPILER "SEATBELT_STAND_IN_COMPILER"
#define PROGRAMS "SEATBELT_STAND_IN_PROGRAMS"

/* --- rules ------------------------------------------------------------------------------------------------ */

struct filter {
    char kind[24], protocol[16], host[16];
    char *text;
    int port, count;
    struct filter *parts;
    regex_t *compiled;
};

struct rule {
    bool allow;
    struct filter filter;
    struct rule *next;
};

struct operation {
    char name[48];
    bool allow;
    struct rule *first, *last;
    struct operation *next;
};

struct request {
    const char *path, *vnode, *target, *name, *protocol, *host, *domain, *type;
    int port, socket_protocol;
};

static struct operation *operations;
static char table_path[PATH_MAX], label[64], library[PATH_MAX], programs[PATH_MAX];
static bool confined;

static char *unhex(const char *hex) {
    size_t length = strlen(hex) / 2;
    char *text = malloc(length + 1);
    for (size_t index = 0; index < length; index++) {
        unsigned value;
        sscanf(hex + 2 * index, "%2x", &value);
        text[index] = (char)value;
    }
    text[length] = 0;
    return text;
}

static void give_up(const char *why) {
    dprintf(2, "seatbelt stand-in: %s\n", why);
    _exit(71);
}

static struct filter read_filter(char **lines) {
    struct filter filter = {0};
    char *line = strsep(lines, "\n"), *rest;
    if (!line || !*line) give_up("the table of rules is cut off");
    rest = strchr(line, ' ');
    snprintf(filter.kind, sizeof filter.kind, "%.*s", (int)(rest ? rest - line : (long)strlen(line)), line);
    rest = rest ? rest + 1 : line + strlen(line);
    if (!strcmp(filter.kind, "all") || !strcmp(filter.kind, "any")) {
        filter.count = atoi(rest);
    } else if (!strcmp(filter.kind, "not")) {
        filter.count = 1;
    } else if (!strcmp(filter.kind, "remote") || !strcmp(filter.kind, "local")) {
        if (sscanf(rest, "%15s %15s %d %d", filter.protocol, filter.host, &filter.port, &filter.count) != 4)
            give_up("the table of rules has a wrong address");
    } else {
        filter.text = unhex(rest);
    }
    if (filter.count) {
        filter.parts = calloc((size_t)filter.count, sizeof filter);
        for (int index = 0; index < filter.count; index++) filter.parts[index] = read_filter(lines);
    }
    return filter;
}

static void load(const char *path) {
    int file = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    struct stat found;
    if (file < 0 || syscall(SYS_fstat, file, &found)) give_up("the table of rules cannot be read");
    char *content = calloc(1, (size_t)found.st_size + 1), *lines = content;
    for (long done = 0; done < found.st_size;) {
        long count = syscall(SYS_read, file, content + done, (size_t)(found.st_size - done));
        if (count <= 0) give_up("the table of rules cannot be read");
        done += count;
    }
    syscall(SYS_close, file);
    struct operation **end = &operations, *operation = NULL;
    while (lines && *lines) {
        if (*lines == 'O') {
            operation = calloc(1, sizeof *operation);
            int allow;
            if (sscanf(strsep(&lines, "\n"), "O %47s %d", operation->name, &allow) != 2) give_up("a wrong operation");
            operation->allow = allow;
            *end = operation;
            end = &operation->next;
        } else if (*lines == 'R' && operation) {
            struct rule *rule = calloc(1, sizeof *rule);
            rule->allow = strsep(&lines, "\n")[2] == '1';
            rule->filter = read_filter(&lines);
            if (operation->last) operation->last->next = rule;
            else operation->first = rule;
            operation->last = rule;
        } else {
            give_up("a wrong line in the table of rules");
        }
    }
    free(content);
    snprintf(table_path, sizeof table_path, "%s", path);
    confined = true;
}

static bool is_in(const char *path, const char *folder) {
    size_t length = strlen(folder);
    if (length == 1) return *path == '/';
    return !strncmp(path, folder, length) && (!path[length] || path[length] == '/');
}

static bool found_by(struct filter *filter, const char *subject) {
    if (!subject || !*subject) return false;
    if (!filter->compiled) {
        filter->compiled = malloc(sizeof *filter->compiled);
        if (regcomp(filter->compiled, filter->text, REG_EXTENDED | REG_NOSUB)) give_up("a wrong regular expression");
    }
    return !regexec(filter->compiled, subject, 0, NULL, 0);
}

static bool same(const char *one, const char *other) { return one && other && !strcmp(one, other); }

static bool loopback(const char *host) {
    return same(host, "127.0.0.1") || same(host, "::1") || same(host, "0.0.0.0") || same(host, "::");
}

static bool of_protocol(const char *wanted, const char *is) {
    if (!is) return false;
    if (!strcmp(wanted, "unix-socket") || !strcmp(is, "unix-socket")) return !strcmp(wanted, is);
    size_t length = strlen(wanted);
    char family = wanted[length - 1];
    if ((family == '4' || family == '6') && is[strlen(is) - 1] != family) return false;
    return !strncmp(wanted, "ip", 2) || !strncmp(wanted, is, 3);
}

static bool matches(struct filter *, const char *, const struct request *);

static bool has_address(struct filter *filter, const char *operation, const struct request *request) {
    bool out = !strcmp(operation, "network-outbound");
    bool in = !strcmp(operation, "network-bind") || !strcmp(operation, "network-inbound");
    if (!(strcmp(filter->kind, "remote") ? in : out) || !of_protocol(filter->protocol, request->protocol)) return false;
    if (filter->count && !matches(filter->parts, operation, request)) return false;
    return (*filter->host == '*' || loopback(request->host)) && (!filter->port || filter->port == request->port);
}

static bool matches(struct filter *filter, const char *operation, const struct request *request) {
    const char *kind = filter->kind, *text = filter->text, *path = request->path;
    if (!strcmp(kind, "all") || !strcmp(kind, "any")) {
        bool all = !strcmp(kind, "all");
        for (int index = 0; index < filter->count; index++)
            if (matches(filter->parts + index, operation, request) != all) return !all;
        return all;
    }
    if (!strcmp(kind, "not")) return !matches(filter->parts, operation, request);
    if (!strcmp(kind, "literal")) return same(path, text);
    if (!strcmp(kind, "subpath")) return path && is_in(path, text);
    if (!strcmp(kind, "prefix")) return path && !strncmp(path, text, strlen(text));
    if (!strcmp(kind, "regex")) return found_by(filter, path);
    if (!strcmp(kind, "name-regex")) return found_by(filter, request->name);
    if (!strcmp(kind, "name-prefix")) return request->name && !strncmp(request->name, text, strlen(text));
    if (!strcmp(kind, "vnode-type")) return path && *path && same(request->vnode, text);
    if (!strcmp(kind, "target"))
        return same(request->target, text) || (!strcmp(text, "same-sandbox") && same(request->target, "self"));
    if (!strcmp(kind, "remote") || !strcmp(kind, "local")) return has_address(filter, operation, request);
    if (!strcmp(kind, "socket-domain")) return same(request->domain, text);
    if (!strcmp(kind, "socket-type")) return same(request->type, text);
    if (!strcmp(kind, "socket-protocol")) return atoi(text) == request->socket_protocol;
    /* A process has the extension for the terminals that it opened; which those are is not followed. */
    if (!strcmp(kind, "extension"))
        return !strcmp(text, "com.apple.sandbox.pty") && path && !strncmp(path, "/dev/ttys", 9);
    return same(request->name, text);
}

/* For whoever looks for what a profile lacks: a line for each denial, as macOS has in its log. */
static void note(const char *operation, const struct request *request) {
    const char *log = getenv("SEATBELT_STAND_IN_LOG");
    char line[PATH_MAX + 128];
    if (!log || !confined) return;
    int file = (int)syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    int length = snprintf(line, sizeof line, "%d deny %s %s\n", (int)getpid(), operation,
                          request->path ? request->path : request->name ? request->name : "");
    if (file >= 0 && length > 0) syscall(SYS_write, file, line, (size_t)length);
    if (file >= 0) syscall(SYS_close, file);
}

static bool allows(const char *operation, const struct request *request) {
    for (struct operation *each = operations; each; each = each->next) {
        if (strcmp(each->name, operation)) continue;
        bool verdict = each->allow;
        for (struct rule *rule = each->first; rule; rule = rule->next)
            if (rule->allow != verdict && matches(&rule->filter, operation, request)) verdict = rule->allow;
        if (!verdict) note(operation, request);
        return verdict;
    }
    give_up("an operation is not in the table of rules");
    return false;
}

static int refused(void) {
    errno = EPERM;
    return -1;
}

/* What the differential test asks. */
int seatbelt_stand_in_decides(const char *operation, const char *path, const char *vnode, const char *target,
                              const char *name, const char *protocol, const char *host, int port) {
    struct request request = {.path = path, .vnode = vnode, .target = target, .name = name,
                              .protocol = protocol, .host = host, .port = port};
    return allows(operation, &request);
}

void seatbelt_stand_in_load(const char *path) {
    operations = NULL;
    load(path);
    confined = false;
}

/* --- paths ------------------------------------------------------------------------------------------------ */

#define REAL(result, name, ...) \
    static result (*real)(__VA_ARGS__); \
    if (!real) real = (result(*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)

static bool join(int folder, const char *path, char *joined) {
    char base[PATH_MAX], link[64];
    ssize_t length;
    if (*path == '/') return snprintf(joined, PATH_MAX, "%s", path) < PATH_MAX;
    snprintf(link, sizeof link, folder == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/%d", folder);
    length = syscall(SYS_readlinkat, AT_FDCWD, link, base, sizeof base - 1);
    if (length <= 0 || *base != '/') return false;
    base[length] = 0;
    return snprintf(joined, PATH_MAX, *path ? "%s/%s" : "%s%s", base, path) < PATH_MAX;
}

/* The real path, also of what does not exist yet; false where the folder does not exist, or nothing has a path. */
static bool real_path(int folder, const char *path, bool follow, char *found, int depth) {
    char joined[PATH_MAX], target[PATH_MAX], *name;
    static char *(*resolve)(const char *, char *);
    if (!resolve) resolve = (char *(*)(const char *, char *))dlsym(RTLD_NEXT, "realpath");
    if (!path || depth > 32 || !join(folder, path, joined)) return false;
    if (follow && resolve(joined, found)) return true;
    for (size_t length = strlen(joined); length > 1 && joined[length - 1] == '/'; length--) joined[length - 1] = 0;
    name = strrchr(joined, '/') + 1;
    if (!*name || !strcmp(name, ".") || !strcmp(name, "..")) return resolve(joined, found);
    name[-1] = 0;
    if (!resolve(*joined ? joined : "/", found)) return false;
    size_t length = strlen(found);
    if (length + strlen(name) + 2 > PATH_MAX) return false;
    sprintf(found + length, "%s%s", length == 1 ? "" : "/", name);
    if (follow) {
        ssize_t count = syscall(SYS_readlinkat, AT_FDCWD, found, target, sizeof target - 1);
        if (count > 0) {
            char next[PATH_MAX];
            target[count] = 0;
            if (*target == '/') return real_path(AT_FDCWD, target, true, found, depth + 1);
            found[length == 1 ? 1 : length] = 0;
            if (snprintf(next, sizeof next, "%s/%s", found, target) >= (int)sizeof next) return false;
            return real_path(AT_FDCWD, next, true, found, depth + 1);
        }
    }
    return true;
}

static const char *vnode_type(const char *path) {
    struct stat found;
    if (syscall(SYS_newfstatat, AT_FDCWD, path, &found, AT_SYMLINK_NOFOLLOW)) return NULL;
    switch (found.st_mode & S_IFMT) {
        case S_IFDIR: return "DIRECTORY";
        case S_IFLNK: return "SYMLINK";
        case S_IFCHR: return strncmp(path, "/dev/pts/", 9) && strcmp(path, "/dev/tty") ? "CHARACTER-DEVICE" : "TTY";
        case S_IFBLK: return "BLOCK-DEVICE";
        case S_IFIFO: return "FIFO";
        case S_IFSOCK: return "SOCKET";
        default: return "REGULAR-FILE";
    }
}

/* --- other processes -------------------------------------------------------------------------------------- */

/* The number at this place behind the name in /proc/PID/stat: 1 is the parent, 2 the process group. */
static long status_of(pid_t process, int place) {
    char path[64], line[512], *at;
    int parent, group;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)process);
    int file = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return -1;
    long count = syscall(SYS_read, file, line, sizeof line - 1);
    syscall(SYS_close, file);
    if (count <= 0) return -1;
    line[count] = 0;
    at = strrchr(line, ')');
    if (!at || sscanf(at + 1, " %*c %d %d", &parent, &group) != 2) return -1;
    return place == 1 ? parent : group;
}

static const char *relation(pid_t other) {
    char path[64], environment[1 << 17], wanted[128];
    if (other == getpid()) return "self";
    for (long process = other; process > 1; process = status_of((pid_t)process, 1))
        if (process == getpid()) return "same-sandbox";
    snprintf(path, sizeof path, "/proc/%d/environ", (int)other);
    snprintf(wanted, sizeof wanted, LABEL "=%s", label);
    long length = 0, count;
    /* A program that is just being started has no environment for a moment; a dead one never has. */
    for (int tries = 0; tries < 50 && !length; tries++) {
        if (tries) usleep(1000);
        int file = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
        if (file < 0) return "others";
        while (length < (long)sizeof environment - 1 &&
               (count = syscall(SYS_read, file, environment + length, sizeof environment - 1 - (size_t)length)) > 0)
            length += count;
        syscall(SYS_close, file);
    }
    environment[length] = 0;
    for (char *at = environment; at < environment + length; at += strlen(at) + 1)
        if (!strcmp(at, wanted)) return "same-sandbox";
    return "others";
}

static bool may_signal(pid_t other) {
    struct request request = {.target = relation(other)};
    return allows("signal", &request);
}

/* A signal for several processes reaches those that may get it. */
static int signal_many(long group, int number) {
    static DIR *(*list)(const char *);
    if (!list) list = (DIR * (*)(const char *)) dlsym(RTLD_NEXT, "opendir");
    DIR *processes = list("/proc");
    bool member = false, sent = false;
    if (!processes) return refused();
    for (struct dirent *each; (each = readdir(processes));) {
        pid_t process = isdigit((unsigned char)*each->d_name) ? (pid_t)atoi(each->d_name) : 0;
        if (process < 2 || (group ? status_of(process, 2) != group : process == getpid())) continue;
        member = true;
        if (may_signal(process) && !syscall(SYS_kill, process, number)) sent = true;
    }
    closedir(processes);
    if (sent) return 0;
    errno = member ? EPERM : ESRCH;
    return -1;
}

int kill(pid_t process, int number) {
    if (!confined) return (int)syscall(SYS_kill, process, number);
    if (process == -1) return signal_many(0, number);
    if (process <= 0) return signal_many(process ? -process : getpgrp(), number);
    if (process != getpid() && !syscall(SYS_kill, process, 0) && !may_signal(process)) return refused();
    return (int)syscall(SYS_kill, process, number);
}

int killpg(pid_t group, int number) { return kill(group ? -group : 0, number); }

/* --- programs of macOS ------------------------------------------------------------------------------------- */

/* Where a program of macOS is that Linux does not have: a stand-in beside this library. */
static const char *program(const char *path) {
    static const char *names[] = {"/usr/bin/osascript", "/bin/launchctl"};
    static char found[PATH_MAX];
    const char *folder = getenv(PROGRAMS);
    for (size_t index = 0; folder && path && index < sizeof names / sizeof *names; index++)
        if (!strcmp(path, names[index])) {
            snprintf(found, sizeof found, "%s%s", folder, strrchr(path, '/'));
            return found;
        }
    return path;
}

/* --- files ------------------------------------------------------------------------------------------------ */

static bool checked(const char *operation, const char *path, const char *vnode) {
    char terminal[PATH_MAX];
    struct request request = {.path = path, .vnode = vnode ? vnode : vnode_type(path)};
    if (is_in(path, "/proc") || is_in(path, "/sys")) {
        pid_t process = !strncmp(path, "/proc/", 6) && isdigit((unsigned char)path[6]) ? (pid_t)atoi(path + 6) : 0;
        if (!process || process == getpid()) return true;
        request = (struct request){.target = relation(process)};
        return allows("process-info-pidinfo", &request);
    }
    if (is_in(path, "/dev/pts") && path[8]) {
        snprintf(terminal, sizeof terminal, "/dev/ttys%s", path + 9);
        request.path = terminal;
    }
    if (!request.vnode) request.vnode = "REGULAR-FILE";
    return allows(operation, &request);
}

/* Whether a call may go on. What has no real path fails by itself. */
static bool permits(const char *operation, int folder, const char *path, bool follow) {
    char found[PATH_MAX];
    int before = errno;
    if (!confined || !real_path(folder, path, follow, found, 0)) return errno = before, true;
    /* A name that does not exist fails by itself; only making it is something. */
    bool existing = strcmp(operation, "file-write-create") != 0;
    bool fine = (existing && !vnode_type(found)) || checked(operation, found, NULL);
    return errno = before, fine;
}

static bool permits_making(int folder, const char *path, const char *vnode) {
    char found[PATH_MAX];
    int before = errno;
    if (!confined || !real_path(folder, path, false, found, 0)) return errno = before, true;
    bool fine = vnode_type(found) || checked("file-write-create", found, vnode);
    return errno = before, fine;
}

static bool permits_descriptor(const char *operation, int descriptor) {
    char found[PATH_MAX], name[64];
    int before = errno;
    if (!confined) return true;
    snprintf(name, sizeof name, "/proc/self/fd/%d", descriptor);
    ssize_t length = syscall(SYS_readlinkat, AT_FDCWD, name, found, sizeof found - 1);
    if (length <= 0 || *found != '/') return errno = before, true;
    found[length] = 0;
    return checked(operation, found, NULL);
}

static bool permits_open(int folder, const char *path, int flags) {
    char found[PATH_MAX];
    int before = errno, access = flags & O_ACCMODE;
    bool fine = true;
    if (!confined || !real_path(folder, path, !(flags & O_NOFOLLOW), found, 0)) return errno = before, true;
    if ((flags & O_TMPFILE) == O_TMPFILE) fine = checked("file-write-create", found, "REGULAR-FILE");
    else if (!vnode_type(found)) fine = !(flags & O_CREAT) || checked("file-write-create", found, "REGULAR-FILE");
    else if (flags & O_PATH) fine = checked("file-read-metadata", found, NULL);
    else {
        if (access != O_WRONLY) fine = checked("file-read-data", found, NULL);
        if (fine && (access != O_RDONLY || flags & O_TRUNC)) fine = checked("file-write-data", found, NULL);
    }
    return errno = before, fine;
}

static mode_t mode_of(int flags, va_list more) {
    return flags & (O_CREAT | O_TMPFILE) ? (mode_t)va_arg(more, int) : 0;
}

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        REAL(int, name, const char *, int, ...); \
        va_list more; \
        va_start(more, flags); \
        mode_t mode = mode_of(flags, more); \
        va_end(more); \
        return permits_open(AT_FDCWD, path, flags) ? real(path, flags, mode) : refused(); \
    }
#define OPENAT(name) \
    int name(int folder, const char *path, int flags, ...) { \
        REAL(int, name, int, const char *, int, ...); \
        va_list more; \
        va_start(more, flags); \
        mode_t mode = mode_of(flags, more); \
        va_end(more); \
        return permits_open(folder, path, flags) ? real(folder, path, flags, mode) : refused(); \
    }
OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

/* Calls with one path: what is declared, how it is called, and whether it may go on. */
#define GUARDED(result, name, declared, passed, permitted, no) \
    result name declared { \
        static result(*real) declared; \
        if (!real) real = (result(*) declared)dlsym(RTLD_NEXT, #name); \
        return (permitted) ? real passed : (errno = EPERM, no); \
    }
#define CALL(name, declared, passed, permitted) GUARDED(int, name, declared, passed, permitted, -1)

CALL(__open_2, (const char *path, int flags), (path, flags), permits_open(AT_FDCWD, path, flags))
CALL(__open64_2, (const char *path, int flags), (path, flags), permits_open(AT_FDCWD, path, flags))
CALL(__openat_2, (int at, const char *path, int flags), (at, path, flags), permits_open(at, path, flags))
CALL(__openat64_2, (int at, const char *path, int flags), (at, path, flags), permits_open(at, path, flags))
CALL(creat, (const char *path, mode_t mode), (path, mode), permits_open(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC))
CALL(creat64, (const char *path, mode_t mode), (path, mode), permits_open(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC))

static bool permits_stream(const char *path, const char *how) {
    bool both = strchr(how, '+') != NULL;
    int flags = *how == 'r' ? O_RDONLY : O_WRONLY | O_CREAT | (*how == 'w' ? O_TRUNC : 0);
    return permits_open(AT_FDCWD, path, both ? (flags & ~O_ACCMODE) | O_RDWR : flags);
}
GUARDED(FILE *, fopen, (const char *path, const char *how), (path, how), permits_stream(path, how), NULL)
GUARDED(FILE *, fopen64, (const char *path, const char *how), (path, how), permits_stream(path, how), NULL)
GUARDED(FILE *, freopen, (const char *path, const char *how, FILE *file), (path, how, file),
        permits_stream(path, how), NULL)
GUARDED(FILE *, freopen64, (const char *path, const char *how, FILE *file), (path, how, file),
        permits_stream(path, how), NULL)
GUARDED(DIR *, opendir, (const char *path), (path), permits("file-read-data", AT_FDCWD, path, true), NULL)
CALL(mkstemp, (char *path), (path), permits_making(AT_FDCWD, path, "REGULAR-FILE"))
CALL(mkstemp64, (char *path), (path), permits_making(AT_FDCWD, path, "REGULAR-FILE"))
CALL(mkostemp, (char *path, int flags), (path, flags), permits_making(AT_FDCWD, path, "REGULAR-FILE"))
CALL(mkostemp64, (char *path, int flags), (path, flags), permits_making(AT_FDCWD, path, "REGULAR-FILE"))
CALL(mkstemps, (char *path, int end), (path, end), permits_making(AT_FDCWD, path, "REGULAR-FILE"))
CALL(mkostemps, (char *path, int end, int flags), (path, end, flags), permits_making(AT_FDCWD, path, "REGULAR-FILE"))
GUARDED(char *, mkdtemp, (char *path), (path), permits_making(AT_FDCWD, path, "DIRECTORY"), NULL)

#define METADATA(at, path, follow) permits("file-read-metadata", at, path, follow)
CALL(stat, (const char *path, struct stat *to), (program(path), to), METADATA(AT_FDCWD, path, true))
CALL(stat64, (const char *path, struct stat64 *to), (path, to), METADATA(AT_FDCWD, path, true))
CALL(lstat, (const char *path, struct stat *to), (path, to), METADATA(AT_FDCWD, path, false))
CALL(lstat64, (const char *path, struct stat64 *to), (path, to), METADATA(AT_FDCWD, path, false))
CALL(fstatat, (int at, const char *path, struct stat *to, int flags), (at, path, to, flags),
     METADATA(at, path, !(flags & AT_SYMLINK_NOFOLLOW)))
CALL(fstatat64, (int at, const char *path, struct stat64 *to, int flags), (at, path, to, flags),
     METADATA(at, path, !(flags & AT_SYMLINK_NOFOLLOW)))
CALL(__xstat, (int version, const char *path, struct stat *to), (version, path, to), METADATA(AT_FDCWD, path, true))
CALL(__lxstat, (int version, const char *path, struct stat *to), (version, path, to), METADATA(AT_FDCWD, path, false))
CALL(__xstat64, (int version, const char *path, struct stat64 *to), (version, path, to),
     METADATA(AT_FDCWD, path, true))
CALL(__lxstat64, (int version, const char *path, struct stat64 *to), (version, path, to),
     METADATA(AT_FDCWD, path, false))
CALL(statx, (int at, const char *path, int flags, unsigned mask, struct statx *to), (at, path, flags, mask, to),
     METADATA(at, path, !(flags & AT_SYMLINK_NOFOLLOW)))
static bool permits_access(int at, const char *path, int how) {
    return METADATA(at, path, true) && (!(how & W_OK) || permits("file-write-data", at, path, true));
}
CALL(access, (const char *path, int how), (program(path), how), permits_access(AT_FDCWD, path, how))
CALL(eaccess, (const char *path, int how), (program(path), how), permits_access(AT_FDCWD, path, how))
CALL(euidaccess, (const char *path, int how), (program(path), how), permits_access(AT_FDCWD, path, how))
CALL(faccessat, (int at, const char *path, int how, int flags), (at, program(path), how, flags),
     permits_access(at, path, how))
GUARDED(ssize_t, readlink, (const char *path, char *to, size_t size), (path, to, size),
        METADATA(AT_FDCWD, path, false), -1)
GUARDED(ssize_t, readlinkat, (int at, const char *path, char *to, size_t size), (at, path, to, size),
        METADATA(at, path, false), -1)

#define MAKING(at, path, vnode) permits_making(at, path, vnode)
CALL(mkdir, (const char *path, mode_t mode), (path, mode), MAKING(AT_FDCWD, path, "DIRECTORY"))
CALL(mkdirat, (int at, const char *path, mode_t mode), (at, path, mode), MAKING(at, path, "DIRECTORY"))
CALL(symlink, (const char *target, const char *path), (target, path), MAKING(AT_FDCWD, path, "SYMLINK"))
CALL(symlinkat, (const char *target, int at, const char *path), (target, at, path), MAKING(at, path, "SYMLINK"))
CALL(mkfifo, (const char *path, mode_t mode), (path, mode), MAKING(AT_FDCWD, path, "FIFO"))
CALL(mkfifoat, (int at, const char *path, mode_t mode), (at, path, mode), MAKING(at, path, "FIFO"))
CALL(mknod, (const char *path, mode_t mode, dev_t device), (path, mode, device),
     MAKING(AT_FDCWD, path, "REGULAR-FILE"))
CALL(mknodat, (int at, const char *path, mode_t mode, dev_t device), (at, path, mode, device),
     MAKING(at, path, "REGULAR-FILE"))

#define REMOVING(at, path) permits("file-write-unlink", at, path, false)
CALL(unlink, (const char *path), (path), REMOVING(AT_FDCWD, path))
CALL(unlinkat, (int at, const char *path, int flags), (at, path, flags), REMOVING(at, path))
CALL(rmdir, (const char *path), (path), REMOVING(AT_FDCWD, path))
CALL(remove, (const char *path), (path), REMOVING(AT_FDCWD, path))

static bool permits_rename(int from_at, const char *from, int to_at, const char *to, unsigned flags) {
    char old[PATH_MAX], new[PATH_MAX];
    int before = errno;
    if (!confined || !real_path(from_at, from, false, old, 0) || !real_path(to_at, to, false, new, 0))
        return errno = before, true;
    const char *kind = vnode_type(old);
    bool fine = !kind || (checked("file-write-unlink", old, NULL) && checked("file-write-create", new, kind));
    if (fine && vnode_type(new)) fine = checked("file-write-unlink", new, NULL);
    if (fine && flags & RENAME_EXCHANGE) fine = checked("file-write-create", old, vnode_type(new));
    return errno = before, fine;
}
CALL(rename, (const char *from, const char *to), (from, to), permits_rename(AT_FDCWD, from, AT_FDCWD, to, 0))
CALL(renameat, (int from_at, const char *from, int to_at, const char *to), (from_at, from, to_at, to),
     permits_rename(from_at, from, to_at, to, 0))
CALL(renameat2, (int from_at, const char *from, int to_at, const char *to, unsigned flags),
     (from_at, from, to_at, to, flags), permits_rename(from_at, from, to_at, to, flags))

static bool permits_link(int from_at, const char *from, int to_at, const char *to, bool follow) {
    static const char *rights[] = {"file-read-data", "file-read-metadata", "file-write-data", "file-write-mode",
                                   "file-write-owner", "file-write-unlink", "file-write-xattr"};
    char old[PATH_MAX], new[PATH_MAX];
    int before = errno;
    if (!confined || !real_path(from_at, from, follow, old, 0) || !real_path(to_at, to, false, new, 0))
        return errno = before, true;
    const char *kind = vnode_type(old);
    bool fine = !kind || vnode_type(new) ||
                (checked("file-link", old, kind) && checked("file-write-create", new, kind));
    for (size_t index = 0; kind && fine && index < sizeof rights / sizeof *rights; index++)
        if (checked(rights[index], new, kind)) fine = checked(rights[index], old, kind);
    return errno = before, fine;
}
CALL(link, (const char *from, const char *to), (from, to), permits_link(AT_FDCWD, from, AT_FDCWD, to, false))
CALL(linkat, (int from_at, const char *from, int to_at, const char *to, int flags), (from_at, from, to_at, to, flags),
     permits_link(from_at, from, to_at, to, flags & AT_SYMLINK_FOLLOW))

static bool permits_mode(int at, const char *path, mode_t mode, bool follow) {
    return permits("file-write-mode", at, path, follow) &&
           (!(mode & (S_ISUID | S_ISGID)) || permits("file-write-setugid", at, path, follow));
}
CALL(chmod, (const char *path, mode_t mode), (path, mode), permits_mode(AT_FDCWD, path, mode, true))
CALL(lchmod, (const char *path, mode_t mode), (path, mode), permits_mode(AT_FDCWD, path, mode, false))
CALL(fchmod, (int file, mode_t mode), (file, mode), permits_descriptor("file-write-mode", file))
CALL(fchmodat, (int at, const char *path, mode_t mode, int flags), (at, path, mode, flags),
     permits_mode(at, path, mode, !(flags & AT_SYMLINK_NOFOLLOW)))
#define OWNER(at, path, follow) permits("file-write-owner", at, path, follow)
CALL(chown, (const char *path, uid_t user, gid_t group), (path, user, group), OWNER(AT_FDCWD, path, true))
CALL(lchown, (const char *path, uid_t user, gid_t group), (path, user, group), OWNER(AT_FDCWD, path, false))
CALL(fchown, (int file, uid_t user, gid_t group), (file, user, group), permits_descriptor("file-write-owner", file))
CALL(fchownat, (int at, const char *path, uid_t user, gid_t group, int flags), (at, path, user, group, flags),
     OWNER(at, path, !(flags & AT_SYMLINK_NOFOLLOW)))
#define TIMES(at, path, follow) permits("file-write-times", at, path, follow)
CALL(utime, (const char *path, const struct utimbuf *to), (path, to), TIMES(AT_FDCWD, path, true))
CALL(utimes, (const char *path, const struct timeval to[2]), (path, to), TIMES(AT_FDCWD, path, true))
CALL(lutimes, (const char *path, const struct timeval to[2]), (path, to), TIMES(AT_FDCWD, path, false))
CALL(futimes, (int file, const struct timeval to[2]), (file, to), permits_descriptor("file-write-times", file))
CALL(futimens, (int file, const struct timespec to[2]), (file, to), permits_descriptor("file-write-times", file))
CALL(futimesat, (int at, const char *path, const struct timeval to[2]), (at, path, to), TIMES(at, path, true))
CALL(utimensat, (int at, const char *path, const struct timespec to[2], int flags), (at, path, to, flags),
     path ? TIMES(at, path, !(flags & AT_SYMLINK_NOFOLLOW)) : permits_descriptor("file-write-times", at))
CALL(truncate, (const char *path, off_t size), (path, size), permits("file-write-data", AT_FDCWD, path, true))
CALL(truncate64, (const char *path, off64_t size), (path, size), permits("file-write-data", AT_FDCWD, path, true))

#define XATTR(kind, path, follow) permits(kind, AT_FDCWD, path, follow)
CALL(setxattr, (const char *path, const char *name, const void *value, size_t size, int flags),
     (path, name, value, size, flags), XATTR("file-write-xattr", path, true))
CALL(lsetxattr, (const char *path, const char *name, const void *value, size_t size, int flags),
     (path, name, value, size, flags), XATTR("file-write-xattr", path, false))
CALL(fsetxattr, (int file, const char *name, const void *value, size_t size, int flags),
     (file, name, value, size, flags), permits_descriptor("file-write-xattr", file))
CALL(removexattr, (const char *path, const char *name), (path, name), XATTR("file-write-xattr", path, true))
CALL(lremovexattr, (const char *path, const char *name), (path, name), XATTR("file-write-xattr", path, false))
CALL(fremovexattr, (int file, const char *name), (file, name), permits_descriptor("file-write-xattr", file))
GUARDED(ssize_t, getxattr, (const char *path, const char *name, void *value, size_t size), (path, name, value, size),
        XATTR("file-read-xattr", path, true), -1)
GUARDED(ssize_t, lgetxattr, (const char *path, const char *name, void *value, size_t size), (path, name, value, size),
        XATTR("file-read-xattr", path, false), -1)
GUARDED(ssize_t, listxattr, (const char *path, char *to, size_t size), (path, to, size),
        XATTR("file-read-xattr", path, true), -1)
GUARDED(ssize_t, llistxattr, (const char *path, char *to, size_t size), (path, to, size),
        XATTR("file-read-xattr", path, false), -1)

/* --- network ---------------------------------------------------------------------------------------------- */

static bool permits_address(const char *operation, int descriptor, const struct sockaddr *address, socklen_t length) {
    char host[INET6_ADDRSTRLEN] = "", path[PATH_MAX] = "", protocol[16];
    int type = SOCK_STREAM, before = errno;
    socklen_t size = sizeof type;
    struct request request = {.host = host, .protocol = protocol};
    if (!confined || !address || length < sizeof address->sa_family) return true;
    getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &type, &size);
    errno = before;
    if (address->sa_family == AF_UNIX) {
        const struct sockaddr_un *local = (const struct sockaddr_un *)address;
        char name[sizeof local->sun_path + 1] = "";
        memcpy(name, local->sun_path, length - offsetof(struct sockaddr_un, sun_path));
        strcpy(protocol, "unix-socket");
        request.vnode = "SOCKET";
        if (*name && real_path(AT_FDCWD, name, true, path, 0)) request.path = path;
        errno = before;
        if (request.path && !strcmp(operation, "network-bind") && !checked("file-write-create", path, "SOCKET"))
            return false;
        return allows(operation, &request);
    }
    if (address->sa_family == AF_INET) {
        const struct sockaddr_in *four = (const struct sockaddr_in *)address;
        inet_ntop(AF_INET, &four->sin_addr, host, sizeof host);
        request.port = ntohs(four->sin_port);
    } else if (address->sa_family == AF_INET6) {
        const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)address;
        inet_ntop(AF_INET6, &six->sin6_addr, host, sizeof host);
        request.port = ntohs(six->sin6_port);
    } else {
        return true;
    }
    snprintf(protocol, sizeof protocol, "%s%c", type == SOCK_STREAM ? "tcp" : "udp",
             address->sa_family == AF_INET ? '4' : '6');
    return allows(operation, &request);
}
CALL(connect, (int at, const struct sockaddr *to, socklen_t size), (at, to, size),
     permits_address("network-outbound", at, to, size))
CALL(bind, (int at, const struct sockaddr *to, socklen_t size), (at, to, size),
     permits_address("network-bind", at, to, size))
GUARDED(ssize_t, sendto,
        (int at, const void *data, size_t count, int flags, const struct sockaddr *to, socklen_t size),
        (at, data, count, flags, to, size), permits_address("network-outbound", at, to, size), -1)
GUARDED(ssize_t, sendmsg, (int at, const struct msghdr *message, int flags), (at, message, flags),
        permits_address("network-outbound", at, message->msg_name, message->msg_namelen), -1)
static bool permits_listening(int descriptor) {
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    if (!confined || getsockname(descriptor, (struct sockaddr *)&address, &size)) return true;
    /* A Unix socket was asked about when it got its name. */
    return address.ss_family == AF_UNIX ||
           permits_address("network-inbound", descriptor, (struct sockaddr *)&address, size);
}
CALL(listen, (int at, int count), (at, count), permits_listening(at))
static bool permits_socket(int domain, int type, int protocol) {
    struct request request = {.domain = domain == AF_NETLINK ? "AF_ROUTE" : domain == AF_INET ? "AF_INET" : "AF_OTHER",
                              .type = (type & 0xf) == SOCK_RAW ? "SOCK_RAW" : "SOCK_DGRAM",
                              .socket_protocol = protocol};
    bool usual = (domain == AF_UNIX || domain == AF_INET || domain == AF_INET6) && (type & 0xf) != SOCK_RAW;
    return !confined || usual || allows("system-socket", &request);
}
CALL(socket, (int domain, int type, int protocol), (domain, type, protocol), permits_socket(domain, type, protocol))

/* --- programs --------------------------------------------------------------------------------------------- */

static bool permits_program(const char *path, int folder) {
    char found[PATH_MAX];
    int before = errno;
    if (!confined || !real_path(folder, path, true, found, 0)) return errno = before, true;
    const char *kind = vnode_type(found);
    struct stat file;
    /* "forbidden-exec-sugid" in the kernel's log: no sandboxed process starts a program with another user's rights. */
    bool own = syscall(SYS_newfstatat, AT_FDCWD, found, &file, 0) || !(file.st_mode & (S_ISUID | S_ISGID));
    return errno = before, !kind || !strcmp(kind, "DIRECTORY") || (own && checked("process-exec*", found, kind));
}

#define OWN 4
/* The environment of a program that starts: what makes it a part of this sandbox cannot be left out. */
static char **inherited(char *const old[]) {
    static const char *own[OWN] = {"LD_PRELOAD=", TABLE "=", LABEL "=", PROGRAMS "="};
    size_t count = 0, kept = 0;
    if (!confined) return (char **)old;
    while (old && old[count]) count++;
    char **new = calloc(count + OWN + 1, sizeof *new);
    for (size_t index = 0; index < count; index++) {
        bool ours = false;
        for (size_t name = 0; name < OWN; name++) ours |= !strncmp(old[index], own[name], strlen(own[name]));
        if (!ours) new[kept++] = old[index];
    }
    const char *values[OWN] = {library, table_path, label, programs};
    for (size_t name = 0; name < OWN; name++)
        if (asprintf(&new[kept + name], "%s%s", own[name], values[name]) < 0) give_up("no memory");
    return new;
}

int execve(const char *path, char *const argv[], char *const environment[]) {
    REAL(int, execve, const char *, char *const[], char *const[]);
    path = program(path);
    return permits_program(path, AT_FDCWD) ? real(path, argv, inherited(environment)) : refused();
}
int fexecve(int file, char *const argv[], char *const environment[]) {
    REAL(int, fexecve, int, char *const[], char *const[]);
    return permits_program("", file) ? real(file, argv, inherited(environment)) : refused();
}
int execv(const char *path, char *const argv[]) { return execve(path, argv, environ); }

/* The file that a name stands for in PATH. */
static bool in_path(const char *name, char *found) {
    const char *places = getenv("PATH");
    if (strchr(name, '/')) return snprintf(found, PATH_MAX, "%s", name) < PATH_MAX;
    for (const char *at = places ? places : "/bin:/usr/bin"; at; at = strchr(at, ':') ? strchr(at, ':') + 1 : NULL) {
        snprintf(found, PATH_MAX, "%.*s/%s", (int)strcspn(at, ":"), at, name);
        if (!syscall(SYS_faccessat, AT_FDCWD, found, X_OK)) return true;
    }
    errno = ENOENT;
    return false;
}
int execvpe(const char *name, char *const argv[], char *const environment[]) {
    char found[PATH_MAX];
    return in_path(name, found) ? execve(found, argv, environment) : -1;
}
int execvp(const char *name, char *const argv[]) { return execvpe(name, argv, environ); }

#define LISTED(name, by, last, environment) \
    int name(const char *path, const char *first, ...) { \
        const char *argv[1024] = {first}; \
        va_list more; \
        va_start(more, first); \
        for (size_t count = 1; count < 1023 && (argv[count] = va_arg(more, char *)); count++) continue; \
        char *const *given = environment; \
        va_end(more); \
        return by(path, (char *const *)argv, given); \
    }
LISTED(execl, execve, , environ)
LISTED(execlp, execvpe, , environ)
LISTED(execle, execve, , va_arg(more, char *const *))

int posix_spawn(pid_t *process, const char *path, const posix_spawn_file_actions_t *actions,
                const posix_spawnattr_t *attributes, char *const argv[], char *const environment[]) {
    REAL(int, posix_spawn, pid_t *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *,
         char *const[], char *const[]);
    struct request request = {0};
    if (confined && (!allows("process-fork", &request) || !permits_program(path, AT_FDCWD))) return EPERM;
    return real(process, path, actions, attributes, argv, inherited(environment));
}
int posix_spawnp(pid_t *process, const char *name, const posix_spawn_file_actions_t *actions,
                 const posix_spawnattr_t *attributes, char *const argv[], char *const environment[]) {
    char found[PATH_MAX];
    if (!in_path(name, found)) return ENOENT;
    return posix_spawn(process, found, actions, attributes, argv, environment);
}

pid_t fork(void) {
    REAL(pid_t, fork, void);
    struct request request = {0};
    return !confined || allows("process-fork", &request) ? real() : refused();
}

/* --- sandbox.h -------------------------------------------------------------------------------------------- */

/* Run the interpreter, which writes a table and prints its path, or prints why there is none. */
static int compiled(const char *profile, const char *const parameters[], char *printed, size_t size) {
    const char *compiler = getenv(COMPILER), *argv[512] = {compiler, "--table", "-p", profile};
    size_t count = 4;
    int ends[2], status = -1;
    long length = 0, got;
    pid_t process;
    posix_spawn_file_actions_t actions;
    if (!compiler || pipe2(ends, O_CLOEXEC)) return -1;
    for (size_t index = 0; parameters && parameters[index] && parameters[index + 1] && count < 508; index += 2) {
        argv[count++] = "-D";
        if (asprintf((char **)&argv[count++], "%s=%s", parameters[index], parameters[index + 1]) < 0) return -1;
    }
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 2);
    int failed = posix_spawn(&process, compiler, &actions, NULL, (char *const *)argv, environ);
    close(ends[1]);
    while (!failed && length < (long)size - 1 && (got = read(ends[0], printed + length, size - 1 - (size_t)length)) > 0)
        length += got;
    printed[length] = 0;
    close(ends[0]);
    if (!failed) waitpid(process, &status, 0);
    while (length && printed[length - 1] == '\n') printed[--length] = 0;
    return status;
}

int sandbox_init_with_parameters(const char *profile, uint64_t flags, const char *const parameters[], char **error) {
    char printed[PATH_MAX];
    if (confined) {
        if (error) *error = strdup("sandbox_apply: Operation not permitted");
        return refused();
    }
    if (flags || compiled(profile, parameters, printed, sizeof printed)) {
        if (error) *error = strdup(flags ? "the stand-in takes a profile, not a name" : printed);
        errno = EINVAL;
        return -1;
    }
    snprintf(label, sizeof label, "%d-%ld", (int)getpid(), random());
    load(printed);
    /* For children that the C library starts by itself, such as those of system(). */
    setenv("LD_PRELOAD", library, 1);
    setenv(TABLE, table_path, 1);
    setenv(LABEL, label, 1);
    return 0;
}
int sandbox_init(const char *profile, uint64_t flags, char **error) {
    return sandbox_init_with_parameters(profile, flags, NULL, error);
}
void sandbox_free_error(char *error) { free(error); }

/* 1 if this process may not do it. The kinds are those of libsandbox: 0 nothing, 1 a path, 2 a global name. */
int sandbox_check(pid_t process, const char *operation, int type, ...) {
    struct request request = {0};
    va_list more;
    va_start(more, type);
    const char *subject = type & 0xff ? va_arg(more, const char *) : NULL;
    va_end(more);
    if (process != getpid() || (type & 0xff) > 2) return refused();
    if ((type & 0xff) == 1) request.path = subject, request.vnode = "REGULAR-FILE";
    else request.name = subject;
    if (!operation) return confined;
    return confined && !allows(strcmp(operation, "process-exec") ? operation : "process-exec*", &request);
}

/* --- other calls of macOS ----------------------------------------------------------------------------------- */

static bool permits_memory(const char *name, int flags) {
    struct request request = {.name = name};
    if (!confined) return true;
    if (flags & O_CREAT && !allows("ipc-posix-shm-write-create", &request)) return false;
    return allows("ipc-posix-shm-read-data", &request) &&
           ((flags & O_ACCMODE) == O_RDONLY || allows("ipc-posix-shm-write-data", &request));
}
CALL(shm_open, (const char *name, int flags, mode_t mode), (name, flags, mode), permits_memory(name, flags))
static bool permits_name(const char *operation, const char *name) {
    struct request request = {.name = name};
    return !confined || allows(operation, &request);
}
CALL(shm_unlink, (const char *name), (name), permits_name("ipc-posix-shm-write-unlink", name))
void *sem_open(const char *name, int flags, ...) {
    REAL(void *, sem_open, const char *, int, ...);
    va_list more;
    va_start(more, flags);
    mode_t mode = flags & O_CREAT ? (mode_t)va_arg(more, int) : 0;
    unsigned value = flags & O_CREAT ? va_arg(more, unsigned) : 0;
    va_end(more);
    if (permits_name(flags & O_CREAT ? "ipc-posix-sem-create" : "ipc-posix-sem-open", name))
        return real(name, flags, mode, value);
    errno = EPERM;
    return NULL;
}

/* bootstrap.h: 1100 is BOOTSTRAP_NOT_PRIVILEGED. Every service exists. */
unsigned bootstrap_port = 1;
int bootstrap_look_up(unsigned from, const char *name, unsigned *port) {
    *port = from;
    return permits_name("mach-lookup", name) ? 0 : 1100;
}

static bool may_look_at(pid_t process) {
    struct request request = {.target = relation(process)};
    return !confined || allows("process-info-pidinfo", &request);
}
int proc_pidinfo(int process, int kind, uint64_t more, void *place, int size) {
    (void)kind, (void)more;
    if (!may_look_at(process)) return errno = EPERM, 0;
    memset(place, 0, (size_t)size);
    return size;
}
/* sysctl(3), of which programs are asked for the arguments of a process (KERN_PROCARGS2, 49) only. */
int sysctl(int *name, unsigned count, void *place, size_t *size, void *given, size_t given_size) {
    (void)place, (void)given, (void)given_size;
    if (count != 3 || name[0] != 1 || name[1] != 49) return errno = ENOENT, -1;
    if (!may_look_at(name[2])) return refused();
    *size = 0;
    return 0;
}

/* renamex_np(2): RENAME_SWAP is 2 and RENAME_EXCL is 4. */
int renamex_np(const char *from, const char *to, unsigned flags) {
    unsigned here = (flags & 2 ? RENAME_EXCHANGE : 0) | (flags & 4 ? RENAME_NOREPLACE : 0);
    return renameat2(AT_FDCWD, from, AT_FDCWD, to, here);
}
int renameatx_np(int from_at, const char *from, int to_at, const char *to, unsigned flags) {
    unsigned here = (flags & 2 ? RENAME_EXCHANGE : 0) | (flags & 4 ? RENAME_NOREPLACE : 0);
    return renameat2(from_at, from, to_at, to, here);
}
/* clonefile(2) of a folder clones all that is in it. */
int clonefile(const char *from, const char *to, int flags) {
    static int (*spawn)(pid_t *, const char *, const void *, const void *, char *const[], char *const[]);
    char *argv[] = {"cp", "-a", (char *)from, (char *)to, NULL}, *nothing[] = {NULL};
    pid_t process;
    int status;
    (void)flags;
    if (!permits("file-clone", AT_FDCWD, from, false) || !permits("file-read-data", AT_FDCWD, from, false) ||
        !permits_making(AT_FDCWD, to, vnode_type(from)))
        return refused();
    if (!spawn) *(void **)&spawn = dlsym(RTLD_NEXT, "posix_spawn");
    if (spawn(&process, "/bin/cp", NULL, NULL, argv, nothing)) return -1;
    return waitpid(process, &status, 0) == process && !status ? 0 : -1;
}

__attribute__((constructor)) static void begin(void) {
    const char *table = getenv(TABLE), *name = getenv(LABEL);
    Dl_info here;
    if (dladdr((void *)begin, &here)) {
        static char *(*resolve)(const char *, char *);
        resolve = (char *(*)(const char *, char *))dlsym(RTLD_NEXT, "realpath");
        if (!resolve(here.dli_fname, library)) give_up("the library has no path");
    }
    if (name) snprintf(label, sizeof label, "%s", name);
    if (getenv(PROGRAMS)) snprintf(programs, sizeof programs, "%s", getenv(PROGRAMS));
    if (table) load(table);
}

/* Counts, logs and fails the file operations of a process under one directory. Loaded with LD_PRELOAD.
 *
 * FAULTS_DIR   the directory; operations on other paths go through.
 * FAULTS_LOG   file that gets a line for each operation that has succeeded: "operation path [second path]", and for
 *              each fault: "failed path operation". Reads and writes of data get no line. A "create" whose file keeps
 *              what it had has "kept" as its second path. Optional.
 * FAULTS_SPEC  file that says which operations fail, a line each: "operation,part of the path,first,last,fault".
 *              Operations: open (to read), create (to write), read, write, fsync, rename, unlink, rmdir, mkdir, access,
 *              stat, list, truncate, link; "any" is each of them.
 *              Operations that match are counted from 1; those from the first to the last fail. Last 0: without end.
 *              Faults: "error N" with an errno; "short": half of the data is read or written (of a FILE, whose caller
 *              may not expect that: without an effect); "delay N" by N milliseconds; "kill": SIGKILL before it.
 *              A write that fails with an error has written half of its data.
 *              Replacing the file (by a rename) starts anew; without it nothing fails. Optional.
 * FAULTS_BLOBS directory that gets a copy of a file that was open for writing when it is flushed or closed, by number;
 *              the log's second path is that number. Optional. (What a FILE writes is seen when it is closed.)
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define MOST_FAULTS 8

struct fault {
    char operation[16], substring[128], kind[16];
    int first, last, number, count;
};

/* What becomes of an operation that has no other fault. */
enum { GOES_ON = 0, IS_SHORT = -1 };

static struct fault faults[MOST_FAULTS];
static int fault_count;
static ino_t read_from;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Reads the faults if the file is another one than before. The caller holds the lock. */
static void read_faults(void) {
    static char text[MOST_FAULTS * 256];
    const char *spec = getenv("FAULTS_SPEC");
    struct stat found;
    int fd = spec ? (int)syscall(SYS_openat, AT_FDCWD, spec, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0 || syscall(SYS_fstat, fd, &found) != 0) {
        fault_count = 0;
        read_from = 0;
    } else if (found.st_ino != read_from) {
        read_from = found.st_ino;
        ssize_t length = syscall(SYS_read, fd, text, sizeof text - 1);
        text[length > 0 ? length : 0] = 0;
        fault_count = 0;
        for (char *rest = text, *line; fault_count < MOST_FAULTS && (line = strsep(&rest, "\n"));) {
            struct fault *f = &faults[fault_count];
            f->count = 0;
            f->number = 0;
            if (sscanf(line, "%15[^,],%127[^,],%d,%d,%15[a-z] %d", f->operation, f->substring, &f->first, &f->last,
                       f->kind, &f->number) >= 5)
                fault_count++;
            else if (*line) {
                fprintf(stderr, "not a fault: %s\n", line);
                abort();
            }
        }
    }
    if (fd >= 0) syscall(SYS_close, fd);
}

static int is_watched(const char *path) {
    const char *directory = getenv("FAULTS_DIR");
    return path && directory && strncmp(path, directory, strlen(directory)) == 0;
}

static void path_of(int fd, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    path[length > 0 ? length : 0] = 0;
}

static void note(const char *operation, const char *path, const char *second) {
    const char *log = getenv("FAULTS_LOG");
    int saved = errno;
    if (log && is_watched(path)) {
        char line[2 * PATH_MAX + 64];
        int length = snprintf(line, sizeof line, "%s\t%s\t%s\n", operation, path, second ? second : "");
        int fd = (int)syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
        if (fd >= 0) {
            syscall(SYS_write, fd, line, length);
            syscall(SYS_close, fd);
        }
    }
    errno = saved;
}

/* Copies a file that is open for writing, and logs an operation on it with the number of the copy. */
static void note_content(const char *operation, const char *path, int writes) {
    static int copies;
    const char *blobs = getenv("FAULTS_BLOBS");
    char name[PATH_MAX], number[32], buffer[65536];
    int saved = errno;
    if (!blobs || !writes || !is_watched(path)) {
        note(operation, path, NULL);
        return;
    }
    int from = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    /* A fork's numbers must not be its parent's. */
    snprintf(number, sizeof number, "%d-%d", (int)getpid(), __atomic_add_fetch(&copies, 1, __ATOMIC_SEQ_CST));
    snprintf(name, sizeof name, "%s/%s", blobs, number);
    int to = (int)syscall(SYS_openat, AT_FDCWD, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    ssize_t length;
    while (from >= 0 && to >= 0 && (length = syscall(SYS_read, from, buffer, sizeof buffer)) > 0)
        syscall(SYS_write, to, buffer, length);
    if (from >= 0) syscall(SYS_close, from);
    if (to >= 0) syscall(SYS_close, to);
    errno = saved;
    note(operation, path, from >= 0 && to >= 0 ? number : NULL);
}

static int is_for_writing(int fd) {
    int flags = fcntl(fd, F_GETFL);
    return flags >= 0 && (flags & O_ACCMODE) != O_RDONLY;
}

/* Waits or kills, if that is the fault. Else returns the errno to fail with, IS_SHORT, or GOES_ON. */
static int fault_of(const char *operation, const char *path) {
    struct fault found = {.count = 0};
    int saved = errno;
    if (!is_watched(path)) return GOES_ON;
    pthread_mutex_lock(&lock);
    read_faults();
    for (int i = 0; i < fault_count; i++) {
        struct fault *f = &faults[i];
        if (strcmp(f->operation, "any") != 0 && strcmp(f->operation, operation) != 0) continue;
        if (!strstr(path, f->substring)) continue;
        f->count++;
        if (f->count >= f->first && (f->last == 0 || f->count <= f->last)) found = *f;
    }
    pthread_mutex_unlock(&lock);
    errno = saved;
    if (!found.count) return GOES_ON;
    note("failed", path, operation);
    if (strcmp(found.kind, "kill") == 0) kill(getpid(), SIGKILL);
    if (strcmp(found.kind, "delay") == 0) {
        struct timespec wait = {found.number / 1000, found.number % 1000 * 1000000L};
        nanosleep(&wait, NULL);
    }
    if (strcmp(found.kind, "short") == 0) return IS_SHORT;
    return strcmp(found.kind, "error") == 0 ? found.number : GOES_ON;
}

#define FAIL(operation, path, result)                                                                                  \
    do {                                                                                                               \
        int number = fault_of(operation, path);                                                                        \
        if (number > 0) {                                                                                              \
            errno = number;                                                                                            \
            return result;                                                                                             \
        }                                                                                                              \
    } while (0)

static const char *kind_of(int flags) {
    return flags & (O_WRONLY | O_RDWR | O_CREAT) ? "create" : "open";
}

/* Logs that a file was opened. */
static void note_open(const char *kind, const char *path, int truncates) {
    note(kind, path, strcmp(kind, "create") == 0 && !truncates ? "kept" : NULL);
}

#define OPEN(name)                                                                                                     \
    int name(const char *path, int flags, ...) {                                                                       \
        va_list rest;                                                                                                  \
        va_start(rest, flags);                                                                                         \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;                                        \
        va_end(rest);                                                                                                  \
        FAIL(kind_of(flags), path, -1);                                                                                \
        int fd = REAL(name)(path, flags, mode);                                                                        \
        if (fd >= 0) note_open(kind_of(flags), path, flags & O_TRUNC);                                                 \
        return fd;                                                                                                     \
    }
OPEN(open)
OPEN(open64)

/* The path of a name in a directory that is open. */
static const char *path_at(int directory, const char *name, char *path) {
    if (directory == AT_FDCWD || !name || name[0] == '/') return name;
    path_of(directory, path);
    size_t length = strlen(path);
    snprintf(path + length, PATH_MAX - length, "/%s", name);
    return path;
}

#define OPEN_AT(name)                                                                                                  \
    int name(int directory, const char *relative, int flags, ...) {                                                    \
        char buffer[PATH_MAX];                                                                                         \
        va_list rest;                                                                                                  \
        va_start(rest, flags);                                                                                         \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;                                        \
        va_end(rest);                                                                                                  \
        const char *path = path_at(directory, relative, buffer);                                                       \
        FAIL(kind_of(flags), path, -1);                                                                                \
        int fd = REAL(name)(directory, relative, flags, mode);                                                         \
        if (fd >= 0) note_open(kind_of(flags), path, flags & O_TRUNC);                                                 \
        return fd;                                                                                                     \
    }
OPEN_AT(openat)
OPEN_AT(openat64)

#define FOPEN(name)                                                                                                    \
    FILE *name(const char *path, const char *mode) {                                                                   \
        const char *kind = strpbrk(mode, "wa+") ? "create" : "open";                                                   \
        FAIL(kind, path, NULL);                                                                                        \
        FILE *file = REAL(name)(path, mode);                                                                           \
        if (file) note_open(kind, path, strchr(mode, 'w') != NULL);                                                    \
        return file;                                                                                                   \
    }
FOPEN(fopen)
FOPEN(fopen64)

int fclose(FILE *file) {
    char path[PATH_MAX];
    path_of(fileno(file), path);
    int writes = is_for_writing(fileno(file));
    int result = REAL(fclose)(file);
    note_content("close", path, writes);
    return result;
}

int close(int fd) {
    char path[PATH_MAX];
    path_of(fd, path);
    int writes = is_for_writing(fd);
    int result = REAL(close)(fd);
    note_content("close", path, writes);
    return result;
}

#define FLUSH(name)                                                                                                    \
    int name(int fd) {                                                                                                 \
        char path[PATH_MAX];                                                                                           \
        path_of(fd, path);                                                                                             \
        FAIL("fsync", path, -1);                                                                                       \
        int result = REAL(name)(fd);                                                                                   \
        if (result == 0) note_content("fsync", path, is_for_writing(fd));                                              \
        return result;                                                                                                 \
    }
FLUSH(fsync)
FLUSH(fdatasync)

/* Moves data by the descriptor `fd`: half of it if the fault says so. */
#define DATA(name, operation, arguments, fd, whole, ...)                                                               \
    ssize_t name arguments {                                                                                           \
        char path[PATH_MAX];                                                                                           \
        size_t n = whole;                                                                                              \
        path_of(fd, path);                                                                                             \
        int number = fault_of(operation, path);                                                                        \
        if (number != GOES_ON && n > 1) n /= 2;                                                                        \
        ssize_t result = number > 0 && strcmp(operation, "read") == 0 ? 0 : REAL(name)(__VA_ARGS__);                   \
        if (number <= 0) return result;                                                                                \
        errno = number;                                                                                                \
        return -1;                                                                                                     \
    }
DATA(read, "read", (int fd, void *data, size_t whole), fd, whole, fd, data, n)
DATA(pread, "read", (int fd, void *data, size_t whole, off_t at), fd, whole, fd, data, n, at)
DATA(pread64, "read", (int fd, void *data, size_t whole, off64_t at), fd, whole, fd, data, n, at)
DATA(write, "write", (int fd, const void *data, size_t whole), fd, whole, fd, data, n)
DATA(pwrite, "write", (int fd, const void *data, size_t whole, off_t at), fd, whole, fd, data, n, at)
DATA(pwrite64, "write", (int fd, const void *data, size_t whole, off64_t at), fd, whole, fd, data, n, at)
DATA(sendfile, "write", (int fd, int from, off_t *at, size_t whole), fd, whole, fd, from, at, n)
DATA(sendfile64, "write", (int fd, int from, off64_t *at, size_t whole), fd, whole, fd, from, at, n)
DATA(copy_file_range, "write", (int from, off64_t *at, int fd, off64_t *to, size_t whole, unsigned flags), fd, whole,
     from, at, fd, to, n, flags)

#define FWRITE(name)                                                                                                   \
    size_t name(const void *data, size_t size, size_t whole, FILE *file) {                                             \
        char path[PATH_MAX];                                                                                           \
        path_of(fileno(file), path);                                                                                   \
        int number = fault_of("write", path);                                                                          \
        if (number <= 0) return REAL(name)(data, size, whole, file);                                                   \
        size_t written = REAL(name)(data, size, whole / 2, file);                                                      \
        errno = number;                                                                                                \
        return written;                                                                                                \
    }
FWRITE(fwrite)
#undef fwrite_unlocked
FWRITE(fwrite_unlocked)

/* Renames or links `from` in the directory `from_at` as `to` in `to_at`. */
#define TWO_PATHS(operation, name, arguments, from_at, to_at, ...)                                                     \
    int name arguments {                                                                                               \
        char first[PATH_MAX], second[PATH_MAX];                                                                        \
        const char *from_path = path_at(from_at, from, first), *to_path = path_at(to_at, to, second);                  \
        FAIL(operation, to_path, -1);                                                                                  \
        int result = REAL(name)(__VA_ARGS__);                                                                          \
        if (result == 0) note(operation, from_path, to_path);                                                          \
        return result;                                                                                                 \
    }
TWO_PATHS("rename", rename, (const char *from, const char *to), AT_FDCWD, AT_FDCWD, from, to)
TWO_PATHS("rename", renameat, (int from_at, const char *from, int to_at, const char *to), from_at, to_at, from_at, from,
          to_at, to)
TWO_PATHS("rename", renameat2, (int from_at, const char *from, int to_at, const char *to, unsigned flags), from_at,
          to_at, from_at, from, to_at, to, flags)
TWO_PATHS("link", link, (const char *from, const char *to), AT_FDCWD, AT_FDCWD, from, to)
TWO_PATHS("link", linkat, (int from_at, const char *from, int to_at, const char *to, int flags), from_at, to_at,
          from_at, from, to_at, to, flags)

int mkdirat(int directory, const char *name, mode_t mode) {
    char buffer[PATH_MAX];
    const char *path = path_at(directory, name, buffer);
    FAIL("mkdir", path, -1);
    int result = REAL(mkdirat)(directory, name, mode);
    if (result == 0) note("mkdir", path, NULL);
    return result;
}

int unlinkat(int directory, const char *name, int flags) {
    char buffer[PATH_MAX];
    const char *path = path_at(directory, name, buffer), *operation = flags & AT_REMOVEDIR ? "rmdir" : "unlink";
    FAIL(operation, path, -1);
    int result = REAL(unlinkat)(directory, name, flags);
    if (result == 0) note(operation, path, NULL);
    return result;
}

int ftruncate(int fd, off_t length) {
    char path[PATH_MAX];
    path_of(fd, path);
    FAIL("truncate", path, -1);
    return REAL(ftruncate)(fd, length);
}

#define ON_PATH(operation, name, arguments, ...)                                                                       \
    int name arguments {                                                                                               \
        FAIL(operation, path, -1);                                                                                     \
        int result = REAL(name)(__VA_ARGS__);                                                                          \
        if (result == 0) note(operation, path, NULL);                                                                  \
        return result;                                                                                                 \
    }
ON_PATH("unlink", unlink, (const char *path), path)
ON_PATH("rmdir", rmdir, (const char *path), path)
ON_PATH("mkdir", mkdir, (const char *path, mode_t mode), path, mode)
ON_PATH("access", access, (const char *path, int mode), path, mode)
ON_PATH("stat", stat, (const char *path, struct stat *result_), path, result_)
ON_PATH("stat", stat64, (const char *path, struct stat64 *result_), path, result_)
ON_PATH("stat", lstat, (const char *path, struct stat *result_), path, result_)
ON_PATH("stat", lstat64, (const char *path, struct stat64 *result_), path, result_)
ON_PATH("stat", __xstat, (int version, const char *path, struct stat *result_), version, path, result_)
ON_PATH("stat", __xstat64, (int version, const char *path, struct stat64 *result_), version, path, result_)

DIR *opendir(const char *path) {
    FAIL("list", path, NULL);
    return REAL(opendir)(path);
}

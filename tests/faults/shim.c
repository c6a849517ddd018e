/* Counts, logs and fails the file operations of a process under one directory. Loaded with LD_PRELOAD.
 *
 * FAULTS_DIR   the directory; operations on other paths go through.
 * FAULTS_LOG   file that gets a line for each operation that has succeeded: "operation path [second path]". Optional.
 * FAULTS_SPEC  file that says which operations fail, a line each: "operation,part of the path,first,last,errno".
 *              The operation "any" is each of them.
 *              Operations that match are counted from 1; those from the first to the last fail. Last 0: without end.
 *              The log gets a line for each that has failed: "failed path operation".
 *              Replacing the file (by a rename) starts anew; without it nothing fails. Optional.
 *
 * FAULTS_BLOBS directory that gets a copy of a file that was open for writing when it is flushed or closed, by number;
 * the log's second path is that number. Optional. (What a FILE writes can't be seen before it is closed.)
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define MOST_FAULTS 8

struct fault {
    char operation[16], substring[128];
    int first, last, number, count;
};

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
            if (sscanf(line, "%15[^,],%127[^,],%d,%d,%d", f->operation, f->substring, &f->first, &f->last,
                       &f->number) == 5)
                fault_count++;
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

/* The errno that an operation is to fail with, or 0. */
static int fails(const char *operation, const char *path) {
    int number = 0;
    if (!is_watched(path)) return 0;
    pthread_mutex_lock(&lock);
    read_faults();
    for (int i = 0; i < fault_count; i++) {
        struct fault *f = &faults[i];
        if (strcmp(f->operation, "any") != 0 && strcmp(f->operation, operation) != 0) continue;
        if (!strstr(path, f->substring)) continue;
        f->count++;
        if (f->count >= f->first && (f->last == 0 || f->count <= f->last)) number = f->number;
    }
    pthread_mutex_unlock(&lock);
    if (number) note("failed", path, operation);
    return number;
}

#define FAIL(operation, path, result)                                                                                  \
    do {                                                                                                               \
        int number = fails(operation, path);                                                                           \
        if (number) {                                                                                                  \
            errno = number;                                                                                            \
            return result;                                                                                             \
        }                                                                                                              \
    } while (0)

static const char *kind_of(int flags) {
    return flags & (O_WRONLY | O_RDWR | O_CREAT) ? "write" : "read";
}

#define OPEN(name)                                                                                                     \
    int name(const char *path, int flags, ...) {                                                                       \
        va_list rest;                                                                                                  \
        va_start(rest, flags);                                                                                         \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;                                        \
        va_end(rest);                                                                                                  \
        FAIL(kind_of(flags), path, -1);                                                                                \
        int fd = REAL(name)(path, flags, mode);                                                                        \
        if (fd >= 0) note(kind_of(flags), path, NULL);                                                                 \
        return fd;                                                                                                     \
    }
OPEN(open)
OPEN(open64)

#define FOPEN(name)                                                                                                    \
    FILE *name(const char *path, const char *mode) {                                                                   \
        const char *kind = strpbrk(mode, "wa+") ? "write" : "read";                                                    \
        FAIL(kind, path, NULL);                                                                                        \
        FILE *file = REAL(name)(path, mode);                                                                           \
        if (file) note(kind, path, NULL);                                                                              \
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

int fsync(int fd) {
    char path[PATH_MAX];
    path_of(fd, path);
    FAIL("fsync", path, -1);
    int result = REAL(fsync)(fd);
    if (result == 0) note_content("fsync", path, is_for_writing(fd));
    return result;
}

int rename(const char *from, const char *to) {
    FAIL("rename", to, -1);
    int result = REAL(rename)(from, to);
    if (result == 0) note("rename", from, to);
    return result;
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
ON_PATH("stat", __xstat, (int version, const char *path, struct stat *result_), version, path, result_)
ON_PATH("stat", __xstat64, (int version, const char *path, struct stat64 *result_), version, path, result_)

DIR *opendir(const char *path) {
    FAIL("list", path, NULL);
    return REAL(opendir)(path);
}

/* Shifts the time of day of a process, as if its clock were set. Loaded with LD_PRELOAD.
 *
 * CLOCK_FILE  file with the seconds to add, a 64-bit integer. Each call reads it again.
 *
 * A wait until a time of day ends when the shifted clock says so, if the clock was shifted before the wait began.
 * Clocks that can't be set stay as they are.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
/* A clock that counts from the start of the machine doesn't get so far. */
#define LEAST_TIME_OF_DAY 1000000000

static long real_syscall(long number, long a, long b, long c, long d, long e, long f) {
    static long (*real)(long, ...);
    if (!real) real = REAL(syscall);
    return real(number, a, b, c, d, e, f);
}

static int64_t shift(void) {
    static const volatile int64_t *mapped;
    const volatile int64_t *found = __atomic_load_n(&mapped, __ATOMIC_ACQUIRE);
    const char *path = found ? NULL : getenv("CLOCK_FILE");
    if (path) {
        long fd = real_syscall(SYS_openat, AT_FDCWD, (long)path, O_RDONLY | O_CLOEXEC, 0, 0, 0);
        void *memory = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof *found, PROT_READ, MAP_SHARED, (int)fd, 0);
        if (fd >= 0) real_syscall(SYS_close, fd, 0, 0, 0, 0, 0);
        if (memory != MAP_FAILED) __atomic_store_n(&mapped, found = memory, __ATOMIC_RELEASE);
    }
    return found ? *found : 0;
}

/* The time of the machine's clock at which the shifted one reaches `until`. A time of another clock stays. */
static struct timespec unshifted(const struct timespec *until) {
    struct timespec result = *until;
    if (until->tv_sec >= LEAST_TIME_OF_DAY) result.tv_sec -= shift();
    return result;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = (int)real_syscall(SYS_clock_gettime, clock, (long)now, 0, 0, 0, 0);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += shift();
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    int result = (int)real_syscall(SYS_gettimeofday, (long)now, (long)zone, 0, 0, 0, 0);
    if (result == 0) now->tv_sec += shift();
    return result;
}

time_t time(time_t *now) {
    struct timespec found;
    clock_gettime(CLOCK_REALTIME, &found);
    if (now) *now = found.tv_sec;
    return found.tv_sec;
}

int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *until) {
    static __typeof__(&pthread_cond_timedwait) real;
    struct timespec at = unshifted(until);
    /* Without a version the oldest one may be found, whose conditions are others. */
    if (!real) real = (__typeof__(real))dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
    if (!real) real = REAL(pthread_cond_timedwait);
    return real(condition, mutex, &at);
}

int pthread_cond_clockwait(pthread_cond_t *condition, pthread_mutex_t *mutex, clockid_t clock,
                           const struct timespec *until) {
    struct timespec at = unshifted(until);
    return REAL(pthread_cond_clockwait)(condition, mutex, clock, &at);
}

int sem_timedwait(sem_t *semaphore, const struct timespec *until) {
    struct timespec at = unshifted(until);
    return REAL(sem_timedwait)(semaphore, &at);
}

int sem_clockwait(sem_t *semaphore, clockid_t clock, const struct timespec *until) {
    struct timespec at = unshifted(until);
    return REAL(sem_clockwait)(semaphore, clock, &at);
}

long syscall(long number, ...) {
    long a[6];
    struct timespec at;
    va_list rest;
    va_start(rest, number);
    for (int i = 0; i < 6; i++) a[i] = va_arg(rest, long);
    va_end(rest);
    if (number == SYS_futex && (a[1] & FUTEX_CLOCK_REALTIME) && a[3]) {
        at = unshifted((const struct timespec *)a[3]);
        a[3] = (long)&at;
    }
    return real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

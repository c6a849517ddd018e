#define _GNU_SOURCE /* declares clock_gettime and the coarse clock under -std=c11 */

#include "clock.h"

#include <time.h>

/* The coarse clock advances with the kernel's timer interrupt: it is up to 10 ms late, or more if an interrupt is. */
#define COARSE_ERROR_SECONDS 0.1

static double read_clock(clockid_t id) {
    struct timespec ts;
    clock_gettime(id, &ts);
    return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

double fs_clock_seconds(void) {
    return read_clock(CLOCK_REALTIME);
}

int fs_clock_reached(double time, double *latest, int *set_back) {
#ifdef CLOCK_REALTIME_COARSE
    double coarse = read_clock(CLOCK_REALTIME_COARSE);
#else
    double coarse = fs_clock_seconds();
#endif
    if (coarse < *latest - 1.0) *set_back = 1;
    *latest = coarse;
    return coarse + COARSE_ERROR_SECONDS >= time && fs_clock_seconds() >= time;
}

/* The time of the clock that can be set when the monotonic clock was at 0. */
static double monotonic_epoch;

__attribute__((constructor)) static void find_epoch(void) {
    monotonic_epoch = read_clock(CLOCK_REALTIME) - read_clock(CLOCK_MONOTONIC);
}

double fs_clock_steady(void) {
    return monotonic_epoch + read_clock(CLOCK_MONOTONIC);
}

int fs_clock_steady_reached(double time) {
#ifdef CLOCK_MONOTONIC_COARSE
    if (monotonic_epoch + read_clock(CLOCK_MONOTONIC_COARSE) + COARSE_ERROR_SECONDS < time) return 0;
#endif
    return fs_clock_steady() >= time;
}

double fs_clock_ticking(void) {
#ifdef CLOCK_MONOTONIC_COARSE
    return read_clock(CLOCK_MONOTONIC_COARSE);
#else
    return read_clock(CLOCK_MONOTONIC);
#endif
}

int64_t fs_clock_monotonic_ns(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

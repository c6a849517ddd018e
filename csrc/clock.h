/* Clocks. In C, because clock_gettime() costs half of what a call of Python's time.time() does. */
#ifndef FASTSUP_CLOCK_H
#define FASTSUP_CLOCK_H

#include <stdint.h>

/* Seconds since the epoch, as time.time() returns them. */
double fs_clock_seconds(void);

/* Returns 1 if the clock has reached a time, given in seconds since the epoch. For a time that is clearly ahead, the
 * kernel's coarse clock is enough, which is read four times as fast.
 *
 * `latest` is what the caller keeps for this function, 0 at first. Sets `set_back` to 1 if the clock reads clearly less
 * than in the last call. */
int fs_clock_reached(double time, double *latest, int *set_back);

/* Seconds since the epoch by a clock that can't be set: it goes on from where time.time() stood when the library was
 * loaded. For due times and durations, which a clock that is set would make hours too long. */
double fs_clock_steady(void);

/* Returns 1 if that clock has reached a time. As fast as fs_clock_reached. */
int fs_clock_steady_reached(double time);

/* Seconds since a fixed time, from a monotonic clock with ticks of some milliseconds, which is read four times as fast.
 * For rough durations. */
double fs_clock_ticking(void);

/* Nanoseconds since a fixed time, from a monotonic clock. For exact durations. */
int64_t fs_clock_monotonic_ns(void);

#endif

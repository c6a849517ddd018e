/* Wall-clock time in seconds since the epoch, as Python's time.time() gives it.
 *
 * C, because a vDSO clock_gettime() costs half of what a call of time.time() does. */
#ifndef FASTSUP_CLOCK_H
#define FASTSUP_CLOCK_H

#include <stdint.h>

double fs_clock_seconds(void);

/* Whether the clock has reached a time. A time that is clearly ahead is told from the kernel's coarse clock, which the
 * processor reads four times as fast. */
int fs_clock_reached(double time);

/* Seconds since some time in the past, from a clock that always goes forward, and by ticks of some milliseconds: for
 * telling about how long something has taken, at a quarter of the price. */
double fs_clock_ticking(void);

/* Nanoseconds since some time in the past, from a clock that is never set: for durations. */
int64_t fs_clock_monotonic_ns(void);

#endif

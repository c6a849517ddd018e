/* Clocks. They are in C because clock_gettime() costs half as much as a call to Python's time.time(). */
#ifndef FASTSUP_CLOCK_H
#define FASTSUP_CLOCK_H

#include <stdint.h>

/* Seconds since the epoch, as time.time() returns them. */
double fs_clock_seconds(void);

/* Returns 1 if the clock has reached a time, given in seconds since the epoch. If the time is clearly in the future,
 * the function reads only the kernel's coarse clock, which is four times as fast.
 *
 * The caller keeps `latest` for this function, and sets it to 0 at first. Sets `set_back` to 1 if the clock reads
 * clearly less than in the last call. */
int fs_clock_reached(double time, double *latest, int *set_back);

/* Seconds since the epoch, by a clock that can't be set. It started at the value of time.time() when the library was
 * loaded. Use it for due times and durations, which would be hours too long if the clock was set. */
double fs_clock_steady(void);

/* Returns 1 if the steady clock has reached a time. As fast as fs_clock_reached. */
int fs_clock_steady_reached(double time);

/* Seconds since a fixed time, for rough durations. The monotonic clock of this function ticks every few milliseconds,
 * and is read four times as fast as an exact one. */
double fs_clock_ticking(void);

/* Nanoseconds since a fixed time, from a monotonic clock, for exact durations. */
int64_t fs_clock_monotonic_ns(void);

#endif

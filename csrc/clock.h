/* Wall-clock time in seconds since the epoch, as Python's time.time() gives it.
 *
 * C, because a vDSO clock_gettime() costs half of what a call of time.time() does. */
#ifndef FASTSUP_CLOCK_H
#define FASTSUP_CLOCK_H

double fs_clock_seconds(void);

#endif

#define _POSIX_C_SOURCE 200809L /* clock_gettime, under -std=c11 */

#include "clock.h"

#include <time.h>

double fs_clock_seconds(void) {
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

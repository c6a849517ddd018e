/* A histogram of durations, with a fixed size.
 *
 * Each doubling of the duration has 64 buckets, so the middle of a bucket is off by at most 1/128. Up to 63 ns, a
 * bucket is one nanosecond wide. Adding a duration takes an index and four stores, because a step adds several
 * durations. */
#ifndef FASTSUP_HISTOGRAM_H
#define FASTSUP_HISTOGRAM_H

#include <stdint.h>

/* Each extension module links its own copy, so calls need not go through the dynamic linker's table. */
#pragma GCC visibility push(hidden)

#define FS_OCTAVE_BITS 6
#define FS_OCTAVE (1 << FS_OCTAVE_BITS)
/* Durations of 2^42 ns (73 minutes) and more share the last bucket; count, total and maximum stay exact. */
#define FS_LARGEST_BIT 42
#define FS_BUCKETS ((FS_LARGEST_BIT - FS_OCTAVE_BITS + 1) * FS_OCTAVE)

typedef struct {
    uint64_t count;
    int64_t total;    /* nanoseconds */
    int64_t max;      /* nanoseconds */
    int64_t max_step; /* the step of the longest duration; the first one if there are several */
    uint64_t buckets[FS_BUCKETS];
} fs_histogram;

/* The bucket of a duration. The highest bit selects the octave, and the six bits below it select the bucket in the
 * octave. */
static inline int fs_histogram_bucket(int64_t ns) {
    if (ns < FS_OCTAVE) return ns < 0 ? 0 : (int)ns;
    int octave = 63 - __builtin_clzll((unsigned long long)ns) - FS_OCTAVE_BITS;
    if (octave >= FS_LARGEST_BIT - FS_OCTAVE_BITS) return FS_BUCKETS - 1;
    return (octave << FS_OCTAVE_BITS) + (int)(ns >> octave);
}

static inline void fs_histogram_add(fs_histogram *histogram, int64_t ns, int64_t step) {
    if (ns < 0) ns = 0;
    if (ns > histogram->max || histogram->count == 0) {
        histogram->max = ns;
        histogram->max_step = step;
    }
    histogram->count++;
    histogram->total += ns;
    histogram->buckets[fs_histogram_bucket(ns)]++;
}

/* The bounds of a bucket's durations: low <= ns < high. */
void fs_histogram_bounds(int bucket, int64_t *low, int64_t *high);

/* The quantile for a share from 0 to 1, in nanoseconds; 0 for an empty histogram. */
double fs_histogram_quantile(const fs_histogram *histogram, double share);

/* Adds all durations of another histogram. */
void fs_histogram_merge(fs_histogram *histogram, const fs_histogram *other);

#pragma GCC visibility pop

#endif

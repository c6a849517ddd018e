/* A histogram of durations, of a fixed size however many are added.
 *
 * Buckets grow with the durations: 64 to a doubling, so what is read from one is wrong by at most 1/128. Up to 63 ns
 * they are exact. Adding is an index and four stores, without allocation: it is done several times in each step. */
#ifndef FASTSUP_HISTOGRAM_H
#define FASTSUP_HISTOGRAM_H

#include <stdint.h>

/* Called within the library that holds a copy of this alone: so without a detour. */
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
    int64_t max_step; /* the step that the longest one was added in; the first, if there are several */
    uint64_t buckets[FS_BUCKETS];
} fs_histogram;

/* The bucket of a duration: its highest bit says the octave, the six bits below it the place in that. */
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

/* The durations that fall into a bucket: from low, including it, to high, excluding it. */
void fs_histogram_bounds(int bucket, int64_t *low, int64_t *high);

/* The duration that a share (0 to 1) of all are not longer than; 0 for an empty histogram. */
double fs_histogram_quantile(const fs_histogram *histogram, double share);

/* Adds all of another one. */
void fs_histogram_merge(fs_histogram *histogram, const fs_histogram *other);

#pragma GCC visibility pop

#endif

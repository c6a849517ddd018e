#include "histogram.h"

void fs_histogram_bounds(int bucket, int64_t *low, int64_t *high) {
    if (bucket < FS_OCTAVE) {
        *low = bucket;
        *high = bucket + 1;
        return;
    }
    int octave = (bucket >> FS_OCTAVE_BITS) - 1;
    int64_t place = (bucket & (FS_OCTAVE - 1)) + FS_OCTAVE;
    *low = place << octave;
    *high = (place + 1) << octave;
}

double fs_histogram_quantile(const fs_histogram *histogram, double share) {
    if (histogram->count == 0) return 0.0;
    double rank = share * (double)histogram->count;
    uint64_t wanted = rank < 1.0 ? 1 : (uint64_t)rank;
    if ((double)wanted < rank) wanted++;
    if (wanted >= histogram->count) return (double)histogram->max;
    uint64_t seen = 0;
    for (int i = 0; i < FS_BUCKETS; ++i) {
        seen += histogram->buckets[i];
        if (seen >= wanted) {
            int64_t low, high;
            fs_histogram_bounds(i, &low, &high);
            double middle = 0.5 * (double)(low + high - 1);
            return middle < (double)histogram->max ? middle : (double)histogram->max;
        }
    }
    return (double)histogram->max;
}

void fs_histogram_merge(fs_histogram *histogram, const fs_histogram *other) {
    if (other->count == 0) return;
    if (histogram->count == 0 || other->max > histogram->max) {
        histogram->max = other->max;
        histogram->max_step = other->max_step;
    }
    histogram->count += other->count;
    histogram->total += other->total;
    for (int i = 0; i < FS_BUCKETS; ++i) histogram->buckets[i] += other->buckets[i];
}

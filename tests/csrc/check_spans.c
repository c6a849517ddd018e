/* Where time goes, by a clock that moves when it is told to. Exits with the number of failed checks. */
#include <stdio.h>
#include <stdlib.h>

#include "check.h"
#include "clock.h"
#include "histogram.h"
#include "spans.h"

static int64_t now;
static fs_scope *open;
static fs_cell cells[3];

static int64_t read_now(void *context) {
    (void)context;
    return now;
}

static fs_span_log *new_log(int64_t skip) {
    fs_span_log *log = malloc(sizeof *log);
    if (log == NULL) abort();
    fs_log_init(log, read_now, NULL, &open, skip);
    for (int i = 0; i < 3; ++i) cells[i] = (fs_cell){.id = i};
    now = 1000;
    open = NULL;
    return log;
}

static void check_clock(void) {
    int64_t before = fs_clock_monotonic_ns();
    CHECK(before > 0 && fs_clock_monotonic_ns() >= before);
}

/* Every bucket holds what falls into it, they follow each other without a gap, and none is wider than 1/64. */
static void check_buckets(void) {
    int64_t low, high, end = 0;
    for (int i = 0; i < FS_BUCKETS; ++i) {
        fs_histogram_bounds(i, &low, &high);
        CHECK(low == end && high > low);
        CHECK(fs_histogram_bucket(low) == i && fs_histogram_bucket(high - 1) == i);
        CHECK(high - low == 1 || (high - low) * 64 <= low);
        end = high;
    }
    CHECK(fs_histogram_bucket(-5) == 0);
    CHECK(fs_histogram_bucket(end) == FS_BUCKETS - 1 && fs_histogram_bucket(INT64_MAX) == FS_BUCKETS - 1);
}

static void check_histogram(void) {
    fs_histogram *times = calloc(2, sizeof *times);
    if (times == NULL) abort();
    CHECK(fs_histogram_quantile(times, 0.5) == 0.0);
    fs_histogram_add(times, -1, 7);
    CHECK(times->count == 1 && times->total == 0 && times->max == 0 && times->max_step == 7);
    fs_histogram_add(times, INT64_MAX / 4, 8);
    fs_histogram_add(times, 10, 9);
    CHECK(fs_histogram_quantile(times, 0.0) == 0.0 && fs_histogram_quantile(times, 0.5) == 10.0);
    CHECK(fs_histogram_quantile(times, 1.0) == (double)(INT64_MAX / 4) && times->max_step == 8);
    fs_histogram_merge(&times[1], times);
    fs_histogram_merge(&times[1], times);
    CHECK(times[1].max_step == 8 && times[1].count == 6 && times[1].max == times->max);
    free(times);
}

static void check_own_time(void) {
    fs_span_log *log = new_log(0);
    fs_track *track = malloc(sizeof *track);
    if (track == NULL) abort();
    fs_track_init(track, log, 0);
    track->ident = fs_thread();
    for (int step = 0; step < 10; ++step) {
        fs_scope outer, inner;
        fs_scope_begin(&outer, track, NULL, 1);
        CHECK(fs_scope_of(open, fs_thread()) == &outer && fs_scope_of(open, &now) == NULL);
        now += 3;
        fs_span_enter(track, &cells[0]);
        now += 5;
        /* A step in a step is a part of it; the spans that it leaves open are left with it. */
        fs_scope_begin(&inner, track, NULL, 1);
        fs_span_enter(track, &cells[1]);
        now += 7;
        fs_span_enter(track, &cells[2]);
        now += 11;
        CHECK(fs_scope_of(open, fs_thread()) == &inner);
        fs_scope_end(&inner);
        CHECK(track->depth == 1 && track->state == FS_OPEN && open == &outer);
        now += 13;
        fs_span_leave_last(track);
        fs_scope_end(&outer);
        CHECK(open == NULL && track->state == FS_READY);
        now += 17;
    }
    fs_track_settle(track);
    CHECK(cells[0].times.total == 10 * 18 && cells[1].times.total == 10 * 7 && cells[2].times.total == 10 * 11);
    CHECK(log->steps.times.count == 10 && log->steps.times.total == 10 * 39);
    CHECK(log->between.times.count == 9 && log->between.times.total == 9 * 17);
    CHECK(log->wall == log->steps.times.total + log->between.times.total && log->spans == 30);
    /* Nothing happens outside a step. */
    fs_span_enter(track, &cells[0]);
    fs_span_leave(track);
    fs_step_end(track);
    fs_track_settle(track);
    CHECK(log->spans == 30 && log->steps.times.count == 10);
    free(track);
    free(log);
}

static void check_depth(void) {
    fs_span_log *log = new_log(0);
    fs_track *track = malloc(sizeof *track);
    if (track == NULL) abort();
    fs_track_init(track, log, 0);
    fs_step_begin(track, 1);
    for (int i = 0; i < 3 * FS_SPAN_DEPTH; ++i) {
        fs_span_enter(track, &cells[0]);
        now += 1;
    }
    for (int i = 0; i < 3 * FS_SPAN_DEPTH; ++i) fs_span_leave(track);
    fs_track_settle(track);
    CHECK(track->depth == 0 && cells[0].times.count == FS_SPAN_DEPTH && cells[0].times.total == 3 * FS_SPAN_DEPTH);
    /* More spans than a trace shows of one step. */
    for (int i = 0; i < 2 * FS_STEP_EVENTS; ++i) {
        fs_span_enter(track, &cells[1]);
        now += 1;
        fs_span_leave(track);
    }
    fs_step_end(track);
    fs_track_settle(track);
    CHECK(track->n_events == FS_STEP_EVENTS && cells[1].times.count == 2 * FS_STEP_EVENTS);
    free(track);
    free(log);
}

/* Two threads that begin and end in any order, as far as the log knows. */
static void check_threads(void) {
    fs_span_log *log = new_log(0);
    fs_track *tracks = malloc(2 * sizeof *tracks);
    fs_scope scopes[2];
    int other;
    if (tracks == NULL) abort();
    for (int i = 0; i < 2; ++i) fs_track_init(&tracks[i], log, i);
    tracks[0].ident = fs_thread();
    tracks[1].ident = &other;
    fs_scope_begin(&scopes[0], &tracks[0], NULL, 1);
    fs_scope_begin(&scopes[1], &tracks[1], NULL, 1);
    now += 5;
    CHECK(fs_scope_of(open, fs_thread()) == &scopes[0] && fs_scope_of(open, &other) == &scopes[1]);
    fs_scope_end(&scopes[0]);
    CHECK(fs_scope_of(open, fs_thread()) == NULL && fs_scope_of(open, &other) == &scopes[1]);
    fs_scope_end(&scopes[1]);
    CHECK(open == NULL && log->wall == 10 && log->begun == 2);
    free(tracks);
    free(log);
}

static void run_lap(fs_track *track, int64_t ns, int64_t pause) {
    fs_scope scope;
    fs_scope_begin(&scope, track, NULL, 1);
    fs_span_enter_first(track, &cells[2]);
    now += ns;
    fs_span_leave_last(track);
    fs_scope_end(&scope);
    now += pause;
}

/* Steps of one span are recorded later, as what they were; whatever comes between makes ordinary ones of them. */
static void check_laps(void) {
    fs_span_log *log = new_log(0);
    fs_track *track = malloc(sizeof *track);
    fs_scope scope, inner;
    if (track == NULL) abort();
    fs_track_init(track, log, 0);
    for (int i = 0; i < 2 * FS_LAPS + 3; ++i) run_lap(track, 100 + i, 10);
    CHECK(track->state == FS_READY && track->n_laps == 2 && log->begun == 2 * FS_LAPS + 3);
    CHECK(log->steps.times.count == 2 * FS_LAPS + 1);
    fs_track_settle(track);
    CHECK(track->n_laps == 0 && log->steps.times.count == 2 * FS_LAPS + 3 && log->steps.times.max_step == log->begun);
    CHECK(cells[2].times.total == log->steps.times.total && cells[2].times.max == 100 + 2 * FS_LAPS + 2);
    CHECK(log->between.times.count == 2 * FS_LAPS + 2 && log->between.times.total == 10 * (2 * FS_LAPS + 2));
    CHECK(log->wall == log->steps.times.total + log->between.times.total);
    int64_t wall = log->wall, span = cells[2].times.total;

    /* Looked at before its span has begun, in it, and after it; with a lap before it that waits. */
    for (int when = 0; when < 3; ++when) {
        run_lap(track, 1, 1);
        fs_scope_begin(&scope, track, NULL, 1);
        now += 2;
        CHECK(track->state == FS_LAP);
        if (when == 0) fs_track_unfold(track);
        fs_span_enter_first(track, &cells[2]);
        now += 3;
        fs_track_settle(track);
        if (when == 1) fs_track_unfold(track);
        CHECK(track->n_laps == 0 && (when < 2) == (track->state == FS_OPEN) && (when == 2 || track->depth == 1));
        fs_span_leave_last(track);
        now += 5;
        if (when == 2) fs_track_unfold(track);
        CHECK(track->state == (when == 2 ? FS_OPEN : track->state) && track->depth == 0);
        fs_scope_end(&scope);
        now += 7;
        fs_track_settle(track);
        wall += 10 + 1 + 1 + 2 + 3 + 5 - (when > 0 ? 3 : 0);
        span += 1 + 3 + (when > 0 ? 2 : 0);
        CHECK(log->wall == wall && cells[2].times.total == span);
    }
    /* An error leaves the span open. */
    fs_scope_begin(&scope, track, NULL, 1);
    fs_span_enter_first(track, &cells[2]);
    now += 4;
    fs_scope_end(&scope);
    CHECK(track->state == FS_READY && cells[2].times.total == span + 4 && cells[2].times.max_step == 2 * FS_LAPS + 3);
    /* A step within its span, and a span behind it. */
    fs_scope_begin(&scope, track, NULL, 1);
    fs_span_enter_first(track, &cells[2]);
    now += 6;
    fs_scope_begin(&inner, track, NULL, 1);
    CHECK(track->state == FS_OPEN && track->nested == 1 && track->depth == 1);
    fs_scope_end(&inner);
    fs_span_leave_last(track);
    fs_span_enter(track, &cells[1]);
    now += 8;
    fs_span_leave(track);
    fs_scope_end(&scope);
    CHECK(cells[2].times.total == span + 10 && cells[1].times.total == 8);
    /* Looked at in the middle: all of the time so far, and of the spans that were left. */
    wall = log->wall;
    fs_scope_begin(&scope, track, NULL, 1);
    fs_span_enter_first(track, &cells[2]);
    now += 5;
    fs_span_leave_last(track);
    now += 3;
    fs_span_enter(track, &cells[1]);
    CHECK(log->wall == wall + 8);
    /* There was nothing to do. */
    int64_t begun = log->begun;
    uint64_t counted = log->steps.times.count;
    fs_step_discount(track);
    fs_step_discount(track);
    fs_scope_end(&scope);
    CHECK(log->begun == begun - 1 && log->steps.times.count == counted && log->wall == wall + 8);
    span += 5;
    /* Interrupted in the middle: the step counts, the time after it doesn't. */
    int64_t pauses = log->between.times.total;
    run_lap(track, 1, 0);
    fs_scope_begin(&scope, track, NULL, 1);
    fs_span_enter_first(track, &cells[2]);
    now += 9;
    fs_track_interrupt(track);
    fs_span_leave_last(track);
    fs_scope_end(&scope);
    CHECK(track->state == FS_SHUT);
    now += 1000;
    run_lap(track, 2, 0);
    fs_track_settle(track);
    CHECK(cells[2].times.total == span + 10 + 1 + 9 + 2 && log->between.times.total == pauses);
    CHECK(log->steps.times.count == (uint64_t)log->begun);
    /* Its thread dies in a step, and another one gets its place; the step's own end finds nothing any more. */
    for (int lap = 0; lap < 2; ++lap) {
        fs_scope_begin(&scope, track, NULL, 1);
        fs_span_enter_first(track, &cells[2]);
        if (lap == 0) fs_track_unfold(track);
        fs_track_abandon(track);
        open = NULL;
        fs_scope_end(&scope);
        CHECK(open == NULL && track->state == FS_SHUT && track->ident == NULL);
        fs_scope_begin(&scope, track, NULL, 1);
        fs_scope_end(&scope);
        CHECK(log->steps.times.count == (uint64_t)log->begun - 1 - (uint64_t)lap);
        fs_scope_begin(&scope, track, NULL, 1);
        fs_scope_end(&scope);
    }
    free(track);
    free(log);
}

/* A loop's steps follow each other: what is between two spans is a step's, and no span's. */
static void check_loop(void) {
    fs_span_log *log = new_log(1);
    fs_track *track = malloc(sizeof *track);
    fs_scope scope;
    int steps = 3 * FS_LAPS;
    if (track == NULL) abort();
    fs_track_init(track, log, 0);
    fs_scope_begin(&scope, track, NULL, 1);
    fs_span_enter_first(track, &cells[2]);
    for (int i = 0; i <= steps; ++i) {
        now += 20;
        fs_span_leave_last(track);
        if (i == steps) break;
        now += 1;
        fs_step_next(track, &cells[2]);
    }
    fs_scope_end(&scope);
    fs_track_settle(track);
    CHECK(log->begun == steps + 1 && log->steps.times.count == (uint64_t)steps && log->between.times.count == 0);
    CHECK(log->wall == 21 * steps - 1 && log->steps.times.total == log->wall && cells[2].times.total == 20 * steps);
    free(track);
    free(log);
}

static void check_many_steps(void) {
    fs_span_log *log = new_log(100);
    fs_track *track = malloc(sizeof *track);
    int64_t sum = 0;
    if (track == NULL) abort();
    fs_track_init(track, log, 0);
    fs_step_begin(track, 1);
    fs_span_enter(track, &cells[0]);
    for (int step = 1; step <= 200000; ++step) {
        now += step % 1000;
        if (step > 100) sum += step % 1000;
        fs_span_leave(track);
        fs_step_next(track, &cells[0]);
    }
    fs_step_end(track);
    fs_track_settle(track);
    CHECK(log->steps.times.count == 200001 - 100 && log->wall == sum && cells[0].times.total == sum);
    CHECK(log->n_events > FS_TRACE_EVENTS / 4 && log->n_events <= FS_TRACE_EVENTS && log->stride > 1);
    for (int32_t i = 0; i < log->n_events; ++i) CHECK(log->events[i].step % log->stride == 0);
    CHECK(log->n_slow == FS_SLOW_STEPS && log->slow_threshold == 999);
    /* Beside the steps: a part of the wall time, and no step. */
    fs_step_begin(track, 0);
    fs_span_enter(track, &cells[1]);
    now += 4;
    fs_step_end(track);
    fs_track_settle(track);
    CHECK(log->steps.times.count == 200001 - 100 && log->wall == sum + 4 && cells[1].times.total == 4);
    free(track);
    free(log);
}

int main(void) {
    check_clock();
    check_buckets();
    check_histogram();
    check_own_time();
    check_depth();
    check_threads();
    check_laps();
    check_loop();
    check_many_steps();
    return failures;
}

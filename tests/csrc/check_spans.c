/* Spans, steps and histograms, by a clock that moves only when a check says so. Exits with the number of failures. */
#include <stdio.h>
#include <stdlib.h>

#include "check.h"
#include "clock.h"
#include "histogram.h"
#include "spans.h"

static int64_t now;
static fs_scope *open;
static fs_span_stats stats[3];

static int64_t read_now(void *context) {
    (void)context;
    return now;
}

static fs_span_log *new_log(int64_t skip_steps) {
    fs_span_log *log = malloc(sizeof *log);
    if (log == NULL) abort();
    fs_log_init(log, read_now, NULL, &open, skip_steps);
    for (int i = 0; i < 3; ++i) stats[i] = (fs_span_stats){.id = i};
    now = 1000;
    open = NULL;
    return log;
}

static void check_clock(void) {
    int64_t before = fs_clock_monotonic_ns();
    CHECK(before > 0 && fs_clock_monotonic_ns() >= before);
}

/* The buckets follow each other without a gap, none is wider than 1/64, and each duration falls into its bucket. */
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
    fs_thread_trace *trace = malloc(sizeof *trace);
    if (trace == NULL) abort();
    fs_trace_init(trace, log, 0);
    trace->ident = fs_thread();
    for (int step = 0; step < 10; ++step) {
        fs_scope outer, inner;
        fs_scope_begin(&outer, trace, NULL, 1);
        CHECK(fs_scope_of_thread(open, fs_thread()) == &outer && fs_scope_of_thread(open, &now) == NULL);
        now += 3;
        fs_span_enter(trace, &stats[0]);
        now += 5;
        /* A step in a step is a part of it. The spans that it leaves open end with it. */
        fs_scope_begin(&inner, trace, NULL, 1);
        fs_span_enter(trace, &stats[1]);
        now += 7;
        fs_span_enter(trace, &stats[2]);
        now += 11;
        CHECK(fs_scope_of_thread(open, fs_thread()) == &inner);
        fs_scope_end(&inner);
        CHECK(trace->depth == 1 && trace->state == FS_TRACE_IN_STEP && open == &outer);
        now += 13;
        fs_span_leave_last(trace);
        fs_scope_end(&outer);
        CHECK(open == NULL && trace->state == FS_TRACE_READY);
        now += 17;
    }
    fs_trace_flush(trace);
    CHECK(stats[0].times.total == 10 * 18 && stats[1].times.total == 10 * 7 && stats[2].times.total == 10 * 11);
    CHECK(log->steps.times.count == 10 && log->steps.times.total == 10 * 39);
    CHECK(log->between.times.count == 9 && log->between.times.total == 9 * 17);
    CHECK(log->wall_ns == log->steps.times.total + log->between.times.total && log->n_spans == 30);
    /* Nothing happens outside a step. */
    fs_span_enter(trace, &stats[0]);
    fs_span_leave(trace);
    fs_step_end(trace);
    fs_trace_flush(trace);
    CHECK(log->n_spans == 30 && log->steps.times.count == 10);
    free(trace);
    free(log);
}

static void check_depth(void) {
    fs_span_log *log = new_log(0);
    fs_thread_trace *trace = malloc(sizeof *trace);
    if (trace == NULL) abort();
    fs_trace_init(trace, log, 0);
    fs_step_begin(trace, 1);
    for (int i = 0; i < 3 * FS_SPAN_DEPTH; ++i) {
        fs_span_enter(trace, &stats[0]);
        now += 1;
    }
    for (int i = 0; i < 3 * FS_SPAN_DEPTH; ++i) fs_span_leave(trace);
    fs_trace_flush(trace);
    CHECK(trace->depth == 0 && stats[0].times.count == FS_SPAN_DEPTH && stats[0].times.total == 3 * FS_SPAN_DEPTH);
    /* More spans than a trace shows of one step. */
    for (int i = 0; i < 2 * FS_STEP_EVENTS; ++i) {
        fs_span_enter(trace, &stats[1]);
        now += 1;
        fs_span_leave(trace);
    }
    fs_step_end(trace);
    fs_trace_flush(trace);
    CHECK(trace->n_events == FS_STEP_EVENTS && stats[1].times.count == 2 * FS_STEP_EVENTS);
    free(trace);
    free(log);
}

/* The scopes of two threads may begin and end in any order. */
static void check_threads(void) {
    fs_span_log *log = new_log(0);
    fs_thread_trace *traces = malloc(2 * sizeof *traces);
    fs_scope scopes[2];
    int other;
    if (traces == NULL) abort();
    for (int i = 0; i < 2; ++i) fs_trace_init(&traces[i], log, i);
    traces[0].ident = fs_thread();
    traces[1].ident = &other;
    fs_scope_begin(&scopes[0], &traces[0], NULL, 1);
    fs_scope_begin(&scopes[1], &traces[1], NULL, 1);
    now += 5;
    CHECK(fs_scope_of_thread(open, fs_thread()) == &scopes[0] && fs_scope_of_thread(open, &other) == &scopes[1]);
    fs_scope_end(&scopes[0]);
    CHECK(fs_scope_of_thread(open, fs_thread()) == NULL && fs_scope_of_thread(open, &other) == &scopes[1]);
    fs_scope_end(&scopes[1]);
    CHECK(open == NULL && log->wall_ns == 10 && log->begun == 2);
    free(traces);
    free(log);
}

static void run_recorded_step(fs_thread_trace *trace, int64_t ns, int64_t pause) {
    fs_scope scope;
    fs_scope_begin(&scope, trace, NULL, 1);
    fs_span_enter_first(trace, &stats[2]);
    now += ns;
    fs_span_leave_last(trace);
    fs_scope_end(&scope);
    now += pause;
}

/* Steps with one span become step records, which are added to the log later. All others are full steps. */
static void check_step_records(void) {
    fs_span_log *log = new_log(0);
    fs_thread_trace *trace = malloc(sizeof *trace);
    fs_scope scope, inner;
    if (trace == NULL) abort();
    fs_trace_init(trace, log, 0);
    for (int i = 0; i < 2 * FS_STEP_RECORDS + 3; ++i) run_recorded_step(trace, 100 + i, 10);
    CHECK(trace->state == FS_TRACE_READY && trace->n_records == 2 && log->begun == 2 * FS_STEP_RECORDS + 3);
    CHECK(log->steps.times.count == 2 * FS_STEP_RECORDS + 1);
    fs_trace_flush(trace);
    CHECK(trace->n_records == 0 && log->steps.times.count == 2 * FS_STEP_RECORDS + 3);
    CHECK(log->steps.times.max_step == log->begun);
    CHECK(stats[2].times.total == log->steps.times.total && stats[2].times.max == 100 + 2 * FS_STEP_RECORDS + 2);
    CHECK(log->between.times.count == 2 * FS_STEP_RECORDS + 2);
    CHECK(log->between.times.total == 10 * (2 * FS_STEP_RECORDS + 2));
    CHECK(log->wall_ns == log->steps.times.total + log->between.times.total);
    int64_t wall = log->wall_ns, span = stats[2].times.total;

    /* Expanded before its span begins, in the span and after it, each time with a record before it. */
    for (int when = 0; when < 3; ++when) {
        run_recorded_step(trace, 1, 1);
        fs_scope_begin(&scope, trace, NULL, 1);
        now += 2;
        CHECK(trace->state == FS_TRACE_IN_RECORD);
        if (when == 0) fs_trace_expand(trace);
        fs_span_enter_first(trace, &stats[2]);
        now += 3;
        fs_trace_flush(trace);
        if (when == 1) fs_trace_expand(trace);
        CHECK(trace->n_records == 0 && (when < 2) == (trace->state == FS_TRACE_IN_STEP));
        CHECK(when == 2 || trace->depth == 1);
        fs_span_leave_last(trace);
        now += 5;
        if (when == 2) fs_trace_expand(trace);
        CHECK(trace->state == (when == 2 ? FS_TRACE_IN_STEP : trace->state) && trace->depth == 0);
        fs_scope_end(&scope);
        now += 7;
        fs_trace_flush(trace);
        wall += 10 + 1 + 1 + 2 + 3 + 5 - (when > 0 ? 3 : 0);
        span += 1 + 3 + (when > 0 ? 2 : 0);
        CHECK(log->wall_ns == wall && stats[2].times.total == span);
    }
    /* An error leaves the span open. */
    fs_scope_begin(&scope, trace, NULL, 1);
    fs_span_enter_first(trace, &stats[2]);
    now += 4;
    fs_scope_end(&scope);
    CHECK(trace->state == FS_TRACE_READY && stats[2].times.total == span + 4);
    CHECK(stats[2].times.max_step == 2 * FS_STEP_RECORDS + 3);
    /* A step within its span, and a span after it. */
    fs_scope_begin(&scope, trace, NULL, 1);
    fs_span_enter_first(trace, &stats[2]);
    now += 6;
    fs_scope_begin(&inner, trace, NULL, 1);
    CHECK(trace->state == FS_TRACE_IN_STEP && trace->nested == 1 && trace->depth == 1);
    fs_scope_end(&inner);
    fs_span_leave_last(trace);
    fs_span_enter(trace, &stats[1]);
    now += 8;
    fs_span_leave(trace);
    fs_scope_end(&scope);
    CHECK(stats[2].times.total == span + 10 && stats[1].times.total == 8);
    /* A second span adds to the log all the time so far. */
    wall = log->wall_ns;
    fs_scope_begin(&scope, trace, NULL, 1);
    fs_span_enter_first(trace, &stats[2]);
    now += 5;
    fs_span_leave_last(trace);
    now += 3;
    fs_span_enter(trace, &stats[1]);
    CHECK(log->wall_ns == wall + 8);
    /* There was no step to do. */
    int64_t begun = log->begun;
    uint64_t counted = log->steps.times.count;
    fs_step_uncount(trace);
    fs_step_uncount(trace);
    fs_scope_end(&scope);
    CHECK(log->begun == begun - 1 && log->steps.times.count == counted && log->wall_ns == wall + 8);
    span += 5;
    /* Interrupted in the middle: the step is_step, the time after it doesn't. */
    int64_t pauses = log->between.times.total;
    run_recorded_step(trace, 1, 0);
    fs_scope_begin(&scope, trace, NULL, 1);
    fs_span_enter_first(trace, &stats[2]);
    now += 9;
    fs_trace_interrupt(trace);
    fs_span_leave_last(trace);
    fs_scope_end(&scope);
    CHECK(trace->state == FS_TRACE_IDLE);
    now += 1000;
    run_recorded_step(trace, 2, 0);
    fs_trace_flush(trace);
    CHECK(stats[2].times.total == span + 10 + 1 + 9 + 2 && log->between.times.total == pauses);
    CHECK(log->steps.times.count == (uint64_t)log->begun);
    /* The thread is gone in the middle of a step, as in the child of a fork. The end of the step then does nothing. */
    for (int record = 0; record < 2; ++record) {
        fs_scope_begin(&scope, trace, NULL, 1);
        fs_span_enter_first(trace, &stats[2]);
        if (record == 0) fs_trace_expand(trace);
        fs_trace_abandon(trace);
        open = NULL;
        fs_scope_end(&scope);
        CHECK(open == NULL && trace->state == FS_TRACE_IDLE && trace->ident == NULL);
        fs_scope_begin(&scope, trace, NULL, 1);
        fs_scope_end(&scope);
        CHECK(log->steps.times.count == (uint64_t)log->begun - 1 - (uint64_t)record);
        fs_scope_begin(&scope, trace, NULL, 1);
        fs_scope_end(&scope);
    }
    free(trace);
    free(log);
}

/* A loop's steps follow each other: the time between two spans belongs to a step, and to no span. */
static void check_loop(void) {
    fs_span_log *log = new_log(1);
    fs_thread_trace *trace = malloc(sizeof *trace);
    fs_scope scope;
    int steps = 3 * FS_STEP_RECORDS;
    if (trace == NULL) abort();
    fs_trace_init(trace, log, 0);
    fs_scope_begin(&scope, trace, NULL, 1);
    fs_span_enter_first(trace, &stats[2]);
    for (int i = 0; i <= steps; ++i) {
        now += 20;
        fs_span_leave_last(trace);
        if (i == steps) break;
        now += 1;
        fs_step_next(trace, &stats[2]);
    }
    fs_scope_end(&scope);
    fs_trace_flush(trace);
    CHECK(log->begun == steps + 1 && log->steps.times.count == (uint64_t)steps && log->between.times.count == 0);
    CHECK(log->wall_ns == 21 * steps - 1 && log->steps.times.total == log->wall_ns);
    CHECK(stats[2].times.total == 20 * steps);
    free(trace);
    free(log);
}

static void check_many_steps(void) {
    fs_span_log *log = new_log(100);
    fs_thread_trace *trace = malloc(sizeof *trace);
    int64_t sum = 0;
    if (trace == NULL) abort();
    fs_trace_init(trace, log, 0);
    fs_step_begin(trace, 1);
    fs_span_enter(trace, &stats[0]);
    for (int step = 1; step <= 200000; ++step) {
        now += step % 1000;
        if (step > 100) sum += step % 1000;
        fs_span_leave(trace);
        fs_step_next(trace, &stats[0]);
    }
    fs_step_end(trace);
    fs_trace_flush(trace);
    CHECK(log->steps.times.count == 200001 - 100 && log->wall_ns == sum && stats[0].times.total == sum);
    CHECK(log->n_events > FS_TRACE_EVENTS / 4 && log->n_events <= FS_TRACE_EVENTS && log->stride > 1);
    for (int32_t i = 0; i < log->n_events; ++i) CHECK(log->events[i].step % log->stride == 0);
    CHECK(log->n_slow == FS_SLOW_STEPS && log->slow_threshold == 999);
    /* Work beside the steps: it adds to the wall time, and isn't counted as a step. */
    fs_step_begin(trace, 0);
    fs_span_enter(trace, &stats[1]);
    now += 4;
    fs_step_end(trace);
    fs_trace_flush(trace);
    CHECK(log->steps.times.count == 200001 - 100 && log->wall_ns == sum + 4 && stats[1].times.total == 4);
    free(trace);
    free(log);
}

/* A pass: its work between two steps is recorded, steps follow it without a gap, and a thread beside it isn't counted.
 */
static void check_passes(void) {
    fs_span_log *log = new_log(0);
    fs_thread_trace *trace = malloc(sizeof *trace), *aside = malloc(sizeof *aside);
    fs_scope pass, evaluation, beside;
    if (trace == NULL || aside == NULL) abort();
    fs_trace_init(trace, log, 0);
    fs_trace_init(aside, log, 1);
    fs_scope_begin(&pass, trace, NULL, FS_PASS);
    fs_span_enter(trace, &stats[0]);
    for (int step = 0; step < 5; ++step) {
        now += 2;
        fs_step_switch(trace, FS_STEP, &stats[0]);
        now += 3;
        fs_span_enter(trace, &stats[1]);
        now += 4;
        fs_span_leave(trace);
        fs_step_switch(trace, FS_PASS, &stats[0]);
    }
    CHECK(log->steps.times.count == 5 && log->steps.times.total == 5 * 7 && log->between.times.count == 0);
    /* A pass within it has no steps, whatever it says. */
    fs_scope_begin(&evaluation, trace, NULL, FS_PASS);
    fs_span_enter(trace, &stats[2]);
    fs_step_switch(trace, FS_STEP, &stats[2]);
    now += 6;
    fs_step_switch(trace, FS_PASS, &stats[2]);
    fs_scope_end(&evaluation);
    stats[2].aside = 1;
    fs_scope_begin(&beside, aside, NULL, FS_ASIDE);
    fs_span_enter(aside, &stats[2]);
    now += 8;
    fs_scope_end(&beside);
    fs_scope_end(&pass);
    CHECK(log->begun == 5 && log->steps.times.count == 5 && open == NULL);
    CHECK(stats[0].times.total == 5 * 5 + 8 && stats[1].times.total == 5 * 4 && stats[2].times.total == 6 + 8);
    CHECK(log->wall_ns == 5 * 9 + 6 + 8 && log->aside_ns == 8);
    free(trace);
    free(aside);
    free(log);
}

int main(void) {
    check_clock();
    check_buckets();
    check_histogram();
    check_own_time();
    check_depth();
    check_threads();
    check_step_records();
    check_loop();
    check_many_steps();
    check_passes();
    return failures;
}

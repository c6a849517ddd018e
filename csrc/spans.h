/* Where the time of a loop goes.
 *
 * At any moment a thread is in one span, or in none of them but in a step, or between two steps. Every reading of the
 * clock gives the time since the last one to what the thread was in, and to nothing else: so the times of all spans,
 * of what no span covers and of the pauses between steps add up to the time that passed, whatever is nested in what.
 *
 * A trace belongs to one thread, a log to all threads of a recorder; callers see to it that only one of them is in
 * here at a time (with Python's lock). */
#ifndef FASTSUP_SPANS_H
#define FASTSUP_SPANS_H

#include <stddef.h>
#include <stdint.h>

#include "clock.h"
#include "histogram.h"

#if defined(__has_builtin)
#if __has_builtin(__builtin_thread_pointer)
#define FS_HAS_THREAD_POINTER 1
#endif
#endif
#if !FS_HAS_THREAD_POINTER
#include <pthread.h>
#endif

#pragma GCC visibility push(hidden)

#define FS_SPAN_DEPTH 16   /* spans nested deeper belong to the one at this depth */
#define FS_STEP_EVENTS 128 /* spans of one step that a trace shows */
#define FS_TRACE_EVENTS 32768
#define FS_SLOW_STEPS 24
#define FS_STEP_RECORDS 64

typedef int64_t (*fs_span_clock)(void *context);

/* What is timed: a phase of a hook, say. */
typedef struct {
    int32_t id; /* in the line of the cache that the histogram's count is in */
    fs_histogram times;
} fs_span_stats;

/* A step that one span takes from the begin to the end, as nearly all are. It is only noted down, in one line of the
 * cache; many are recorded together. (A step that uses the cache for itself leaves nothing there of what recording takes:
 * the histograms, and the code.) */
typedef struct {
    fs_span_stats *stats;
    int64_t step;
    int64_t started;
    int64_t left;
    int64_t ended;
} fs_step_record;

/* A span as a trace shows it: with what is nested in it. */
typedef struct {
    int64_t start;
    int64_t duration;
    int64_t step;
    int32_t stats; /* -1: the step itself */
    int32_t thread;
} fs_span_event;

typedef struct {
    int64_t step;
    int64_t duration;
    int32_t n_events;
    fs_span_event events[FS_STEP_EVENTS + 1];
} fs_slow_step;

/* What the threads of a recorder share. What every step touches comes first: it is in few lines of the cache. */
typedef struct {
    fs_span_clock clock;
    void *clock_context;
    struct fs_scope **open; /* what is under way in the process, the newest in front */
    int64_t skip;    /* steps to leave out at the start */
    int64_t begun;   /* steps begun, with those */
    int64_t wall;    /* nanoseconds in steps and between them, up to the last readings of the clock */
    /* What measuring costs: the part that a span, or a pause, would show, which is taken off; and what it took off. */
    int64_t cost_in_span;
    int64_t cost_between;
    int64_t taken_off;
    uint64_t spans;
    /* A sample of all steps: every one whose number is a multiple of `stride`, which doubles when the trace is full. */
    int64_t stride;
    int32_t n_events;
    int32_t n_slow;
    int64_t slow_threshold; /* steps no longer than this are no candidates */
    fs_span_stats steps;          /* from the begin of a step to its end */
    fs_span_stats between;        /* from the end of a step to the begin of the next one */
    fs_span_event events[FS_TRACE_EVENTS];
    fs_slow_step slow[FS_SLOW_STEPS];
} fs_span_log;

typedef struct {
    fs_span_stats *stats;
    int64_t start;
    int64_t own;
} fs_frame;

enum fs_trace_state {
    FS_SHUT,  /* between two steps */
    FS_READY, /* the same, and the next step may be a record */
    FS_IN_RECORD,   /* in a step that is a record so far: records[n_records] */
    FS_OPEN   /* in any other step */
};

typedef struct fs_thread_trace {
    struct fs_thread_trace *next; /* of the same log */
    fs_span_log *log;
    const void *ident; /* its thread, as `fs_thread` has it */
    int32_t state;
    int32_t fresh;  /* there was no step before, or something came between that is none of ours */
    int32_t n_records; /* that wait for being recorded */
    int32_t thread; /* its number in the log */
    int32_t nested; /* steps begun within a step */
    int32_t depth;
    int32_t muted;  /* this step is left out */
    int32_t counts; /* this step is one; else work beside the steps */
    int32_t too_deep;
    int32_t n_events;
    int64_t step;
    int64_t started;
    int64_t last; /* when the clock was read last, records aside */
    fs_step_record records[FS_STEP_RECORDS];
    fs_frame frames[FS_SPAN_DEPTH];
    fs_span_event events[FS_STEP_EVENTS];
} fs_thread_trace;

/* A step, or a part of one, that is under way: kept by who has begun it. */
typedef struct fs_scope {
    struct fs_scope *next; /* begun before this one, by whatever thread */
    fs_thread_trace *trace;
    void *recorder;
    int64_t caller; /* the recorder's number of the session whose step this is; 0 for none */
    int32_t depth; /* of the trace, when it was begun */
    int32_t nested;
} fs_scope;

/* What only this thread has of all that live. */
static inline const void *fs_thread(void) {
#if FS_HAS_THREAD_POINTER
    return __builtin_thread_pointer();
#else
    return (const void *)pthread_self();
#endif
}

/* A clock that is NULL is the machine's. */
void fs_log_init(fs_span_log *log, fs_span_clock clock, void *context, fs_scope **open, int64_t skip);
void fs_trace_init(fs_thread_trace *trace, fs_span_log *log, int32_t thread);

/* Records the records that are only noted down: for whoever looks at what was recorded, or at the trace. */
void fs_trace_flush(fs_thread_trace *trace);
/* The same; a step under way is none of them any more. */
void fs_trace_unfold(fs_thread_trace *trace);
/* What comes until the next step is none of the time between two steps. */
void fs_trace_interrupt(fs_thread_trace *trace);
/* The same, unless it is in the middle of a step. */
void fs_trace_pause(fs_thread_trace *trace);
/* The trace's thread is gone, whatever it was in the middle of: in the child of a fork. */
void fs_trace_abandon(fs_thread_trace *trace);

/* A step begins; or, where `counts` is 0, something beside the steps that has spans too. Within a step: nothing. */
void fs_step_begin(fs_thread_trace *trace, int counts);
void fs_step_end(fs_thread_trace *trace);
/* The step under way turns out to be none: there was nothing to do in it. */
void fs_step_discount(fs_thread_trace *trace);

/* Nothing happens here outside a step. */
void fs_span_enter(fs_thread_trace *trace, fs_span_stats *stats);
void fs_span_leave(fs_thread_trace *trace);

/* For those below, where a step isn't a record. */
void fs_scope_finish(fs_scope *scope);
void fs_laps_full(fs_thread_trace *trace);
void fs_step_follow(fs_thread_trace *trace, fs_span_stats *stats);

static inline int64_t fs_span_now(const fs_span_log *log) {
    return log->clock == NULL ? fs_clock_monotonic_ns() : log->clock(log->clock_context);
}

static inline void fs_step_record_begin(fs_thread_trace *trace, fs_span_stats *stats, int64_t at) {
    fs_step_record *record = &trace->records[trace->n_records];
    trace->state = FS_IN_RECORD;
    record->stats = stats;
    record->left = -1;
    record->step = ++trace->log->begun;
    record->started = at;
}

static inline void fs_step_record_end(fs_thread_trace *trace, int64_t at) {
    trace->records[trace->n_records].ended = at;
    trace->state = trace->fresh ? FS_SHUT : FS_READY;
    if (++trace->n_records == FS_STEP_RECORDS) fs_laps_full(trace);
}

/* A step of a trace begins, as above, and is what the thread is in the middle of. Whoever begins it ends it, on every way
 * out; spans that were entered since then are left. */
static inline void fs_scope_begin(fs_scope *scope, fs_thread_trace *trace, void *recorder, int counts) {
    fs_scope **open = trace->log->open;
    if (trace->state == FS_READY && counts) {
        fs_step_record_begin(trace, NULL, fs_span_now(trace->log));
    } else {
        fs_step_begin(trace, counts);
    }
    scope->trace = trace;
    scope->recorder = recorder;
    scope->depth = trace->depth;
    scope->nested = trace->nested;
    scope->next = *open;
    *open = scope;
}

/* Enters what a step is about: if nothing else was entered in it, it begins with the step. */
static inline void fs_span_enter_first(fs_thread_trace *trace, fs_span_stats *stats) {
    fs_step_record *record = &trace->records[trace->n_records];
    if (trace->state == FS_IN_RECORD && record->stats == NULL) {
        record->stats = stats;
    } else {
        fs_span_enter(trace, stats);
    }
}

/* Leaves it: should the step end next, it ends with it. */
static inline void fs_span_leave_last(fs_thread_trace *trace) {
    fs_step_record *record = &trace->records[trace->n_records];
    if (trace->state == FS_IN_RECORD && record->stats != NULL && record->left < 0) {
        record->left = fs_span_now(trace->log);
    } else {
        fs_span_leave(trace);
    }
}

/* The end of a step, the begin of the next one and of a span in it, at one reading of the clock: for a loop that has nothing
 * between its steps. */
static inline void fs_step_next(fs_thread_trace *trace, fs_span_stats *stats) {
    fs_step_record *record = &trace->records[trace->n_records];
    if (trace->state == FS_IN_RECORD && record->left >= 0 && !trace->fresh) {
        int64_t at = fs_span_now(trace->log);
        fs_step_record_end(trace, at);
        fs_step_record_begin(trace, stats, trace->n_records > 0 ? at : trace->last);
    } else {
        fs_step_follow(trace, stats);
    }
}

static inline void fs_scope_end(fs_scope *scope) {
    fs_thread_trace *trace = scope->trace;
    fs_scope **open = trace->log->open;
    fs_step_record *record = &trace->records[trace->n_records];
    if (trace->state == FS_IN_RECORD && record->left >= 0 && *open == scope) {
        *open = scope->next;
        fs_step_record_end(trace, record->left);
    } else {
        fs_scope_finish(scope);
    }
}

/* The newest of a thread; NULL if it is in the middle of nothing. */
fs_scope *fs_scope_of(fs_scope *open, const void *thread);

#pragma GCC visibility pop

#endif

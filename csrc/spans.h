/* Measures where a training loop spends its time.
 *
 * At any moment a thread is in a span, or in a step but in none of its spans, or between steps. Each reading of the
 * clock adds the time since the previous reading to the innermost of these, and to nothing else. The times of all
 * spans, the rest of the steps and the pauses between steps therefore add up to the elapsed time, however spans are
 * nested.
 *
 * A *thread trace* belongs to one thread of one recorder, a *span log* to all threads of a recorder. No function here
 * locks, because the caller holds the GIL.
 *
 * Most steps consist of a single span. Such a step is written as a *step record*, one cache line. When the records are
 * full, or before the log is read, they are added to the log. Every other step is a *full step*, which updates the log
 * immediately. */
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

#define FS_SPAN_DEPTH 16   /* the time of a more deeply nested span counts for the span at this depth */
#define FS_STEP_EVENTS 128 /* maximum number of a step's spans that are kept as events */
#define FS_TRACE_EVENTS 32768
#define FS_SLOW_STEPS 24
#define FS_STEP_RECORDS 64

typedef int64_t (*fs_span_clock)(void *context); /* nanoseconds */

/* The statistics of one kind of span, for example of one phase of a hook. */
typedef struct {
    int32_t id;    /* first, to share a cache line with the histogram's count */
    int32_t aside; /* 1 for spans in threads that work while the loop runs, whose time isn't part of the log's time */
    fs_histogram times;
} fs_span_stats;

/* The kinds of scopes.
 *
 * FS_BESIDE: work next to the steps, such as a callback after the last step. It isn't recorded before the first step.
 * FS_STEP: a step.
 * FS_PASS: the work of a call that runs all steps itself, before, between and after them. It is recorded from the
 * beginning.
 * FS_ASIDE: work in another thread than the steps', at the same time. It isn't part of the log's time. */
enum fs_scope_kind { FS_BESIDE, FS_STEP, FS_PASS, FS_ASIDE };

/* A step with one span. It fills one cache line. Recording the step immediately would push the histograms and this code
 * into the cache, and a step that uses the cache itself would then lack that space. Times are readings of the clock. */
typedef struct {
    fs_span_stats *stats; /* the span's statistics; NULL until the span begins */
    int64_t step;
    int64_t start;    /* start of the step and of the span */
    int64_t span_end; /* -1 until the span ends */
    int64_t end;
} fs_step_record;

/* A span in the trace. Its duration includes the spans nested in it. */
typedef struct {
    int64_t start;
    int64_t duration;
    int64_t step;
    int32_t stats;  /* id of the span's statistics; -1 for the step itself, -3 for work of a pass between steps */
    int32_t thread; /* number of the thread in the log */
} fs_span_event;

typedef struct {
    int64_t step;
    int64_t duration;
    int32_t n_events;
    fs_span_event events[FS_STEP_EVENTS + 1];
} fs_slow_step;

/* The log of a recorder, for all its threads. The fields that every step uses come first, in few cache lines. */
typedef struct {
    fs_span_clock clock; /* NULL for the machine's monotonic clock */
    void *clock_context;
    struct fs_scope **open_scopes; /* the open scopes in the process, newest first */
    int64_t skip_steps;            /* number of steps at the start that aren't recorded */
    int64_t begun;                 /* number of steps begun, including skipped ones */
    int64_t wall_ns;               /* time in steps and between them, up to the last reading in each thread */
    int64_t aside_ns;              /* time of FS_ASIDE scopes */
    /* The cost of measuring. The first two fields are the nanoseconds by which one span, or one pause, is measured too
     * long; they are subtracted from each. The third field is the sum of the subtracted time. */
    int64_t cost_in_span;
    int64_t cost_between;
    int64_t cost_subtracted;
    uint64_t n_spans;
    /* The trace is a sample of the steps whose number is a multiple of `stride`. When the trace is full, `stride`
     * doubles. It is a power of two. */
    int64_t stride;
    int32_t n_events;
    int32_t n_slow;
    int64_t slow_threshold; /* the shortest of the slow steps, once there are FS_SLOW_STEPS */
    fs_span_stats steps;    /* from the beginning of a step to its end */
    fs_span_stats between;  /* from the end of a step to the beginning of the next step */
    fs_span_event events[FS_TRACE_EVENTS];
    fs_slow_step slow[FS_SLOW_STEPS];
} fs_span_log;

/* An open span. */
typedef struct {
    fs_span_stats *stats;
    int64_t start;
    int64_t self_ns; /* the span's time so far, without the spans nested in it */
} fs_frame;

/* IDLE: between steps; the next step is a full one.
 * READY: between steps; the next step may be a step record.
 * IN_RECORD: in a step that fits into the record records[n_records], so far.
 * IN_STEP: in a full step.
 *
 * begin: IDLE -> IN_STEP; READY -> IN_RECORD or IN_STEP.
 * end: IN_RECORD or IN_STEP -> READY, or IDLE after an interruption.
 * A second span, a nested step or a reader turns IN_RECORD into IN_STEP (fs_trace_expand). */
enum fs_trace_state { FS_TRACE_IDLE, FS_TRACE_READY, FS_TRACE_IN_RECORD, FS_TRACE_IN_STEP };

/* The state of one thread. */
typedef struct fs_thread_trace {
    struct fs_thread_trace *next; /* the next thread trace of the same log */
    fs_span_log *log;
    const void *ident;  /* the thread, from `fs_thread`; NULL once the thread is gone */
    int32_t state;      /* an fs_trace_state */
    int32_t ignore_gap; /* 1 if the time up to the next step isn't added to `between`, because there was no step before
                         * or the steps were interrupted */
    int32_t n_records;  /* number of step records that aren't in the log yet */
    int32_t thread;     /* number of the thread in the log */
    int32_t nested;     /* number of steps begun within the current step */
    int32_t depth;      /* number of frames in use */
    int32_t muted;      /* 1 if the current step isn't recorded */
    int32_t kind;       /* the fs_scope_kind of the current scope */
    int32_t n_too_deep; /* number of spans entered beyond FS_SPAN_DEPTH */
    int32_t n_events;
    int64_t step;
    int64_t started;
    int64_t last; /* the last clock reading that the log contains */
    fs_step_record records[FS_STEP_RECORDS];
    fs_frame frames[FS_SPAN_DEPTH];
    fs_span_event events[FS_STEP_EVENTS];
} fs_thread_trace;

/* A current step, or other work that is recorded. It is stored on the stack, or in the object, of the code that begins
 * it. */
typedef struct fs_scope {
    struct fs_scope *next; /* the scope begun before this one, in any thread */
    fs_thread_trace *trace;
    void *probe;   /* the step's owner, for the code that begins the step */
    int32_t depth; /* the trace's depth when the scope began */
    int32_t nested;
} fs_scope;

/* Returns an address that differs between any two living threads. */
static inline const void *fs_thread(void) {
#if FS_HAS_THREAD_POINTER
    return __builtin_thread_pointer();
#else
    return (const void *)pthread_self();
#endif
}

/* If `clock` is NULL, the log uses the machine's monotonic clock. */
void fs_log_init(fs_span_log *log, fs_span_clock clock, void *context, fs_scope **open_scopes, int64_t skip_steps);
void fs_trace_init(fs_thread_trace *trace, fs_span_log *log, int32_t thread);

/* Adds the step records to the log. Call it before the log is read. */
void fs_trace_flush(fs_thread_trace *trace);
/* Does the same as fs_trace_flush, and turns the current record into a full step. Call it before the trace is read. */
void fs_trace_expand(fs_thread_trace *trace);
/* Leaves the time up to the next step out of the time between steps. */
void fs_trace_interrupt(fs_thread_trace *trace);
/* Like fs_trace_interrupt, but does nothing within a step. */
void fs_trace_interrupt_between_steps(fs_thread_trace *trace);
/* Drops the current step, if any, and the thread. Call it in the child of a fork, where other threads are gone. */
void fs_trace_abandon(fs_thread_trace *trace);

/* Begins a scope of a kind. Within another scope, only counts the nesting. */
void fs_step_begin(fs_thread_trace *trace, int kind);
void fs_step_end(fs_thread_trace *trace);
/* Ends the current scope and begins one of a kind, in a span, with one reading of the clock. Does nothing in a scope
 * that is nested in another one. For passes. */
void fs_step_switch(fs_thread_trace *trace, int kind, fs_span_stats *stats);
/* Takes the current step out of the count of steps, because it turned out that there was nothing to do. */
void fs_step_uncount(fs_thread_trace *trace);

/* These functions do nothing outside a step. */
void fs_span_enter(fs_thread_trace *trace, fs_span_stats *stats);
void fs_span_leave(fs_thread_trace *trace);

/* The slow paths of the inline functions below. */
void fs_scope_end_slow(fs_scope *scope);
void fs_trace_records_full(fs_thread_trace *trace);
void fs_step_next_slow(fs_thread_trace *trace, fs_span_stats *stats);

static inline int64_t fs_span_now(const fs_span_log *log) {
    return log->clock == NULL ? fs_clock_monotonic_ns() : log->clock(log->clock_context);
}

static inline void fs_step_record_begin(fs_thread_trace *trace, fs_span_stats *stats, int64_t at) {
    fs_step_record *record = &trace->records[trace->n_records];
    trace->state = FS_TRACE_IN_RECORD;
    record->stats = stats;
    record->span_end = -1;
    record->step = ++trace->log->begun;
    record->start = at;
}

static inline void fs_step_record_end(fs_thread_trace *trace, int64_t at) {
    trace->records[trace->n_records].end = at;
    trace->state = trace->ignore_gap ? FS_TRACE_IDLE : FS_TRACE_READY;
    if (++trace->n_records == FS_STEP_RECORDS) fs_trace_records_full(trace);
}

/* Begins a step as `fs_step_begin` does, and makes it the newest scope. The caller must end the scope on every path.
 * Spans that are still open then end with the scope. */
static inline void fs_scope_begin(fs_scope *scope, fs_thread_trace *trace, void *probe, int kind) {
    fs_scope **open = trace->log->open_scopes;
    if (trace->state == FS_TRACE_READY && kind == FS_STEP) {
        fs_step_record_begin(trace, NULL, fs_span_now(trace->log));
    } else {
        fs_step_begin(trace, kind);
    }
    scope->trace = trace;
    scope->probe = probe;
    scope->depth = trace->depth;
    scope->nested = trace->nested;
    scope->next = *open;
    *open = scope;
}

/* Enters the main span of a step. If the span is the first one, it begins with the step, without a reading of the
 * clock. */
static inline void fs_span_enter_first(fs_thread_trace *trace, fs_span_stats *stats) {
    fs_step_record *record = &trace->records[trace->n_records];
    if (trace->state == FS_TRACE_IN_RECORD && record->stats == NULL) {
        record->stats = stats;
    } else {
        fs_span_enter(trace, stats);
    }
}

/* Leaves the main span. If the step ends next, the span ends with the step, without a reading of the clock. */
static inline void fs_span_leave_last(fs_thread_trace *trace) {
    fs_step_record *record = &trace->records[trace->n_records];
    if (trace->state == FS_TRACE_IN_RECORD && record->stats != NULL && record->span_end < 0) {
        record->span_end = fs_span_now(trace->log);
    } else {
        fs_span_leave(trace);
    }
}

/* Charges the innermost open span to other statistics, which weren't known when the span began. */
static inline void fs_span_charge_to(fs_thread_trace *trace, fs_span_stats *stats) {
    if (trace->state == FS_TRACE_IN_RECORD) {
        if (trace->records[trace->n_records].stats != NULL) trace->records[trace->n_records].stats = stats;
    } else if (trace->depth > 0 && trace->n_too_deep == 0) {
        trace->frames[trace->depth - 1].stats = stats;
    }
}

/* Ends a step, begins the next one and enters its main span, with one reading of the clock. Use it in a loop that does
 * nothing between its steps. */
static inline void fs_step_next(fs_thread_trace *trace, fs_span_stats *stats) {
    fs_step_record *record = &trace->records[trace->n_records];
    if (trace->state == FS_TRACE_IN_RECORD && record->span_end >= 0 && !trace->ignore_gap) {
        int64_t at = fs_span_now(trace->log);
        fs_step_record_end(trace, at);
        fs_step_record_begin(trace, stats, trace->n_records > 0 ? at : trace->last);
    } else {
        fs_step_next_slow(trace, stats);
    }
}

static inline void fs_scope_end(fs_scope *scope) {
    fs_thread_trace *trace = scope->trace;
    fs_scope **open = trace->log->open_scopes;
    fs_step_record *record = &trace->records[trace->n_records];
    if (trace->state == FS_TRACE_IN_RECORD && record->span_end >= 0 && *open == scope) {
        *open = scope->next;
        fs_step_record_end(trace, record->span_end);
    } else {
        fs_scope_end_slow(scope);
    }
}

/* Returns the newest scope of a thread, or NULL if it has none. */
fs_scope *fs_scope_of_thread(fs_scope *open_scopes, const void *thread);

#pragma GCC visibility pop

#endif

#include "spans.h"

#include <stddef.h>
#include <string.h>

void fs_log_init(fs_span_log *log, fs_span_clock clock, void *context, fs_scope **open_scopes, int64_t skip_steps) {
    memset(log, 0, sizeof(*log));
    log->clock = clock;
    log->clock_context = context;
    log->open_scopes = open_scopes;
    log->skip_steps = skip_steps;
    log->stride = 1;
    log->steps.id = -1;
    log->between.id = -2;
}

void fs_trace_init(fs_thread_trace *trace, fs_span_log *log, int32_t thread) {
    memset(trace, 0, sizeof(*trace));
    trace->log = log;
    trace->thread = thread;
    trace->ignore_gap = 1;
}

/* Adds a duration, less the cost of measuring it. */
static void add_without_cost(fs_span_log *log, fs_span_stats *stats, int64_t ns, int64_t cost, int64_t step) {
    if (cost > ns) cost = ns;
    if (!stats->aside) log->cost_subtracted += cost;
    fs_histogram_add(&stats->times, ns - cost, step);
}

/* Charges the time up to a reading of the clock to the log. */
static void charge(fs_thread_trace *trace, int64_t at) {
    int64_t *sum = trace->kind == FS_ASIDE ? &trace->log->aside_ns : &trace->log->wall_ns;
    *sum += at - trace->last;
    trace->last = at;
}

static void begin_step(fs_thread_trace *trace, int64_t at, int64_t step) {
    fs_span_log *log = trace->log;
    if (!trace->ignore_gap && at > trace->last) {
        add_without_cost(log, &log->between, at - trace->last, log->cost_between, step);
        log->wall_ns += at - trace->last;
    }
    trace->ignore_gap = 0;
    trace->depth = 0;
    trace->n_too_deep = 0;
    trace->n_events = 0;
    trace->step = step;
    trace->started = at;
    trace->last = at;
}

/* Use a mask, because the stride is a power of two. */
static int is_sampled(const fs_span_log *log, int64_t step) {
    return (step & (log->stride - 1)) == 0;
}

/* Drops every second step of the trace until there is room for one more. The remaining steps still cover the run. */
static void thin_out(fs_span_log *log) {
    while (log->n_events + FS_STEP_EVENTS + 1 > FS_TRACE_EVENTS) {
        int32_t kept = 0;
        log->stride *= 2;
        for (int32_t i = 0; i < log->n_events; ++i) {
            if (is_sampled(log, log->events[i].step)) log->events[kept++] = log->events[i];
        }
        log->n_events = kept;
    }
}

static void keep_slow(fs_span_log *log, const fs_thread_trace *trace, const fs_span_event *whole) {
    fs_slow_step *place;
    if (log->n_slow < FS_SLOW_STEPS) {
        place = &log->slow[log->n_slow++];
    } else {
        place = &log->slow[0];
        for (int i = 1; i < FS_SLOW_STEPS; ++i) {
            if (log->slow[i].duration < place->duration) place = &log->slow[i];
        }
    }
    place->step = whole->step;
    place->duration = whole->duration;
    place->n_events = trace->n_events + 1;
    place->events[0] = *whole;
    memcpy(&place->events[1], trace->events, sizeof(fs_span_event) * (size_t)trace->n_events);
    if (log->n_slow < FS_SLOW_STEPS) return;
    log->slow_threshold = log->slow[0].duration;
    for (int i = 1; i < FS_SLOW_STEPS; ++i) {
        if (log->slow[i].duration < log->slow_threshold) log->slow_threshold = log->slow[i].duration;
    }
}

/* Keeps an ended scope in the trace, with its spans, if the scope belongs to the sample. */
static void keep_event(fs_thread_trace *trace, const fs_span_event *whole) {
    fs_span_log *log = trace->log;
    if (!is_sampled(log, trace->step)) return;
    if (log->n_events + FS_STEP_EVENTS + 1 > FS_TRACE_EVENTS) {
        thin_out(log);
        if (!is_sampled(log, trace->step)) return;
    }
    log->events[log->n_events++] = *whole;
    memcpy(&log->events[log->n_events], trace->events, sizeof(fs_span_event) * (size_t)trace->n_events);
    log->n_events += trace->n_events;
}

static void end_step(fs_thread_trace *trace, int64_t at, int kind) {
    fs_span_log *log = trace->log;
    fs_span_event whole = {trace->started, at - trace->started, trace->step, -1, trace->thread};
    charge(trace, at);
    if (kind == FS_BESIDE) return;
    if (kind != FS_STEP) {
        /* Keep work around steps only if there are spans within its main span. */
        if (trace->n_events < 2) return;
        whole.stats = -3;
        keep_event(trace, &whole);
        return;
    }
    fs_histogram_add(&log->steps.times, whole.duration, trace->step);
    if (whole.duration > log->slow_threshold || log->n_slow < FS_SLOW_STEPS) keep_slow(log, trace, &whole);
    keep_event(trace, &whole);
}

static void enter(fs_thread_trace *trace, fs_span_stats *stats, int64_t at) {
    if (trace->depth > 0) trace->frames[trace->depth - 1].self_ns += at - trace->last;
    charge(trace, at);
    fs_frame *frame = &trace->frames[trace->depth++];
    frame->stats = stats;
    frame->start = at;
    frame->self_ns = 0;
}

static void leave(fs_thread_trace *trace, int64_t at) {
    fs_span_log *log = trace->log;
    fs_frame *frame = &trace->frames[--trace->depth];
    frame->self_ns += at - trace->last;
    charge(trace, at);
    add_without_cost(log, frame->stats, frame->self_ns, log->cost_in_span, trace->step);
    if (!frame->stats->aside) log->n_spans++;
    if (trace->n_events < FS_STEP_EVENTS) {
        fs_span_event *event = &trace->events[trace->n_events++];
        event->start = frame->start;
        event->duration = at - frame->start;
        event->step = trace->step;
        event->stats = frame->stats->id;
        event->thread = trace->thread;
    }
}

/* Begins the step of a record and enters its span. If the span has ended, leaves it, as in a full step. */
static void replay(fs_thread_trace *trace, const fs_step_record *record) {
    /* A record begins only if the gap before it counts. A later interruption concerns the gap after the record. */
    int32_t ignore_gap = trace->ignore_gap;
    trace->ignore_gap = 0;
    begin_step(trace, record->start, record->step);
    trace->ignore_gap = ignore_gap;
    if (record->stats == NULL) return;
    enter(trace, record->stats, record->start);
    if (record->span_end >= 0) leave(trace, record->span_end);
}

void fs_trace_flush(fs_thread_trace *trace) {
    int32_t n = trace->n_records;
    for (int32_t i = 0; i < n; ++i) {
        replay(trace, &trace->records[i]);
        end_step(trace, trace->records[i].end, FS_STEP);
    }
    if (trace->state == FS_TRACE_IN_RECORD) trace->records[0] = trace->records[n];
    trace->n_records = 0;
}

void fs_trace_expand(fs_thread_trace *trace) {
    fs_trace_flush(trace);
    if (trace->state != FS_TRACE_IN_RECORD) return;
    trace->state = FS_TRACE_IN_STEP;
    trace->nested = 0;
    trace->kind = FS_STEP;
    replay(trace, &trace->records[0]);
}

void fs_trace_interrupt(fs_thread_trace *trace) {
    fs_trace_flush(trace);
    trace->ignore_gap = 1;
    if (trace->state == FS_TRACE_READY) trace->state = FS_TRACE_IDLE;
}

void fs_trace_interrupt_between_steps(fs_thread_trace *trace) {
    if (trace->state == FS_TRACE_IDLE || trace->state == FS_TRACE_READY) fs_trace_interrupt(trace);
}

void fs_trace_abandon(fs_thread_trace *trace) {
    fs_trace_interrupt(trace);
    trace->state = FS_TRACE_IDLE;
    trace->depth = 0;
    trace->ident = NULL;
}

void fs_trace_records_full(fs_thread_trace *trace) {
    fs_span_log *log = trace->log;
    fs_trace_flush(trace);
    if (trace->ignore_gap) return;
    /* Adding the records takes time, which belongs to the profiler and not to the time between steps. */
    int64_t at = fs_span_now(log);
    log->wall_ns += at - trace->last;
    log->cost_subtracted += at - trace->last;
    trace->last = at;
}

/* Begins to count a scope of a kind. Returns whether it is recorded. */
static int begin_kind(fs_thread_trace *trace, int kind) {
    fs_span_log *log = trace->log;
    trace->kind = kind;
    if (kind == FS_STEP) log->begun++;
    trace->muted = kind == FS_STEP || kind == FS_BESIDE ? log->begun <= log->skip_steps : log->begun < log->skip_steps;
    if (trace->muted || kind == FS_ASIDE) trace->ignore_gap = 1;
    if (trace->muted) trace->depth = 0;
    return !trace->muted;
}

void fs_step_begin(fs_thread_trace *trace, int kind) {
    fs_trace_expand(trace);
    if (trace->state == FS_TRACE_IN_STEP) {
        trace->nested++;
        return;
    }
    trace->state = FS_TRACE_IN_STEP;
    trace->nested = 0;
    if (begin_kind(trace, kind)) begin_step(trace, fs_span_now(trace->log), trace->log->begun);
}

void fs_step_switch(fs_thread_trace *trace, int kind, fs_span_stats *stats) {
    fs_span_log *log = trace->log;
    fs_trace_expand(trace);
    if (trace->state != FS_TRACE_IN_STEP || trace->nested > 0) return;
    int64_t at = fs_span_now(log);
    if (!trace->muted) {
        while (trace->depth > 0) leave(trace, at);
        end_step(trace, at, trace->kind);
    }
    if (!begin_kind(trace, kind)) return;
    trace->ignore_gap = 1; /* there is nothing between the two scopes */
    begin_step(trace, at, log->begun);
    enter(trace, stats, at);
}

void fs_step_end(fs_thread_trace *trace) {
    fs_trace_expand(trace);
    if (trace->state != FS_TRACE_IN_STEP) return;
    if (trace->nested > 0) {
        trace->nested--;
        return;
    }
    while (trace->depth > 0) fs_span_leave(trace);
    trace->state = trace->ignore_gap ? FS_TRACE_IDLE : FS_TRACE_READY;
    if (!trace->muted) end_step(trace, fs_span_now(trace->log), trace->kind);
}

void fs_step_uncount(fs_thread_trace *trace) {
    fs_trace_expand(trace);
    if (trace->state != FS_TRACE_IN_STEP || trace->nested > 0 || trace->kind != FS_STEP) return;
    trace->kind = FS_BESIDE;
    trace->log->begun--;
}

void fs_step_next_slow(fs_thread_trace *trace, fs_span_stats *stats) {
    fs_step_end(trace);
    if (trace->state == FS_TRACE_READY) {
        fs_step_record_begin(trace, stats, trace->last);
    } else {
        fs_step_begin(trace, FS_STEP);
        fs_span_enter(trace, stats);
    }
}

void fs_span_enter(fs_thread_trace *trace, fs_span_stats *stats) {
    fs_trace_expand(trace);
    if (trace->state != FS_TRACE_IN_STEP || trace->muted) return;
    if (trace->depth == FS_SPAN_DEPTH) {
        trace->n_too_deep++;
        return;
    }
    enter(trace, stats, fs_span_now(trace->log));
}

void fs_span_leave(fs_thread_trace *trace) {
    fs_trace_expand(trace);
    if (trace->state != FS_TRACE_IN_STEP || trace->muted || trace->depth == 0) return;
    if (trace->n_too_deep > 0) {
        trace->n_too_deep--;
        return;
    }
    leave(trace, fs_span_now(trace->log));
}

void fs_scope_end_slow(fs_scope *scope) {
    fs_thread_trace *trace = scope->trace;
    fs_scope **place = trace->log->open_scopes;
    fs_trace_expand(trace);
    trace->nested = scope->nested;
    while (trace->depth > scope->depth) fs_span_leave(trace);
    fs_step_end(trace);
    /* Another thread may have begun a scope in the meantime. In the child of a fork, this scope may be gone from the
     * list. */
    while (*place != NULL && *place != scope) place = &(*place)->next;
    if (*place != NULL) *place = scope->next;
}

fs_scope *fs_scope_of_thread(fs_scope *open_scopes, const void *thread) {
    fs_scope *scope = open_scopes;
    while (scope != NULL && scope->trace->ident != thread) scope = scope->next;
    return scope;
}

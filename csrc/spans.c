#include "spans.h"

#include <stddef.h>
#include <string.h>

#include "clock.h"

/* The machine's clock is read by the code next to this: not by that of another library, in another page. */
static int64_t now(const fs_span_log *log) {
    return log->clock == NULL ? fs_clock_monotonic_ns() : log->clock(log->clock_context);
}

void fs_log_init(fs_span_log *log, fs_span_clock clock, void *context, fs_scope **open, int64_t skip) {
    memset(log, 0, sizeof(*log));
    log->clock = clock;
    log->clock_context = context;
    log->open = open;
    log->skip = skip;
    log->stride = 1;
    log->steps.id = -1;
    log->between.id = -2;
}

void fs_track_init(fs_track *track, fs_span_log *log, int32_t thread) {
    memset(track, 0, sizeof(*track));
    track->log = log;
    track->thread = thread;
    track->fresh = 1;
}

void fs_log_settle(fs_span_log *log) {
    for (int32_t i = 0; i < log->n_pending; ++i) {
        const fs_pending *entry = &log->pending[i];
        fs_histogram_add(&entry->cell->times, entry->ns, entry->step);
    }
    log->n_pending = 0;
}

static void add(fs_span_log *log, fs_cell *cell, int64_t ns, int64_t step) {
    if (log->n_pending == FS_PENDING) fs_log_settle(log);
    log->pending[log->n_pending++] = (fs_pending){cell, ns, step};
}

/* Adds a duration without what measuring it costs. */
static void add_without_cost(fs_span_log *log, fs_cell *cell, int64_t ns, int64_t cost, int64_t step) {
    if (cost > ns) cost = ns;
    log->taken_off += cost;
    add(log, cell, ns - cost, step);
}

/* A step begins in an open track, at a time, unless it is one to leave out. */
static void begin_step(fs_track *track, int64_t at) {
    track->depth = 0;
    track->too_deep = 0;
    track->at_rest = 0;
    track->n_events = 0;
    track->step = track->log->begun;
    track->started = at;
    track->last = at;
}

void fs_step_begin(fs_track *track, int counts) {
    fs_span_log *log = track->log;
    if (track->open) {
        track->nested++;
        return;
    }
    track->open = 1;
    track->nested = 0;
    track->counts = counts;
    if (counts) log->begun++;
    track->muted = log->begun <= log->skip;
    if (track->muted) {
        track->fresh = 1;
        track->depth = 0;
        return;
    }
    int64_t at = now(log);
    if (!track->fresh) {
        add_without_cost(log, &log->between, at - track->last, log->cost_between, log->begun);
        log->wall += at - track->last;
    }
    track->fresh = 0;
    begin_step(track, at);
}

/* The stride is a power of two. */
static int is_sampled(const fs_span_log *log, int64_t step) {
    return (step & (log->stride - 1)) == 0;
}

/* Keeps every other sampled step, so that the trace has room, and still shows the whole run. */
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

static void keep_slow(fs_span_log *log, const fs_track *track, const fs_span_event *whole) {
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
    place->n_events = track->n_events + 1;
    place->events[0] = *whole;
    memcpy(&place->events[1], track->events, sizeof(fs_span_event) * (size_t)track->n_events);
    if (log->n_slow < FS_SLOW_STEPS) return;
    log->slow_threshold = log->slow[0].duration;
    for (int i = 1; i < FS_SLOW_STEPS; ++i) {
        if (log->slow[i].duration < log->slow_threshold) log->slow_threshold = log->slow[i].duration;
    }
}

/* Ends a step, but for what is done after many of them. */
static void note_end(fs_track *track, int64_t at) {
    fs_span_log *log = track->log;
    track->last = at;
    fs_span_event whole = {track->started, track->last - track->started, track->step, -1, track->thread};
    log->wall += whole.duration;
    if (!track->counts) return;
    add(log, &log->steps, whole.duration, track->step);
    if (whole.duration > log->slow_threshold || log->n_slow < FS_SLOW_STEPS) keep_slow(log, track, &whole);
    if (!is_sampled(log, track->step)) return;
    if (log->n_events + FS_STEP_EVENTS + 1 > FS_TRACE_EVENTS) {
        thin_out(log);
        if (!is_sampled(log, track->step)) return;
    }
    log->events[log->n_events++] = whole;
    memcpy(&log->events[log->n_events], track->events, sizeof(fs_span_event) * (size_t)track->n_events);
    log->n_events += track->n_events;
}

/* Ends a step. Returns when the next one may begin: what takes longer now and then is time of the profiler's. */
static int64_t end_step(fs_track *track, int64_t at) {
    fs_span_log *log = track->log;
    note_end(track, at);
    if (log->n_pending < FS_PENDING / 2) return at;
    fs_log_settle(log);
    track->last = now(log);
    log->wall += track->last - at;
    log->taken_off += track->last - at;
    return track->last;
}

static void enter(fs_track *track, fs_cell *cell, int64_t at) {
    track->at_rest = 0;
    if (track->depth > 0) track->frames[track->depth - 1].own += at - track->last;
    fs_frame *frame = &track->frames[track->depth++];
    frame->cell = cell;
    frame->start = at;
    frame->own = 0;
    track->last = at;
}

void fs_step_end(fs_track *track) {
    if (!track->open) return;
    if (track->nested > 0) {
        track->nested--;
        return;
    }
    while (track->depth > 0) fs_span_leave(track);
    track->open = 0;
    if (!track->muted) end_step(track, track->at_rest ? track->last : now(track->log));
}

void fs_step_next(fs_track *track, fs_cell *cell) {
    fs_span_log *log = track->log;
    if (!track->open || track->nested > 0 || track->muted || !track->counts || track->depth > 0) {
        fs_step_end(track);
        fs_step_begin(track, 1);
        fs_span_enter(track, cell);
        return;
    }
    int64_t at = end_step(track, now(log));
    log->begun++;
    begin_step(track, at);
    enter(track, cell, at);
}

void fs_span_enter(fs_track *track, fs_cell *cell) {
    if (!track->open || track->muted) return;
    if (track->depth == FS_SPAN_DEPTH) {
        track->too_deep++;
        return;
    }
    enter(track, cell, now(track->log));
}

void fs_span_enter_first(fs_track *track, fs_cell *cell) {
    int is_first = track->depth == 0 && track->n_events == 0 && track->last == track->started;
    if (is_first && track->open && !track->muted) {
        enter(track, cell, track->last);
    } else {
        fs_span_enter(track, cell);
    }
}

void fs_span_leave(fs_track *track) {
    fs_span_log *log = track->log;
    if (!track->open || track->muted || track->depth == 0) return;
    if (track->too_deep > 0) {
        track->too_deep--;
        return;
    }
    int64_t at = now(log);
    fs_frame *frame = &track->frames[--track->depth];
    frame->own += at - track->last;
    track->last = at;
    add_without_cost(log, frame->cell, frame->own, log->cost_in_span, track->step);
    log->spans++;
    if (track->n_events < FS_STEP_EVENTS) {
        fs_span_event *event = &track->events[track->n_events++];
        event->start = frame->start;
        event->duration = at - frame->start;
        event->step = track->step;
        event->cell = frame->cell->id;
        event->thread = track->thread;
    }
}

void fs_span_leave_last(fs_track *track) {
    fs_span_leave(track);
    track->at_rest = track->depth == 0 && track->nested == 0;
}

void fs_scope_begin(fs_scope *scope, fs_track *track, void *recorder, int counts) {
    fs_step_begin(track, counts);
    scope->track = track;
    scope->recorder = recorder;
    scope->depth = track->depth;
    scope->nested = track->nested;
    scope->next = *track->log->open;
    *track->log->open = scope;
}

void fs_scope_end(fs_scope *scope) {
    fs_track *track = scope->track;
    fs_scope **place = track->log->open;
    track->nested = scope->nested;
    while (track->depth > scope->depth) fs_span_leave(track);
    fs_step_end(track);
    /* Other threads may have begun theirs since. */
    while (*place != scope) place = &(*place)->next;
    *place = scope->next;
}

fs_scope *fs_scope_of(fs_scope *open, const void *thread) {
    while (open != NULL && open->track->ident != thread) open = open->next;
    return open;
}

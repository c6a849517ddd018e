#include "spans.h"

#include <stddef.h>
#include <string.h>

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

/* Adds a duration without what measuring it costs. */
static void add_without_cost(fs_span_log *log, fs_cell *cell, int64_t ns, int64_t cost, int64_t step) {
    if (cost > ns) cost = ns;
    log->taken_off += cost;
    fs_histogram_add(&cell->times, ns - cost, step);
}

/* A step that isn't left out begins. */
static void begin_step(fs_track *track, int64_t at, int64_t step) {
    fs_span_log *log = track->log;
    if (!track->fresh && at > track->last) {
        add_without_cost(log, &log->between, at - track->last, log->cost_between, step);
        log->wall += at - track->last;
    }
    track->fresh = 0;
    track->depth = 0;
    track->too_deep = 0;
    track->n_events = 0;
    track->step = step;
    track->started = at;
    track->last = at;
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

static void end_step(fs_track *track, int64_t at, int counts) {
    fs_span_log *log = track->log;
    fs_span_event whole = {track->started, at - track->started, track->step, -1, track->thread};
    log->wall += at - track->last;
    track->last = at;
    if (!counts) return;
    fs_histogram_add(&log->steps.times, whole.duration, track->step);
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

static void enter(fs_track *track, fs_cell *cell, int64_t at) {
    track->log->wall += at - track->last;
    if (track->depth > 0) track->frames[track->depth - 1].own += at - track->last;
    fs_frame *frame = &track->frames[track->depth++];
    frame->cell = cell;
    frame->start = at;
    frame->own = 0;
    track->last = at;
}

static void leave(fs_track *track, int64_t at) {
    fs_span_log *log = track->log;
    fs_frame *frame = &track->frames[--track->depth];
    frame->own += at - track->last;
    log->wall += at - track->last;
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

/* The begin of a lap's step and of its span, and the span's end if that has come. */
static void replay(fs_track *track, const fs_lap *lap) {
    /* A lap begins in a track that isn't fresh: what has made it so since then is for the next step. */
    int32_t fresh = track->fresh;
    track->fresh = 0;
    begin_step(track, lap->started, lap->step);
    track->fresh = fresh;
    if (lap->cell == NULL) return;
    enter(track, lap->cell, lap->started);
    if (lap->left >= 0) leave(track, lap->left);
}

void fs_track_settle(fs_track *track) {
    int32_t n = track->n_laps;
    for (int32_t i = 0; i < n; ++i) {
        replay(track, &track->laps[i]);
        end_step(track, track->laps[i].ended, 1);
    }
    if (track->state == FS_LAP) track->laps[0] = track->laps[n];
    track->n_laps = 0;
}

void fs_track_unfold(fs_track *track) {
    fs_track_settle(track);
    if (track->state != FS_LAP) return;
    track->state = FS_OPEN;
    track->nested = 0;
    track->counts = 1;
    replay(track, &track->laps[0]);
}

void fs_track_interrupt(fs_track *track) {
    fs_track_settle(track);
    track->fresh = 1;
    if (track->state == FS_READY) track->state = FS_SHUT;
}

void fs_track_pause(fs_track *track) {
    if (track->state == FS_SHUT || track->state == FS_READY) fs_track_interrupt(track);
}

void fs_track_abandon(fs_track *track) {
    fs_track_interrupt(track);
    track->state = FS_SHUT;
    track->depth = 0;
    track->ident = NULL;
}

void fs_laps_full(fs_track *track) {
    fs_span_log *log = track->log;
    fs_track_settle(track);
    if (track->fresh) return;
    /* This takes longer than what measuring costs else: it is no time between two steps. */
    int64_t at = fs_span_now(log);
    log->wall += at - track->last;
    log->taken_off += at - track->last;
    track->last = at;
}

void fs_step_begin(fs_track *track, int counts) {
    fs_span_log *log = track->log;
    fs_track_unfold(track);
    if (track->state == FS_OPEN) {
        track->nested++;
        return;
    }
    track->state = FS_OPEN;
    track->nested = 0;
    track->counts = counts;
    if (counts) log->begun++;
    track->muted = log->begun <= log->skip;
    if (track->muted) {
        track->fresh = 1;
        track->depth = 0;
        return;
    }
    begin_step(track, fs_span_now(log), log->begun);
}

void fs_step_end(fs_track *track) {
    fs_track_unfold(track);
    if (track->state != FS_OPEN) return;
    if (track->nested > 0) {
        track->nested--;
        return;
    }
    while (track->depth > 0) fs_span_leave(track);
    track->state = track->fresh ? FS_SHUT : FS_READY;
    if (!track->muted) end_step(track, fs_span_now(track->log), track->counts);
}

void fs_step_discount(fs_track *track) {
    fs_track_unfold(track);
    if (track->state != FS_OPEN || track->nested > 0 || !track->counts) return;
    track->counts = 0;
    track->log->begun--;
}

void fs_step_follow(fs_track *track, fs_cell *cell) {
    fs_step_end(track);
    if (track->state == FS_READY) {
        fs_lap_begin(track, cell, track->last);
    } else {
        fs_step_begin(track, 1);
        fs_span_enter(track, cell);
    }
}

void fs_span_enter(fs_track *track, fs_cell *cell) {
    fs_track_unfold(track);
    if (track->state != FS_OPEN || track->muted) return;
    if (track->depth == FS_SPAN_DEPTH) {
        track->too_deep++;
        return;
    }
    enter(track, cell, fs_span_now(track->log));
}

void fs_span_leave(fs_track *track) {
    fs_track_unfold(track);
    if (track->state != FS_OPEN || track->muted || track->depth == 0) return;
    if (track->too_deep > 0) {
        track->too_deep--;
        return;
    }
    leave(track, fs_span_now(track->log));
}

void fs_scope_finish(fs_scope *scope) {
    fs_track *track = scope->track;
    fs_scope **place = track->log->open;
    fs_track_unfold(track);
    track->nested = scope->nested;
    while (track->depth > scope->depth) fs_span_leave(track);
    fs_step_end(track);
    /* Other threads may have begun theirs since; and in the child of a fork those of other threads are gone. */
    while (*place != NULL && *place != scope) place = &(*place)->next;
    if (*place != NULL) *place = scope->next;
}

fs_scope *fs_scope_of(fs_scope *open, const void *thread) {
    while (open != NULL && open->track->ident != thread) open = open->next;
    return open;
}

/* Where the time of a loop goes.
 *
 * At any moment a thread is in one span, or in none of them but in a step, or between two steps. Every reading of the
 * clock gives the time since the last one to what the thread was in, and to nothing else: so the times of all spans,
 * of what no span covers and of the pauses between steps add up to the time that passed, whatever is nested in what.
 *
 * A track belongs to one thread, a log to all threads of a recorder; callers see to it that only one of them is in
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
#define FS_LAPS 64

typedef int64_t (*fs_span_clock)(void *context);

/* What is timed: a phase of a hook, say. */
typedef struct {
    int32_t id; /* in the line of the cache that the histogram's count is in */
    fs_histogram times;
} fs_cell;

/* A step that one span takes from the begin to the end, as nearly all are. It is only noted down, in one line of the
 * cache; many are recorded together. (A step that uses the cache for itself leaves nothing there of what recording takes:
 * the histograms, and the code.) */
typedef struct {
    fs_cell *cell;
    int64_t step;
    int64_t started;
    int64_t left;
    int64_t ended;
} fs_lap;

/* A span as a trace shows it: with what is nested in it. */
typedef struct {
    int64_t start;
    int64_t duration;
    int64_t step;
    int32_t cell; /* -1: the step itself */
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
    fs_cell steps;          /* from the begin of a step to its end */
    fs_cell between;        /* from the end of a step to the begin of the next one */
    fs_span_event events[FS_TRACE_EVENTS];
    fs_slow_step slow[FS_SLOW_STEPS];
} fs_span_log;

typedef struct {
    fs_cell *cell;
    int64_t start;
    int64_t own;
} fs_frame;

enum fs_track_state {
    FS_SHUT,  /* between two steps */
    FS_READY, /* the same, and the next step may be a lap */
    FS_LAP,   /* in a step that is a lap so far: laps[n_laps] */
    FS_OPEN   /* in any other step */
};

typedef struct fs_track {
    struct fs_track *next; /* of the same log */
    fs_span_log *log;
    const void *ident; /* its thread, as `fs_thread` has it */
    int32_t state;
    int32_t fresh;  /* there was no step before, or something came between that is none of ours */
    int32_t n_laps; /* that wait for being recorded */
    int32_t thread; /* its number in the log */
    int32_t nested; /* steps begun within a step */
    int32_t depth;
    int32_t muted;  /* this step is left out */
    int32_t counts; /* this step is one; else work beside the steps */
    int32_t too_deep;
    int32_t n_events;
    int64_t step;
    int64_t started;
    int64_t last; /* when the clock was read last, laps aside */
    fs_lap laps[FS_LAPS];
    fs_frame frames[FS_SPAN_DEPTH];
    fs_span_event events[FS_STEP_EVENTS];
} fs_track;

/* A step, or a part of one, that is under way: kept by who has begun it. */
typedef struct fs_scope {
    struct fs_scope *next; /* begun before this one, by whatever thread */
    fs_track *track;
    void *recorder;
    int64_t caller; /* the recorder's number of the session whose step this is; 0 for none */
    int32_t depth; /* of the track, when it was begun */
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
void fs_track_init(fs_track *track, fs_span_log *log, int32_t thread);

/* Records the laps that are only noted down: for whoever looks at what was recorded, or at the track. */
void fs_track_settle(fs_track *track);
/* The same; a step under way is none of them any more. */
void fs_track_unfold(fs_track *track);
/* What comes until the next step is none of the time between two steps. */
void fs_track_interrupt(fs_track *track);
/* The same, unless it is in the middle of a step. */
void fs_track_pause(fs_track *track);
/* The track's thread is gone, whatever it was in the middle of: in the child of a fork. */
void fs_track_abandon(fs_track *track);

/* A step begins; or, where `counts` is 0, something beside the steps that has spans too. Within a step: nothing. */
void fs_step_begin(fs_track *track, int counts);
void fs_step_end(fs_track *track);
/* The step under way turns out to be none: there was nothing to do in it. */
void fs_step_discount(fs_track *track);

/* Nothing happens here outside a step. */
void fs_span_enter(fs_track *track, fs_cell *cell);
void fs_span_leave(fs_track *track);

/* For those below, where a step isn't a lap. */
void fs_scope_finish(fs_scope *scope);
void fs_laps_full(fs_track *track);
void fs_step_follow(fs_track *track, fs_cell *cell);

static inline int64_t fs_span_now(const fs_span_log *log) {
    return log->clock == NULL ? fs_clock_monotonic_ns() : log->clock(log->clock_context);
}

static inline void fs_lap_begin(fs_track *track, fs_cell *cell, int64_t at) {
    fs_lap *lap = &track->laps[track->n_laps];
    track->state = FS_LAP;
    lap->cell = cell;
    lap->left = -1;
    lap->step = ++track->log->begun;
    lap->started = at;
}

static inline void fs_lap_end(fs_track *track, int64_t at) {
    track->laps[track->n_laps].ended = at;
    track->state = track->fresh ? FS_SHUT : FS_READY;
    if (++track->n_laps == FS_LAPS) fs_laps_full(track);
}

/* A step of a track begins, as above, and is what the thread is in the middle of. Whoever begins it ends it, on every way
 * out; spans that were entered since then are left. */
static inline void fs_scope_begin(fs_scope *scope, fs_track *track, void *recorder, int counts) {
    fs_scope **open = track->log->open;
    if (track->state == FS_READY && counts) {
        fs_lap_begin(track, NULL, fs_span_now(track->log));
    } else {
        fs_step_begin(track, counts);
    }
    scope->track = track;
    scope->recorder = recorder;
    scope->depth = track->depth;
    scope->nested = track->nested;
    scope->next = *open;
    *open = scope;
}

/* Enters what a step is about: if nothing else was entered in it, it begins with the step. */
static inline void fs_span_enter_first(fs_track *track, fs_cell *cell) {
    fs_lap *lap = &track->laps[track->n_laps];
    if (track->state == FS_LAP && lap->cell == NULL) {
        lap->cell = cell;
    } else {
        fs_span_enter(track, cell);
    }
}

/* Leaves it: should the step end next, it ends with it. */
static inline void fs_span_leave_last(fs_track *track) {
    fs_lap *lap = &track->laps[track->n_laps];
    if (track->state == FS_LAP && lap->cell != NULL && lap->left < 0) {
        lap->left = fs_span_now(track->log);
    } else {
        fs_span_leave(track);
    }
}

/* The end of a step, the begin of the next one and of a span in it, at one reading of the clock: for a loop that has nothing
 * between its steps. */
static inline void fs_step_next(fs_track *track, fs_cell *cell) {
    fs_lap *lap = &track->laps[track->n_laps];
    if (track->state == FS_LAP && lap->left >= 0 && !track->fresh) {
        int64_t at = fs_span_now(track->log);
        fs_lap_end(track, at);
        fs_lap_begin(track, cell, track->n_laps > 0 ? at : track->last);
    } else {
        fs_step_follow(track, cell);
    }
}

static inline void fs_scope_end(fs_scope *scope) {
    fs_track *track = scope->track;
    fs_scope **open = track->log->open;
    fs_lap *lap = &track->laps[track->n_laps];
    if (track->state == FS_LAP && lap->left >= 0 && *open == scope) {
        *open = scope->next;
        fs_lap_end(track, lap->left);
    } else {
        fs_scope_finish(scope);
    }
}

/* The newest of a thread; NULL if it is in the middle of nothing. */
fs_scope *fs_scope_of(fs_scope *open, const void *thread);

#pragma GCC visibility pop

#endif

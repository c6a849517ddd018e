/* The loop in C by itself, without Python: every event, under sanitizers. Exits with the number of failed checks. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "clock.h"
#include "drive.h"

static uint64_t changes;

static int go_on(fs_loop *loop, void *context) {
    loop->result = (double)loop->global_step;
    if (context != NULL) ++*(int64_t *)context;
    return FS_GO_ON;
}

static int end_at_5(fs_loop *loop, void *context) {
    (void)context;
    return loop->steps == 5 ? FS_STOP : FS_GO_ON;
}

static int fail_at_5(fs_loop *loop, void *context) {
    return loop->steps == 5 ? fs_drive_fail(loop, context) : FS_GO_ON;
}

static int count(const fs_loop *loop, void *context) {
    (void)loop;
    ++*(int64_t *)context;
    return FS_GO_ON;
}

static int stop_at_7(const fs_loop *loop, void *context) {
    (void)context;
    return loop->global_step == 7 ? FS_STOP : FS_GO_ON;
}

static int odd_code(const fs_loop *loop, void *context) {
    (void)loop;
    (void)context;
    return 42;
}

/* A loop with n hooks in C of one kind, the positions in one allocation that the caller frees. */
static fs_drive *with_hooks(size_t n, fs_hook_fn function, void *context, fs_schedule schedule, fs_due **dues) {
    fs_drive *drive = fs_drive_new(n, &changes);
    *dues = calloc(n + 1, sizeof **dues);
    if (drive == NULL || *dues == NULL) abort();
    drive->step = go_on;
    for (size_t i = 0; i < n; ++i) {
        fs_due_clear(&(*dues)[i]);
        drive->slots[i] = (fs_slot){function, context, schedule, &(*dues)[i], 0};
        fs_slot_advance(&drive->slots[i], 0, fs_clock_seconds());
    }
    fs_drive_reload(drive);
    return drive;
}

static void close_drive(fs_drive *drive, fs_due *dues) {
    fs_drive_free(drive);
    free(dues);
}

static void check_ends(void) {
    fs_due *dues;
    fs_drive *drive = with_hooks(0, NULL, NULL, (fs_schedule){0, 0.0}, &dues);
    CHECK(isnan(drive->loop.result));
    drive->max_steps = 10;
    CHECK(fs_drive_run(drive) == FS_ENDED && drive->loop.steps == 10 && drive->loop.result == 9.0);
    CHECK(fs_drive_run(drive) == FS_ENDED && drive->loop.steps == 10);
    close_drive(drive, dues);

    /* The limit is a global step, and may be reached before the first step. */
    drive = with_hooks(0, NULL, NULL, (fs_schedule){0, 0.0}, &dues);
    drive->max_steps = 10;
    drive->loop.global_step = 6;
    CHECK(fs_drive_steps_until_due(drive) == 4);
    CHECK(fs_drive_run(drive) == FS_ENDED && drive->loop.steps == 4 && drive->loop.global_step == 10);
    drive->max_steps = 9;
    CHECK(fs_drive_run(drive) == FS_ENDED && drive->loop.steps == 4);
    close_drive(drive, dues);

    drive = with_hooks(0, NULL, NULL, (fs_schedule){0, 0.0}, &dues);
    drive->step = end_at_5;
    CHECK(fs_drive_run(drive) == FS_ENDED && drive->loop.steps == 5);
    close_drive(drive, dues);

    drive = with_hooks(1, stop_at_7, NULL, (fs_schedule){1, 0.0}, &dues);
    CHECK(fs_drive_run(drive) == FS_ENDED && drive->loop.steps == 7);
    close_drive(drive, dues);
}

static void check_failures(void) {
    fs_due *dues;
    char text[2 * FS_MESSAGE_SIZE];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    fs_drive *drive = with_hooks(0, NULL, NULL, (fs_schedule){0, 0.0}, &dues);
    drive->step = fail_at_5;
    drive->step_context = text;
    CHECK(fs_drive_run(drive) == FS_STEP_FAILED && drive->loop.steps == 5 && drive->code == -1);
    CHECK(strlen(drive->message) == FS_MESSAGE_SIZE - 1);
    close_drive(drive, dues);

    drive = with_hooks(0, NULL, NULL, (fs_schedule){0, 0.0}, &dues);
    drive->step = fail_at_5;
    CHECK(fs_drive_run(drive) == FS_STEP_FAILED && drive->message[0] == '\0');
    close_drive(drive, dues);

    drive = with_hooks(1, odd_code, NULL, (fs_schedule){3, 0.0}, &dues);
    CHECK(fs_drive_run(drive) == FS_HOOK_FAILED && drive->loop.steps == 3 && drive->code == 42);
    close_drive(drive, dues);
}

static void check_schedules(void) {
    int64_t calls = 0;
    fs_due *dues;
    fs_drive *drive = with_hooks(1024, count, &calls, (fs_schedule){7, 0.0}, &dues);
    drive->max_steps = 70;
    CHECK(fs_drive_run(drive) == FS_ENDED && calls == 1024 * 10 && drive->n_always == 0);
    close_drive(drive, dues);

    /* A resumed loop: at multiples of the interval. */
    calls = 0;
    drive = with_hooks(1, count, &calls, (fs_schedule){5, 0.0}, &dues);
    drive->loop.global_step = 3;
    fs_slot_advance(&drive->slots[0], 3, 0.0);
    CHECK(drive->slots[0].due->global_step == 5);
    fs_drive_reload(drive);
    drive->max_steps = 15;
    CHECK(fs_drive_run(drive) == FS_ENDED && calls == 3 && drive->slots[0].due->global_step == 20);
    close_drive(drive, dues);

    calls = 0;
    drive = with_hooks(3, count, &calls, (fs_schedule){1, 0.0}, &dues);
    drive->max_steps = 70;
    CHECK(fs_drive_run(drive) == FS_ENDED && calls == 3 * 70 && drive->n_always == 3);
    close_drive(drive, dues);

    /* An interval beyond the largest step: never due, and no overflow. */
    calls = 0;
    drive = with_hooks(1, count, &calls, (fs_schedule){INT64_MAX, 0.0}, &dues);
    drive->loop.global_step = 10;
    fs_slot_advance(&drive->slots[0], drive->loop.global_step, 0.0);
    fs_drive_reload(drive);
    drive->max_steps = 20;
    CHECK(fs_drive_run(drive) == FS_ENDED && drive->loop.steps == 10 && calls == 0);
    close_drive(drive, dues);

    /* By time, and not before. */
    calls = 0;
    drive = with_hooks(1, count, &calls, (fs_schedule){0, 0.02}, &dues);
    double began = fs_clock_seconds();
    while (calls < 2) CHECK(fs_drive_run(drive) == FS_SIGNALS_DUE || calls >= 2);
    CHECK(fs_clock_seconds() - began >= 0.04 - 1e-6);
    close_drive(drive, dues);
}

static void check_hooks_that_need_python(void) {
    int64_t calls = 0;
    fs_due *dues;
    fs_drive *drive = with_hooks(3, count, &calls, (fs_schedule){1, 0.0}, &dues);
    drive->slots[1].function = NULL;
    dues[1].run = FS_DUE_NEVER;
    dues[1].global_step = 4;
    fs_drive_reload(drive);
    /* The hooks are called in order: the first, the one in Python by the caller, and then the last. */
    CHECK(fs_drive_run(drive) == FS_HOOK_DUE && drive->loop.steps == 4 && calls == 3 * 2 + 1);
    CHECK(drive->due_slot == &drive->slots[1]);
    dues[1].global_step = FS_DUE_NEVER;
    CHECK(fs_drive_call_due(drive) == FS_NOTHING_DUE && calls == 4 * 2);
    /* A position changed from outside is heard of. */
    ++changes;
    CHECK(fs_drive_run(drive) == FS_SCHEDULES_CHANGED && drive->loop.steps == 5 && calls == 4 * 2);
    CHECK(fs_drive_call_due(drive) == FS_NOTHING_DUE && calls == 5 * 2);
    close_drive(drive, dues);
}

static int reached = 0;

static int other_clock(double time) {
    (void)time;
    return reached;
}

static double other_time(void) {
    return 5.0;
}

static void check_another_clock(void) {
    const fs_drive_clock clock = {other_clock, other_time};
    int64_t calls = 0;
    fs_due *dues;
    fs_drive *drive = with_hooks(1, count, &calls, (fs_schedule){0, 1e6}, &dues);
    drive->clock = &clock;
    drive->max_steps = 3;
    CHECK(fs_drive_run(drive) == FS_ENDED && calls == 0);
    drive->max_steps = 4;
    reached = 1;
    CHECK(fs_drive_run(drive) == FS_ENDED && calls == 1 && dues[0].time == 5.0 + 1e6);
    drive->max_steps = 5;
    reached = -1;
    CHECK(fs_drive_run(drive) == FS_HOOK_FAILED && drive->code == -1 && drive->due_slot == NULL && calls == 1);
    close_drive(drive, dues);
}

/* For a caller that times each hook. */
static void check_calls_by_the_caller(void) {
    int64_t calls = 0;
    fs_due *dues;
    fs_drive *drive = with_hooks(1, count, &calls, (fs_schedule){3, 0.0}, &dues);
    drive->calls_no_hook = 1;
    CHECK(fs_drive_step_done(drive) == FS_NOTHING_DUE && fs_drive_step_done(drive) == FS_NOTHING_DUE);
    CHECK(fs_drive_step_done(drive) == FS_HOOK_DUE && drive->due_slot == &drive->slots[0]);
    CHECK(fs_drive_call_due(drive) == FS_NOTHING_DUE && drive->loop.global_step == 3 && calls == 0);
    CHECK(fs_drive_step_done(drive) == FS_NOTHING_DUE && dues[0].global_step == 6);
    close_drive(drive, dues);

    drive = with_hooks(2, count, &calls, (fs_schedule){1, 0.0}, &dues);
    drive->calls_no_hook = 1;
    CHECK(fs_drive_step_done(drive) == FS_HOOK_DUE && fs_drive_call_due(drive) == FS_HOOK_DUE);
    CHECK(fs_drive_call_due(drive) == FS_NOTHING_DUE && drive->n_always == 2 && calls == 0);
    close_drive(drive, dues);
}

/* For a caller that makes several steps at once. */
static void check_several_steps(void) {
    int64_t calls = 0;
    fs_due *dues;
    fs_drive *drive = with_hooks(2, count, &calls, (fs_schedule){10, 0.0}, &dues);
    drive->max_steps = 25;
    CHECK(fs_drive_steps_until_due(drive) == 10);
    CHECK(fs_drive_steps_done(drive, 4) == FS_NOTHING_DUE && drive->loop.steps == 4 && calls == 0);
    CHECK(fs_drive_steps_until_due(drive) == 6);
    CHECK(fs_drive_steps_done(drive, 6) == FS_NOTHING_DUE && calls == 2 && drive->loop.global_step == 10);
    CHECK(fs_drive_steps_done(drive, 10) == FS_NOTHING_DUE && calls == 4);
    CHECK(fs_drive_steps_until_due(drive) == 5);
    CHECK(fs_drive_steps_done(drive, 5) == FS_NOTHING_DUE && fs_drive_is_done(drive));
    CHECK(fs_drive_steps_until_due(drive) == 1);
    close_drive(drive, dues);

    /* A hook in C that is due after every step is called after every step. */
    drive = with_hooks(1, count, &calls, (fs_schedule){1, 0.0}, &dues);
    CHECK(fs_drive_step_done(drive) == FS_NOTHING_DUE && fs_drive_steps_until_due(drive) == 1);
    close_drive(drive, dues);

    /* One that needs Python, and takes several results, ends no stretch, but only where there are stretches. */
    drive = with_hooks(1, NULL, NULL, (fs_schedule){1, 0.0}, &dues);
    drive->slots[0].takes_several = 1;
    fs_drive_reload(drive);
    CHECK(fs_drive_steps_until_due(drive) == 1);
    drive->makes_several = 1;
    fs_drive_reload(drive);
    CHECK(fs_drive_steps_until_due(drive) == INT64_MAX);
    CHECK(fs_drive_steps_done(drive, 7) == FS_NOTHING_DUE && fs_drive_call_due(drive) == FS_HOOK_DUE);
    close_drive(drive, dues);

    /* Due by the number of a run, or long ago. */
    drive = with_hooks(1, NULL, NULL, (fs_schedule){0, 0.0}, &dues);
    dues[0].run = 3;
    fs_drive_reload(drive);
    CHECK(fs_drive_steps_until_due(drive) == 4);
    dues[0].run = -5;
    fs_drive_reload(drive);
    CHECK(fs_drive_steps_until_due(drive) == 1);
    close_drive(drive, dues);
}

static void check_stop_from_outside(void) {
    fs_due *dues;
    int64_t steps = 0;
    fs_drive *drive = with_hooks(0, NULL, NULL, (fs_schedule){0, 0.0}, &dues);
    drive->step_context = &steps;
    CHECK(fs_drive_run(drive) == FS_SIGNALS_DUE && steps == drive->loop.steps && steps > 0);
    fs_drive_request_stop(&drive->loop);
    CHECK(fs_drive_is_done(drive) && fs_drive_run(drive) == FS_ENDED && steps == drive->loop.steps);
    close_drive(drive, dues);
}

int main(void) {
    check_ends();
    check_failures();
    check_schedules();
    check_hooks_that_need_python();
    check_another_clock();
    check_calls_by_the_caller();
    check_several_steps();
    check_stop_from_outside();
    return failures;
}

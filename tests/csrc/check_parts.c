/* The clock, the due positions and the timer's decision. Exits with the number of failed checks. */
#include <math.h>
#include <stdio.h>
#include <time.h>

#include "check.h"
#include "clock.h"
#include "fastsup/due.h"
#include "fastsup/timer.h"

static void check_clock(void) {
    double now = fs_clock_seconds();
    CHECK(fabs(now - (double)time(NULL)) < 2.0);
    CHECK(fs_clock_reached(now));
    CHECK(!fs_clock_reached(now + 3600.0));
    CHECK(!fs_clock_reached(HUGE_VAL));
    double steady = fs_clock_steady();
    CHECK(steady >= now - 0.1 && steady < now + 10.0);
    CHECK(fs_clock_steady_reached(steady));
    CHECK(!fs_clock_steady_reached(steady + 3600.0));
    CHECK(!fs_clock_steady_reached(HUGE_VAL));
    double tick = fs_clock_ticking();
    while (fs_clock_ticking() == tick) continue;
    CHECK(fs_clock_ticking() > tick);
}

static void check_due(void) {
    fs_due due, other;
    fs_due_clear(&due);
    fs_due_clear(&other);
    CHECK(!fs_due_reached(&due, INT64_MAX - 1, INT64_MAX - 1, 1e300));
    due.run = 5;
    other.global_step = -3;
    other.time = 2.5;
    fs_due both[] = {due, other}, earliest = fs_due_earliest(both, 2);
    CHECK(earliest.run == 5 && earliest.global_step == -3 && earliest.time == 2.5);
    CHECK(fs_due_reached(&earliest, 5, -4, 2.0) && fs_due_reached(&earliest, 4, -3, 2.0));
    CHECK(fs_due_reached(&earliest, 4, -4, 2.5) && !fs_due_reached(&earliest, 4, -4, 2.0));
    earliest = fs_due_earliest(NULL, 0);
    CHECK(earliest.run == FS_DUE_NEVER && earliest.global_step == FS_DUE_NEVER && earliest.time == HUGE_VAL);
}

static void check_timer(void) {
    fs_timer timer = {.every_steps = 10, .every_secs = -1.0};
    CHECK(fs_timer_ask_step(&timer, 3) == FS_TIMER_YES);
    timer.triggered = 1;
    timer.last_step = INT64_MIN;
    CHECK(fs_timer_ask_step(&timer, INT64_MIN) == FS_TIMER_NO);
    CHECK(fs_timer_ask_step(&timer, INT64_MIN + 9) == FS_TIMER_NO);
    CHECK(fs_timer_ask_step(&timer, INT64_MIN + 10) == FS_TIMER_YES);
    CHECK(fs_timer_ask_step(&timer, INT64_MAX) == FS_TIMER_YES);
    timer.every_secs = 2.0;
    timer.last_time = 100.0;
    CHECK(fs_timer_ask_step(&timer, 0) == FS_TIMER_ASK_CLOCK);
    CHECK(!fs_timer_time_due(&timer, 101.9) && fs_timer_time_due(&timer, 102.0));
}

int main(void) {
    check_clock();
    check_due();
    check_timer();
    return failures;
}

/* The clock, the due positions and the timer's decision. Exits with the number of failed checks. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "check.h"
#include "clock.h"
#include "fastsup/due.h"
#include "fastsup/timer.h"

static void check_clock(void) {
    double now = fs_clock_seconds();
    CHECK(fabs(now - (double)time(NULL)) < 2.0);
    double latest = 0.0;
    int set_back = 0;
    CHECK(fs_clock_reached(now, &latest, &set_back));
    CHECK(!fs_clock_reached(now + 3600.0, &latest, &set_back));
    CHECK(!fs_clock_reached(HUGE_VAL, &latest, &set_back) && set_back == 0);
    latest += 3600.0;
    CHECK(!fs_clock_reached(HUGE_VAL, &latest, &set_back) && set_back == 1 && latest < now + 60.0);
    double steady = fs_clock_steady();
    CHECK(steady >= now - 0.1 && steady < now + 10.0);
    CHECK(fs_clock_steady_reached(steady));
    CHECK(!fs_clock_steady_reached(steady + 3600.0));
    CHECK(!fs_clock_steady_reached(HUGE_VAL));
    double tick = fs_clock_ticking();
    while (fs_clock_ticking() == tick) continue;
    CHECK(fs_clock_ticking() > tick);
}

static double now = 0.0;
static int clock_reads = 0;

static int reached(double time) {
    ++clock_reads;
    return now >= time;
}

static void check_due(void) {
    fs_due due, other;
    fs_due_clear(&due);
    fs_due_clear(&other);
    now = 1e300;
    CHECK(!fs_due_reached(&due, INT64_MAX - 1, INT64_MAX - 1, reached));
    due.run = 5;
    other.global_step = -3;
    other.time = 2.5;
    uint64_t changes = 7;
    fs_due_table table;
    if (fs_due_table_init(&table, 2, &changes) != 0) abort();
    CHECK(table.earliest.run == FS_DUE_NEVER && table.earliest.time == HUGE_VAL);
    table.dues[0] = &due;
    table.dues[1] = &other;
    fs_due_table_reload(&table);
    const fs_due *earliest = &table.earliest;
    CHECK(earliest->run == 5 && earliest->global_step == -3 && earliest->time == 2.5);
    now = 2.0;
    CHECK(fs_due_reached(earliest, 5, -4, reached) && fs_due_reached(earliest, 4, -3, reached) && clock_reads == 0);
    CHECK(!fs_due_reached(earliest, 4, -4, reached));
    now = 2.5;
    CHECK(fs_due_reached(earliest, 4, -4, reached) && clock_reads == 2);
    CHECK(!fs_due_table_changed(&table));
    ++changes;
    CHECK(fs_due_table_changed(&table));
    fs_due_table_reload(&table);
    CHECK(!fs_due_table_changed(&table));
    fs_due_table_free(&table);
    if (fs_due_table_init(&table, 0, &changes) != 0) abort();
    CHECK(table.earliest.run == FS_DUE_NEVER && table.earliest.global_step == FS_DUE_NEVER);
    fs_due_table_free(&table);
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

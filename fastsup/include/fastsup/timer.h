/* The decision of SecondOrStepTimer, without the timer's clock. */
#ifndef FASTSUP_TIMER_H
#define FASTSUP_TIMER_H

#include <stdint.h>

typedef struct {
    int64_t every_steps; /* 0 if the timer isn't step-based */
    double every_secs;   /* negative if the timer isn't time-based */
    int64_t last_step;
    double last_time;
    int triggered; /* 1 if last_step and last_time contain a trigger */
} fs_timer;

/* The decision by the step only. */
typedef enum {
    FS_TIMER_NO = 0,
    FS_TIMER_YES = 1,
    FS_TIMER_ASK_CLOCK = 2 /* call fs_timer_time_due() with a clock reading */
} fs_timer_answer;

fs_timer_answer fs_timer_ask_step(const fs_timer *timer, int64_t step);
int fs_timer_time_due(const fs_timer *timer, double now);

#endif

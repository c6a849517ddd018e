#include "fastsup/timer.h"

fs_timer_answer fs_timer_ask_step(const fs_timer *timer, int64_t step) {
    if (!timer->triggered) return FS_TIMER_YES;
    if (step == timer->last_step) return FS_TIMER_NO;
    if (timer->every_secs >= 0.0) return FS_TIMER_ASK_CLOCK;
    /* last_step + every_steps could overflow. */
    return step >= timer->last_step && (uint64_t)step - (uint64_t)timer->last_step >= (uint64_t)timer->every_steps
               ? FS_TIMER_YES
               : FS_TIMER_NO;
}

int fs_timer_time_due(const fs_timer *timer, double now) {
    return now >= timer->last_time + timer->every_secs;
}

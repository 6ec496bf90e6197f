/*
 * See schedule.h. Counters in, an action out: the proof that it neither deadlocks nor keeps more than `limit` micro-batches
 * is tests/unit/schedule.c, which runs it in a simulated pipeline.
 */
#include "gpu/train/schedule.h"

#include <math.h>
#include <stdbool.h>

#include "ssh/base/why.h"

int schedule_limit(int stage, int stages, int micro_batches, int slots, double t, double delay, double transfer)
{
    BUG_IF(stage < 0 || stage >= stages || micro_batches < 0 || slots < 1);
    int behind = stages - 1 - stage; /* stages after this one */
    double pace = fmax(t, transfer);
    double wanted = behind + 1;
    /* From the start of a forward until its gradient is back own and later stages compute once and 2·behind hops pass. One
     * more, because what arrives in the middle of a computation waits for its end: the bare formula loses up to 11 %, this 7
     * %. */
    if (pace > 0 && behind > 0 && delay + transfer > 0)
        wanted = fmax(wanted, 1 + ceil(((behind + 1) * t + 2.0 * behind * (delay + transfer)) / pace - 1e-9));
    int limit = wanted < slots ? (int)wanted : slots;
    if (limit > micro_batches)
        limit = micro_batches;
    return limit < 1 ? 1 : limit;
}

void schedule_begin(struct schedule *schedule, int stage, int stages, int micro_batches, int limit)
{
    BUG_IF(stage < 0 || stage >= stages || micro_batches < 0 || limit < 1);
    *schedule = (struct schedule){.stage = stage, .stages = stages, .micro_batches = micro_batches, .limit = limit};
    if (stage == 0)
        schedule->arrived_activations = micro_batches;
}

enum schedule_action schedule_next(const struct schedule *schedule)
{
    if (schedule->backwarded == schedule->micro_batches)
        return SCHEDULE_DONE;
    int gradients = schedule->stage == schedule->stages - 1 ? schedule->forwarded : schedule->arrived_gradients;
    if (gradients > schedule->backwarded)
        return SCHEDULE_BACKWARD;
    bool room = schedule->forwarded - schedule->backwarded < schedule->limit;
    if (schedule->forwarded == schedule->micro_batches || !room)
        return SCHEDULE_WAIT_GRAD;
    return schedule->arrived_activations > schedule->forwarded ? SCHEDULE_FORWARD : SCHEDULE_WAIT_ACT;
}

#include "scheduler/deliver.h"

#include <math.h>

#define MARGIN 1.15    /* faster than needed: estimates err */
#define HEADROOM 0.95  /* of a road's capacity that may be spoken for */
#define FLOOR 0.02     /* of it that a snapshot always gets */
#define LEAST_BPS 1e7  /* where the capacity is not known */
#define SOON_STEPS 3   /* told so long before */
#define LEAD_STEPS 3.0 /* from the directions' arrival to the stamp that names them */

double deliver_seconds_left(const struct deliver_goal *goal)
{
    double steps = (double)goal->version + (double)goal->staleness - LEAD_STEPS - goal->step;
    return steps * goal->step_seconds - goal->compute_seconds;
}

void deliver_pace(const struct deliver_road *road, double seconds_left, struct deliver_pace *pace)
{
    double bits = 8 * (double)road->left_bytes, wanted = seconds_left > 0 ? MARGIN * bits / seconds_left : INFINITY;
    double floor = road->capacity_bps > 0 ? FLOOR * road->capacity_bps : LEAST_BPS;
    double room = road->capacity_bps > 0 ? HEADROOM * road->capacity_bps - road->busy_bps : INFINITY;
    room = room > floor ? room : floor;
    *pace = (struct deliver_pace){.rate_bps = wanted < floor  ? floor
                                              : wanted > room ? room
                                                              : wanted,
                                  .limited = wanted > room};
    pace->seconds = bits / pace->rate_bps;
}

uint64_t deliver_use_step(uint64_t version, uint64_t staleness, uint64_t newest)
{
    uint64_t wished = version + staleness, possible = newest + 2;
    return wished > possible ? wished : possible;
}

int deliver_choose(const struct deliver_directions *all, int count, uint64_t everyone, uint64_t used, uint64_t staleness,
                   uint64_t newest, uint64_t *from)
{
    int chosen = -1;
    for (int i = 0; i < count; i++) {
        uint64_t step = deliver_use_step(all[i].version, staleness, newest);
        if (all[i].version <= used || (all[i].holders & everyone) != everyone)
            continue;
        if (all[i].told_from && newest <= all[i].told_from + SOON_STEPS)
            return -1;
        if (all[i].told_from || step > newest + SOON_STEPS || (chosen >= 0 && all[i].version < all[chosen].version))
            continue;
        chosen = i;
        *from = step;
    }
    return chosen;
}

bool deliver_is_due(uint64_t last, uint64_t every, uint64_t newest)
{
    return last == 0 || newest + 1 >= last + every;
}

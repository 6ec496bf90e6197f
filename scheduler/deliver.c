#include "scheduler/deliver.h"

#include <math.h>

#define MARGIN 1.15    /* faster than needed: estimates err */
#define HEADROOM 0.95  /* of a road's capacity that may be spoken for */
#define FLOOR 0.02     /* of it that a snapshot always gets */
#define LEAST_BPS 1e6  /* the floor where the capacity is not known: 2 % of 50 Mbit/s */
#define SOON_STEPS 3   /* told so long before */
#define LEAD_STEPS 3.0 /* from the directions' arrival to the stamp that names them */
#define HURRY 0.2      /* of the staleness: what is nearly late takes so long all the same */
#define CALM 0.5       /* of the staleness, or of what the anchor takes if that is longer: no haste brings in time what is late */

struct deliver_time deliver_time(const struct deliver_goal *goal)
{
    double steps = (double)goal->version + (double)goal->staleness - LEAD_STEPS - goal->step;
    double left = steps * goal->step_seconds - (goal->computed ? 0 : goal->compute_seconds);
    double staleness = (double)goal->staleness * goal->step_seconds;
    return (struct deliver_time){.left = left,
                                 .least = left > 0 ? HURRY * staleness : CALM * fmax(staleness, goal->compute_seconds)};
}

static double floor_bps(const struct deliver_road *road)
{
    return road->capacity_bps > 0 ? FLOOR * road->capacity_bps : LEAST_BPS;
}

/* INFINITY: nobody knows. */
static double room_bps(const struct deliver_road *road)
{
    double room = road->capacity_bps > 0 ? HEADROOM * road->capacity_bps - road->busy_bps : INFINITY;
    return fmax(room, floor_bps(road));
}

struct deliver_time deliver_time_out(const struct deliver_time *both, const struct deliver_road *back, uint64_t out_bytes)
{
    double bytes = (double)back->whole_bytes, needs = 8 * MARGIN * bytes / room_bps(back);
    double share = bytes > 0 ? bytes / (bytes + (double)out_bytes) : 0;
    return (struct deliver_time){.left = both->left - fmax(both->left * share, needs), .least = both->least};
}

void deliver_pace(const struct deliver_road *road, const struct deliver_time *time, struct deliver_pace *pace)
{
    double bits = 8 * (double)road->left_bytes, room = room_bps(road), most = 8 * (double)road->whole_bytes / time->least;
    double wanted = time->left > 0 ? fmin(MARGIN * bits / time->left, most) : most;
    *pace = (struct deliver_pace){.rate_bps = fmin(fmax(wanted, floor_bps(road)), room), .limited = wanted > room};
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

#include "scheduler/lives.h"

#include "ssh/base/clock.h"

#define WITHIN_NS ((uint64_t)600 * CLOCK_SECOND)
#define PAUSE_NS (2 * CLOCK_SECOND) /* between the first start and the second, twice as much after that */

bool lives_take(struct lives *lives, uint64_t now_ns)
{
    uint64_t newest_ns = 0, *oldest = &lives->started_ns[0];
    int used = 0;
    for (int i = 0; i < LIVES_MOST; i++) {
        uint64_t *at = &lives->started_ns[i];
        oldest = *at < *oldest ? at : oldest;
        newest_ns = *at > newest_ns ? *at : newest_ns;
        used += *at && now_ns - *at <= WITHIN_NS;
    }
    lives->over |= used == LIVES_MOST;
    if (lives->over || (used && now_ns - newest_ns < PAUSE_NS << (used - 1)))
        return false;
    *oldest = now_ns;
    return true;
}

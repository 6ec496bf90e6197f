#include "ssh/link/pace.h"

#include "ssh/base/clock.h"

#define PACE_BURST_NS (20 * CLOCK_MS)
#define PACE_BURST_MIN 4096

/* value * num / den without overflow, saturating: 128 bits hold every product of two 64-bit numbers. */
static uint64_t pace_scale(uint64_t value, uint64_t num, uint64_t den)
{
    unsigned __int128 result = (unsigned __int128)value * num / den;
    return result > UINT64_MAX ? UINT64_MAX : (uint64_t)result;
}

static uint64_t pace_scale_up(uint64_t value, uint64_t num, uint64_t den)
{
    unsigned __int128 result = ((unsigned __int128)value * num + den - 1) / den;
    return result > UINT64_MAX ? UINT64_MAX : (uint64_t)result;
}

/* Time advances only by what whole bytes cost, so that asking often does not lose the rest. */
static void pace_fill(struct pace *pace, uint64_t now_ns)
{
    if (now_ns <= pace->filled_ns)
        return;
    uint64_t passed_ns = now_ns - pace->filled_ns;
    uint64_t bytes = pace_scale(passed_ns, pace->bits_per_second, 8 * CLOCK_SECOND);
    uint64_t room = (uint64_t)((int64_t)pace->burst_bytes - pace->tokens);
    if (bytes >= room) {
        pace->tokens = (int64_t)pace->burst_bytes;
        pace->filled_ns = now_ns;
        return;
    }
    pace->tokens += (int64_t)bytes;
    pace->filled_ns += pace_scale_up(bytes, 8 * CLOCK_SECOND, pace->bits_per_second);
}

static uint64_t pace_burst(uint64_t bits_per_second)
{
    uint64_t burst = pace_scale(bits_per_second, PACE_BURST_NS, 8 * CLOCK_SECOND);
    if (burst < PACE_BURST_MIN)
        return PACE_BURST_MIN;
    return burst > INT64_MAX / 4 ? INT64_MAX / 4 : burst;
}

void pace_init(struct pace *pace, uint64_t bits_per_second, uint64_t now_ns)
{
    *pace = (struct pace){.bits_per_second = bits_per_second, .filled_ns = now_ns};
    pace->burst_bytes = pace_burst(bits_per_second);
    pace->tokens = (int64_t)pace->burst_bytes;
}

void pace_set(struct pace *pace, uint64_t bits_per_second, uint64_t now_ns)
{
    if (pace->bits_per_second)
        pace_fill(pace, now_ns);
    pace->filled_ns = now_ns;
    pace->bits_per_second = bits_per_second;
    pace->burst_bytes = pace_burst(bits_per_second);
    if (pace->tokens > (int64_t)pace->burst_bytes)
        pace->tokens = (int64_t)pace->burst_bytes;
}

uint64_t pace_wait_above_ns(struct pace *pace, int64_t reserve_bytes, uint64_t now_ns)
{
    if (pace->bits_per_second == 0)
        return 0;
    pace_fill(pace, now_ns);
    if (reserve_bytes > (int64_t)pace->burst_bytes / 2)
        reserve_bytes = (int64_t)pace->burst_bytes / 2;
    if (pace->tokens > reserve_bytes)
        return 0;
    uint64_t missing = (uint64_t)reserve_bytes - (uint64_t)pace->tokens + 1;
    uint64_t cost_ns = pace_scale_up(missing, 8 * CLOCK_SECOND, pace->bits_per_second);
    uint64_t since_ns = now_ns > pace->filled_ns ? now_ns - pace->filled_ns : 0;
    return cost_ns > since_ns ? cost_ns - since_ns : 1;
}

uint64_t pace_wait_ns(struct pace *pace, uint64_t now_ns)
{
    return pace_wait_above_ns(pace, 0, now_ns);
}

void pace_spend(struct pace *pace, uint64_t bytes)
{
    if (pace->bits_per_second == 0)
        return;
    /* A debt that years would not pay is of no use to anybody, and the counter must not wrap. */
    int64_t floor = -(INT64_MAX / 4);
    int64_t spent = bytes > INT64_MAX / 4 ? INT64_MAX / 4 : (int64_t)bytes;
    pace->tokens = pace->tokens < floor + spent ? floor : pace->tokens - spent;
}

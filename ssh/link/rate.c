#include "ssh/link/rate.h"

#include "ssh/base/clock.h"

#define RATE_WINDOW_NS (50 * CLOCK_MS)
#define RATE_LEAST_NS (10 * CLOCK_MS) /* a shorter window says nothing */

void rate_add(struct rate *rate, uint64_t bytes)
{
    if (rate->busy)
        rate->bytes += bytes;
}

static void rate_sample(struct rate *rate, uint64_t passed_ns)
{
    double sample = (double)rate->bytes * 8e9 / (double)passed_ns;
    double known = (double)rate->bits_per_second;
    /* The first sample counts whole; a road that changes is followed within some windows. */
    double next = rate->bits_per_second ? known + (sample - known) / 3 : sample;
    rate->bits_per_second = next < 1 ? 1 : next > 1e15 ? (uint64_t)1e15 : (uint64_t)next;
}

void rate_busy(struct rate *rate, uint64_t now_ns)
{
    uint64_t passed_ns = now_ns - rate->begin_ns;
    if (rate->busy && passed_ns < RATE_WINDOW_NS)
        return;
    if (rate->busy)
        rate_sample(rate, passed_ns);
    rate->busy = true;
    rate->begin_ns = now_ns;
    rate->bytes = 0;
}

void rate_idle(struct rate *rate, uint64_t now_ns)
{
    if (rate->busy && now_ns - rate->begin_ns >= RATE_LEAST_NS)
        rate_sample(rate, now_ns - rate->begin_ns);
    rate->busy = false;
}

#include "ssh/session/throughput.h"

#include "ssh/base/clock.h"

#define LATE_NS (2 * CLOCK_SECOND) /* it is about so old */

void throughput_begin(struct throughput *throughput, uint64_t now_ns)
{
    *throughput = (struct throughput){.since_ns = now_ns};
}

void throughput_add(struct throughput *throughput, uint64_t bytes, uint64_t now_ns)
{
    uint64_t passed_ns = now_ns - throughput->since_ns;
    throughput->bytes += (double)bytes;
    if (passed_ns < LATE_NS)
        return;
    throughput->bytes /= 2;
    throughput->away_ns /= 2;
    throughput->since_ns = now_ns - passed_ns / 2;
}

void throughput_away(struct throughput *throughput, uint64_t ns)
{
    throughput->away_ns += ns;
}

double throughput_get(const struct throughput *throughput, uint64_t now_ns)
{
    uint64_t passed_ns = now_ns - throughput->since_ns;
    return passed_ns > throughput->away_ns ? throughput->bytes / ((double)(passed_ns - throughput->away_ns) / 1e9) : 0;
}

#include "ssh/base/clock.h"

#include <stdatomic.h>
#include <time.h>

static atomic_bool owned;
static atomic_uint_least64_t owned_ns;

static uint64_t clock_read_ns(clockid_t id)
{
    struct timespec now;
    clock_gettime(id, &now);
    return (uint64_t)now.tv_sec * CLOCK_SECOND + (uint64_t)now.tv_nsec;
}

uint64_t clock_now_ns(void)
{
    return atomic_load(&owned) ? atomic_load(&owned_ns) : clock_read_ns(CLOCK_MONOTONIC);
}

uint64_t clock_wall_ns(void)
{
    return clock_read_ns(CLOCK_REALTIME);
}

uint64_t clock_wall_ms(void)
{
    return clock_wall_ns() / CLOCK_MS;
}

void clock_own(uint64_t start_ns)
{
    atomic_store(&owned_ns, start_ns);
    atomic_store(&owned, true);
}

void clock_advance_ns(uint64_t by_ns)
{
    atomic_fetch_add(&owned_ns, by_ns);
}

void clock_disown(void)
{
    atomic_store(&owned, false);
}

bool clock_is_owned(void)
{
    return atomic_load(&owned);
}

#include "tests/helpers/flaky.h"

#include "ssh/base/mem.h"

struct road_flaky {
    struct road road;
    struct road *below;
    struct loop *loop;
    struct loop_timer *again;
    uint64_t random;
    bool stingy, refused[3]; /* each call of a kind is refused once, and then moves a byte or two */
};

uint64_t flaky_random(uint64_t *state, uint64_t below)
{
    uint64_t x = *state += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (x ^ (x >> 31)) % below;
}

/* A length in 1..count, small ones often. */
static size_t flaky_length(struct road_flaky *flaky, size_t count)
{
    size_t few = flaky->stingy ? 2 : 50;
    size_t most = !flaky->stingy && flaky_random(&flaky->random, 3) ? count : count < few ? count : few;
    return 1 + (size_t)flaky_random(&flaky->random, most);
}

enum call { CALL_OTHER, CALL_READ, CALL_WRITE };

static bool flaky_refuses(struct road_flaky *flaky, enum call call)
{
    flaky->refused[call] = flaky->stingy ? !flaky->refused[call] : !flaky_random(&flaky->random, 4);
    if (!flaky->refused[call])
        return false;
    loop_timer_set(flaky->again, 0);
    return true;
}

static void flaky_ready(void *arg)
{
    struct road_flaky *flaky = arg;
    if (flaky->road.ready)
        flaky->road.ready(flaky->road.ready_arg);
}

static int flaky_start(struct road *base, struct why *why)
{
    struct road_flaky *flaky = (struct road_flaky *)base;
    return flaky_refuses(flaky, CALL_OTHER) ? ERR_AGAIN : road_start(flaky->below, why);
}

static void flaky_want(struct road *base, bool read, bool write)
{
    road_want(((struct road_flaky *)base)->below, read, write);
}

static ssize_t flaky_read(struct road *base, uint8_t *bytes, size_t room, struct why *why)
{
    struct road_flaky *flaky = (struct road_flaky *)base;
    return flaky_refuses(flaky, CALL_READ) ? ERR_AGAIN : road_read(flaky->below, bytes, flaky_length(flaky, room), why);
}

static ssize_t flaky_write(struct road *base, const uint8_t *bytes, size_t count, struct why *why)
{
    struct road_flaky *flaky = (struct road_flaky *)base;
    return flaky_refuses(flaky, CALL_WRITE) ? ERR_AGAIN : road_write(flaky->below, bytes, flaky_length(flaky, count), why);
}

static int flaky_finish(struct road *base, struct why *why)
{
    struct road_flaky *flaky = (struct road_flaky *)base;
    return flaky_refuses(flaky, CALL_OTHER) ? ERR_AGAIN : road_finish(flaky->below, why);
}

static void flaky_free(struct road *base)
{
    struct road_flaky *flaky = (struct road_flaky *)base;
    loop_timer_free(flaky->again);
    road_free(flaky->below);
    mem_free(flaky);
}

static void flaky_describe(const struct road *base, char *out, size_t size)
{
    road_describe(((const struct road_flaky *)base)->below, out, size);
}

static const char *flaky_tls_peer(const struct road *base)
{
    return road_tls_peer(((const struct road_flaky *)base)->below);
}

static const struct road_ops flaky_ops = {
    .name = "flaky",
    .start = flaky_start,
    .want = flaky_want,
    .read = flaky_read,
    .write = flaky_write,
    .finish = flaky_finish,
    .free = flaky_free,
    .describe = flaky_describe,
    .tls_peer = flaky_tls_peer,
};

struct road *road_stingy(struct loop *loop, struct road *below, uint64_t seed)
{
    struct road *road = road_flaky(loop, below, seed);
    ((struct road_flaky *)road)->stingy = true;
    return road;
}

struct road *road_flaky(struct loop *loop, struct road *below, uint64_t seed)
{
    struct road_flaky *flaky = mem_new(sizeof *flaky);
    *flaky = (struct road_flaky){.road.ops = &flaky_ops, .below = below, .loop = loop, .random = seed};
    flaky->again = loop_timer_new(loop, flaky_ready, flaky);
    road_on_ready(below, flaky_ready, flaky);
    return &flaky->road;
}

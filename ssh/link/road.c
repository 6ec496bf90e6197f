#include "ssh/link/road.h"

#include <stdio.h>
#include <string.h>

#include "ssh/base/why.h"

int road_start(struct road *road, struct why *why)
{
    return road->ops->start(road, why);
}

void road_want(struct road *road, bool read, bool write)
{
    road->ops->want(road, read, write);
}

ssize_t road_read(struct road *road, uint8_t *bytes, size_t room, struct why *why)
{
    BUG_IF(room == 0);
    return road->ops->read(road, bytes, room, why);
}

ssize_t road_write(struct road *road, const uint8_t *bytes, size_t count, struct why *why)
{
    BUG_IF(count == 0);
    return road->ops->write(road, bytes, count, why);
}

int road_finish(struct road *road, struct why *why)
{
    return road->ops->finish(road, why);
}

void road_set_queue(struct road *road, size_t bytes)
{
    if (road->ops->set_queue)
        road->ops->set_queue(road, bytes);
}

void road_free(struct road *road)
{
    if (road)
        road->ops->free(road);
}

void road_describe(const struct road *road, char *out, size_t size)
{
    road->ops->describe(road, out, size);
}

void road_where(const struct road *road, char *out, size_t size)
{
    static const char *const prefixes[] = {"record ", "slow ", "tls ", "tcp "};
    const size_t count = sizeof prefixes / sizeof *prefixes;
    char words[300], *from = words;
    road_describe(road, words, sizeof words);
    for (size_t i = 0; i < count; i++)
        if (strncmp(from, prefixes[i], strlen(prefixes[i])) == 0) {
            from += strlen(prefixes[i]);
            i = (size_t)-1; /* any of them may follow */
        }
    snprintf(out, size, "%s", from);
}

const char *road_tls_peer(const struct road *road)
{
    return road->ops->tls_peer ? road->ops->tls_peer(road) : NULL;
}

void road_on_ready(struct road *road, void (*ready)(void *arg), void *arg)
{
    road->ready = ready;
    road->ready_arg = arg;
}

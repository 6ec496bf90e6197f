#include "tests/helpers/ends.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ssh/base/clock.h"

struct link_settings ends_settings(const char *name)
{
    struct link_settings settings = {
        .run_id = ENDS_RUN,
        .incarnation = 1,
        .heartbeat_ns = CLOCK_SECOND,
        .silent_ns = 3 * CLOCK_SECOND,
        .greet_ns = 5 * CLOCK_SECOND,
    };
    settings.hello.version = WIRE_VERSION;
    settings.hello.role = ROLE_STAGE;
    settings.hello.pid = (uint32_t)getpid();
    snprintf(settings.hello.program, sizeof settings.hello.program, "test 0.1.0");
    snprintf(settings.hello.name, sizeof settings.hello.name, "%s", name);
    snprintf(settings.hello.host, sizeof settings.hello.host, "%s", name);
    return settings;
}

static int end_up(struct link *link, const struct wire_hello *peer, void *arg, struct why *why)
{
    (void)link;
    struct end *end = arg;
    end->is_up = true;
    end->peer = *peer;
    return end->on_up ? end->on_up(end, why) : 0;
}

static int end_message(struct link *link, const struct frame_header *header, const uint8_t *payload, size_t bytes, void *arg,
                       struct why *why)
{
    (void)link, (void)why;
    struct end *end = arg;
    end->messages[header->lane]++;
    end->bytes[header->lane] += bytes;
    return end->on_message ? end->on_message(end, header, payload, bytes) : 0;
}

static void end_down(struct link *link, int err, const char *reason, void *arg)
{
    (void)link;
    struct end *end = arg;
    if (end->is_down)
        BUG("down was called twice: %s; %s", end->down_reason, reason);
    end->is_down = true;
    end->is_up = false;
    end->down_err = err;
    snprintf(end->down_reason, sizeof end->down_reason, "%s", reason);
    if (end->on_down)
        end->on_down(end);
}

static void end_drained(struct link *link, enum wire_lane lane, void *arg)
{
    (void)link, (void)lane;
    struct end *end = arg;
    end->drained++;
}

void end_begin(struct end *end, struct loop *loop, struct road *road, const struct link_settings *settings)
{
    static const struct link_callbacks callbacks = {
        .up = end_up, .message = end_message, .down = end_down, .drained = end_drained};
    end->link = link_new(loop, road, settings, &callbacks, end);
}

void end_free(struct end *end, struct loop *loop)
{
    link_free(end->link);
    end->link = NULL;
    loop_run_once(loop, 0);
}

bool loop_until(struct loop *loop, const bool *flag, uint64_t limit_ns)
{
    uint64_t until_ns = clock_now_ns() + limit_ns, now;
    while (!*flag && (now = clock_now_ns()) < until_ns) {
        loop_run_once(loop, clock_is_owned() ? 0 : until_ns - now);
        uint64_t next_ns = loop_next_ns(loop);
        if (clock_is_owned() && !*flag)
            clock_advance_ns(next_ns < until_ns - now ? next_ns : until_ns - now);
    }
    return *flag;
}

void loop_for(struct loop *loop, uint64_t ns)
{
    static const bool never = false;
    loop_until(loop, &never, ns);
}

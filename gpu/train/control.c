/* See control.h. */
#include "gpu/train/control.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "ssh/base/clock.h"
#include "ssh/base/file.h"
#include "ssh/base/hash.h"
#include "ssh/base/log.h"
#include "ssh/base/mem.h"
#include "ssh/base/version.h"
#include "ssh/link/road.h"

#define KEPT_MOST 64
#define PAUSE_FIRST_NS (100 * CLOCK_MS)

struct kept {
    enum wire_type type;
    uint8_t *payload;
    size_t bytes;
    uint32_t key;
};

struct control {
    struct loop *loop;
    struct control_settings settings;
    struct control_callbacks callbacks;
    void *arg;
    struct link *link; /* NULL between two attempts */
    struct loop_timer *redial;
    uint64_t pause_ns, lost_ns; /* lost_ns: since when, 0 = it stands */
    bool up, over;
    struct kept kept[KEPT_MOST]; /* oldest first */
    int kept_count;
};

static uint64_t host_nonce(void)
{
    uint8_t *boot = NULL;
    size_t bytes = 0;
    if (file_read("/proc/sys/kernel/random/boot_id", 256, &boot, &bytes, NULL) < 0)
        return 0;
    uint64_t nonce = hash_bytes(boot, bytes);
    mem_free(boot);
    return nonce;
}

void control_hello(struct wire_hello *hello)
{
    hello->version = WIRE_VERSION;
    snprintf(hello->program, sizeof hello->program, "kedge-worker %s", KEDGE_VERSION);
    hello->pid = (uint32_t)getpid();
    hello->host_nonce = host_nonce();
}

/* ---- words that must not be lost ---- */

static void keep(struct control *control, enum wire_type type, uint8_t *payload, size_t bytes, uint32_t key)
{
    if (control->kept_count == KEPT_MOST) {
        mem_free(control->kept[0].payload);
        memmove(control->kept, control->kept + 1, (KEPT_MOST - 1) * sizeof *control->kept);
        control->kept_count--;
    }
    control->kept[control->kept_count++] = (struct kept){type, payload, bytes, key};
}

static void send_kept(struct control *control)
{
    for (int i = 0; i < control->kept_count; i++) {
        const struct kept *kept = &control->kept[i];
        link_send_encoded(control->link, kept->type, kept->payload, kept->bytes, 0, kept->key);
    }
    control->kept_count = 0;
}

static void put(struct control *control, enum wire_type type, const void *payload, uint32_t key, bool keeps)
{
    struct buf buf;
    struct why why = {0};
    buf_init(&buf, wire_find((uint16_t)type)->max_bytes);
    if (wire_encode((uint16_t)type, payload, &buf, &why) < 0)
        BUG("%s", why.text);
    if (control->up)
        link_send_encoded(control->link, type, buf.data, buf_used(&buf), 0, key);
    else if (!control->over && keeps)
        keep(control, type, buf.data, buf_used(&buf), key);
    else
        buf_clear(&buf);
}

void control_send(struct control *control, enum wire_type type, const void *payload)
{
    put(control, type, payload, 0, type == WIRE_EVENT || type == WIRE_KNOB_USED);
}

void control_sample(struct control *control, enum wire_type type, const void *payload, uint32_t key, bool keeps)
{
    put(control, type, payload, key, keeps);
}

/* ---- the road ---- */

static void dial(void *arg);

static void lost(struct control *control, int err, const char *reason)
{
    bool refused = err == ERR_REFUSED;
    control->up = false;
    if (!control->lost_ns)
        control->lost_ns = clock_now_ns();
    control->over = control->over || refused;
    if (!control->over) {
        loop_timer_set(control->redial, control->pause_ns);
        control->pause_ns *= 2;
        if (control->pause_ns > control->settings.timeouts.redial_ns)
            control->pause_ns = control->settings.timeouts.redial_ns;
    }
    control->callbacks.down(err, reason, control->over, control->arg); /* may free us */
}

static int on_up(struct link *link, const struct wire_hello *peer, void *arg, struct why *why)
{
    struct control *control = arg;
    (void)link;
    if (peer->role != ROLE_SCHEDULER)
        return why_set(why, ERR_REFUSED, "%s is no scheduler but a %s", peer->name, wire_role_name(peer->role));
    control->up = true;
    control->lost_ns = 0;
    control->pause_ns = PAUSE_FIRST_NS;
    control->callbacks.up(control->arg);
    if (control->up)
        send_kept(control);
    return 0;
}

static int on_message(struct link *link, const struct frame_header *header, const uint8_t *payload, size_t bytes, void *arg,
                      struct why *why)
{
    struct control *control = arg;
    (void)link;
    return control->callbacks.message(header, payload, bytes, control->arg, why);
}

static void on_down(struct link *link, int err, const char *reason, void *arg)
{
    struct control *control = arg;
    link_free(link);
    control->link = NULL;
    lost(control, err, reason);
}

static struct road *make_road(struct control *control, struct why *why)
{
    struct road *road = road_tcp_dial(control->loop, control->settings.head, why);
    if (road && control->settings.credentials)
        road = road_tls(control->loop, road, control->settings.credentials, false, why);
    return road;
}

static void dial(void *arg)
{
    static const struct link_callbacks callbacks = {.up = on_up, .message = on_message, .down = on_down};
    struct control *control = arg;
    struct why why = {0};
    struct road *road = make_road(control, &why);
    if (!road) {
        lost(control, why.err, why.text);
        return;
    }
    struct link_settings settings = {
        .run_id = control->settings.run_id,
        .incarnation = control->settings.incarnation,
        .hello = control->settings.hello,
        .heartbeat_ns = control->settings.timeouts.heartbeat_ns,
        .silent_ns = control->settings.timeouts.silent_ns,
        .greet_ns = control->settings.timeouts.greet_ns,
        .queue_max_bytes = 4 << 20,
    };
    control->link = link_new(control->loop, road, &settings, &callbacks, control);
}

struct control *control_new(struct loop *loop, const struct control_settings *settings,
                            const struct control_callbacks *callbacks, void *arg)
{
    struct control *control = mem_new(sizeof *control);
    control->loop = loop;
    control->settings = *settings;
    control->callbacks = *callbacks;
    control->arg = arg;
    control->pause_ns = PAUSE_FIRST_NS;
    control->lost_ns = clock_now_ns();
    control_hello(&control->settings.hello);
    control->redial = loop_timer_new(loop, dial, control);
    loop_timer_set(control->redial, 0);
    return control;
}

void control_free(struct control *control)
{
    if (!control)
        return;
    link_free(control->link);
    loop_timer_free(control->redial);
    for (int i = 0; i < control->kept_count; i++)
        mem_free(control->kept[i].payload);
    mem_free(control);
}

void control_set(struct control *control, uint64_t profile_hash, const struct timeouts *timeouts)
{
    control->settings.hello.profile_hash = profile_hash;
    control->settings.timeouts = *timeouts;
}

void control_close(struct control *control, int err, const char *reason, uint64_t linger_ns)
{
    if (control->over)
        return;
    control->over = true;
    control->up = false;
    loop_timer_unset(control->redial);
    if (control->link)
        link_close(control->link, err, reason, linger_ns);
    else
        control->callbacks.down(err, reason, true, control->arg);
}

bool control_is_up(const struct control *control)
{
    return control->up;
}

uint64_t control_lost_ns(const struct control *control)
{
    return control->lost_ns ? clock_now_ns() - control->lost_ns : 0;
}

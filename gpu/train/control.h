/*
 * The road of an agent or a stage to kedged: dialled, greeted, and dialled again for ever when it is lost, with pauses that
 * grow up to redial_ns. Words for people that are said meanwhile are kept (the newest KEPT_MOST) and go out when the road
 * stands again.
 *
 * kedged can refuse us (a certificate of another run, a name that it does not know): that is final.
 */
#ifndef KEDGE_TRAIN_CONTROL_H
#define KEDGE_TRAIN_CONTROL_H

#include "profiles/timeouts.h"
#include "ssh/link/cert.h"
#include "ssh/link/link.h"

struct control;

struct control_settings {
    char head[WIRE_ADDRESS];               /* HOST:PORT of kedged */
    const struct credentials *credentials; /* NULL: plain; must outlive the control */
    uint64_t run_id;
    uint32_t incarnation;
    struct wire_hello hello; /* ours; version, program, pid and nonce are filled in */
    struct timeouts timeouts;
};

struct control_callbacks {
    void (*up)(void *arg);
    int (*message)(const struct frame_header *header, const uint8_t *payload, size_t bytes, void *arg, struct why *why);
    /* The road is lost or could not be made. `final`: kedged refused us, or control_close is done; nothing is dialled any
     * more. */
    void (*down)(int err, const char *reason, bool final, void *arg);
};

/* Dials at once. Never calls back before returning. */
struct control *control_new(struct loop *loop, const struct control_settings *settings,
                            const struct control_callbacks *callbacks, void *arg);
void control_free(struct control *control);
/* From the next time on (the profile is known now): another hash in HELLO, other deadlines. */
void control_set(struct control *control, uint64_t profile_hash, const struct timeouts *timeouts);
/* What cannot go now is kept if it is an EVENT or KNOB_USED, else dropped: who comes back says it again in `up`. */
void control_send(struct control *control, enum wire_type type, const void *payload);
/* Telemetry: replaces an unsent message of the same type and key. `keep`: as an EVENT is. */
void control_sample(struct control *control, enum wire_type type, const void *payload, uint32_t key, bool keep);
/* A last word, then down with final. */
void control_close(struct control *control, int err, const char *reason, uint64_t linger_ns);
bool control_is_up(const struct control *control);
uint64_t control_lost_ns(const struct control *control); /* for how long the road has been lost; 0 = it stands */

/* Fill what every HELLO of this program says about itself. */
void control_hello(struct wire_hello *hello);

#endif

/*
 * The data roads of a stage: at most one upstream, one downstream, and one to the same stage of each other replica. kedged
 * names the neighbour and says who dials (ROAD); whoever comes in must be the one that was named, of this run and this profile. A dial that fails is tried again until
 * form_ns is over. A road that stood and is lost stays lost: the step in it is torn. Roads between a stage and the anchor are dialled
 * again for ever: nobody waits for them.
 *
 * All on the loop's thread.
 */
#ifndef KEDGE_TRAIN_ROADS_H
#define KEDGE_TRAIN_ROADS_H

#include "gpu/train/mail.h"
#include "profiles/profile.h"
#include "profiles/timeouts.h"
#include "ssh/link/link.h"
#include "ssh/link/pace.h"
#include "ssh/link/road.h"

struct roads;

struct roads_settings {
    const struct profile *profile;         /* outlives the roads */
    const struct credentials *credentials; /* NULL: plain */
    struct timeouts timeouts;
    uint64_t run_id, uplink_bps;
    uint32_t incarnation;
    struct wire_hello hello; /* ours, with the profile's hash */
    char folder[512];        /* of the run, for captures */
    size_t queue_bytes;      /* what credit allows on the ACT lane */
};

struct roads_callbacks {
    void (*up)(enum mail_road side, void *arg);
    int (*message)(enum mail_road side, const struct frame_header *header, const uint8_t *payload, size_t bytes, void *arg,
                   struct why *why);
    /* Once per side, but for roads to and from the anchor. err 0: the peer said goodbye. */
    void (*lost)(enum mail_road side, const char *peer, int err, const char *reason, void *arg);
    void (*closed)(void *arg); /* after roads_close: nothing is left */
};

struct roads *roads_new(struct loop *loop, const struct roads_settings *settings, const struct roads_callbacks *callbacks,
                        void *arg);
void roads_free(struct roads *roads);
void roads_expect(struct roads *roads, const struct wire_road *road); /* also again, with another address */
void roads_incoming(struct roads *roads, struct road *road, const char *from);
/* Give the road up: nothing comes from it any more, and `lost` is not called. */
void roads_drop(struct roads *roads, enum mail_road side, uint32_t life, const char *reason); /* of that life or an older one */
int roads_send(struct roads *roads, const struct letter *letter); /* takes the payload over; ERR_GONE, ERR_FULL */
bool roads_stand(const struct roads *roads, enum mail_road side);
/* For the compute thread. */
void roads_measure(const struct roads *roads, struct mail_roads *measured);
/* Lane ACT of both roads together, since they stand. */
void roads_act_bytes(const struct roads *roads, uint64_t *sent, uint64_t *received);
/* The lanes of a road as telemetry; false when there is nothing to tell of (side, lane). */
bool roads_sample(const struct roads *roads, enum mail_road side, enum wire_lane lane, struct wire_road_sample *sample);
/* Queued on a lane; 0 when there is no road. */
uint64_t roads_queued_bytes(const struct roads *roads, enum mail_road side, enum wire_lane lane);
void roads_set_pace(struct roads *roads, enum mail_road side, uint64_t bits_per_second); /* 0: as link.pace says */
void roads_close(struct roads *roads, const char *reason, uint64_t linger_ns);

#endif

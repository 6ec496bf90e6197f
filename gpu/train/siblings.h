/*
 * A stage and its siblings, inside the compute thread: what goes to them and comes from them (post.c), and when
 * (siblings.c).
 *
 * Contributions come whenever the compute thread looks into its mail and lie in slots until their round is due; nothing
 * waits before that. A sibling can be ahead of us by the rounds that it may have under way without ours, so the slots are a
 * known number and one more message is a breach of the rules. Every pair of siblings has a road of its own: a contribution
 * is one hop away, and who is slow holds up nobody else's.
 */
#ifndef KEDGE_TRAIN_SIBLINGS_H
#define KEDGE_TRAIN_SIBLINGS_H

#include "gpu/train/inside.h"
#include "gpu/train/sync.h"

struct incoming { /* one contribution of a sibling */
    bool used;
    uint32_t life;       /* of its replica */
    struct wire_sync is; /* without its body */
    uint64_t have;       /* bytes of is.total */
    uint64_t number;     /* among those of its replica, from 1 on; 0 = not whole yet */
    uint8_t *bytes;
};

/* Who says to have all contributions to an exchange. Where there are more than two replicas a round is not applied before
 * all say so: a replica that dies while it sends must not be in the mean of one sibling and missing in that of another. */
struct holding {
    bool used;
    struct wire_have is;
    uint32_t who; /* a bit per replica, own included */
};

struct flight { /* a round that we have sent and not yet applied */
    bool used, failed;
    bool foreign; /* it was under way when we joined: what comes of it is copied */
    struct fragment_round is;
    int exchange, contributors;
    uint16_t rank;           /* of PowerSGD, in this round */
    struct wire_sync own; /* what we sent in that exchange */
    uint8_t *bytes;
};

struct member { /* one of the other replicas */
    bool left, coming;         /* coming: it was started again; what it sends is kept, and it is not waited for yet */
    uint32_t life;             /* incarnation */
    uint64_t from;             /* first round that needs it */
    uint64_t received, counts; /* contributions of this life; counts: of who left */
};

struct entry { /* a replica that is let in: the newest */
    uint16_t replica;
    uint32_t life; /* 0 = none */
    uint64_t step; /* that it trains first */
};

struct copy; /* join.c: what one that joins is copying */

struct agreement { /* what may change while a run goes on, on all replicas at the same step */
    struct fragments fragments;
    int64_t rank;
    float rate, alpha;
};

struct siblings {
    int self, replicas;
    bool gradients;      /* averaged in every step; there are no rounds then */
    struct fragments fragments; /* as the newest stamp says */
    struct sync_outer outer;
    struct agreement next;      /* first stage: what the next stamp says */
    struct { struct wire_agree is; int from; } agreed[KNOBS_MOST]; /* said or heard, of rounds that are not applied yet */
    int agreed_count;
    struct member members[PROFILE_MAX_REPLICAS];
    struct entry wanted, next_entry, entry; /* kedged's wish; what the next stamp says; the newest that was followed */
    struct { uint64_t round, hash; } *ended; /* [fragments.count]: the newest round that has ended; 0 = none */
    uint64_t began;      /* steps before our first one */
    struct copy *copy;   /* NULL: we did not join */
    struct holding *holding; /* [holdings] */
    int holdings;
    int64_t most_rank;
    struct sync *sync;   /* NULL with gradients */
    int tensors;
    int *tensor_of;      /* [tensors]: index in the stage, of those that are exchanged */
    int slots, flights;
    size_t most_bytes;   /* of a contribution */
    struct incoming *incoming; /* [replicas][slots] */
    struct flight *flight;     /* [flights] */
    float *values;       /* [2][largest tensor], gradients only */
    uint64_t tokens;     /* that all replicas together said with what came last */
    uint64_t wait_told_ns; /* when people heard of such a wait last; 0 = never */
    uint64_t waited_round;
    int waited_replica;
};

/* ---- siblings.c ---- */
struct siblings_list { /* what is exchanged, from profile and shape alone */
    int count;
    int *index; /* in the stage */
    struct sync_tensor *tensors;
    struct sync_settings settings;
};
void siblings_list(const struct profile *profile, const struct stage_shape *shape, struct siblings_list *list);
void siblings_list_clear(struct siblings_list *list);
/* Memory for what siblings send each other. */
uint64_t siblings_buffer_bytes(const struct profile *profile, const struct siblings_list *list, int replicas);

void siblings_take(struct compute *compute); /* the weights become the common copy */

/* ---- siblings_follow.c: nothing, where no anchor follows ---- */
/* It was applied. */
void siblings_tell_exchange(struct compute *compute, const struct flight *flight, const struct sync_part *parts);
void siblings_tell_other(struct compute *compute, const struct flight *flight); /* it ended otherwise */
uint64_t siblings_follow_memory(const struct compute *compute); /* from now on bounded by it */

/* ---- post.c ---- */
int post_send(struct compute *compute, const struct wire_sync *what, const uint8_t *bytes);
int post_accept(struct compute *compute, const struct letter *letter);
/* Until the contribution is here from all siblings; the parts, own included, in the order of the replicas, and how many
 * they are. */
int post_wait(struct compute *compute, const struct wire_sync *own, const uint8_t *own_bytes, struct sync_part *parts,
              int *count);
bool post_is_complete(const struct siblings *siblings, const struct wire_sync *own);
/* NULL: nothing yet */
const struct incoming *post_find(const struct siblings *siblings, int replica, const struct wire_sync *what);
bool post_has_all(const struct siblings *siblings, const struct wire_sync *what);
void post_release(struct siblings *siblings, const struct wire_sync *own);

/* ---- members.c ---- */
bool members_has_left(const struct siblings *siblings, int replica); /* not counted */
bool members_is_gone(const struct siblings *siblings, int replica);  /* and what it says is of no use */
bool members_takes_part(const struct siblings *siblings, int replica, uint64_t round); /* a sibling that the round needs */
int members_accept_road(struct compute *compute, const struct letter *letter); /* an old or a new life of a sibling */
void members_enter(struct siblings *siblings, const struct entry *entry);
int members_lowest(const struct siblings *siblings); /* who speaks for all */
int members_accept_part(struct compute *compute, const struct letter *letter);
int members_accept_leave(struct compute *compute, const struct letter *letter);
int members_accept_have(struct compute *compute, const struct letter *letter);
/* After what we have of an exchange changed: if it is all, the others hear of it. */
int members_tell(struct compute *compute, const struct wire_sync *what);
/* who does not say to have all; −1 = none */
int members_missing(const struct siblings *siblings, const struct wire_sync *what);
void members_release(struct siblings *siblings, const struct wire_sync *what);

/* ---- join.c ---- */
bool join_is_due(const struct compute *compute); /* we join, and have not yet */
int join_run(struct compute *compute); /* before the first pass: what the others have, as they let us in */
int join_finish(struct compute *compute, struct flight *flight); /* a round that the others began without us */
int join_accept(struct compute *compute, const struct letter *letter);  /* JOIN */
int join_accept_enter(struct compute *compute, const struct letter *letter);
int join_accept_pull(struct compute *compute, const struct letter *letter);
int join_accept_state(struct compute *compute, const struct letter *letter);
int join_tell(struct compute *compute); /* one of them has been let in with this step: what it must know */
size_t join_most_bytes(void);           /* of an answer */
int join_new(struct compute *compute, struct why *why);
void join_free(struct siblings *siblings);

/* ---- agree.c ---- */
#define AGREE_JOIN "replicas.join" /* a name of an AGREE beside settings: value "REPLICA LIFE" is let in */
struct agreement agreement_of(const struct profile *profile); /* in siblings.c */
int agree_send(struct compute *compute, const struct fragment_round *round); /* before what this round sends */
int agree_accept(struct compute *compute, const struct letter *letter);
void agree_applied(struct compute *compute, uint64_t round, uint64_t step);
void agree_leave(struct compute *compute, int replica); /* what it said for rounds that it is not in */
int agree_follow(struct compute *compute); /* the stamp of the pass */
int agree_enter(struct compute *compute, const struct wire_enter *enter); /* what the others agreed about before we joined */

#endif

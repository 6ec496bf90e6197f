/* See siblings.h. */
#include <inttypes.h>
#include <string.h>

#include "gpu/train/siblings.h"
#include "ssh/base/clock.h"

#define LOOK_NS (200 * CLOCK_MS)
#define WAIT_TOLD_NS (100 * CLOCK_MS) /* of a round: people want to know who is waited for */
#define WAIT_TELL_NS (30 * CLOCK_SECOND)

int post_send(struct compute *compute, const struct wire_sync *what, const uint8_t *bytes)
{
    const struct siblings *siblings = compute->siblings;
    int err = 0;
    for (int r = 0; r < siblings->replicas && !err; r++) {
        struct wire_sync piece = *what;
        if (!members_takes_part(siblings, r, what->round))
            continue;
        do { /* also when there is nothing in it: the word that it is empty */
            uint64_t left = what->total - piece.offset;
            piece.body.bytes = (uint32_t)(left < WIRE_SYNC_BYTES ? left : WIRE_SYNC_BYTES);
            piece.body.data = bytes + piece.offset;
            struct letter letter = compute_letter(WIRE_SYNC, &piece, piece.body.bytes, (enum mail_road)(MAIL_SIBLINGS + r),
                                                  what->round, 0);
            err = mail_send(compute->mail, &letter, &compute->pass.wait_ns[WAIT_SEND]);
            piece.offset += piece.body.bytes;
        } while (piece.offset < what->total && !err);
    }
    return err;
}

static bool is_same(const struct wire_sync *one, const struct wire_sync *other)
{
    return one->round == other->round && one->exchange == other->exchange && one->purpose == other->purpose &&
           one->fragment == other->fragment;
}

static struct incoming *find(const struct siblings *siblings, int replica, const struct wire_sync *what)
{
    for (int i = 0; i < siblings->slots; i++) {
        struct incoming *at = &siblings->incoming[replica * siblings->slots + i];
        if (at->used && is_same(&at->is, what))
            return at;
    }
    return NULL;
}

static struct incoming *begin(const struct siblings *siblings, int replica, const struct wire_sync *what)
{
    for (int i = 0; i < siblings->slots; i++) {
        struct incoming *at = &siblings->incoming[replica * siblings->slots + i];
        if (at->used)
            continue;
        uint8_t *bytes = at->bytes;
        *at = (struct incoming){.used = true, .life = siblings->members[replica].life, .is = *what, .bytes = bytes};
        return at;
    }
    return NULL;
}

int post_accept(struct compute *compute, const struct letter *letter)
{
    struct siblings *siblings = compute->siblings;
    int replica = letter->road - MAIL_SIBLINGS;
    struct wire_sync piece;
    if (wire_decode(WIRE_SYNC, letter->payload, letter->bytes, &piece, NULL) < 0)
        BUG("the loop thread let a bad piece of a contribution pass");
    if (members_is_gone(siblings, replica))
        return 0;
    struct incoming *at = find(siblings, replica, &piece);
    if (!at && piece.offset == 0 && piece.total <= siblings->most_bytes)
        at = begin(siblings, replica, &piece);
    if (!at || piece.offset != at->have || piece.total != at->is.total || piece.body.bytes > at->is.total - at->have ||
        (piece.body.bytes == 0 && at->is.total > 0))
        return compute_halt(compute, compute->trained,
                            "replica %d sent %u bytes from byte %" PRIu64 " of %" PRIu64 " of round %" PRIu64
                            ", fragment %u, which have no place here: a contribution is at most %zu bytes, and %d may wait", replica,
                            piece.body.bytes, piece.offset, piece.total, piece.round, piece.fragment, siblings->most_bytes,
                            siblings->slots);
    memcpy(at->bytes + at->have, piece.body.data, piece.body.bytes);
    at->have += piece.body.bytes;
    if (at->have < at->is.total)
        return 0;
    at->number = ++siblings->members[replica].received;
    return members_tell(compute, &piece);
}

const struct incoming *post_find(const struct siblings *siblings, int replica, const struct wire_sync *what)
{
    return find(siblings, replica, what);
}

/* A sibling whose contribution is not all here; −1 = none. Of one that has left only what counts is kept. */
static int missing(const struct siblings *siblings, const struct wire_sync *what)
{
    for (int r = 0; r < siblings->replicas; r++) {
        const struct incoming *at = members_takes_part(siblings, r, what->round) ? find(siblings, r, what) : NULL;
        if (members_takes_part(siblings, r, what->round) && (!at || !at->number))
            return r;
    }
    return -1;
}

bool post_has_all(const struct siblings *siblings, const struct wire_sync *what)
{
    return missing(siblings, what) < 0;
}

static int awaited(const struct siblings *siblings, const struct wire_sync *own)
{
    int replica = missing(siblings, own);
    return replica >= 0 ? replica : members_missing(siblings, own);
}

bool post_is_complete(const struct siblings *siblings, const struct wire_sync *own)
{
    return awaited(siblings, own) < 0;
}

static void tell_stall(struct compute *compute, const struct wire_sync *own, int replica, uint64_t waited_ns)
{
    if (compute->pass.stall_told || waited_ns < compute->timeouts.greet_ns)
        return;
    compute->pass.stall_told = true;
    compute_say(compute, EVENT_WARN, compute->trained, "stalled",
                "stage %d of replica %d waits for replica %d, round %" PRIu64
                ", for %.1f s now; the road stands", compute->stage, compute->siblings->self, replica, own->round, (double)waited_ns / 1e9);
}

/* Afterwards, and not about every round: a road that is too slow for sync.overlap makes all of them wait. One that has just been let in is
 * always named: until its first contribution is here it copies what has changed meanwhile. */
static void tell_wait(struct compute *compute, const struct wire_sync *own, uint64_t waited_ns)
{
    struct siblings *siblings = compute->siblings;
    const struct member *member = &siblings->members[siblings->waited_replica];
    uint64_t now_ns = clock_now_ns();
    bool joined = member->from && own->round == member->from;
    if (own->purpose != SYNC_ROUND || waited_ns < WAIT_TOLD_NS ||
        (!joined && siblings->wait_told_ns && now_ns - siblings->wait_told_ns < WAIT_TELL_NS))
        return;
    siblings->wait_told_ns = now_ns;
    compute_say(compute, EVENT_WARN, compute->trained, "sync-wait",
                "stage %d of replica %d waited for replica %d, round %" PRIu64 ", %.1f s: %s", compute->stage, siblings->self,
                siblings->waited_replica, own->round, (double)waited_ns / 1e9,
                joined ? "it has just joined, and copied what had changed meanwhile" : "an exchange takes longer than sync.overlap hides");
}

/* In the order of the replicas; who has left and is not in this exchange has no part. */
static int gather(struct siblings *siblings, const struct wire_sync *own, const uint8_t *own_bytes, struct sync_part *parts)
{
    uint64_t tokens[PROFILE_MAX_REPLICAS], all = 0;
    int count = 0;
    for (int r = 0; r < siblings->replicas; r++) {
        const struct incoming *at = r == siblings->self ? NULL : find(siblings, r, own);
        if (r != siblings->self && !at)
            continue;
        tokens[count] = at ? at->is.tokens : own->tokens;
        all += tokens[count];
        parts[count++] = (struct sync_part){.replica = r, .bytes = at ? at->bytes : own_bytes,
                                            .count = at ? at->is.total : own->total};
    }
    for (int i = 0; i < count; i++)
        parts[i].share = own->purpose == SYNC_ROUND ? (float)((double)tokens[i] / (double)all) : 1.0f / (float)count;
    siblings->tokens = all;
    return count;
}

int post_wait(struct compute *compute, const struct wire_sync *own, const uint8_t *own_bytes, struct sync_part *parts,
              int *count)
{
    struct siblings *siblings = compute->siblings;
    uint64_t began_ns = clock_now_ns(), at_ns = began_ns, of[PROFILE_MAX_REPLICAS] = {0};
    int replica, longest = -1, err = 0;
    while ((replica = awaited(siblings, own)) >= 0) {
        err = compute_accept(compute, LOOK_NS);
        of[replica] += clock_now_ns() - at_ns;
        at_ns = clock_now_ns();
        longest = longest < 0 || of[replica] > of[longest] ? replica : longest; /* the word of the others that they have it comes after it */
        siblings->waited_round = own->round;
        siblings->waited_replica = longest;
        if (err && err != ERR_AGAIN)
            break;
        tell_stall(compute, own, replica, at_ns - began_ns);
    }
    uint64_t waited_ns = clock_now_ns() - began_ns;
    compute->pass.wait_ns[WAIT_SYNC] += waited_ns;
    if (err && err != ERR_AGAIN)
        return err;
    tell_wait(compute, own, waited_ns);
    *count = gather(siblings, own, own_bytes, parts);
    return 0;
}

void post_release(struct siblings *siblings, const struct wire_sync *own)
{
    for (int r = 0; r < siblings->replicas; r++) {
        struct incoming *at = r == siblings->self ? NULL : find(siblings, r, own);
        if (at)
            at->used = false;
    }
    members_release(siblings, own);
}

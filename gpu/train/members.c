/*
 * Who takes part in the exchanges of a stage. A replica leaves by kedged's word, and all siblings must agree which of its
 * contributions are in a mean and which are not, although each of them may have got another number before its road was lost:
 *
 *   kedged ── PART ──► every sibling: its road is closed, nothing can come any more ── PARTED, so many are whole ──► kedged
 *   kedged ── LEAVE, the least of these numbers ──► every sibling: what is beyond is dropped
 *
 * Nobody can have used more than that: with more than two replicas an exchange waits until all say to have all of it
 * (HAVE), and with two there is nobody left to disagree with. HAVE is a few bytes, one hop, well inside the overlap.
 */
#include <inttypes.h>

#include "gpu/train/siblings.h"

bool members_has_left(const struct siblings *siblings, int replica)
{
    return siblings->members[replica].left;
}

int members_lowest(const struct siblings *siblings)
{
    int lowest = 0;
    while (siblings->members[lowest].left)
        lowest++;
    return lowest;
}

bool members_is_gone(const struct siblings *siblings, int replica)
{
    return siblings->members[replica].left && !siblings->members[replica].coming;
}

bool members_takes_part(const struct siblings *siblings, int replica, uint64_t round)
{
    return replica != siblings->self && !siblings->members[replica].left && round >= siblings->members[replica].from;
}

/* How many a round needs. */
static int present(const struct siblings *siblings, uint64_t round)
{
    int count = 1;
    for (int r = 0; r < siblings->replicas; r++)
        count += members_takes_part(siblings, r, round);
    return count;
}

/* ---- HAVE ---- */

static bool is_of(const struct holding *holding, const struct wire_have *have)
{
    return holding->used && holding->is.round == have->round && holding->is.purpose == have->purpose &&
           holding->is.exchange == have->exchange && holding->is.fragment == have->fragment;
}

static struct holding *holding_of(const struct siblings *siblings, const struct wire_have *have, bool make)
{
    struct holding *free = NULL;
    for (int i = 0; i < siblings->holdings; i++) {
        struct holding *at = &siblings->holding[i];
        if (is_of(at, have))
            return at;
        if (!at->used && !free)
            free = at;
    }
    if (make && free)
        *free = (struct holding){.used = true, .is = *have};
    return make ? free : NULL;
}

static struct wire_have have_of(const struct wire_sync *what)
{
    return (struct wire_have){.round = what->round, .purpose = what->purpose, .exchange = what->exchange,
                              .fragment = what->fragment};
}

int members_tell(struct compute *compute, const struct wire_sync *what)
{
    struct siblings *siblings = compute->siblings;
    struct wire_have have = have_of(what);
    int err = 0;
    if (present(siblings, what->round) < 3 || siblings->gradients || !post_has_all(siblings, what))
        return 0;
    struct holding *holding = holding_of(siblings, &have, true);
    if (!holding)
        return compute_halt(compute, compute->trained,
                            "more exchanges are under way than there is credit for, at round %" PRIu64, what->round);
    if (holding->who >> siblings->self & 1)
        return 0;
    holding->who |= 1u << siblings->self;
    for (int r = 0; r < siblings->replicas && !err; r++) {
        struct letter letter;
        if (!members_takes_part(siblings, r, what->round))
            continue;
        letter = compute_letter(WIRE_HAVE, &have, 0, (enum mail_road)(MAIL_SIBLINGS + r), have.round, 0);
        err = mail_send(compute->mail, &letter, &compute->pass.wait_ns[WAIT_SEND]);
    }
    return err;
}

int members_accept_have(struct compute *compute, const struct letter *letter)
{
    struct siblings *siblings = compute->siblings;
    int replica = letter->road - MAIL_SIBLINGS;
    struct wire_have have;
    if (wire_decode(WIRE_HAVE, letter->payload, letter->bytes, &have, NULL) < 0)
        BUG("the loop thread let a bad HAVE pass");
    if (members_is_gone(siblings, replica) || present(siblings, have.round) < 3)
        return 0;
    struct holding *holding = siblings->gradients ? NULL : holding_of(siblings, &have, true);
    if (!holding)
        return compute_halt(compute, compute->trained,
                            "replica %d has more exchanges under way than there is credit for, at round %" PRIu64,
                            replica, have.round);
    holding->who |= 1u << replica;
    return 0;
}

int members_missing(const struct siblings *siblings, const struct wire_sync *what)
{
    struct wire_have have = have_of(what);
    const struct holding *holding = holding_of(siblings, &have, false);
    if (present(siblings, what->round) < 3 || siblings->gradients)
        return -1;
    for (int r = 0; r < siblings->replicas; r++)
        if (members_takes_part(siblings, r, what->round) && !(holding && holding->who >> r & 1))
            return r;
    return -1;
}

void members_release(struct siblings *siblings, const struct wire_sync *what)
{
    struct wire_have have = have_of(what);
    struct holding *holding = holding_of(siblings, &have, false);
    if (holding)
        holding->used = false;
}

/* ---- coming again ---- */

/* kedged says it before the road can stand: whatever the new life sends finds this done. */
int members_accept_road(struct compute *compute, const struct letter *letter)
{
    struct wire_road road;
    if (wire_decode(WIRE_ROAD, letter->payload, letter->bytes, &road, NULL) < 0)
        BUG("the loop thread let a bad ROAD pass");
    if (!compute->siblings || road.side != ROAD_SIBLING)
        return 0;
    struct member *member = &compute->siblings->members[road.replica];
    if (road.life <= member->life)
        return 0;
    member->life = road.life;
    member->coming = member->left;
    member->received = 0;
    return 0;
}

void members_enter(struct siblings *siblings, const struct entry *entry)
{
    struct member *member = &siblings->members[entry->replica];
    siblings->entry = *entry;
    if (!member->coming || member->life != entry->life)
        return; /* it has died since then */
    member->left = member->coming = false;
    member->from = fragments_first_round(&siblings->fragments, entry->step);
}

/* ---- PART and LEAVE ---- */

int members_accept_part(struct compute *compute, const struct letter *letter)
{
    struct siblings *siblings = compute->siblings;
    struct wire_part part;
    if (wire_decode(WIRE_PART, letter->payload, letter->bytes, &part, NULL) < 0)
        BUG("the loop thread let a bad PART pass");
    struct member *member = &siblings->members[part.replica];
    if (part.life < member->life)
        return 0; /* it is back since then */
    bool left = members_is_gone(siblings, part.replica) && part.life == member->life;
    struct wire_parted parted = {.replica = part.replica, .life = part.life, .decided = left,
                                 .received = part.life == member->life ? member->received : 0};
    if (left)
        parted.received = member->counts;
    compute_tell(compute, WIRE_PARTED, &parted, compute->trained);
    return 0;
}

int members_accept_leave(struct compute *compute, const struct letter *letter)
{
    struct siblings *siblings = compute->siblings;
    struct wire_leave leave;
    int err = 0;
    if (wire_decode(WIRE_LEAVE, letter->payload, letter->bytes, &leave, NULL) < 0)
        BUG("the loop thread let a bad LEAVE pass");
    struct member *member = &siblings->members[leave.replica];
    if (members_is_gone(siblings, leave.replica) || leave.life < member->life)
        return 0;
    if (leave.count > member->received)
        return compute_halt(compute, compute->trained,
                            "%" PRIu64 " contributions of replica %u are to count, and only %" PRIu64 " came here",
                            leave.count, leave.replica, member->received);
    member->left = true;
    member->coming = false;
    member->counts = leave.count;
    for (int i = 0; i < siblings->slots; i++) {
        struct incoming *at = &siblings->incoming[leave.replica * siblings->slots + i];
        if (at->life == member->life) /* of a former life is here what counts */
            at->used = at->used && at->number && at->number <= leave.count;
    }
    agree_leave(compute, leave.replica);
    for (int i = 0; i < siblings->replicas * siblings->slots && !err; i++)
        if (siblings->incoming[i].used)
            err = members_tell(compute, &siblings->incoming[i].is);
    return err;
}

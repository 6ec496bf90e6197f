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

static int present(const struct siblings *siblings)
{
    int count = 0;
    for (int r = 0; r < siblings->replicas; r++)
        count += !siblings->members[r].left;
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
    if (present(siblings) < 3 || siblings->gradients || !post_has_all(siblings, what))
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
        if (r == siblings->self || siblings->members[r].left)
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
    if (siblings->members[replica].left || present(siblings) < 3)
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
    if (present(siblings) < 3 || siblings->gradients)
        return -1;
    for (int r = 0; r < siblings->replicas; r++)
        if (r != siblings->self && !siblings->members[r].left && !(holding && holding->who >> r & 1))
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

/* ---- PART and LEAVE ---- */

int members_accept_part(struct compute *compute, const struct letter *letter)
{
    const struct siblings *siblings = compute->siblings;
    struct wire_part part;
    if (wire_decode(WIRE_PART, letter->payload, letter->bytes, &part, NULL) < 0)
        BUG("the loop thread let a bad PART pass");
    bool left = siblings->members[part.replica].left;
    struct wire_parted parted = {.replica = part.replica, .decided = left,
                                 .received = siblings->members[part.replica].received};
    if (left)
        parted.received = siblings->members[part.replica].counts;
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
    if (siblings->members[leave.replica].left)
        return 0;
    if (leave.count > siblings->members[leave.replica].received)
        return compute_halt(compute, compute->trained,
                            "%" PRIu64 " contributions of replica %u are to count, and only %" PRIu64 " came here",
                            leave.count, leave.replica, siblings->members[leave.replica].received);
    siblings->members[leave.replica].left = true;
    siblings->members[leave.replica].counts = leave.count;
    for (int i = 0; i < siblings->slots; i++) {
        struct incoming *at = &siblings->incoming[leave.replica * siblings->slots + i];
        at->used = at->used && at->number && at->number <= leave.count;
    }
    agree_leave(compute, leave.replica);
    for (int i = 0; i < siblings->replicas * siblings->slots && !err; i++)
        if (siblings->incoming[i].used)
            err = members_tell(compute, &siblings->incoming[i].is);
    return err;
}

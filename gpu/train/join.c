/*
 * A replica that was started again gets what the others have in common, stage by stage from its siblings, while they train on:
 *
 *   kedged ── JOIN ──► our stages: copy all fragments (PULL, STATE; nobody waits)            READY copied ──► kedged
 *   kedged ── JOIN ──► lowest replica: AGREE ahead of a round k ──► all: applied at step a, stamped into step a + 2 = F
 *   every sibling ── ENTER ──► us: from F on you are counted. What has changed since the copy comes again   READY joined
 *
 * Siblings have no session for us: a PULL names a fragment and a byte, the answer says after which round it is so, and when
 * that is another round than before we begin this fragment again. All siblings have the same bits after the same round, so
 * any of them may answer, and one that dies is replaced by the next.
 *
 * A round that was under way at F was begun without us and ends without us ("foreign"): its result is copied when it is due.
 * A sibling may have ended it with contributions that do not count in the end because their sender died: so a result is
 * taken when all siblings that are here name the same round and the same hash.
 */
#include <inttypes.h>
#include <string.h>

#include "gpu/train/siblings.h"
#include "ssh/base/clock.h"
#include "ssh/base/mem.h"

#define LOOK_NS (20 * CLOCK_MS)     /* between two questions whether a round has ended */
#define ANSWER_BYTES (4 * (size_t)WIRE_SYNC_BYTES)

struct head { /* what a sibling said of the fragment */
    bool known, asked;
    uint64_t asked_ns, answered_ns;
    struct wire_state is; /* without its body */
};

struct copy {
    bool ordered, joined;
    uint32_t heard; /* a bit per replica that let us in */
    struct wire_enter enter;
    bool *has;      /* [fragments]: what `ended` says of it is what we hold */
    int fragment;
    struct head heads[PROFILE_MAX_REPLICAS];
    uint64_t round, hash; /* of the bytes that are coming */
    size_t have, total;
    uint8_t *bytes;
};

size_t join_most_bytes(void)
{
    return ANSWER_BYTES;
}

int join_new(struct compute *compute, struct why *why)
{
    struct siblings *siblings = compute->siblings;
    size_t most = 0;
    struct copy *copy = siblings->copy = mem_new(sizeof *copy);
    copy->has = mem_array((size_t)siblings->fragments.count, sizeof *copy->has);
    for (int f = 0; siblings->sync && f < siblings->fragments.count; f++)
        most = sync_state_bytes(siblings->sync, f) > most ? sync_state_bytes(siblings->sync, f) : most;
    copy->bytes = mem_large(most ? most : 1);
    compute->memory_bytes += most;
    return copy->bytes ? 0 : why_set(why, ERR_MEMORY, "no memory for what siblings have in common: %zu bytes", most);
}

void join_free(struct siblings *siblings)
{
    if (!siblings->copy)
        return;
    mem_large_free(siblings->copy->bytes);
    mem_free(siblings->copy->has);
    mem_free(siblings->copy);
}

bool join_is_due(const struct compute *compute)
{
    return compute->siblings && compute->siblings->copy && !compute->siblings->copy->joined;
}

/* ---- siblings: who is let in, and what it asks for ---- */

int join_accept(struct compute *compute, const struct letter *letter)
{
    struct siblings *siblings = compute->siblings;
    struct wire_join join;
    if (wire_decode(WIRE_JOIN, letter->payload, letter->bytes, &join, NULL) < 0)
        BUG("the loop thread let a bad JOIN pass");
    if (!siblings)
        return 0;
    if (siblings->copy && join.replica == siblings->self)
        siblings->copy->ordered = true;
    else
        siblings->wanted = (struct entry){.replica = join.replica, .life = join.life};
    return 0;
}

int join_tell(struct compute *compute)
{
    struct siblings *siblings = compute->siblings;
    const struct entry *entry = &siblings->entry;
    const struct wire_stamp *stamp = &compute->pass.stamp;
    const struct member *member = &siblings->members[entry->replica];
    if (member->left || entry->replica == siblings->self)
        return 0;
    struct wire_enter enter = {.replica = entry->replica, .life = entry->life, .step = entry->step, .round = member->from,
                               .sync_every = stamp->sync_every, .sync_rank = stamp->sync_rank,
                               .sync_rate = stamp->sync_rate, .sync_merge = stamp->sync_merge,
                               .sync_since = stamp->sync_since, .sync_number = stamp->sync_number};
    struct wire_entered entered = {.replica = enter.replica, .life = enter.life, .step = enter.step, .round = enter.round};
    if (compute->first)
        compute_tell(compute, WIRE_ENTERED, &entered, enter.step);
    struct letter letter =
        compute_letter(WIRE_ENTER, &enter, 0, (enum mail_road)(MAIL_SIBLINGS + entry->replica), enter.round, 0);
    return mail_send(compute->mail, &letter, &compute->pass.wait_ns[WAIT_SEND]);
}

static void describe(const struct siblings *siblings, int fragment, struct wire_state *state)
{
    *state = (struct wire_state){.fragment = (uint16_t)fragment, .round = siblings->ended[fragment].round,
                                 .hash = siblings->ended[fragment].hash,
                                 .total = sync_state_bytes(siblings->sync, fragment)};
    for (int i = 0; i < siblings->flights; i++)
        if (siblings->flight[i].used && siblings->flight[i].is.fragment == fragment) {
            state->pending = siblings->flight[i].is.round;
            state->pending_step = siblings->flight[i].is.applied;
        }
}

int join_accept_pull(struct compute *compute, const struct letter *letter)
{
    struct siblings *siblings = compute->siblings;
    struct wire_pull pull;
    struct wire_state state;
    int err = 0;
    if (wire_decode(WIRE_PULL, letter->payload, letter->bytes, &pull, NULL) < 0)
        BUG("the loop thread let a bad PULL pass");
    if (!siblings || !siblings->sync || pull.fragment >= siblings->fragments.count || join_is_due(compute))
        return 0; /* no answer is an answer: it asks somebody else */
    describe(siblings, pull.fragment, &state);
    if (pull.offset > state.total)
        return 0;
    state.offset = pull.offset;
    uint64_t end = state.total - pull.offset < ANSWER_BYTES ? state.total : pull.offset + ANSWER_BYTES;
    uint8_t *piece = pull.offset < end ? mem_array(WIRE_SYNC_BYTES, 1) : NULL;
    do {
        uint64_t bytes = end - state.offset < WIRE_SYNC_BYTES ? end - state.offset : WIRE_SYNC_BYTES;
        state.body = (struct wire_bytes){.data = piece, .bytes = (uint32_t)bytes};
        if (bytes)
            sync_state_get(siblings->sync, pull.fragment, state.offset, bytes, piece);
        struct letter answer = compute_letter(WIRE_STATE, &state, bytes, (enum mail_road)letter->road, state.round, 0);
        err = mail_send(compute->mail, &answer, &compute->pass.wait_ns[WAIT_SEND]);
        state.offset += bytes;
    } while (state.offset < end && !err);
    mem_free(piece);
    return err;
}

/* ---- one that joins ---- */

int join_accept_enter(struct compute *compute, const struct letter *letter)
{
    struct siblings *siblings = compute->siblings;
    struct copy *copy = siblings->copy;
    struct wire_enter enter;
    if (wire_decode(WIRE_ENTER, letter->payload, letter->bytes, &enter, NULL) < 0)
        BUG("the loop thread let a bad ENTER pass");
    if (!copy || copy->joined || enter.replica != siblings->self)
        return 0; /* said by all; the first one was enough */
    copy->enter = enter;
    copy->heard |= 1u << (letter->road - MAIL_SIBLINGS);
    return 0;
}

int join_accept_state(struct compute *compute, const struct letter *letter)
{
    struct copy *copy = compute->siblings->copy;
    struct wire_state state;
    if (wire_decode(WIRE_STATE, letter->payload, letter->bytes, &state, NULL) < 0)
        BUG("the loop thread let a bad STATE pass");
    if (!copy || state.fragment != copy->fragment)
        return 0;
    struct head *head = &copy->heads[letter->road - MAIL_SIBLINGS];
    head->known = true;
    head->is = state;
    head->answered_ns = clock_now_ns();
    if (!state.body.bytes) {
        head->asked = false;
        return 0;
    }
    if (state.round != copy->round || state.hash != copy->hash) { /* another round has ended since: from the beginning */
        copy->round = state.round;
        copy->hash = state.hash;
        copy->have = 0;
        head->asked = state.offset == 0;
    }
    if (state.offset != copy->have || state.total != copy->total || state.body.bytes > copy->total - copy->have)
        return 0;
    memcpy(copy->bytes + copy->have, state.body.data, state.body.bytes);
    copy->have += state.body.bytes;
    if (copy->have == copy->total || copy->have % ANSWER_BYTES == 0)
        head->asked = false;
    return 0;
}

/* One question at a time; one that was not answered is asked again: the road may have been young. */
static int ask(struct compute *compute, int replica, size_t offset, bool at_once)
{
    struct copy *copy = compute->siblings->copy;
    struct head *head = &copy->heads[replica];
    uint64_t now_ns = clock_now_ns();
    bool waits = head->asked ? now_ns - head->asked_ns < compute->timeouts.greet_ns
                             : !at_once && head->known && now_ns - head->answered_ns < LOOK_NS;
    if (waits)
        return 0;
    head->asked = true;
    head->asked_ns = now_ns;
    struct wire_pull pull = {.fragment = (uint16_t)copy->fragment, .offset = offset};
    struct letter letter = compute_letter(WIRE_PULL, &pull, 0, (enum mail_road)(MAIL_SIBLINGS + replica), 0, 0);
    return mail_send(compute->mail, &letter, &compute->pass.wait_ns[WAIT_SEND]);
}

/* The lowest that is here; once we are let in: of those that let us in. −1: nobody. */
static int donor_of(const struct siblings *siblings)
{
    const struct copy *copy = siblings->copy;
    for (int r = 0; r < siblings->replicas; r++)
        if (r != siblings->self && !siblings->members[r].left && (copy->joined || !copy->heard || copy->heard >> r & 1))
            return r;
    return -1;
}

static bool holds(const struct siblings *siblings, const struct head *head)
{
    const struct copy *copy = siblings->copy;
    return copy->has[copy->fragment] && head->known && head->is.round == siblings->ended[copy->fragment].round &&
           head->is.hash == siblings->ended[copy->fragment].hash;
}

static int put(struct compute *compute)
{
    struct siblings *siblings = compute->siblings;
    struct copy *copy = siblings->copy;
    struct why why = {0};
    int err = sync_state_put(siblings->sync, copy->fragment, copy->bytes, copy->have, &why);
    if (!err && copy->round && sync_hash(siblings->sync, copy->fragment) != copy->hash)
        err = why_set(&why, ERR_INVALID, "its bytes are not what their hash says");
    if (err)
        return compute_halt(compute, compute->trained, "the copy of fragment %d after round %" PRIu64 ": %s", copy->fragment,
                            copy->round, why.text);
    copy->has[copy->fragment] = true;
    siblings->ended[copy->fragment].round = copy->round;
    siblings->ended[copy->fragment].hash = copy->hash;
    copy->have = 0;
    return 0;
}

/* What has to be asked now. *done: we hold what the donor has (`confirm`: and everybody else), of that round or a later one. */
static int look(struct compute *compute, int donor, uint64_t least, bool confirm, bool *done)
{
    const struct siblings *siblings = compute->siblings;
    struct copy *copy = siblings->copy;
    const struct head *of_donor = &copy->heads[donor];
    bool is_there = of_donor->known && of_donor->is.round >= least, current = is_there && holds(siblings, of_donor);
    int err = 0;
    *done = current;
    if (is_there && !current)
        err = ask(compute, donor, copy->have, true);
    else if (!current)
        err = ask(compute, donor, copy->total, false);
    for (int r = 0; r < siblings->replicas && confirm && !err; r++) {
        if (r == siblings->self || r == donor || siblings->members[r].left || holds(siblings, &copy->heads[r]))
            continue;
        *done = false;
        err = ask(compute, r, copy->total, false);
        if (!err && current && copy->heads[r].known && copy->heads[r].is.round > of_donor->is.round)
            err = ask(compute, donor, copy->total, false); /* it has ended one more since */
    }
    return err;
}

/* ERR_AGAIN: there is nobody any more to copy from. */
static int copy_fragment(struct compute *compute, int fragment, uint64_t least, bool confirm, struct wire_state *head)
{
    struct siblings *siblings = compute->siblings;
    struct copy *copy = siblings->copy;
    int err = 0, donor, before = -1;
    bool done = false;
    copy->fragment = fragment;
    copy->total = sync_state_bytes(siblings->sync, fragment);
    copy->have = 0;
    memset(copy->heads, 0, sizeof copy->heads);
    for (;;) {
        donor = donor_of(siblings);
        if (donor < 0)
            return ERR_AGAIN;
        copy->have = donor == before ? copy->have : 0;
        before = donor;
        err = look(compute, donor, least, confirm, &done);
        if (err || done)
            break;
        err = compute_accept(compute, LOOK_NS);
        if (!err && copy->have == copy->total)
            err = put(compute);
        if (err && err != ERR_AGAIN)
            return err;
    }
    if (head)
        *head = copy->heads[donor].is;
    return err;
}

static int copy_all(struct compute *compute, bool confirm, struct wire_state *heads)
{
    const struct siblings *siblings = compute->siblings;
    int err = 0;
    for (int f = 0; f < siblings->fragments.count && !err; f++)
        err = copy_fragment(compute, f, 0, confirm, heads ? &heads[f] : NULL);
    return err == ERR_AGAIN ? compute_halt(compute, 0, "nobody is left to join") : err;
}

static int begin_foreign(struct compute *compute, const struct wire_state *heads)
{
    struct siblings *siblings = compute->siblings;
    int used = 0;
    for (int f = 0; f < siblings->fragments.count; f++) {
        if (!heads[f].pending || heads[f].pending >= siblings->copy->enter.round)
            continue;
        if (used == siblings->flights)
            return compute_halt(compute, 0, "more than %d rounds are said to be under way", siblings->flights);
        uint8_t *bytes = siblings->flight[used].bytes;
        siblings->flight[used++] = (struct flight){
            .used = true, .foreign = true, .bytes = bytes,
            .is = {.round = heads[f].pending, .applied = heads[f].pending_step, .fragment = f}};
    }
    return 0;
}

int join_run(struct compute *compute)
{
    struct siblings *siblings = compute->siblings;
    struct copy *copy = siblings->copy;
    struct wire_state *heads = mem_array((size_t)siblings->fragments.count, sizeof *heads);
    int err = 0;
    while (!copy->ordered && (!err || err == ERR_AGAIN))
        err = compute_accept(compute, LOOK_NS);
    if (!err || err == ERR_AGAIN)
        err = copy_all(compute, false, NULL);
    if (!err)
        compute_ready(compute, READY_COPIED);
    while (!err && !copy->heard) { /* what changes meanwhile comes at once: the others wait only for the rest */
        err = copy_all(compute, false, NULL);
        if (!err)
            err = compute_accept(compute, LOOK_NS);
        err = err == ERR_AGAIN ? 0 : err;
    }
    if (!err)
        err = copy_all(compute, true, heads);
    if (!err)
        err = begin_foreign(compute, heads);
    if (!err)
        err = agree_enter(compute, &copy->enter);
    mem_free(heads);
    if (err)
        return err;
    copy->joined = true;
    siblings_take(compute);
    if (compute->first)
        compute_tell(compute, WIRE_ENTERED,
                     &(struct wire_entered){.replica = copy->enter.replica, .life = copy->enter.life,
                                            .step = copy->enter.step, .round = copy->enter.round}, copy->enter.step);
    compute_ready(compute, READY_JOINED);
    return 0;
}

int join_finish(struct compute *compute, struct flight *flight)
{
    uint64_t began_ns = clock_now_ns();
    int err = copy_fragment(compute, flight->is.fragment, flight->is.round, true, NULL);
    compute->pass.wait_ns[WAIT_SYNC] += clock_now_ns() - began_ns;
    flight->failed = err == ERR_AGAIN; /* all that were in it have left: our copy is the only one */
    return flight->failed ? 0 : err;
}

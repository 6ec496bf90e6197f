/*
 * What replicas change together while a run goes on (sync.every, sync.rank, sync.outer_rate, sync.merge). See siblings.h.
 *
 *   kedged ── KNOB ──► first stage of every replica
 *   lowest replica: AGREE, ahead of its contribution to round k ──► first stages of the others
 *   all: round k is applied at step a ──► what acts after step a + 1 is stamped with it ──► later stages
 *
 * Nobody can apply round k without what the lowest replica sent for it, so nobody can miss the change or make it at another
 * step, however late a KNOB of kedged's is: what must agree rides with the data. kedged hears from every replica at which
 * step it was.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "gpu/train/siblings.h"
#include "ssh/base/mem.h"

bool agree_takes(const struct compute *compute, const char *name)
{
    static const char *const names[] = {"sync.every", "sync.rank", "sync.outer_rate", "sync.merge"};
    for (size_t i = 0; i < sizeof names / sizeof *names && compute->siblings && compute->siblings->sync; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

/* ---- said and heard ---- */

static int announce(struct compute *compute, const struct wire_agree *agree)
{
    const struct siblings *siblings = compute->siblings;
    int err = 0;
    for (int r = 0; r < siblings->replicas && !err; r++) {
        struct letter letter;
        if (r == siblings->self || members_has_left(siblings, r))
            continue;
        letter = compute_letter(WIRE_AGREE, agree, 0, (enum mail_road)(MAIL_SIBLINGS + r), agree->round, 0);
        err = mail_send(compute->mail, &letter, &compute->pass.wait_ns[WAIT_SEND]);
    }
    return err;
}

/* A replica joins by itself: nothing else may be agreed about while it is under way. */
static int let_in(struct compute *compute, const struct fragment_round *round)
{
    struct siblings *siblings = compute->siblings;
    struct entry wanted = siblings->wanted;
    siblings->wanted = (struct entry){0};
    const struct member *member = &siblings->members[wanted.replica];
    bool agreed = siblings->next_entry.replica == wanted.replica && siblings->next_entry.life == wanted.life;
    if (agreed || !member->coming || member->life != wanted.life)
        return 0; /* it is in already, or dead */
    siblings->agreed[0].from = siblings->self;
    struct wire_agree *agree = &siblings->agreed[siblings->agreed_count++].is;
    *agree = (struct wire_agree){.round = round->round, .name = AGREE_JOIN};
    snprintf(agree->value, sizeof agree->value, "%u %" PRIu32, wanted.replica, wanted.life);
    return announce(compute, agree);
}

static bool has_join(const struct siblings *siblings)
{
    for (int i = 0; i < siblings->agreed_count; i++)
        if (strcmp(siblings->agreed[i].is.name, AGREE_JOIN) == 0)
            return true;
    return false;
}

int agree_send(struct compute *compute, const struct fragment_round *round)
{
    struct siblings *siblings = compute->siblings;
    struct wire_knob knob;
    int err = 0;
    if (!compute->first || siblings->self != members_lowest(siblings))
        return 0;
    if (siblings->wanted.life && siblings->agreed_count == 0 && round->applied + 2 <= siblings->fragments.last)
        return let_in(compute, round);
    if (has_join(siblings) || round->sent < siblings->next_entry.step)
        return 0; /* who is let in has not heard what was said before */
    while (!err && siblings->agreed_count < KNOBS_MOST && drive_take_agreed_knob(compute, round->applied + 1, &knob)) {
        siblings->agreed[siblings->agreed_count].from = siblings->self;
        struct wire_agree *agree = &siblings->agreed[siblings->agreed_count++].is;
        *agree = (struct wire_agree){.round = round->round, .ledger = knob.ledger};
        memcpy(agree->name, knob.name, sizeof agree->name);
        memcpy(agree->value, knob.value, sizeof agree->value);
        err = announce(compute, agree);
    }
    return err;
}

int agree_accept(struct compute *compute, const struct letter *letter)
{
    struct siblings *siblings = compute->siblings;
    struct wire_agree agree;
    if (wire_decode(WIRE_AGREE, letter->payload, letter->bytes, &agree, NULL) < 0)
        BUG("the loop thread let a bad AGREE pass");
    int from = letter->road - MAIL_SIBLINGS;
    if (members_is_gone(siblings, from))
        return 0;
    /* Not: only from the lowest one. It may have heard sooner than we that those below it have left. */
    bool known = agree_takes(compute, agree.name) || strcmp(agree.name, AGREE_JOIN) == 0;
    if (!compute->first || from > siblings->self || !known ||
        siblings->agreed_count == KNOBS_MOST)
        return compute_halt(compute, compute->trained,
                            "replica %d wants %s = %s after round %" PRIu64 ", which is not for it to say here",
                            from, agree.name, agree.value, agree.round);
    siblings->agreed[siblings->agreed_count].is = agree;
    siblings->agreed[siblings->agreed_count++].from = from;
    return 0;
}

/* It holds for those who apply its contribution to that round: for all or for nobody. */
void agree_leave(struct compute *compute, int replica)
{
    struct siblings *siblings = compute->siblings;
    int kept = 0;
    for (int i = 0; i < siblings->agreed_count; i++) {
        bool stays = siblings->agreed[i].from != replica;
        for (int k = 0; k < siblings->slots && !stays; k++) {
            const struct incoming *at = &siblings->incoming[replica * siblings->slots + k];
            stays = at->used && at->is.purpose == SYNC_ROUND && at->is.round == siblings->agreed[i].is.round;
        }
        for (int k = 0; k < siblings->flights && !stays; k++) /* two-sided: its first half is used already */
            stays = siblings->flight[k].used && siblings->flight[k].exchange > 0 &&
                siblings->flight[k].is.round == siblings->agreed[i].is.round;
        if (stays)
            siblings->agreed[kept++] = siblings->agreed[i];
    }
    siblings->agreed_count = kept;
}

/* ---- what comes of it ---- */

/* kedged has checked this with the same rules (profile_check_live); all replicas come to the same answer. */
static bool is_possible(const struct siblings *siblings, const struct agreement *wanted)
{
    return fragments_check(&wanted->fragments, NULL) == 0 && fragments_in_flight(&wanted->fragments) <= siblings->flights &&
           wanted->rank >= 1 && wanted->rank <= siblings->most_rank && wanted->rate >= 0 && wanted->rate <= 10 &&
           wanted->alpha >= 0 &&
           wanted->alpha <= 1;
}

/* Stamped from the next step on; it trains the one after that, so that it has a moment to hear of it. */
static void adopt_join(struct compute *compute, const struct wire_agree *agree, uint64_t step)
{
    struct siblings *siblings = compute->siblings;
    unsigned replica;
    uint32_t life;
    if (sscanf(agree->value, "%u %" SCNu32, &replica, &life) != 2 || replica >= (unsigned)siblings->replicas) {
        compute_say(compute, EVENT_WARN, step, "join", "'%s' is no replica that could join", agree->value);
        return;
    }
    if (siblings->members[replica].coming && siblings->members[replica].life == life)
        siblings->next_entry = (struct entry){.replica = (uint16_t)replica, .life = life, .step = step + 2};
}

static void adopt(struct compute *compute, const struct wire_agree *agree, uint64_t step)
{
    struct siblings *siblings = compute->siblings;
    struct profile *profile = &compute->settings.profile;
    struct profile *before = mem_copy(profile, sizeof *profile);
    struct agreement next = siblings->next;
    struct why why = {0};
    int err = profile_set(profile, agree->name, agree->value, &why);
    if (!err) {
        next = agreement_of(profile);
        bool same = profile->sync_every == siblings->next.fragments.every;
        next.fragments = siblings->next.fragments;
        if (!same)
            next.fragments = fragments_change(&siblings->next.fragments, step, profile->sync_every);
    }
    if (err || !is_possible(siblings, &next)) {
        *profile = *before;
        compute_say(compute, EVENT_WARN, step, "knob", "%s = %s is not possible here%s%s", agree->name, agree->value,
                    err ? ": " : "", why.text);
    } else {
        siblings->next = next;
        struct wire_knob knob = {.ledger = agree->ledger};
        memcpy(knob.name, agree->name, sizeof knob.name);
        memcpy(knob.value, agree->value, sizeof knob.value);
        drive_used_knob(compute, &knob, step + 1);
    }
    mem_free(before);
}

void agree_applied(struct compute *compute, uint64_t round, uint64_t step)
{
    struct siblings *siblings = compute->siblings;
    int kept = 0;
    for (int i = 0; i < siblings->agreed_count; i++) {
        const struct wire_agree *agree = &siblings->agreed[i].is;
        if (agree->round > round)
            siblings->agreed[kept++] = siblings->agreed[i];
        else if (strcmp(agree->name, AGREE_JOIN) == 0)
            adopt_join(compute, agree, step);
        else if (!drive_has_used(compute, agree->ledger))
            adopt(compute, agree, step);
    }
    siblings->agreed_count = kept;
}

void agree_stamp(const struct compute *compute, struct wire_stamp *stamp)
{
    const struct siblings *siblings = compute->siblings;
    if (!siblings || !siblings->sync)
        return;
    stamp->sync_every = (uint32_t)siblings->next.fragments.every;
    stamp->sync_rank = (uint16_t)siblings->next.rank;
    stamp->sync_rate = siblings->next.rate;
    stamp->sync_merge = siblings->next.alpha;
    stamp->sync_since = siblings->next.fragments.since;
    stamp->sync_number = siblings->next.fragments.number;
    stamp->join_replica = siblings->next_entry.replica;
    stamp->join_life = siblings->next_entry.life;
    stamp->join_step = siblings->next_entry.step;
}

int agree_enter(struct compute *compute, const struct wire_enter *enter)
{
    struct siblings *siblings = compute->siblings;
    struct profile *profile = &compute->settings.profile;
    struct agreement now = {.fragments = siblings->fragments, .rank = enter->sync_rank, .rate = enter->sync_rate,
                            .alpha = enter->sync_merge};
    now.fragments.every = enter->sync_every;
    now.fragments.since = enter->sync_since;
    now.fragments.number = enter->sync_number;
    if (!is_possible(siblings, &now) || enter->step < 2 || enter->step > siblings->fragments.last)
        return compute_halt(compute, 0, "the others begin step %" PRIu64 " with rounds every %u steps, rank %u: not possible here",
                            enter->step, enter->sync_every, enter->sync_rank);
    profile->sync_every = enter->sync_every;
    profile->sync_rank = enter->sync_rank;
    profile->sync_merge = (double)enter->sync_merge;
    profile->outer_rate = (double)enter->sync_rate; /* not looked at without an outer optimiser */
    siblings->next = now;
    siblings->fragments = now.fragments;
    siblings->entry = siblings->next_entry =
        (struct entry){.replica = enter->replica, .life = enter->life, .step = enter->step};
    siblings->began = enter->step - 1;
    return 0;
}

int agree_follow(struct compute *compute)
{
    struct siblings *siblings = compute->siblings;
    const struct wire_stamp *stamp = &compute->pass.stamp;
    struct agreement now = {.fragments = siblings->fragments, .rank = stamp->sync_rank, .rate = stamp->sync_rate,
                            .alpha = stamp->sync_merge};
    now.fragments.every = stamp->sync_every;
    now.fragments.since = stamp->sync_since;
    now.fragments.number = stamp->sync_number;
    if (!is_possible(siblings, &now))
        return compute_halt(compute, compute->pass.step,
                            "the stamp of step %" PRIu64 " has rounds every %u steps, rank %u, outer rate %g, "
                            "merge %g: not possible here", compute->pass.step, stamp->sync_every, stamp->sync_rank,
                            (double)stamp->sync_rate, (double)stamp->sync_merge);
    siblings->fragments = now.fragments;
    siblings->outer.rate = now.rate;
    siblings->outer.alpha = now.alpha;
    sync_set_rank(siblings->sync, now.rank);
    struct entry entry = {.replica = stamp->join_replica, .life = stamp->join_life, .step = stamp->join_step};
    if (entry.replica >= siblings->replicas)
        return compute_halt(compute, compute->pass.step, "the stamp of step %" PRIu64 " lets replica %u in: there are %d",
                            compute->pass.step, entry.replica, siblings->replicas);
    if (entry.life && (entry.replica != siblings->entry.replica || entry.life != siblings->entry.life))
        members_enter(siblings, &entry);
    return 0;
}

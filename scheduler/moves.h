/*
 * What people do with a host of a run that goes on: restart (its processes end and begin again), drain (they end, and the host stays
 * without), replace (they begin again on another host). All is made of what dies and comes back anyhow: replicas leave (leaving.h) and
 * join (joining.h), the anchor ends and is started.
 *
 *   order ──▶ waits    a round of its replicas ends everywhere, so that what they trained counts; or patience is over
 *         ──▶ leaves   they leave, the anchor is killed; none of its processes is there any more
 *               drain: done, the host is drained          restart, replace ──▶ comes ──all are back──▶ done
 *
 * One host at a time. Each is a row of the ledger, with who wanted it: proposed, then active from a step on, or refused. A new kedged
 * goes on with what the ledger says is under way. At least one replica must stay: weights that nobody else has are never ended here.
 */
#ifndef KEDGE_SCHEDULER_MOVES_H
#define KEDGE_SCHEDULER_MOVES_H

#include <stdbool.h>
#include <stdint.h>

#include "ssh/wire/wire.h"

struct run;

enum moves_state { MOVES_NOT, MOVES_WAITS, MOVES_LEAVES, MOVES_COMES };

struct moves { /* of the host that moves now */
    enum moves_state state;
    enum order_kind kind;   /* ORDER_RESTART, ORDER_DRAIN or ORDER_REPLACE */
    int host, to;           /* `to`: where its processes go; the same host for a restart */
    uint64_t ledger;
    uint32_t replicas;      /* a bit for each that has to leave */
    bool anchor;            /* and the anchor, too */
    uint64_t round;         /* that has to end everywhere; 0 = none of the replica's has begun to */
    uint64_t since_ns;      /* of the state; of MOVES_COMES: since when nobody of them joins */
};

void moves_order(struct run *run, const struct wire_order *order, struct wire_reply *reply);
void moves_tick(struct run *run);
void moves_round(struct run *run, int replica, uint64_t round); /* a stage of it has ended one */
bool moves_holds(const struct run *run, int host);        /* nothing is started there now */
bool moves_keep_away(const struct run *run, int replica); /* one of its hosts holds: it cannot join */
bool moves_has_place(const struct run *run, int host);    /* the plan has something there */
uint64_t moves_patience_ns(const struct run *run); /* how long a round is waited for before they leave, at most */
bool moves_is_drained(const struct run *run, int host);

/* Another kedged begins: processes are where the record says, not where the plan would have them; before processes_init. */
void moves_restore_places(struct run *run);
void moves_adopt(struct run *run); /* goes on with what was under way */

#endif

#include "console/order.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "console/command.h"
#include "console/visit.h"
#include "console/words.h"
#include "profiles/fields.h"
#include "profiles/profile.h"
#include "ssh/base/clock.h"
#include "ssh/base/mem.h"

/* ---- set ---- */

struct change {
    char name[WIRE_NAME], value[WIRE_NAME];
    uint64_t ledger;
};

/* All that can be said without asking anybody: the same rows that the scheduler will check with. */
static int parse_change(const char *word, struct change *change, struct why *why)
{
    const char *equals = strchr(word, '=');
    size_t length = equals ? (size_t)(equals - word) : 0;
    if (!equals || length == 0 || length >= sizeof change->name || strlen(equals + 1) >= sizeof change->value)
        return why_set(why, ERR_INVALID, "'%.80s' is no setting: write KEY=VALUE, for example mask.rate=0.9", word);
    snprintf(change->name, sizeof change->name, "%.*s", (int)length, word);
    snprintf(change->value, sizeof change->value, "%s", equals + 1);
    const struct field *field = field_find(change->name);
    if (!field) {
        char suggestion[120];
        words_suggest(field_nearest(change->name), "; 'kedge get RUN' lists those that can be changed", suggestion,
                      sizeof suggestion);
        return why_set(why, ERR_INVALID, "there is no setting '%s'%s", change->name, suggestion);
    }
    if (!field->live)
        return why_set(why, ERR_INVALID, "%s cannot be changed while a run goes on: stop it, edit its profile, run again",
                       change->name);
    struct profile *scratch = mem_new(sizeof *scratch);
    int err = field_parse(field, change->value, scratch, why);
    mem_free(scratch);
    return err;
}

static bool is_decided(struct client *client, void *arg)
{
    const struct change *change = arg;
    const struct wire_ledger_row *row = state_find_ledger(client_state(client), change->ledger);
    return row && row->state != LEDGER_PROPOSED;
}

static void print_change(const struct wire_ledger_row *row, const struct style *style)
{
    printf("%s %s %s %s active from step %" PRIu64 "\n", row->name, row->old_value, style_glyph(style, GLYPH_ARROW),
           row->new_value, row->step);
}

/* Accepted is not active: stage 0 uses the value some steps later, and says which step it was. */
static int await_change(struct visit *visit, struct change *change, const struct style *style, struct why *why)
{
    const struct wire_run_state *run = &client_state(visit->client)->run;
    if (run->phase != PHASE_TRAINING) {
        printf("%s = %s is accepted; it is used when the run trains (now: %s)\n", change->name, change->value,
               wire_phase_name(run->phase));
        return 0;
    }
    double steps = isfinite(run->step_seconds) ? 8 * run->step_seconds : 60;
    uint64_t deadline_ns = 15 * CLOCK_SECOND + (uint64_t)(fmin(steps, 86400) * 1e9);
    int err = client_wait(visit->client, is_decided, change, deadline_ns, why);
    const struct wire_ledger_row *row = state_find_ledger(client_state(visit->client), change->ledger);
    if (err == ERR_TIMEOUT) {
        char waited[WORDS];
        *why = (struct why){0};
        words_duration(style, (double)deadline_ns / 1e9, waited, sizeof waited);
        return why_set(why, ERR_TIMEOUT, "%s = %s was accepted, but no step used it within %s; see 'kedge status %s'",
                       change->name, change->value, waited, visit->run);
    }
    if (err)
        return err;
    if (row->state == LEDGER_REFUSED)
        return why_set(why, ERR_REFUSED, "%s = %s was refused by the run; 'kedge events %s' says why", change->name,
                       change->value, visit->run);
    print_change(row, style);
    return 0;
}

static int send_change(struct visit *visit, struct change *change, const struct args *args, const struct style *style,
                       struct why *why)
{
    struct wire_reply reply;
    int err = client_order(visit->client, ORDER_SET, change->name, change->value, &reply, why);
    if (err)
        return err;
    change->ledger = reply.ledger;
    if (!reply.ledger) { /* there is nothing to change */
        puts(reply.text);
        return 0;
    }
    if (args->options & OPTION_NO_WAIT) {
        printf("%s = %s %s\n", change->name, change->value, reply.text);
        return 0;
    }
    return await_change(visit, change, style, why);
}

/* Begins a visit of a run that is going, for an order. After an error nothing is open. */
static int visit_going(struct visit *visit, const char *run, struct why *why)
{
    int err = visit_begin(visit, run, true, NULL, NULL, why);
    if (err || client_is_live(visit->client))
        return err;
    err = why_set(why, ERR_ABSENT, "the run '%s' is not going; 'kedge status %s' shows its record", visit->run, visit->run);
    visit_end(visit);
    return err;
}

int order_set(const struct args *args, const struct style *style)
{
    struct visit visit;
    struct why why = {0};
    int count = args->word_count - 1, err = 0;
    struct change *changes = mem_array((size_t)count, sizeof *changes);
    for (int i = 0; i < count && !err; i++)
        err = parse_change(args->words[i + 1], &changes[i], &why);
    if (!err)
        err = visit_going(&visit, args->words[0], &why);
    if (!err) {
        for (int i = 0; i < count && !err; i++)
            err = send_change(&visit, &changes[i], args, style, &why);
        visit_end(&visit);
    }
    mem_free(changes);
    return err ? visit_fail(&why) : EXIT_DONE;
}

/* ---- pause, resume ---- */

static bool is_in_phase(struct client *client, void *arg)
{
    const int *phase = arg;
    return client_state(client)->run.phase == *phase;
}

static int change_phase(const struct args *args, enum order_kind kind, int phase)
{
    struct visit visit;
    struct why why = {0};
    struct wire_reply reply;
    int err = visit_going(&visit, args->words[0], &why);
    if (err)
        return visit_fail(&why);
    err = client_order(visit.client, kind, "", "", &reply, &why);
    if (!err)
        err = client_wait(visit.client, is_in_phase, &phase, client_timeouts(visit.client)->form_ns, &why);
    if (!err)
        printf("%s is %s at step %" PRIu64 "\n", visit.run, wire_phase_name(phase), client_state(visit.client)->run.step);
    visit_end(&visit);
    return err ? visit_fail(&why) : EXIT_DONE;
}

int order_pause(const struct args *args, const struct style *style)
{
    (void)style;
    return change_phase(args, ORDER_PAUSE, PHASE_HOLDING);
}

int order_resume(const struct args *args, const struct style *style)
{
    (void)style;
    return change_phase(args, ORDER_RESUME, PHASE_TRAINING);
}

/* ---- checkpoint, snapshot ---- */

/* What is ordered, and the event by which kedged says what came of it. */
struct wish {
    enum order_kind kind;
    const char *codes[2];
    double most_steps; /* it is through after so many, if all is well */
    bool of_anchor;    /* only once the anchor holds weights that are newer than the order */
    enum run_phase over; /* from this phase on nothing comes of it any more */
    const char *unfinished;
};

struct awaited {
    const struct wish *wish;
    uint64_t after; /* events that were there before */
    uint64_t step;  /* of the run when it was ordered */
    const struct wire_event_row *event;
};

static bool has_come(struct client *client, void *arg)
{
    struct awaited *awaited = arg;
    const struct wish *wish = awaited->wish;
    const struct state *state = client_state(client);
    bool ripe = !wish->of_anchor || state->anchor.flipped > awaited->step;
    for (size_t i = 0; ripe && i < state->event_count && !awaited->event; i++)
        for (int code = 0; code < 2; code++)
            if (state->events[i].id > awaited->after && wish->codes[code] &&
                strcmp(state->events[i].code, wish->codes[code]) == 0)
                awaited->event = &state->events[i];
    return awaited->event || state->run.phase >= wish->over;
}

static int await(struct visit *visit, struct awaited *awaited, struct why *why)
{
    double step_seconds = client_state(visit->client)->run.step_seconds;
    double seconds = isfinite(step_seconds) ? awaited->wish->most_steps * step_seconds : 60;
    uint64_t deadline_ns = client_timeouts(visit->client)->form_ns + (uint64_t)(fmin(seconds, 86400) * 1e9);
    int err = client_wait(visit->client, has_come, awaited, deadline_ns, why);
    if (err)
        return err;
    if (!awaited->event)
        return why_set(why, ERR_GONE, "the run '%s' ended before %s", visit->run, awaited->wish->unfinished);
    if (awaited->event->level != EVENT_INFO)
        return why_set(why, ERR_SYSTEM, "%s", awaited->event->text);
    puts(awaited->event->text);
    return 0;
}

static int order_and_await(const struct args *args, const struct wish *wish)
{
    struct visit visit;
    struct why why = {0};
    struct wire_reply reply;
    int err = visit_going(&visit, args->words[0], &why);
    if (err)
        return visit_fail(&why);
    const struct wire_run_state *run = &client_state(visit.client)->run;
    struct awaited awaited = {.wish = wish, .after = run->newest_event, .step = run->step};
    err = client_order(visit.client, wish->kind, "", "", &reply, &why);
    if (!err && reply.ledger) /* it is there already, and the reply says where */
        puts(reply.text);
    else if (!err)
        err = await(&visit, &awaited, &why);
    visit_end(&visit);
    return err ? visit_fail(&why) : EXIT_DONE;
}

int order_checkpoint(const struct args *args, const struct style *style)
{
    static const struct wish wish = {.kind = ORDER_CHECKPOINT,
                                     .codes = {"checkpoint"},
                                     .most_steps = 4,
                                     .over = PHASE_FINISHED + 1,
                                     .unfinished = "its weights were written"};
    (void)style;
    return order_and_await(args, &wish);
}

int order_snapshot(const struct args *args, const struct style *style)
{
    static const struct wish wish = {.kind = ORDER_SNAPSHOT,
                                     .codes = {"snapshot", "snapshot-late"},
                                     .most_steps = 100,
                                     .of_anchor = true,
                                     .over = PHASE_FINISHED,
                                     .unfinished = "the snapshot was whole"};
    (void)style;
    return order_and_await(args, &wish);
}

/* ---- hosts ---- */

#define MOVE_NS (86400 * CLOCK_SECOND) /* kedged gives up long before: this is for a kedged that does not */

struct moving {
    uint64_t ledger;
    enum ledger_state state;
};

static bool has_moved(struct client *client, void *arg)
{
    struct moving *moving = arg;
    const struct wire_ledger_row *row = state_find_ledger(client_state(client), moving->ledger);
    moving->state = row ? row->state : LEDGER_PROPOSED;
    return moving->state != LEDGER_PROPOSED;
}

/* The newest that was said of hosts. */
static const char *newest_word(const struct state *state)
{
    for (size_t i = state->event_count; i > 0; i--)
        if (strcmp(state->events[i - 1].code, "host") == 0)
            return state->events[i - 1].text;
    return "";
}

static bool has_word(struct client *client, void *arg)
{
    const struct state *state = client_state(client);
    (void)arg;
    return state->event_count && state->events[state->event_count - 1].id >= state->run.newest_event;
}

static int await_move(struct visit *visit, uint64_t ledger, struct why *why)
{
    struct moving moving = {.ledger = ledger};
    int err = client_wait(visit->client, has_moved, &moving, MOVE_NS, why);
    if (err)
        return err;
    client_wait(visit->client, has_word, NULL, client_timeouts(visit->client)->silent_ns, &(struct why){0}); /* the event comes behind the row */
    if (moving.state == LEDGER_REFUSED)
        return why_set(why, ERR_REFUSED, "%s", newest_word(client_state(visit->client)));
    puts(newest_word(client_state(visit->client)));
    return 0;
}

static int order_host(const struct args *args, enum order_kind kind)
{
    struct visit visit;
    struct why why = {0};
    struct wire_reply reply;
    int err = visit_going(&visit, args->words[0], &why);
    if (err)
        return visit_fail(&why);
    err = client_order(visit.client, kind, args->words[1], kind == ORDER_REPLACE ? args->words[2] : "", &reply, &why);
    if (!err && (!reply.ledger || (args->options & OPTION_NO_WAIT)))
        puts(reply.text);
    else if (!err)
        err = await_move(&visit, reply.ledger, &why);
    visit_end(&visit);
    return err ? visit_fail(&why) : EXIT_DONE;
}

int order_restart(const struct args *args, const struct style *style)
{
    (void)style;
    return order_host(args, ORDER_RESTART);
}

int order_drain(const struct args *args, const struct style *style)
{
    (void)style;
    return order_host(args, ORDER_DRAIN);
}

int order_replace(const struct args *args, const struct style *style)
{
    (void)style;
    return order_host(args, ORDER_REPLACE);
}

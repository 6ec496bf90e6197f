#include "console/watch.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <time.h>

#include "console/client.h"
#include "console/command.h"
#include "console/health.h"
#include "console/print.h"
#include "console/report.h"
#include "console/table.h"
#include "console/visit.h"
#include "console/words.h"
#include "ssh/base/clock.h"
#include "ssh/base/mem.h"
#include "ssh/launch/holders.h"

#define REPEAT_NS (30 * CLOCK_SECOND) /* how often a hold is said again */
#define REJOINS 5                     /* dropped, and dropped again before the state was whole: so often we come back */

struct watch {
    const char *run;
    const struct place *place;
    const struct style *style;
    bool json, events_from_start, complete, was_complete;
    struct health *health; /* of its hosts; NULL = not ours to ask */
    uint64_t heard_ns; /* when the newest word came */
    uint64_t newest_event, next_line_ns, said_ns;
    int said_phase;
    char said_reason[WIRE_TEXT];
    char down_reason[700];
    bool has_validation;
    uint64_t validation_step;
};

static bool interrupted;

void watch_interrupt(int number, void *arg)
{
    (void)number, (void)arg;
    interrupted = true;
}

bool watch_is_interrupted(void)
{
    return interrupted;
}

/* ---- the line ---- */

struct road_pair {
    const char *one, *other;
    double down, up; /* bytes a second over all lanes; NaN while nothing is known */
};

static void add_rate(double *sum, double rate)
{
    if (isfinite(rate))
        *sum = isfinite(*sum) ? *sum + rate : rate;
}

/* Both directions and all lanes of a road are one piece of the line. */
static size_t pair_roads(const struct state *state, struct road_pair *pairs)
{
    size_t count = 0;
    for (size_t i = 0; i < state->road_count; i++) {
        const struct wire_road_row *row = &state->roads[i].row;
        struct road_pair *pair = NULL;
        bool back = false;
        for (size_t j = 0; j < count && !pair; j++) {
            back = strcmp(pairs[j].one, row->to) == 0 && strcmp(pairs[j].other, row->from) == 0;
            if (back || (strcmp(pairs[j].one, row->from) == 0 && strcmp(pairs[j].other, row->to) == 0))
                pair = &pairs[j];
        }
        if (!pair) {
            pair = &pairs[count++];
            back = strverscmp(row->from, row->to) > 0; /* whichever row came first: r0s0 stands before r0s1 */
            *pair = (struct road_pair){back ? row->to : row->from, back ? row->from : row->to, NAN, NAN};
        }
        add_rate(back ? &pair->up : &pair->down, row->bytes_per_second);
    }
    return count;
}

void watch_print_line(const struct state *state, const struct style *style, FILE *out)
{
    const struct wire_run_state *run = &state->run;
    struct road_pair *pairs = mem_array(state->road_count + 1, sizeof *pairs);
    char **pieces = mem_array(state->road_count + 8, sizeof *pieces);
    size_t pair_count = pair_roads(state, pairs), count = 0;
    char loss[WORDS], tokens[WORDS], rates[2 * WORDS], eta[WORDS];
    pieces[count++] = mem_format("step %" PRIu64 "/%" PRIu64, run->step, run->steps);
    pieces[count++] = mem_format("loss %s", words_real(style, run->loss, 3, loss, sizeof loss));
    pieces[count++] = mem_format("%s tok/s", words_count(style, run->tokens_per_second, tokens, sizeof tokens));
    for (size_t i = 0; i < pair_count; i++)
        pieces[count++] = mem_format("%s-%s %s", pairs[i].one, pairs[i].other,
                                     words_rate_pair(style, pairs[i].down, pairs[i].up, rates, sizeof rates));
    pieces[count++] = mem_format("ETA %s", words_duration(style, state_eta_seconds(state), eta, sizeof eta));
    table_print_pieces(pieces, count, style->columns, out);
    for (size_t i = 0; i < count; i++)
        mem_free(pieces[i]);
    mem_free(pieces);
    mem_free(pairs);
}

/* ---- what is said, and when ---- */

static void say_state_json(const struct state *state, uint64_t now_ns)
{
    json_t *object = report_run(state, now_ns);
    json_object_set_new(object, "type", json_string("state"));
    json_object_set_new(object, "links", report_links(state));
    report_print(object, true, stdout);
}

static void say_event(struct watch *watch, const struct wire_event_row *row)
{
    if (row->id <= watch->newest_event)
        return;
    watch->newest_event = row->id;
    if (!watch->complete && !watch->events_from_start)
        return;
    if (!watch->json) {
        print_event(row, watch->style, stdout);
        return;
    }
    json_t *object = report_event(row);
    json_object_set_new(object, "type", json_string("event"));
    json_object_set_new(object, "format", json_integer(REPORT_FORMAT));
    report_print(object, true, stdout);
}

static void say_phase(struct watch *watch, const struct wire_run_state *run, uint64_t now_ns)
{
    bool same = run->phase == watch->said_phase && strcmp(run->reason, watch->said_reason) == 0;
    bool again = run->phase == PHASE_HOLDING && now_ns - watch->said_ns >= REPEAT_NS;
    if (watch->json || (same && !again))
        return;
    watch->said_phase = run->phase;
    watch->said_ns = now_ns;
    snprintf(watch->said_reason, sizeof watch->said_reason, "%s", run->reason);
    enum paint paint = run->phase == PHASE_HOLDING ? PAINT_BAD : PAINT_BOLD;
    printf("%s%s: %s%s", style_paint(watch->style, paint), watch->run, wire_phase_name(run->phase), style_end(watch->style));
    if (run->step)
        printf(" at step %" PRIu64, run->step);
    printf("%s%s\n", run->reason[0] ? ": " : "", run->reason);
}

/* The masked loss says little about the model: every un-masked measurement is a line of its own. */
static void say_validation(struct watch *watch, const struct wire_run_state *run)
{
    bool said = watch->has_validation && watch->validation_step == run->validation_step;
    if (watch->json || said || !isfinite(run->validation_loss))
        return;
    watch->has_validation = true;
    watch->validation_step = run->validation_step;
    printf("validation loss %.4f un-masked at step %" PRIu64, run->validation_loss, run->validation_step);
    if (isfinite(run->first_validation_loss) && run->validation_step > 0)
        printf(" (%.4f before training)", run->first_validation_loss);
    putchar('\n');
}

static void on_change(struct client *client, enum wire_type type, const void *row, void *arg)
{
    struct watch *watch = arg;
    (void)client;
    if (type == WIRE_EVENT_ROW) {
        say_event(watch, row);
    } else if (type == WIRE_STATE_END) {
        watch->complete = true;
    } else if (type == WIRE_RUN_STATE) {
        say_validation(watch, row);
        say_phase(watch, row, clock_now_ns());
    }
    fflush(stdout);
}

static bool has_ended(struct client *client, void *arg)
{
    struct watch *watch = arg;
    struct state *state = client_state(client);
    uint64_t now_ns = clock_now_ns();
    if (interrupted || ferror(stdout) || (state->complete && !client_is_live(client)))
        return true; /* a record does not change any more */
    if (!state->complete || now_ns < watch->next_line_ns)
        return false;
    watch->next_line_ns = now_ns + CLOCK_SECOND - (now_ns - watch->next_line_ns) % CLOCK_SECOND;
    if (watch->json)
        say_state_json(state, now_ns);
    else if (state->run.phase == PHASE_TRAINING)
        watch_print_line(state, watch->style, stdout);
    fflush(stdout);
    return false;
}

/* ---- the end ---- */

static int say_left(const struct watch *watch, const struct state *state)
{
    if (!watch->json)
        printf("left: %s goes on (step %" PRIu64 " of %" PRIu64 "); 'kedge attach %s' comes back, 'kedge stop %s' ends it\n",
               watch->run, state->run.step, state->run.steps, watch->place->name, watch->place->name);
    return EXIT_INTERRUPTED;
}

static int say_finished(const struct watch *watch, const struct state *state)
{
    const struct wire_run_state *run = &state->run;
    char trained[WORDS], first[WORDS], last[WORDS], tokens[WORDS];
    if (watch->json)
        return EXIT_DONE;
    words_count(watch->style, (double)run->tokens, tokens, sizeof tokens);
    words_age(watch->style, run->trained_ns, trained, sizeof trained);
    words_real(watch->style, run->first_validation_loss, 4, first, sizeof first);
    words_real(watch->style, run->validation_loss, 4, last, sizeof last);
    printf("%s finished: %" PRIu64 " steps, %s tokens in %s; un-masked validation loss %s %s %s\n", watch->run, run->step,
           tokens, trained, first, style_glyph(watch->style, GLYPH_ARROW), last);
    return EXIT_DONE;
}

/* After the scheduler has gone in good order its processes may need a moment: a second run can start when we return. */
static void await_processes(const struct watch *watch)
{
    uint64_t run_id;
    struct holder *holders = mem_array(HOLDERS_MOST, sizeof *holders);
    for (int i = 0; i < 100 && watch->place->folder[0] && runs_read_id(watch->place->folder, &run_id, NULL) == 0; i++) {
        if (holders_find(watch->place->folder, run_id, holders, HOLDERS_MOST) == 0)
            break;
        nanosleep(&(struct timespec){.tv_nsec = 50 * 1000 * 1000}, NULL);
    }
    mem_free(holders);
}

static int say_end(const struct watch *watch, struct client *client)
{
    const struct state *state = client_state(client);
    int phase = state->has_run ? state->run.phase : 0;
    if (interrupted)
        return say_left(watch, state);
    if (ferror(stdout))
        return EXIT_FAILED;
    if (phase == PHASE_FINISHED) {
        await_processes(watch);
        return say_finished(watch, state);
    }
    if (phase == PHASE_STOPPING || phase == PHASE_STOPPED) {
        await_processes(watch);
        if (!watch->json)
            printf("%s was stopped at step %" PRIu64 " of %" PRIu64 "\n", watch->run, state->run.step, state->run.steps);
        return EXIT_FAILED;
    }
    const char *reason = client_is_live(client) ? client_down_reason(client) : state->run.reason;
    fprintf(stderr, "kedge: the scheduler of %s is lost: %s; its workers train on: 'kedge attach %s' starts a scheduler "
                    "that takes "
            "them back, 'kedge stop %s' ends them\n", watch->run, reason, watch->run, watch->run);
    return EXIT_NETWORK;
}

/* One connection's worth. True when it is worth while to come back: the scheduler lives and only dropped us. */
static bool watch_once(struct loop *loop, struct watch *watch, int *exit_code)
{
    const struct client_callbacks callbacks = {.changed = on_change};
    struct why why = {0};
    watch->complete = false;
    struct client *client = place_open(loop, watch->place, true, watch->newest_event, &callbacks, watch, &why);
    if (!client) {
        *exit_code = visit_fail(&why);
        return false;
    }
    health_tell(watch->health, client);
    int err = client_wait(client, has_ended, watch, 0, &why);
    health_tell(watch->health, NULL);
    bool over = state_is_over(client_state(client)) || client_state(client)->run.phase == PHASE_STOPPING;
    bool known = watch->complete || watch->was_complete; /* who was never reached is not waited for */
    bool again = err == ERR_GONE && !over && (watch->place->far ? known && !interrupted : runs_answers(watch->place->folder));
    watch->was_complete |= watch->complete;
    watch->heard_ns = client_heard_ns_ago(client) == UINT64_MAX ? watch->heard_ns : clock_now_ns() - client_heard_ns_ago(client);
    if (again)
        snprintf(watch->down_reason, sizeof watch->down_reason, "%s", client_down_reason(client));
    else
        *exit_code = say_end(watch, client);
    client_free(client);
    return again;
}

/* The road to another machine is lost: how long nothing was heard, why, and when it is dialled again. */
static void await_redial(struct loop *loop, const struct watch *watch, int failures)
{
    uint64_t pause_ns = failures < 5 ? CLOCK_SECOND << failures : REPEAT_NS, until_ns = clock_now_ns() + pause_ns;
    char age[WORDS], pause[WORDS];
    if (!watch->json) {
        words_age(watch->style, clock_now_ns() - watch->heard_ns, age, sizeof age);
        words_age(watch->style, pause_ns, pause, sizeof pause);
        printf("no road to %s (last word %s ago): %s; again in %s\n", watch->place->reach.name, age, watch->down_reason, pause);
        fflush(stdout);
    }
    for (uint64_t now_ns; !interrupted && (now_ns = clock_now_ns()) < until_ns;)
        loop_run_once(loop, until_ns - now_ns);
}

int watch_run(struct loop *loop, const struct place *place, bool json, bool from_start, bool read_only,
              const struct style *style)
{
    struct watch watch = {.run = place->run, .place = place, .style = style, .json = json, .events_from_start = from_start};
    const char *run = place->run;
    int exit_code = EXIT_NETWORK, failures = 0;
    watch.health = read_only ? NULL : health_new(loop, place);
    while (watch_once(loop, &watch, &exit_code)) {
        failures = watch.complete ? 0 : failures + 1;
        if (place->far) {
            await_redial(loop, &watch, failures);
            continue;
        }
        if (failures == REJOINS) {
            fprintf(stderr, "kedge: the scheduler of %s lives, but does not answer: %s\n", run, watch.down_reason);
            exit_code = EXIT_NETWORK;
            break;
        }
        nanosleep(&(struct timespec){.tv_nsec = 200 * 1000 * 1000}, NULL);
    }
    health_free(watch.health);
    return exit_code;
}

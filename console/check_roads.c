#include "console/check_roads.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "console/table.h"
#include "console/words.h"
#include "ssh/base/clock.h"
#include "ssh/base/mem.h"

#define PAIRS_MOST (PROFILE_HOSTS * (PROFILE_HOSTS - 1) / 2) /* all there are */
#define PROMISED 0.8 /* of an uplink: who has less is told */

struct need { /* of a pair, in its order of hosts */
    double forward_bytes, backward_bytes; /* a step, the mean */
    char carries[120];
    int roads;
};

struct check_roads {
    const struct inspect_host *found;
    struct measure_host *hosts;
    int host_count;
    struct measure_pair *pairs;
    struct need *needs;
    int count;
    bool quiet, done;
};

/* ---- what the plan joins ---- */

static int host_of(const struct check_roads *roads, const char *name)
{
    for (int i = 0; name && i < roads->host_count; i++)
        if (strcmp(roads->hosts[i].name, name) == 0)
            return i;
    return -1;
}

static const char *host_of_process(const json_t *plan, const char *process)
{
    size_t i;
    json_t *stage;
    json_array_foreach(json_object_get(plan, "stages"), i, stage) {
        const char *name = json_string_value(json_object_get(stage, "process"));
        if (name && process && strcmp(name, process) == 0)
            return json_string_value(json_object_get(stage, "host"));
    }
    return NULL;
}

static void add_need(struct check_roads *roads, int from, int to, double forward, double backward, const char *carries)
{
    int at = 0;
    if (from < 0 || to < 0 || from == to)
        return; /* on one host, or on this machine */
    while (at < roads->count && !(roads->pairs[at].one == from && roads->pairs[at].other == to) &&
           !(roads->pairs[at].one == to && roads->pairs[at].other == from))
        at++;
    if (at == roads->count) {
        roads->pairs[at] = (struct measure_pair){.one = from, .other = to};
        roads->needs[at] = (struct need){0};
        roads->count++;
    }
    struct need *need = &roads->needs[at];
    bool same_way = roads->pairs[at].one == from;
    need->forward_bytes += same_way ? forward : backward;
    need->backward_bytes += same_way ? backward : forward;
    if (!need->roads++)
        snprintf(need->carries, sizeof need->carries, "%s", carries);
}

static double bytes_of(const json_t *object, const char *key, const char *which)
{
    return json_number_value(json_object_get(json_object_get(object, key), which));
}

/* On every road to the anchor a snapshot in full, spread over the steps from one to the next, or rounds; and directions back: the upper bound. */
static void add_anchor(struct check_roads *roads, const json_t *plan)
{
    const json_t *anchor = json_object_get(plan, "anchor"), *stages = json_object_get(plan, "stages");
    double every = json_number_value(json_object_get(anchor, "every_steps")), per_replica = 0;
    int host = host_of(roads, json_string_value(json_object_get(anchor, "host")));
    size_t i;
    json_t *stage;
    json_array_foreach(stages, i, stage)
        per_replica += json_integer_value(json_object_get(stage, "replica")) == 0;
    if (!anchor || per_replica < 1 || !(every >= 1))
        return;
    json_array_foreach(stages, i, stage) {
        char carries[120];
        bool sends = json_integer_value(json_object_get(stage, "replica")) == 0;
        const char *process = json_string_value(json_object_get(stage, "process"));
        snprintf(carries, sizeof carries, "%s-anchor", process ? process : "?");
        add_need(roads, host_of(roads, json_string_value(json_object_get(stage, "host"))), host,
                 sends ? json_number_value(json_object_get(anchor, "step_bytes")) / per_replica : 0,
                 json_number_value(json_object_get(anchor, "basis_bytes")) / per_replica / every, carries);
    }
}

static void read_plan(struct check_roads *roads, const json_t *plan)
{
    json_t *road;
    size_t i;
    json_array_foreach(json_object_get(plan, "roads"), i, road) {
        const char *from = json_string_value(json_object_get(road, "from")), *to = json_string_value(json_object_get(road, "to"));
        char carries[120];
        snprintf(carries, sizeof carries, "%s-%s", from ? from : "?", to ? to : "?");
        add_need(roads, host_of(roads, host_of_process(plan, from)), host_of(roads, host_of_process(plan, to)),
                 bytes_of(road, "bytes_per_step", "forward"), bytes_of(road, "bytes_per_step", "backward"), carries);
    }
    add_anchor(roads, plan);
}

/* ---- measuring ---- */

static void on_measured(const struct measure_pair *pair, int left, void *arg)
{
    struct check_roads *roads = arg;
    if (!roads->quiet)
        printf("%s - %s: %s%s (%d to go)\n", roads->hosts[pair->one].name, roads->hosts[pair->other].name,
               pair->rtt_ns ? "measured" : "not measured: ", pair->reason, left);
    fflush(stdout);
    roads->done = left == 0;
}

struct check_roads *check_roads_new(struct loop *loop, const json_t *plan, const struct inspect *inspect, uint64_t greet_ns,
                                    bool quiet)
{
    struct check_roads *roads = mem_new(sizeof *roads);
    *roads = (struct check_roads){.quiet = quiet};
    roads->found = inspect_hosts(inspect, &roads->host_count);
    roads->hosts = mem_array((size_t)roads->host_count + 1, sizeof *roads->hosts);
    roads->pairs = mem_array(PAIRS_MOST, sizeof *roads->pairs);
    roads->needs = mem_array(PAIRS_MOST, sizeof *roads->needs);
    for (int i = 0; i < roads->host_count; i++) {
        const struct inspect_host *found = &roads->found[i];
        const char *announce = found->host->announce;
        roads->hosts[i] = (struct measure_host){.name = found->host->name, .session = inspect_session(inspect, i),
                                                .listen = found->host->listen, .reached_at = found->port_address,
                                                .mapped = strchr(announce, ':') && announce[strlen(announce) - 1] != ']',
                                                .reached = found->port == PORT_REACHED};
    }
    read_plan(roads, plan);
    if (!roads->count) {
        check_roads_free(roads);
        return NULL;
    }
    struct measure *measure = measure_new(loop, roads->hosts, roads->host_count, roads->pairs, roads->count, greet_ns, on_measured, roads);
    while (!roads->done)
        loop_run_once(loop, CLOCK_SECOND);
    measure_free(measure);
    for (int i = 0; i < roads->host_count; i++)
        roads->hosts[i].session = NULL; /* not ours for longer */
    return roads;
}

void check_roads_free(struct check_roads *roads)
{
    if (!roads)
        return;
    mem_free(roads->hosts);
    mem_free(roads->pairs);
    mem_free(roads->needs);
    mem_free(roads);
}

/* ---- what it means ---- */

/* Seconds that the bytes of a step are on the road, the slower direction; NaN = not measured. */
static double step_seconds(const struct check_roads *roads, int at)
{
    const struct measure_pair *pair = &roads->pairs[at];
    const struct need *need = &roads->needs[at];
    return pair->rtt_ns ? fmax(need->forward_bytes / pair->forward, need->backward_bytes / pair->backward) : (double)NAN;
}

static bool is_broken(const struct check_roads *roads, int at)
{
    const struct measure_pair *pair = &roads->pairs[at];
    return !pair->rtt_ns && roads->found[pair->one].port == PORT_NOT_REACHED && roads->found[pair->other].port == PORT_NOT_REACHED;
}

bool check_roads_broken(const struct check_roads *roads)
{
    bool broken = false;
    for (int i = 0; roads && i < roads->count; i++)
        broken |= is_broken(roads, i);
    return broken;
}

static int slowest(const struct check_roads *roads)
{
    int worst = -1;
    for (int i = 0; i < roads->count; i++)
        if (isfinite(step_seconds(roads, i)) && (worst < 0 || step_seconds(roads, i) > step_seconds(roads, worst)))
            worst = i;
    return worst;
}

/* What it promises in the profile and does not hold. */
static bool is_less_than_promised(const struct check_roads *roads, int host, double bytes_per_second)
{
    uint64_t uplink_bps = roads->found[host].host->uplink_bps;
    return uplink_bps && bytes_per_second * 8 < PROMISED * (double)uplink_bps;
}

static void print_note(const struct check_roads *roads, int at, const struct style *style)
{
    const struct measure_pair *pair = &roads->pairs[at];
    const char *one = roads->hosts[pair->one].name, *other = roads->hosts[pair->other].name;
    for (int back = 0; back < 2 && pair->rtt_ns; back++) {
        int host = back ? pair->other : pair->one;
        double rate = back ? pair->backward : pair->forward;
        if (is_less_than_promised(roads, host, rate))
            printf("%s%s - %s%s: %s sends %.1f Mbit/s, its uplink = says %.1f: write what it has, or roads are paced for what is not there\n",
                   style_paint(style, PAINT_WARN), one, other, style_end(style), roads->hosts[host].name, rate * 8 / 1e6,
                   (double)roads->found[host].host->uplink_bps / 1e6);
    }
    if (is_broken(roads, at))
        printf("%s%s - %s%s: there is no road, since %s: open the port of one of them, or map it (listen = 0.0.0.0:PORT, announce = "
               "HOST:PORT)\n", style_paint(style, PAINT_BAD), one, other, style_end(style), pair->reason);
}

void check_roads_print(const struct check_roads *roads, const struct style *style)
{
    static const struct table_column columns[] = {{"road", false, false}, {"carries", false, true}, {"rtt", true, false},
                                                  {"there", true, false}, {"back", true, false}, {"a step", true, false},
                                                  {"takes", true, false}, {"why not", false, true}};
    struct table *table = table_new(style, columns, sizeof columns / sizeof *columns);
    char one[WORDS], other[WORDS];
    for (int i = 0; i < roads->count; i++) {
        const struct measure_pair *pair = &roads->pairs[i];
        const struct need *need = &roads->needs[i];
        table_row(table, is_broken(roads, i) ? PAINT_BAD : pair->rtt_ns ? PAINT_NONE : PAINT_WARN);
        table_cell(table, "%s - %s", roads->hosts[pair->one].name, roads->hosts[pair->other].name);
        if (need->roads > 1)
            table_cell(table, "%s, %d more", need->carries, need->roads - 1);
        else
            table_cell(table, "%s", need->carries);
        table_cell(table, "%s", words_duration(style, pair->rtt_ns ? (double)pair->rtt_ns / 1e9 : (double)NAN, one, sizeof one));
        table_cell(table, "%s", words_rate(style, pair->rtt_ns ? pair->forward : (double)NAN, one, sizeof one));
        table_cell(table, "%s", words_rate(style, pair->rtt_ns ? pair->backward : (double)NAN, one, sizeof one));
        words_bytes(style, (uint64_t)need->forward_bytes, one, sizeof one);
        table_cell(table, "%s / %s", one, words_bytes(style, (uint64_t)need->backward_bytes, other, sizeof other));
        table_cell(table, "%s", words_duration(style, step_seconds(roads, i), one, sizeof one));
        table_cell(table, "%s", pair->rtt_ns ? "" : pair->reason);
    }
    table_print(table, stdout);
    table_free(table);
    for (int i = 0; i < roads->count; i++)
        print_note(roads, i, style);
    int worst = slowest(roads);
    if (worst >= 0)
        printf("The slowest road is %s - %s: what a step needs is on it for %s at least; a larger mask.rate, fewer cuts there or another host "
               "make it less.\n", roads->hosts[roads->pairs[worst].one].name, roads->hosts[roads->pairs[worst].other].name,
               words_duration(style, step_seconds(roads, worst), one, sizeof one));
}

json_t *check_roads_report(const struct check_roads *roads)
{
    json_t *list = json_array();
    for (int i = 0; roads && i < roads->count; i++) {
        const struct measure_pair *pair = &roads->pairs[i];
        const struct need *need = &roads->needs[i];
        json_t *object = json_pack("{s:s, s:s, s:s, s:i, s:f, s:f, s:b}", "from", roads->hosts[pair->one].name, "to",
                                   roads->hosts[pair->other].name, "carries", need->carries, "roads", need->roads, "forward_bytes_per_step",
                                   need->forward_bytes, "backward_bytes_per_step", need->backward_bytes, "broken", is_broken(roads, i));
        bool known = pair->rtt_ns;
        json_object_set_new(object, "rtt_seconds", known ? json_real((double)pair->rtt_ns / 1e9) : json_null());
        json_object_set_new(object, "forward_bytes_per_second", known ? json_real(pair->forward) : json_null());
        json_object_set_new(object, "backward_bytes_per_second", known ? json_real(pair->backward) : json_null());
        json_object_set_new(object, "seconds_per_step", known ? json_real(step_seconds(roads, i)) : json_null());
        json_object_set_new(object, "reason", known ? json_null() : json_string(pair->reason));
        json_array_append_new(list, object);
    }
    return list;
}

#include "console/show.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

#include "console/anchor.h"
#include "console/command.h"
#include "console/hosts.h"
#include "console/print.h"
#include "console/report.h"
#include "console/table.h"
#include "console/visit.h"
#include "console/words.h"
#include "profiles/fields.h"
#include "profiles/profile.h"
#include "ssh/base/clock.h"
#include "ssh/base/mem.h"
#include "ssh/base/text.h"

typedef json_t *report_fn(const struct state *state, uint64_t now_ns);

/* ---- one look, or one every second ---- */

static bool never(struct client *client, void *arg)
{
    (void)client, (void)arg;
    return false;
}

static void print_once(struct visit *visit, const struct args *args, const struct style *style, print_state_fn *print,
                       report_fn *report)
{
    struct state *state = client_state(visit->client);
    bool again = args->options & OPTION_WATCH;
    if (args->options & OPTION_JSON)
        report_print(report(state, clock_now_ns()), again, stdout);
    else
        print(state, style, clock_now_ns(), stdout);
    fflush(stdout);
}

/* Until the run's road is down or somebody interrupts. */
static void print_again(struct visit *visit, const struct args *args, const struct style *style, print_state_fn *print,
                        report_fn *report)
{
    struct why why = {0};
    while (!ferror(stdout) && client_wait(visit->client, never, NULL, CLOCK_SECOND, &why) == ERR_TIMEOUT) {
        why = (struct why){0};
        if (!(args->options & OPTION_JSON))
            fputs(style->plain ? "\n" : "\033[H\033[J", stdout);
        print_once(visit, args, style, print, report);
    }
}

static int show(const struct args *args, const struct style *style, print_state_fn *print, report_fn *report)
{
    struct visit visit;
    struct why why = {0};
    bool again = args->options & OPTION_WATCH;
    if (visit_begin(&visit, args->words[0], again, NULL, NULL, &why) != 0)
        return visit_fail(&why);
    if (again && !style->plain && !(args->options & OPTION_JSON))
        fputs("\033[H\033[J", stdout);
    print_once(&visit, args, style, print, report);
    if (again && client_is_live(visit.client))
        print_again(&visit, args, style, print, report);
    visit_end(&visit);
    return EXIT_DONE;
}

static json_t *report_links_object(const struct state *state, uint64_t now_ns)
{
    json_t *object = report_object();
    (void)now_ns;
    json_object_set_new(object, "links", report_links(state));
    return object;
}

static json_t *report_processes_object(const struct state *state, uint64_t now_ns)
{
    json_t *object = report_object();
    json_object_set_new(object, "hosts", hosts_report(state, now_ns));
    json_object_set_new(object, "processes", report_processes(state, now_ns));
    return object;
}

int show_status(const struct args *args, const struct style *style)
{
    return show(args, style, print_status, report_status);
}

static json_t *report_anchor_object(const struct state *state, uint64_t now_ns)
{
    json_t *object = report_object();
    (void)now_ns;
    json_object_set_new(object, "anchor", anchor_report(state));
    return object;
}

int show_anchor(const struct args *args, const struct style *style)
{
    return show(args, style, anchor_print, report_anchor_object);
}

int show_links(const struct args *args, const struct style *style)
{
    return show(args, style, print_links, report_links_object);
}

static void print_hosts(const struct state *state, const struct style *style, uint64_t now_ns, FILE *out)
{
    hosts_print(state, style, now_ns, out);
    if (state->host_count)
        fputc('\n', out);
    print_processes(state, style, now_ns, out);
}

int show_hosts(const struct args *args, const struct style *style)
{
    return show(args, style, print_hosts, report_processes_object);
}

/* ---- events ---- */

struct event_view {
    const struct args *args;
    const struct style *style;
};

static void print_new_event(struct client *client, enum wire_type type, const void *row, void *arg)
{
    struct event_view *view = arg;
    (void)client;
    if (type != WIRE_EVENT_ROW)
        return;
    if (view->args->options & OPTION_JSON)
        report_print(report_event(row), true, stdout);
    else
        print_event(row, view->style, stdout);
    fflush(stdout);
}

int show_events(const struct args *args, const struct style *style)
{
    struct visit visit;
    struct why why = {0};
    struct event_view view = {args, style};
    const struct client_callbacks callbacks = {.changed = print_new_event};
    bool follow = args->options & OPTION_FOLLOW, whole = (args->options & OPTION_JSON) && !follow;
    if (visit_begin(&visit, args->words[0], follow, whole ? NULL : &callbacks, &view, &why) != 0)
        return visit_fail(&why);
    if (whole)
        report_print(report_events(client_state(visit.client)), false, stdout);
    while (follow && client_is_live(visit.client) && !ferror(stdout) &&
           client_wait(visit.client, never, NULL, CLOCK_SECOND, &why) == ERR_TIMEOUT)
        why = (struct why){0};
    visit_end(&visit);
    return EXIT_DONE;
}

/* ---- get ---- */

/* A setting that is not live has one value for the whole run: the one in run.ini. */
static int get_from_profile(const struct visit *visit, const char *key, char *out, size_t size, struct why *why)
{
    if (!visit->place.folder[0])
        return why_set(why, ERR_ABSENT, "%s: the profile of the run is on that host; only live settings can be asked for from here",
                       key);
    struct profile *profile = mem_new(sizeof *profile);
    struct complaints complaints;
    char *path = mem_format("%s/run.ini", visit->place.folder);
    complaints_init(&complaints);
    int err = profile_read(path, profile, &complaints, NULL, 0);
    if (err)
        why_set(why, err, "%s cannot be read any more: %.*s", path, (int)buf_used(&complaints.lines),
                (const char *)buf_peek(&complaints.lines));
    else
        err = profile_get(profile, key, out, size, why);
    complaints_clear(&complaints);
    mem_free(path);
    mem_free(profile);
    return err;
}

static int get_one(const struct visit *visit, const struct args *args, const char *key, struct why *why)
{
    char text[PROFILE_PATHS];
    const struct wire_knob_row *knob = state_find_knob(client_state(visit->client), key);
    const char *value = knob ? knob->value : text;
    if (!knob && !field_find(key) && strncmp(key, "host.", 5) != 0) {
        char suggestion[120];
        words_suggest(field_nearest(key), "; kedge-profile(5) lists them", suggestion, sizeof suggestion);
        return why_set(why, ERR_INVALID, "there is no setting '%.60s'%s", key, suggestion);
    }
    int err = knob ? 0 : get_from_profile(visit, key, text, sizeof text, why);
    if (err)
        return err;
    if (args->options & OPTION_JSON) {
        json_t *object = report_object();
        json_object_set_new(object, "name", json_string(key));
        json_object_set_new(object, "value", json_string(value));
        json_object_set_new(object, "pending", knob && knob->pending ? json_string(knob->pending_value) : json_null());
        json_object_set_new(object, "live", json_boolean(knob != NULL));
        report_print(object, false, stdout);
    } else {
        puts(value);
    }
    return 0;
}

int show_get(const struct args *args, const struct style *style)
{
    struct visit visit;
    struct why why = {0};
    if (visit_begin(&visit, args->words[0], false, NULL, NULL, &why) != 0)
        return visit_fail(&why);
    int err = 0;
    if (args->word_count > 1)
        err = get_one(&visit, args, args->words[1], &why);
    else if (args->options & OPTION_JSON)
        report_print(report_knobs(client_state(visit.client)), false, stdout);
    else
        print_knobs(client_state(visit.client), style, clock_now_ns(), stdout);
    visit_end(&visit);
    return err ? visit_fail(&why) : EXIT_DONE;
}

/* ---- the list of runs ---- */

/* What can be known of a run in a moment; a run that does not answer is listed all the same. */
static bool ask_run(const char *name, struct state *state)
{
    struct visit visit;
    if (visit_begin(&visit, name, false, NULL, NULL, &(struct why){0}) != 0)
        return false;
    struct state *full = client_state(visit.client);
    state->run = full->run;
    state->has_run = full->has_run;
    state->run_heard_ns = full->run_heard_ns;
    bool live = client_is_live(visit.client);
    visit_end(&visit);
    return live;
}

static void list_one(const struct runs_entry *entry, const struct style *style, struct table *table, json_t *list)
{
    struct state state;
    char loss[WORDS], age[WORDS];
    state_init(&state);
    bool live = ask_run(entry->name, &state);
    double changed = (double)((int64_t)clock_wall_ms() - entry->changed_wall_ms) / 1000;
    if (list) {
        json_t *object = report_run(&state, clock_now_ns());
        json_object_set_new(object, "run", json_string(entry->name));
        json_object_set_new(object, "running", json_boolean(live));
        json_object_set_new(object, "changed_seconds_ago", report_real(changed));
        json_array_append_new(list, object);
        return;
    }
    table_row(table, live ? PAINT_NONE : PAINT_DIM);
    table_cell(table, "%s", entry->name);
    table_cell(table, "%s", state.has_run ? wire_phase_name(state.run.phase) : style_glyph(style, GLYPH_UNKNOWN));
    table_cell(table, "%s", live ? "yes" : "no");
    if (state.has_run)
        table_cell(table, "%llu of %llu", (unsigned long long)state.run.step, (unsigned long long)state.run.steps);
    else
        table_cell(table, "%s", style_glyph(style, GLYPH_UNKNOWN));
    table_cell(table, "%s", words_real(style, state.has_run ? state.run.loss : NAN, 4, loss, sizeof loss));
    table_cell(table, "%s ago", words_age(style, changed < 0 ? 0 : (uint64_t)(changed * 1e9), age, sizeof age));
}

static void print_next_steps(size_t runs)
{
    if (!runs)
        puts("no runs yet\n\n"
             "  kedge new NAME          write a commented profile, NAME.ini\n"
             "  kedge check NAME.ini    validate it\n"
             "  kedge plan NAME.ini     what will run where, and what it costs\n"
             "  kedge run NAME.ini      start it and watch");
    else
        puts("\n  kedge attach RUN   watch      kedge status RUN   all that is known\n"
             "  kedge stop RUN     end it     kedge run PROFILE  start another      kedge help");
}

int show_list(const struct args *args, const struct style *style)
{
    static const struct table_column columns[] = {
        {.title = "run", .shrink = true}, {.title = "phase"}, {.title = "running"}, {.title = "step", .right = true},
        {.title = "loss", .right = true}, {.title = "changed", .right = true},
    };
    struct why why = {0};
    struct runs_entry *entries;
    size_t count;
    bool json = args->options & OPTION_JSON;
    if (runs_list(&entries, &count, &why) != 0)
        return visit_fail(&why);
    struct table *table = table_new(style, columns, sizeof columns / sizeof *columns);
    json_t *list = json ? json_array() : NULL;
    for (size_t i = 0; i < count; i++)
        list_one(&entries[i], style, table, list);
    if (json) {
        json_t *object = report_object();
        json_object_set_new(object, "runs", list);
        report_print(object, false, stdout);
    } else {
        table_print(table, stdout);
        if (!args->command)
            print_next_steps(count);
        else if (!count)
            puts("no runs yet: 'kedge run PROFILE' starts one");
    }
    table_free(table);
    mem_free(entries);
    return EXIT_DONE;
}

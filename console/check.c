#include "console/check.h"

#include <inttypes.h>
#include <string.h>

#include "console/ask.h"
#include "console/check_plan.h"
#include "console/check_roads.h"
#include "console/command.h"
#include "console/draft.h"
#include "console/report.h"
#include "console/table.h"
#include "console/visit.h"
#include "console/words.h"
#include "profiles/timeouts.h"
#include "ssh/base/clock.h"
#include "ssh/base/mem.h"
#include "ssh/launch/inspect.h"
#include "ssh/launch/launch.h"
#include "ssh/launch/needed.h"
#include "ssh/launch/parcel.h"

#define SPARE_KIB 65536 /* of the disk */

struct checking {
    struct ask *ask;
    bool quiet, done;
};

static void on_changed(const struct inspect_host *host, void *arg)
{
    struct checking *checking = arg;
    if (!checking->quiet)
        printf("%s: %s\n", host->host->name, host->phase);
    fflush(stdout);
}

static void on_done(void *arg)
{
    ((struct checking *)arg)->done = true;
}

static void on_ask(struct session *session, const struct session_question *question, void *arg)
{
    ask_question(session, question, ((struct checking *)arg)->ask);
}

/* ---- the table ---- */

static const char *words_ms(const struct style *style, uint64_t ns, char out[WORDS])
{
    if (ns)
        snprintf(out, WORDS, "%.1f ms", (double)ns / 1e6);
    return ns ? out : style_glyph(style, GLYPH_UNKNOWN);
}

static const char *words_kib(const struct style *style, uint64_t kib, char out[WORDS])
{
    return kib ? words_bytes(style, kib * 1024, out, WORDS) : style_glyph(style, GLYPH_UNKNOWN);
}

static uint64_t needed_kib(const struct inspect_host *found)
{
    return found->room.used + found->room.missing + found->room.run;
}

/* "3.4 GiB of 20.0 GiB": what kedge would have there, of what it may have. */
static const char *words_budget(const struct style *style, const struct inspect_host *found, char out[2 * WORDS])
{
    char needs[WORDS], may[WORDS];
    if (!found->host->disk_budget || !found->os[0])
        return style_glyph(style, GLYPH_UNKNOWN);
    snprintf(out, 2 * WORDS, "%s of %s", words_bytes(style, needed_kib(found) * 1024, needs, WORDS),
             words_bytes(style, found->host->disk_budget, may, WORDS));
    return out;
}

static void add_row(struct table *table, const struct inspect_host *found, const struct style *style)
{
    static const char *const ports[] = {[PORT_UNKNOWN] = "", [PORT_REACHED] = "reached", [PORT_NOT_REACHED] = "NOT REACHED"};
    char login[WORDS], again[WORDS], rtt[WORDS], disk[WORDS], memory[WORDS], clock[WORDS], budget[2 * WORDS];
    const char *unknown = style_glyph(style, GLYPH_UNKNOWN);
    snprintf(clock, sizeof clock, "%+.2f s", found->offset_seconds);
    table_row(table, found->problem_count ? PAINT_BAD : found->note_count ? PAINT_WARN : PAINT_NONE);
    table_cell(table, "%s", found->host->name);
    table_cell(table, "%s", found->problem_count ? "WRONG" : found->note_count ? "NOTE" : "OK");
    table_cell(table, "%s", words_ms(style, found->login_ns, login));
    table_cell(table, "%s", words_ms(style, found->second_login_ns, again));
    table_cell(table, "%s", words_ms(style, found->rtt_ns, rtt));
    table_cell(table, "%s", found->has_offset ? clock : unknown);
    table_cell(table, "%s", found->os[0] ? found->os : unknown);
    table_cell(table, "%s", found->glibc[0] ? found->glibc : unknown);
    table_cell(table, "%" PRIu64, found->cpus);
    table_cell(table, "%s", words_kib(style, found->memory_kib, memory));
    table_cell(table, "%s", found->gpu_count ? found->gpus[0].name : found->os[0] ? "none" : unknown);
    table_cell(table, "%s", words_kib(style, found->disk_free_kib, disk));
    table_cell(table, "%s", words_budget(style, found, budget));
    table_cell(table, "%s", found->interface[0] ? found->interface : unknown);
    table_cell(table, "%s", found->port == PORT_UNKNOWN ? unknown : ports[found->port]);
}

static void print_hosts(const struct inspect_host *hosts, int count, const struct style *style)
{
    static const struct table_column columns[] = {
        {"host", false, false}, {"state", false, false}, {"login", true, false}, {"again", true, false}, {"rtt", true, false},
        {"clock", true, false}, {"system", false, true}, {"C library", false, true}, {"cpus", true, false}, {"memory", true, false},
        {"gpu", false, true},   {"disk free", true, false}, {"budget", false, true}, {"via", false, true},   {"port", false, true},
    };
    struct table *table = table_new(style, columns, sizeof columns / sizeof *columns);
    for (int i = 0; i < count; i++)
        add_row(table, &hosts[i], style);
    table_print(table, stdout);
    table_free(table);
    for (int i = 0; i < count; i++) {
        for (int j = 0; j < hosts[i].problem_count; j++)
            printf("%s%s%s: %s\n", style_paint(style, PAINT_BAD), hosts[i].host->name, style_end(style), hosts[i].problems[j]);
        for (int j = 0; j < hosts[i].note_count; j++)
            printf("%s%s%s: %s\n", style_paint(style, PAINT_WARN), hosts[i].host->name, style_end(style), hosts[i].notes[j]);
    }
}

/* ---- JSON ---- */

static json_t *report_words(const char words[][INSPECT_WORD], int count)
{
    json_t *list = json_array();
    for (int i = 0; i < count; i++)
        json_array_append_new(list, json_string(words[i]));
    return list;
}

static json_t *report_text(const char *text)
{
    return text[0] ? json_string(text) : json_null();
}

static json_t *report_gpus(const struct inspect_host *found)
{
    json_t *list = json_array();
    for (int i = 0; i < found->gpu_count; i++) {
        const struct inspect_gpu *gpu = &found->gpus[i];
        json_t *object = json_object();
        json_object_set_new(object, "name", report_text(gpu->name));
        json_object_set_new(object, "driver", report_text(gpu->driver));
        json_object_set_new(object, "compute_capability", report_text(gpu->compute));
        json_object_set_new(object, "memory_bytes", report_known(gpu->total_mib << 20));
        json_object_set_new(object, "free_bytes", report_known(gpu->free_mib << 20));
        json_array_append_new(list, object);
    }
    return list;
}

static json_t *report_seconds_known(uint64_t ns)
{
    return ns ? json_real((double)ns / 1e9) : json_null();
}

static json_t *report_host(const struct inspect_host *found)
{
    json_t *object = json_object();
    json_object_set_new(object, "host", json_string(found->host->name));
    json_object_set_new(object, "login_seconds", report_seconds_known(found->login_ns));
    json_object_set_new(object, "second_login_seconds", report_seconds_known(found->second_login_ns));
    json_object_set_new(object, "rtt_seconds", report_seconds_known(found->rtt_ns));
    json_object_set_new(object, "clock_offset_seconds", found->has_offset ? json_real(found->offset_seconds) : json_null());
    json_object_set_new(object, "system", report_text(found->os));
    json_object_set_new(object, "machine", report_text(found->machine));
    json_object_set_new(object, "c_library", report_text(found->glibc));
    json_object_set_new(object, "interface", report_text(found->interface));
    json_object_set_new(object, "cpus", report_known(found->cpus));
    json_object_set_new(object, "memory_bytes", report_known(found->memory_kib * 1024));
    json_object_set_new(object, "disk_free_bytes", report_known(found->disk_free_kib * 1024));
    bool bounded = found->host->disk_budget;
    json_object_set_new(object, "disk_budget_bytes", report_known(found->host->disk_budget));
    json_object_set_new(object, "disk_used_bytes", bounded ? json_integer((json_int_t)(found->room.used * 1024)) : json_null());
    json_object_set_new(object, "disk_needed_bytes", bounded ? json_integer((json_int_t)(needed_kib(found) * 1024)) : json_null());
    json_object_set_new(object, "open_files", report_known(found->open_files));
    json_object_set_new(object, "gpus", report_gpus(found));
    json_object_set_new(object, "gpu_users", json_integer(found->gpu_users));
    json_object_set_new(object, "port", report_text(found->port_address));
    json_object_set_new(object, "port_reached", found->port == PORT_UNKNOWN ? json_null() : json_boolean(found->port == PORT_REACHED));
    json_object_set_new(object, "port_tried_from", report_text(found->port_from));
    json_object_set_new(object, "problems", report_words(found->problems, found->problem_count));
    json_object_set_new(object, "notes", report_words(found->notes, found->note_count));
    return object;
}

static void report_hosts(const char *file, const struct inspect_host *hosts, int count, const struct check_roads *roads)
{
    json_t *object = report_object(), *list = json_array();
    for (int i = 0; i < count; i++)
        json_array_append_new(list, report_host(&hosts[i]));
    json_object_set_new(object, "profile", json_string(file));
    json_object_set_new(object, "hosts", list);
    json_object_set_new(object, "roads", check_roads_report(roads));
    report_print(object, false, stdout);
}

/* ---- the whole ---- */

/* What a host without anything of ours would have to take, and to have. `room`: for mem_free. */
static struct inspect_needs count_needs(const struct profile *profile, const json_t *plan, char **room)
{
    struct inspect_needs needs = {.bf16 = profile->precision == PRECISION_BF16};
    struct parcel parcels[PARTS];
    const struct parcel *sent[PARTS];
    char value[64];
    uint64_t bytes = 0;
    struct why why = {0};
    memset(parcels, 0, sizeof parcels);
    if (parcel_programs(&parcels[PART_PROGRAMS], &why) == 0)
        needs.glibc = needed_glibc(&parcels[PART_PROGRAMS]);
    parcel_text(profile, &parcels[PART_TEXT], value, sizeof value, &why);
    if (profile->model_path[0])
        parcel_checkpoint(profile, &parcels[PART_CHECKPOINT], &why);
    if (profile->lora_path[0])
        parcel_adapter(profile, &parcels[PART_ADAPTER], &why);
    for (int i = 0; i < PARTS; i++) {
        bytes += parcels[i].bytes;
        sent[i] = &parcels[i];
    }
    needs.room_script = *room = room_script(sent);
    for (int i = 0; i < PARTS; i++)
        parcel_clear(&parcels[i]);
    for (int64_t i = 0; i < profile->host_count; i++)
        needs.run_kib[i] = check_plan_disk(plan, &profile->hosts[i]) / 1024;
    needs.disk_kib = bytes / 1024 + SPARE_KIB;
    return needs;
}

static int exit_code_of(const struct inspect_host *hosts, int count)
{
    int code = EXIT_DONE;
    for (int i = 0; i < count; i++) {
        if (hosts[i].err)
            return command_exit_code(hosts[i].err);
        if (hosts[i].problem_count)
            code = EXIT_FAILED;
    }
    return code;
}

static int check_hosts(const struct profile *profile, const char *file, const struct args *args, const struct style *style)
{
    struct why why = {0};
    struct checking checking = {.quiet = args->options & OPTION_JSON};
    char known[RUNS_PATH + 16];
    struct loop *loop = loop_new(&why);
    if (!loop)
        return visit_fail(&why);
    runs_known_hosts(known, sizeof known);
    checking.ask = checking.quiet ? NULL : ask_new(loop);
    const struct inspect_callbacks callbacks = {on_changed, on_done, checking.ask ? on_ask : NULL};
    char *room;
    json_t *plan = check_plan_read(file, &why);
    const struct inspect_needs needs = count_needs(profile, plan, &room);
    struct inspect *inspect = inspect_new(loop, profile, args->options & OPTION_ACCEPT_NEW, known, &needs, &callbacks, &checking);
    while (!checking.done)
        loop_run_once(loop, CLOCK_SECOND);
    uint64_t greet_ns = timeouts_derive(profile->timeout_ns).greet_ns;
    struct check_roads *roads = plan ? check_roads_new(loop, plan, inspect, greet_ns, checking.quiet) : NULL;
    if (!plan)
        fprintf(stderr, "kedge: roads are not measured: %s\n", why.text);
    int count;
    const struct inspect_host *hosts = inspect_hosts(inspect, &count);
    if (checking.quiet)
        report_hosts(file, hosts, count, roads);
    else
        print_hosts(hosts, count, style);
    if (roads && !checking.quiet)
        check_roads_print(roads, style);
    int code = exit_code_of(hosts, count);
    if (!code && check_roads_broken(roads))
        code = EXIT_FAILED;
    check_roads_free(roads);
    inspect_free(inspect);
    mem_free(room);
    json_decref(plan);
    ask_free(checking.ask);
    loop_free(loop);
    return code;
}

static bool has_hosts(const struct profile *profile)
{
    for (int64_t i = 0; i < profile->host_count; i++)
        if (profile->hosts[i].kind == HOST_SSH)
            return true;
    return false;
}

int check_profile(const struct args *args, const struct style *style)
{
    char found[RUNS_PATH];
    struct profile *profile = mem_new(sizeof *profile);
    struct why why = {0};
    int code = draft_read(args->words[0], profile, found, sizeof found);
    if (!code && profile_check_leases(profile, clock_wall_ms(), &why) != 0)
        code = visit_fail(&why);
    if (!code && has_hosts(profile) && launch_resolve(profile, &why) != 0)
        code = visit_fail(&why);
    if (!code && has_hosts(profile))
        code = check_hosts(profile, found, args, style);
    else if (!code && args->options & OPTION_JSON)
        report_hosts(found, NULL, 0, NULL);
    if (!code && !(args->options & OPTION_JSON))
        printf("%s is valid: 'kedge plan %s' says what will run where, 'kedge run %s' starts it\n", found, args->words[0],
               args->words[0]);
    mem_free(profile);
    return code;
}

#include "console/hosts.h"

#include <math.h>

#include "console/report.h"
#include "console/table.h"
#include "console/words.h"

#define CLOCK_WORRIES 1.0 /* seconds */
#define DISK_WORRIES 0.05 /* share that is free */
#define HEAT_WORRIES 85.0F

const char *hosts_use(int use)
{
    static const char *const names[] = {[HOST_USED] = "in use", [HOST_SPARE] = "spare", [HOST_MOVES] = "moves", [HOST_DRAINED] = "drained"};
    return use >= 0 && use < (int)(sizeof names / sizeof *names) ? names[use] : "unknown";
}

const char *hosts_title(enum hosts_column column)
{
    static const char *const titles[HOSTS_COLUMNS] = {
        [HOSTS_NAME] = "host", [HOSTS_USE] = "use", [HOSTS_CPU] = "cpu", [HOSTS_LOAD] = "load", [HOSTS_MEMORY] = "mem free", [HOSTS_DISK] = "disk free",
        [HOSTS_GPU] = "gpu", [HOSTS_GPU_MEMORY] = "gpu free", [HOSTS_HEAT] = "heat", [HOSTS_POWER] = "power", [HOSTS_CLOCK] = "clock",
        [HOSTS_HEARD] = "heard", [HOSTS_LOGIN] = "login", [HOSTS_PROCESSES] = "procs", [HOSTS_PRICE] = "an hour"};
    return titles[column];
}

/* "+1.2 ms": how far its clock is ahead. */
static void write_offset(const struct style *style, double seconds, char *out, size_t size)
{
    char text[WORDS];
    words_duration(style, fabs(seconds) < 1e-6 ? 0 : fabs(seconds), text, sizeof text);
    snprintf(out, size, "%s%s", !isfinite(seconds) || fabs(seconds) < 1e-6 ? "" : seconds > 0 ? "+" : "-", text);
}

static void write_real(const struct style *style, float value, const char *unit, char *out, size_t size)
{
    char text[WORDS];
    snprintf(out, size, "%s%s", words_real(style, (double)value, 0, text, sizeof text), isfinite(value) ? unit : "");
}

/* Of a run that is over nobody expects to be heard of. */
static uint64_t heard_ns_ago(const struct state *state, const struct state_host *host, uint64_t now_ns)
{
    return state_is_over(state) || host->row.use == HOST_DRAINED ? UINT64_MAX : state_host_age_ns(host, now_ns);
}

static uint64_t login_ns_ago(const struct state_host *host, uint64_t now_ns)
{
    return host->row.login_ns_ago == UINT64_MAX ? UINT64_MAX : host->row.login_ns_ago + (now_ns - host->heard_ns);
}

/* "open 40 s", "SHUT 2 m": whether a new session was had, and when that was tried. */
static bool write_login(const struct state *state, const struct state_host *host, const struct style *style, uint64_t now_ns, char *out,
                        size_t size)
{
    char age[WORDS];
    bool known = host->row.login != LOGIN_UNKNOWN && !state_is_over(state), shut = host->row.login == LOGIN_SHUT;
    if (known)
        snprintf(out, size, "%s %s", shut ? "SHUT" : "open", words_age(style, login_ns_ago(host, now_ns), age, sizeof age));
    else
        snprintf(out, size, "%s", style_glyph(style, GLYPH_UNKNOWN));
    return known && shut;
}

bool hosts_cell(const struct state *state, size_t number, enum hosts_column column, const struct style *style, uint64_t now_ns, char *out,
                size_t size)
{
    const struct state_host *host = &state->hosts[number];
    const struct wire_host *row = &host->row;
    switch (column) {
    case HOSTS_NAME:
        snprintf(out, size, "%s", row->host);
        return false;
    case HOSTS_USE:
        snprintf(out, size, "%s", hosts_use(row->use));
        return row->use == HOST_MOVES || row->use == HOST_DRAINED;
    case HOSTS_CPU:
        words_percent(style, (double)row->cpu_share, out, size);
        return false;
    case HOSTS_LOAD:
        words_real(style, (double)row->load, 1, out, size);
        return false;
    case HOSTS_MEMORY:
        words_bytes(style, row->memory_free_bytes, out, size);
        return row->memory_bytes && (double)row->memory_free_bytes < DISK_WORRIES * (double)row->memory_bytes;
    case HOSTS_DISK:
        words_bytes(style, row->disk_free_bytes, out, size);
        return row->disk_bytes && (double)row->disk_free_bytes < DISK_WORRIES * (double)row->disk_bytes;
    case HOSTS_GPU:
        words_percent(style, row->gpus ? (double)row->gpu_share : (double)NAN, out, size);
        return false;
    case HOSTS_GPU_MEMORY:
        words_bytes(style, row->gpu_memory_bytes > row->gpu_used_bytes ? row->gpu_memory_bytes - row->gpu_used_bytes : 0, out, size);
        return false;
    case HOSTS_HEAT:
        write_real(style, row->gpus ? row->gpu_celsius : NAN, " C", out, size);
        return row->gpus && row->gpu_celsius > HEAT_WORRIES;
    case HOSTS_POWER:
        write_real(style, row->gpus ? row->gpu_watts : NAN, " W", out, size);
        return false;
    case HOSTS_CLOCK:
        write_offset(style, row->clock_offset, out, size);
        return fabs(row->clock_offset) > CLOCK_WORRIES;
    case HOSTS_HEARD:
        words_age(style, heard_ns_ago(state, host, now_ns), out, size);
        return false;
    case HOSTS_LOGIN:
        return write_login(state, &state->hosts[number], style, now_ns, out, size);
    case HOSTS_PROCESSES:
        snprintf(out, size, "%u", row->processes);
        return false;
    default:
        words_money(style, row->price_per_hour, out, size);
        return false;
    }
}

void hosts_print(const struct state *state, const struct style *style, uint64_t now_ns, FILE *out)
{
    struct table_column columns[HOSTS_COLUMNS];
    for (int column = 0; column < HOSTS_COLUMNS; column++)
        columns[column] = (struct table_column){.title = hosts_title((enum hosts_column)column), .right = column > HOSTS_USE,
                                                .shrink = column == HOSTS_NAME};
    struct table *table = table_new(style, columns, HOSTS_COLUMNS);
    for (size_t i = 0; i < state->host_count; i++) {
        char cells[HOSTS_COLUMNS][WORDS + 8];
        bool worries = false;
        for (int column = 0; column < HOSTS_COLUMNS; column++)
            worries |= hosts_cell(state, i, (enum hosts_column)column, style, now_ns, cells[column], sizeof cells[column]);
        table_row(table, worries ? PAINT_WARN : PAINT_NONE);
        for (int column = 0; column < HOSTS_COLUMNS; column++)
            table_cell(table, "%s", cells[column]);
    }
    table_print(table, out);
    table_free(table);
}

json_t *hosts_report(const struct state *state, uint64_t now_ns)
{
    json_t *list = json_array();
    for (size_t i = 0; i < state->host_count; i++) {
        const struct wire_host *row = &state->hosts[i].row;
        json_t *object = json_pack("{s:s}", "host", row->host);
        json_object_set_new(object, "use", json_string(hosts_use(row->use)));
        json_object_set_new(object, "heard_seconds_ago", report_seconds(heard_ns_ago(state, &state->hosts[i], now_ns)));
        json_object_set_new(object, "processes", json_integer(row->processes));
        json_object_set_new(object, "cpu_share", report_real((double)row->cpu_share));
        json_object_set_new(object, "load", report_real((double)row->load));
        json_object_set_new(object, "cores", report_known(row->cores));
        json_object_set_new(object, "memory_bytes", report_known(row->memory_bytes));
        json_object_set_new(object, "memory_free_bytes", report_known(row->memory_free_bytes));
        json_object_set_new(object, "disk_bytes", report_known(row->disk_bytes));
        json_object_set_new(object, "disk_free_bytes", report_known(row->disk_free_bytes));
        json_object_set_new(object, "gpus", json_integer(row->gpus));
        json_object_set_new(object, "gpu", row->gpus ? json_string(row->gpu) : json_null());
        json_object_set_new(object, "gpu_share", report_real((double)row->gpu_share));
        json_object_set_new(object, "gpu_memory_bytes", report_known(row->gpu_memory_bytes));
        json_object_set_new(object, "gpu_used_bytes", report_known(row->gpu_used_bytes));
        json_object_set_new(object, "gpu_celsius", report_real((double)row->gpu_celsius));
        json_object_set_new(object, "gpu_watts", report_real((double)row->gpu_watts));
        json_object_set_new(object, "clock_offset_seconds", report_real(row->clock_offset));
        json_object_set_new(object, "rtt_seconds", row->rtt_ns ? report_seconds(row->rtt_ns) : json_null());
        json_object_set_new(object, "price_per_hour", report_real(row->price_per_hour));
        json_object_set_new(object, "login", row->login == LOGIN_UNKNOWN ? json_null() : json_string(row->login == LOGIN_SHUT ? "shut" : "open"));
        json_object_set_new(object, "login_tried_seconds_ago", report_seconds(login_ns_ago(&state->hosts[i], now_ns)));
        json_array_append_new(list, object);
    }
    return list;
}

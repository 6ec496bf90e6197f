#include "scheduler/money.h"

#include <math.h>
#include <string.h>

#define HOUR 3600.0
#define GB 1e9

/* Hours are paid by the clock, bytes by the step: so the forecast takes the bytes of a step so far for those to come, not the rate of
 * this second. */
struct money money_of(const struct money_use *use)
{
    struct money money = {.spent = use->hosts_per_hour * use->hours + use->bytes,
                          .per_hour = use->hosts_per_hour + use->bytes_per_hour,
                          .forecast = (double)NAN};
    if (use->step > 0 && use->step <= use->steps && use->step_seconds > 0) {
        double left = (double)(use->steps - use->step);
        money.forecast = money.spent + use->hosts_per_hour * left * use->step_seconds / HOUR + use->bytes / (double)use->step * left;
    }
    return money;
}

static int host_of_process(const struct profile *profile, const struct record *record, const char *name)
{
    for (size_t i = 0; i < record->process_count; i++)
        if (strcmp(record->processes[i].row.process, name) == 0)
            for (int host = 0; host < (int)profile->host_count; host++)
                if (strcmp(profile->hosts[host].name, record->processes[i].row.host) == 0)
                    return host;
    return -1;
}

/* The price of a GB on this road; 0 when it costs nothing: inside a host, or by no setting. */
static double price_of_road(const struct profile *profile, const struct record *record, const struct wire_road_row *row)
{
    int from = host_of_process(profile, record, row->from), to = host_of_process(profile, record, row->to);
    return from < 0 || from == to ? 0 : profile->hosts[from].price_per_gb_up;
}

static bool has_stage(const struct record *record, const char *host)
{
    for (size_t i = 0; i < record->process_count; i++)
        if (record->processes[i].row.role == ROLE_STAGE && strcmp(record->processes[i].row.host, host) == 0)
            return true;
    return false;
}

static double hosts_per_hour(const struct profile *profile, bool *priced)
{
    double sum = 0;
    for (int64_t i = 0; i < profile->host_count; i++) {
        sum += profile->hosts[i].price_per_hour;
        *priced |= profile->hosts[i].price_per_hour > 0 || profile->hosts[i].price_per_gb_up > 0;
    }
    return sum;
}

/* Its host, when no stage shares it, and its roads. */
static double anchor_per_hour(const struct profile *profile, const struct record *record)
{
    const struct wire_anchor_row *row = &record->anchor.row;
    double sum = 0;
    for (int64_t i = 0; i < profile->host_count; i++)
        if (strcmp(profile->hosts[i].name, row->host) == 0 && !has_stage(record, row->host))
            sum += profile->hosts[i].price_per_hour;
    for (size_t i = 0; i < record->road_count; i++) {
        const struct wire_road_row *road = &record->roads[i].row;
        if ((strcmp(road->from, "anchor") == 0 || strcmp(road->to, "anchor") == 0) && isfinite(road->price_per_hour))
            sum += road->price_per_hour;
    }
    return sum;
}

static void set(struct record *record, uint64_t *version, double *at, double value)
{
    if (memcmp(at, &value, sizeof value) == 0)
        return;
    *at = value;
    record_touch(record, version);
}

void money_refresh(const struct profile *profile, struct record *record, uint64_t now_wall_ms, bool over)
{
    struct wire_run_state *state = &record->state.row;
    bool priced = false;
    struct money_use use = {.hosts_per_hour = hosts_per_hour(profile, &priced), .step = state->step, .steps = state->steps,
                            .step_seconds = state->step_seconds};
    if (!priced || (over && isnan(state->spend_per_hour)))
        return;
    use.hours = now_wall_ms > state->started_wall_ms ? (double)(now_wall_ms - state->started_wall_ms) / 1000 / HOUR : 0;
    for (size_t i = 0; i < record->road_count; i++) {
        struct record_road *road = &record->roads[i];
        double price = price_of_road(profile, record, &road->row), per_hour = price * road->row.bytes_per_second * HOUR / GB;
        if (price <= 0)
            continue;
        use.bytes += price * (double)road->row.sent_bytes / GB;
        use.bytes_per_hour += isfinite(per_hour) ? per_hour : 0;
        set(record, &road->version, &road->row.price_per_hour, over ? (double)NAN : per_hour);
    }
    struct money money = money_of(&use);
    set(record, &record->state.version, &state->spent, money.spent);
    set(record, &record->state.version, &state->spend_per_hour, over ? (double)NAN : money.per_hour);
    set(record, &record->state.version, &state->spend_forecast, over ? (double)NAN : money.forecast);
    if (record->anchor.row.host[0])
        set(record, &record->anchor.version, &record->anchor.row.price_per_hour, over ? (double)NAN : anchor_per_hour(profile, record));
}

bool money_is_up(const struct profile *profile, const struct record *record)
{
    return profile->budget > 0 && record->state.row.spent >= profile->budget;
}

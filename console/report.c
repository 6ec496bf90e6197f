#include "console/report.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "console/anchor.h"
#include "console/hosts.h"
#include "ssh/link/link.h"

json_t *report_object(void)
{
    return json_pack("{s:i}", "format", REPORT_FORMAT);
}

json_t *report_real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

json_t *report_known(uint64_t value)
{
    return value ? json_integer((json_int_t)value) : json_null();
}

json_t *report_seconds(uint64_t ns)
{
    return ns == UINT64_MAX ? json_null() : json_real((double)ns / 1e9);
}

static const char *name_of(const char *const *names, size_t count, int index)
{
    return index >= 0 && (size_t)index < count ? names[index] : "unknown";
}

const char *report_process_state(int state)
{
    static const char *const names[] = {[PROCESS_WANTED] = "wanted", [PROCESS_STARTED] = "started",
                                        [PROCESS_READY] = "ready",
                                        [PROCESS_EXITED] = "exited"};
    return name_of(names, sizeof names / sizeof *names, state);
}

const char *report_event_level(int level)
{
    static const char *const names[] = {[EVENT_INFO] = "info", [EVENT_WARN] = "warn", [EVENT_ALERT] = "alert"};
    return name_of(names, sizeof names / sizeof *names, level);
}

const char *report_ledger_state(int state)
{
    static const char *const names[] = {[LEDGER_PROPOSED] = "proposed", [LEDGER_ACTIVE] = "active",
                                        [LEDGER_REFUSED] = "refused"};
    return name_of(names, sizeof names / sizeof *names, state);
}

char *report_holds(uint32_t bits, char *out, size_t size)
{
    size_t used = 0;
    out[0] = '\0';
    for (uint32_t bit = 1; bit && used < size; bit <<= 1)
        if (bits & bit)
            used += (size_t)snprintf(out + used, size - used, "%s%s", used ? ", " : "", link_hold_name(bit));
    return out;
}

static json_t *hold_list(uint32_t bits)
{
    json_t *list = json_array();
    for (uint32_t bit = 1; bit; bit <<= 1)
        if (bits & bit)
            json_array_append_new(list, json_string(link_hold_name(bit)));
    return list;
}

static json_t *integer(uint64_t value)
{
    return json_integer((json_int_t)value);
}

json_t *report_run(const struct state *state, uint64_t now_ns)
{
    const struct wire_run_state *run = &state->run;
    json_t *object = report_object();
    char id[20];
    if (!state->has_run)
        return object;
    snprintf(id, sizeof id, "%016" PRIx64, run->run_id);
    json_object_set_new(object, "run", json_string(run->run));
    json_object_set_new(object, "run_id", json_string(id));
    json_object_set_new(object, "phase", json_string(wire_phase_name(run->phase)));
    json_object_set_new(object, "reason", run->reason[0] ? json_string(run->reason) : json_null());
    json_object_set_new(object, "age_seconds", report_seconds(state_age_ns(state, now_ns)));
    json_object_set_new(object, "step", integer(run->step));
    json_object_set_new(object, "steps", report_known(run->steps));
    json_object_set_new(object, "loss", report_real(run->loss));
    json_object_set_new(object, "first_validation_loss", report_real(run->first_validation_loss));
    json_object_set_new(object, "validation_loss", report_real(run->validation_loss));
    bool validated = isfinite(run->validation_loss);
    json_object_set_new(object, "validation_step", validated ? integer(run->validation_step) : json_null());
    json_object_set_new(object, "gradient_norm", report_real(run->gradient_norm));
    json_object_set_new(object, "tokens_per_second", report_real(run->tokens_per_second));
    json_object_set_new(object, "step_seconds", report_real(run->step_seconds));
    json_object_set_new(object, "eta_seconds", report_real(state_eta_seconds(state)));
    json_object_set_new(object, "started_wall_ms", report_known(run->started_wall_ms));
    json_object_set_new(object, "trained_seconds", report_seconds(run->trained_ns));
    json_object_set_new(object, "mask_rate", report_real(run->mask_rate));
    json_object_set_new(object, "tokens", integer(run->tokens));
    json_object_set_new(object, "newest_event", integer(run->newest_event));
    json_object_set_new(object, "viewers", integer(run->viewers));
    json_object_set_new(object, "spent", report_real(run->spent));
    json_object_set_new(object, "spend_per_hour", report_real(run->spend_per_hour));
    json_object_set_new(object, "spend_forecast", report_real(run->spend_forecast));
    return object;
}

json_t *report_processes(const struct state *state, uint64_t now_ns)
{
    json_t *list = json_array();
    for (size_t i = 0; i < state->process_count; i++) {
        const struct wire_process_row *row = &state->processes[i].row;
        json_t *object = json_object();
        json_object_set_new(object, "process", json_string(row->process));
        json_object_set_new(object, "host", json_string(row->host));
        json_object_set_new(object, "role", json_string(wire_role_name(row->role)));
        json_object_set_new(object, "state", json_string(report_process_state(row->state)));
        json_object_set_new(object, "replica", integer(row->replica));
        json_object_set_new(object, "stage", integer(row->stage));
        json_object_set_new(object, "first_layer", integer(row->first_layer));
        json_object_set_new(object, "layers", integer(row->layers));
        json_object_set_new(object, "incarnation", integer(row->incarnation));
        json_object_set_new(object, "pid", report_known(row->pid));
        json_object_set_new(object, "heard_seconds_ago", report_seconds(state_process_age_ns(&state->processes[i], now_ns)));
        json_object_set_new(object, "step", integer(row->step));
        json_object_set_new(object, "memory_bytes", report_known(row->memory_bytes));
        json_object_set_new(object, "compute_share", report_real(row->compute_share));
        json_object_set_new(object, "waiting", row->waiting[0] ? json_string(row->waiting) : json_null());
        json_array_append_new(list, object);
    }
    return list;
}

json_t *report_links(const struct state *state)
{
    json_t *list = json_array();
    for (size_t i = 0; i < state->road_count; i++) {
        const struct wire_road_row *row = &state->roads[i].row;
        json_t *object = json_pack("{s:s, s:s, s:s}", "from", row->from, "to", row->to, "lane", wire_lane_name(row->lane));
        json_object_set_new(object, "sent_bytes", integer(row->sent_bytes));
        json_object_set_new(object, "evaluation_bytes", json_integer((json_int_t)row->evaluation_bytes));
        json_object_set_new(object, "dense_bytes", report_known(row->dense_bytes));
        json_object_set_new(object, "bytes_per_second", report_real(row->bytes_per_second));
        json_object_set_new(object, "queued_bytes", integer(row->queued_bytes));
        json_object_set_new(object, "holds", hold_list(row->hold_reasons));
        json_object_set_new(object, "rtt_seconds", row->rtt_ns ? report_seconds(row->rtt_ns) : json_null());
        json_object_set_new(object, "capacity_bits_per_second", report_known(row->capacity_bps));
        json_object_set_new(object, "price_per_hour", report_real(row->price_per_hour));
        json_array_append_new(list, object);
    }
    return list;
}

static json_t *ledger_row(const struct wire_ledger_row *row)
{
    json_t *object = json_object();
    json_object_set_new(object, "id", integer(row->id));
    json_object_set_new(object, "wall_ms", integer(row->wall_ms));
    json_object_set_new(object, "name", json_string(row->name));
    json_object_set_new(object, "old", json_string(row->old_value));
    json_object_set_new(object, "new", json_string(row->new_value));
    json_object_set_new(object, "who", json_string(row->who));
    json_object_set_new(object, "state", json_string(report_ledger_state(row->state)));
    json_object_set_new(object, "step", row->state == LEDGER_ACTIVE ? integer(row->step) : json_null());
    json_object_set_new(object, "watched_until", row->watched_until ? integer(row->watched_until) : json_null());
    json_object_set_new(object, "loss_most", report_real(row->watched_until ? row->loss_most : (double)NAN));
    json_object_set_new(object, "norm_most", report_real(row->watched_until ? row->norm_most : (double)NAN));
    return object;
}

json_t *report_knobs(const struct state *state)
{
    json_t *object = report_object(), *knobs = json_object(), *ledger = json_array();
    for (size_t i = 0; i < state->knob_count; i++) {
        const struct wire_knob_row *row = &state->knobs[i];
        json_t *knob = json_pack("{s:s}", "value", row->value);
        json_object_set_new(knob, "pending", row->pending ? json_string(row->pending_value) : json_null());
        json_object_set_new(knobs, row->name, knob);
    }
    for (size_t i = 0; i < state->ledger_count; i++)
        json_array_append_new(ledger, ledger_row(&state->ledger[i]));
    json_object_set_new(object, "knobs", knobs);
    json_object_set_new(object, "ledger", ledger);
    return object;
}

json_t *report_event(const struct wire_event_row *row)
{
    json_t *object = json_object();
    json_object_set_new(object, "id", integer(row->id));
    json_object_set_new(object, "wall_ms", integer(row->wall_ms));
    json_object_set_new(object, "step", integer(row->step));
    json_object_set_new(object, "level", json_string(report_event_level(row->level)));
    json_object_set_new(object, "source", json_string(row->source));
    json_object_set_new(object, "incarnation", integer(row->incarnation));
    json_object_set_new(object, "code", json_string(row->code));
    json_object_set_new(object, "text", json_string(row->text));
    return object;
}

json_t *report_events(const struct state *state)
{
    json_t *object = report_object(), *list = json_array();
    for (size_t i = 0; i < state->event_count; i++)
        json_array_append_new(list, report_event(&state->events[i]));
    json_object_set_new(object, "events", list);
    return object;
}

json_t *report_status(const struct state *state, uint64_t now_ns)
{
    json_t *object = report_run(state, now_ns), *knobs = report_knobs(state);
    json_object_set(object, "knobs", json_object_get(knobs, "knobs"));
    json_decref(knobs);
    json_object_set_new(object, "hosts", hosts_report(state, now_ns));
    json_object_set_new(object, "processes", report_processes(state, now_ns));
    json_object_set_new(object, "links", report_links(state));
    json_object_set_new(object, "anchor", anchor_report(state));
    return object;
}

void report_print(json_t *value, bool compact, FILE *out)
{
    json_dumpf(value, out, JSON_REAL_PRECISION(17) | JSON_PRESERVE_ORDER | (compact ? JSON_COMPACT : JSON_INDENT(2)));
    fputc('\n', out);
    json_decref(value);
}

#include "console/print.h"

#include <math.h>
#include <string.h>

#include "console/anchor.h"
#include "console/hosts.h"
#include "console/report.h"
#include "console/table.h"
#include "console/words.h"
#include "ssh/base/clock.h"
#include "ssh/base/text.h"

static enum paint paint_of_phase(int phase)
{
    switch (phase) {
    case PHASE_TRAINING:
    case PHASE_FINISHED:
        return PAINT_GOOD;
    case PHASE_HOLDING:
        return PAINT_BAD;
    default:
        return PAINT_WARN;
    }
}

static void write_losses(const struct wire_run_state *run, const struct style *style, FILE *out)
{
    char loss[WORDS], first[WORDS], newest[WORDS], norm[WORDS];
    fprintf(out, "loss %s (masked)   gradient norm %s\n", words_real(style, run->loss, 4, loss, sizeof loss),
            words_real(style, run->gradient_norm, 3, norm, sizeof norm));
    words_real(style, run->first_validation_loss, 4, first, sizeof first);
    words_real(style, run->validation_loss, 4, newest, sizeof newest);
    fprintf(out, "validation loss %s %s %s (un-masked", first, style_glyph(style, GLYPH_ARROW), newest);
    if (isfinite(run->validation_loss))
        fprintf(out, ", step %llu", (unsigned long long)run->validation_step);
    fputs(")\n", out);
}

static void write_speed(const struct state *state, const struct style *style, FILE *out)
{
    const struct wire_run_state *run = &state->run;
    char rate[WORDS], step[WORDS], eta[WORDS], tokens[WORDS], trained[WORDS];
    words_count(style, run->tokens_per_second, rate, sizeof rate);
    words_duration(style, run->step_seconds, step, sizeof step);
    words_duration(style, state_eta_seconds(state), eta, sizeof eta);
    words_count(style, (double)run->tokens, tokens, sizeof tokens);
    words_age(style, run->trained_ns, trained, sizeof trained);
    fprintf(out, "%s tokens/s   %s a step   ETA %s   %s tokens in %s\n", rate, step, eta, tokens, trained);
}

static void write_money(const struct wire_run_state *run, const struct style *style, FILE *out)
{
    char spent[WORDS], now[WORDS], all[WORDS];
    if (!isfinite(run->spent))
        return; /* the profile names no prices */
    fprintf(out, "spent %s", words_money(style, run->spent, spent, sizeof spent));
    if (isfinite(run->spend_per_hour))
        fprintf(out, "   %s an hour   %s when all steps are trained", words_money(style, run->spend_per_hour, now, sizeof now),
                words_money(style, run->spend_forecast, all, sizeof all));
    fputc('\n', out);
}

void print_status(const struct state *state, const struct style *style, uint64_t now_ns, FILE *out)
{
    const struct wire_run_state *run = &state->run;
    char age[WORDS], date[WORDS];
    if (!state->has_run) {
        fputs("nothing is known of this run yet\n", out);
        return;
    }
    fprintf(out, "%s%s%s   %s%s%s   step %llu of %llu", style_paint(style, PAINT_BOLD), run->run, style_end(style),
            style_paint(style, paint_of_phase(run->phase)), wire_phase_name(run->phase), style_end(style),
            (unsigned long long)run->step, (unsigned long long)run->steps);
    uint64_t old_ns = state_age_ns(state, now_ns);
    if (old_ns > 2 * CLOCK_SECOND)
        fprintf(out, "   last heard %s ago", words_age(style, old_ns, age, sizeof age));
    else if (run->started_wall_ms)
        fprintf(out, "   since %s", words_date((int64_t)run->started_wall_ms, date, sizeof date));
    fputc('\n', out);
    if (run->reason[0])
        fprintf(out, "%s%s%s\n", style_paint(style, paint_of_phase(run->phase)), run->reason, style_end(style));
    write_losses(run, style, out);
    write_speed(state, style, out);
    write_money(run, style, out);
    if (state->knob_count) {
        fputc('\n', out);
        print_knobs(state, style, now_ns, out);
    }
    if (state->has_anchor) {
        fputc('\n', out);
        anchor_print(state, style, now_ns, out);
    }
    if (state->host_count) {
        fputc('\n', out);
        hosts_print(state, style, now_ns, out);
    }
    if (state->process_count) {
        fputc('\n', out);
        print_processes(state, style, now_ns, out);
    }
    if (state->road_count) {
        fputc('\n', out);
        print_links(state, style, now_ns, out);
    }
}

static void add_process(struct table *table, const struct state_process *process, const struct style *style, uint64_t now_ns)
{
    const struct wire_process_row *row = &process->row;
    char memory[WORDS], share[WORDS], age[WORDS], pid[WORDS], layers[WORDS];
    bool worker = row->role == ROLE_STAGE || row->role == ROLE_ANCHOR, ended = row->state == PROCESS_EXITED;
    snprintf(pid, sizeof pid, "%u", row->pid);
    snprintf(layers, sizeof layers, "%u%s%u", row->first_layer, style_glyph(style, GLYPH_RANGE),
             row->first_layer + row->layers - 1u);
    if (!row->layers)
        snprintf(layers, sizeof layers, "%s", style_glyph(style, GLYPH_UNKNOWN));
    table_row(table, ended ? PAINT_BAD : row->state == PROCESS_READY ? PAINT_NONE : PAINT_WARN);
    table_cell(table, "%s", row->process);
    table_cell(table, "%s", row->host);
    table_cell(table, "%s", worker ? layers : "");
    table_cell(table, "%s", report_process_state(row->state));
    table_cell(table, "%s", row->pid ? pid : style_glyph(style, GLYPH_UNKNOWN));
    if (worker) {
        table_cell(table, "%llu", (unsigned long long)row->step);
        table_cell(table, "%s", words_bytes(style, row->memory_bytes, memory, sizeof memory));
        table_cell(table, "%s", words_percent(style, row->compute_share, share, sizeof share));
    } else {
        for (int i = 0; i < 3; i++)
            table_cell(table, "%s", "");
    }
    table_cell(table, "%s", ended ? "" : words_age(style, state_process_age_ns(process, now_ns), age, sizeof age));
}

void print_processes(const struct state *state, const struct style *style, uint64_t now_ns, FILE *out)
{
    static const struct table_column columns[] = {
        {.title = "process", .shrink = true}, {.title = "host", .shrink = true}, {.title = "layers"}, {.title = "state"},
        {.title = "pid", .right = true}, {.title = "step", .right = true}, {.title = "memory", .right = true},
        {.title = "computes", .right = true}, {.title = "heard", .right = true},
    };
    struct table *table = table_new(style, columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < state->process_count; i++)
        add_process(table, &state->processes[i], style, now_ns);
    table_print(table, out);
    table_free(table);
    for (size_t i = 0; i < state->process_count && !state_is_over(state); i++)
        if (state->processes[i].row.waiting[0])
            fprintf(out, "%s %s\n", state->processes[i].row.process, state->processes[i].row.waiting);
}

void print_links(const struct state *state, const struct style *style, uint64_t now_ns, FILE *out)
{
    static const struct table_column columns[] = {
        {.title = "link", .shrink = true}, {.title = "lane"}, {.title = "rate", .right = true},
        {.title = "sent", .right = true}, {.title = "of dense", .right = true}, {.title = "queued", .right = true},
        {.title = "rtt", .right = true},
        {.title = "held by", .shrink = true},
    };
    struct table *table = table_new(style, columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < state->road_count; i++) {
        const struct wire_road_row *row = &state->roads[i].row;
        char rate[WORDS], sent[WORDS], share[WORDS], queued[WORDS], rtt[WORDS], holds[128];
        double dense = row->dense_bytes ? (double)(row->sent_bytes - row->evaluation_bytes) / (double)row->dense_bytes : NAN;
        bool old = now_ns - state->roads[i].heard_ns > 5 * CLOCK_SECOND;
        table_row(table, old ? PAINT_DIM : PAINT_NONE);
        table_cell(table, "%s%s%s", row->from, style_glyph(style, GLYPH_ARROW), row->to);
        table_cell(table, "%s", wire_lane_name(row->lane));
        table_cell(table, "%s", words_rate(style, row->bytes_per_second, rate, sizeof rate));
        table_cell(table, "%s", text_from_bytes(row->sent_bytes, sent, sizeof sent));
        table_cell(table, "%s", words_percent(style, dense, share, sizeof share));
        table_cell(table, "%s", text_from_bytes(row->queued_bytes, queued, sizeof queued));
        table_cell(table, "%s", words_duration(style, row->rtt_ns ? (double)row->rtt_ns / 1e9 : NAN, rtt, sizeof rtt));
        table_cell(table, "%s", report_holds(row->hold_reasons, holds, sizeof holds));
    }
    table_print(table, out);
    table_free(table);
}

static void write_ledger(const struct state *state, const struct style *style, FILE *out)
{
    static const struct table_column columns[] = {
        {.title = "time"}, {.title = "setting"}, {.title = "change", .shrink = true}, {.title = "state"},
        {.title = "step", .right = true}, {.title = "who", .shrink = true},
    };
    struct table *table = table_new(style, columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < state->ledger_count; i++) {
        const struct wire_ledger_row *row = &state->ledger[i];
        char clock[WORDS];
        table_row(table, row->state == LEDGER_REFUSED ? PAINT_BAD : row->state == LEDGER_PROPOSED ? PAINT_WARN : PAINT_NONE);
        table_cell(table, "%s", words_clock((int64_t)row->wall_ms, clock, sizeof clock));
        table_cell(table, "%s", row->name);
        table_cell(table, "%s %s %s", row->old_value, style_glyph(style, GLYPH_ARROW), row->new_value);
        table_cell(table, "%s%s", report_ledger_state(row->state), row->watched_until ? ", watched" : "");
        if (row->state == LEDGER_ACTIVE)
            table_cell(table, "%llu", (unsigned long long)row->step);
        else
            table_cell(table, "%s", style_glyph(style, GLYPH_UNKNOWN));
        table_cell(table, "%s", row->who);
    }
    table_print(table, out);
    table_free(table);
}

void print_knobs(const struct state *state, const struct style *style, uint64_t now_ns, FILE *out)
{
    (void)now_ns;
    for (size_t i = 0; i < state->knob_count; i++) {
        const struct wire_knob_row *row = &state->knobs[i];
        fprintf(out, "%s = %s", row->name, row->value);
        if (row->pending)
            fprintf(out, "   %s%s %s, not in use yet%s", style_paint(style, PAINT_WARN), style_glyph(style, GLYPH_ARROW),
                    row->pending_value, style_end(style));
        fputc('\n', out);
    }
    if (state->ledger_count) {
        fputc('\n', out);
        write_ledger(state, style, out);
    }
}

void print_event(const struct wire_event_row *row, const struct style *style, FILE *out)
{
    static const enum paint paints[] = {[EVENT_INFO] = PAINT_NONE, [EVENT_WARN] = PAINT_WARN, [EVENT_ALERT] = PAINT_BAD};
    enum paint paint = row->level <= EVENT_ALERT ? paints[row->level] : PAINT_NONE;
    char clock[WORDS];
    fprintf(out, "%s%s %s %s: %s%s", style_paint(style, paint), words_clock((int64_t)row->wall_ms, clock, sizeof clock),
            report_event_level(row->level), row->source, row->text, style_end(style));
    if (row->step)
        fprintf(out, " (step %llu)", (unsigned long long)row->step);
    fputc('\n', out);
}

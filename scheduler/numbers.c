#include "scheduler/numbers.h"

#include <math.h>
#include <string.h>

#include "ssh/base/clock.h"
#include "ssh/base/mem.h"

#define STEPS 10  /* rates are means over so many steps */
#define SPEEDS 5  /* and over so many samples of a road */
#define QUIET_NS (4 * CLOCK_SECOND) /* a road that was not sampled for so long has an unknown rate */
#define WORTH 0.01 /* waits below this share of a step are not worth a sentence */

struct replica {
    bool left;
    uint64_t newest; /* step of the newest sample of its last stage */
    double loss;
    uint64_t evaluated_step; /* of the newest evaluation; UINT64_MAX = none */
    double evaluation;
    struct { uint64_t tokens, step_ns; } steps[STEPS];
    uint64_t step_count; /* only grows; slot = count mod STEPS */
};

struct road {
    struct { uint64_t at_ns, bytes; } speeds[SPEEDS];
    uint64_t speed_count;
};

struct numbers {
    const struct plan *plan;
    struct record *record;
    struct replica replicas[PROFILE_MAX_STAGES];
    struct road roads[RECORD_ROADS]; /* beside the record's rows */
};

struct numbers *numbers_new(const struct plan *plan, struct record *record)
{
    struct numbers *numbers = mem_new(sizeof *numbers);
    numbers->plan = plan;
    numbers->record = record;
    for (int i = 0; i < plan->replicas; i++) {
        numbers->replicas[i].newest = record->state.row.step;
        numbers->replicas[i].loss = record->state.row.loss;
        numbers->replicas[i].evaluated_step = UINT64_MAX;
    }
    for (size_t i = 0; i < record->road_count; i++)
        record->roads[i].row.bytes_per_second = (double)NAN;
    return numbers;
}

void numbers_free(struct numbers *numbers)
{
    mem_free(numbers);
}

static void sum_up(struct numbers *numbers)
{
    struct wire_run_state *row = &numbers->record->state.row;
    uint64_t newest = UINT64_MAX;
    double loss = 0, tokens_per_second = 0, seconds = 0;
    uint64_t trained = 0;
    int all = numbers->plan->replicas, replicas = 0;
    for (int r = 0; r < all; r++) {
        replicas += !numbers->replicas[r].left;
        trained += numbers->replicas[r].newest * numbers->plan->tokens_per_step / (uint64_t)all;
    }
    for (int r = 0; r < all; r++) {
        const struct replica *replica = &numbers->replicas[r];
        if (replica->left)
            continue;
        newest = replica->newest < newest ? replica->newest : newest;
        loss += replica->loss / replicas;
        uint64_t count = replica->step_count < STEPS ? replica->step_count : STEPS, tokens = 0, ns = 0;
        for (uint64_t i = 0; i < count; i++) {
            tokens += replica->steps[i].tokens;
            ns += replica->steps[i].step_ns;
        }
        tokens_per_second += ns > 0 ? (double)tokens / ((double)ns / 1e9) : (double)NAN;
        seconds += count > 0 ? (double)ns / 1e9 / (double)count / replicas : (double)NAN;
    }
    row->step = newest;
    row->loss = loss;
    row->tokens = all == 1 ? newest * numbers->plan->tokens_per_step : trained;
    row->tokens_per_second = tokens_per_second;
    row->step_seconds = seconds;
    record_touch(numbers->record, &numbers->record->state.version);
}

void numbers_leave(struct numbers *numbers, int replica)
{
    numbers->replicas[replica].left = true;
    sum_up(numbers);
}

void numbers_join(struct numbers *numbers, int replica)
{
    const struct wire_run_state *row = &numbers->record->state.row;
    numbers->replicas[replica] = (struct replica){.newest = row->step, .loss = row->loss, .evaluated_step = UINT64_MAX};
}

/* Each replica evaluates its own weights: the run's loss is the mean of all that evaluated after the same step. */
static void evaluated(struct numbers *numbers, int replica, const struct wire_sample *sample)
{
    struct wire_run_state *row = &numbers->record->state.row;
    double loss = 0;
    numbers->replicas[replica].evaluation = sample->loss;
    numbers->replicas[replica].evaluated_step = sample->step;
    int count = 0;
    for (int r = 0; r < numbers->plan->replicas; r++) {
        if (numbers->replicas[r].left)
            continue;
        if (numbers->replicas[r].evaluated_step != sample->step)
            return;
        loss += numbers->replicas[r].evaluation;
        count++;
    }
    loss /= count;
    if (sample->step == 0 && isnan(row->first_validation_loss))
        row->first_validation_loss = loss;
    row->validation_loss = loss;
    row->validation_step = sample->step;
    record_touch(numbers->record, &numbers->record->state.version);
}

void numbers_sample(struct numbers *numbers, int index, const struct wire_sample *sample)
{
    const struct plan_stage *stage = &numbers->plan->stages[index];
    bool is_last = stage->stage == numbers->plan->stages_per_replica - 1;
    if (numbers->replicas[stage->replica].left)
        return;
    if (sample->kind == STAMP_EVALUATE) {
        if (is_last)
            evaluated(numbers, stage->replica, sample);
        return;
    }
    if (sample->kind != STAMP_TRAIN)
        return;
    if (stage->stage == 0) {
        numbers->record->state.row.gradient_norm = sample->gradient_norm;
        record_touch(numbers->record, &numbers->record->state.version);
    }
    struct replica *replica = &numbers->replicas[stage->replica];
    if (!is_last || sample->step <= replica->newest)
        return;
    replica->newest = sample->step;
    replica->loss = sample->loss;
    size_t slot = replica->step_count++ % STEPS;
    replica->steps[slot].tokens = sample->tokens;
    replica->steps[slot].step_ns = sample->step_ns;
    sum_up(numbers);
}

void numbers_road_sample(struct numbers *numbers, const char *from, const struct wire_road_sample *sample, uint64_t now_ns)
{
    struct record_road *row = record_road(numbers->record, from, sample->peer, sample->lane);
    if (!row)
        return;
    struct road *road = &numbers->roads[row - numbers->record->roads];
    if (row->base_bytes + sample->sent_bytes < row->row.sent_bytes) {
        row->base_bytes = row->row.sent_bytes;
        row->dense_base_bytes = row->row.dense_bytes;
        row->evaluation_base_bytes = row->row.evaluation_bytes;
        road->speed_count = 0;
    }
    row->row.sent_bytes = row->base_bytes + sample->sent_bytes;
    row->row.dense_bytes = row->dense_base_bytes + sample->dense_bytes;
    row->row.evaluation_bytes = row->evaluation_base_bytes + sample->evaluation_bytes;
    row->row.queued_bytes = sample->queued_bytes;
    row->row.hold_reasons = sample->hold_reasons;
    row->row.rtt_ns = sample->rtt_ns;
    row->row.capacity_bps = sample->capacity_bps;
    size_t slot = road->speed_count++ % SPEEDS;
    road->speeds[slot].at_ns = now_ns;
    road->speeds[slot].bytes = row->row.sent_bytes;
    /* The slot that is overwritten next holds the oldest one. */
    size_t oldest = road->speed_count < SPEEDS ? 0 : road->speed_count % SPEEDS;
    uint64_t passed = now_ns - road->speeds[oldest].at_ns;
    row->row.bytes_per_second =
        passed > 0 ? (double)(row->row.sent_bytes - road->speeds[oldest].bytes) / ((double)passed / 1e9) : (double)NAN;
    record_touch(numbers->record, &row->version);
}

void numbers_tick(struct numbers *numbers, uint64_t now_ns)
{
    for (size_t i = 0; i < numbers->record->road_count; i++) {
        struct road *road = &numbers->roads[i];
        struct record_road *row = &numbers->record->roads[i];
        if (road->speed_count == 0 || now_ns - road->speeds[(road->speed_count - 1) % SPEEDS].at_ns < QUIET_NS)
            continue;
        road->speed_count = 0;
        row->row.bytes_per_second = (double)NAN;
        record_touch(numbers->record, &row->version);
    }
}

void numbers_waiting(const struct plan *plan, int index, const struct wire_sample *sample, char *out, size_t size)
{
    static const struct { const char *words; int neighbour; size_t offset; } causes[] = {
        {"activations from ", -1, offsetof(struct wire_sample, wait_act_ns)},
        {"gradient from ", 1, offsetof(struct wire_sample, wait_grad_ns)},
        {"the stamp from ", -1, offsetof(struct wire_sample, wait_stamp_ns)},
        {"room on its roads", 0, offsetof(struct wire_sample, wait_send_ns)},
        {"its training data", 0, offsetof(struct wire_sample, wait_data_ns)},
        {"replica ", 0, offsetof(struct wire_sample, wait_sync_ns)},
    };
    size_t worst = 0;
    uint64_t longest = 0;
    for (size_t i = 0; i < sizeof causes / sizeof *causes; i++) {
        uint64_t wait;
        memcpy(&wait, (const char *)sample + causes[i].offset, sizeof wait);
        if (wait > longest) {
            longest = wait;
            worst = i;
        }
    }
    double share = sample->step_ns > 0 ? (double)longest / (double)sample->step_ns : 0;
    out[0] = '\0';
    if (share < WORTH)
        return;
    if (causes[worst].offset == offsetof(struct wire_sample, wait_sync_ns)) {
        record_text(out, size, "waits for replica %u, round %llu, %.1f s, %.0f %% of the step", sample->sync_replica,
                    (unsigned long long)sample->sync_round, (double)longest / 1e9, 100 * (share < 1 ? share : 1));
        return;
    }
    int peer = index + causes[worst].neighbour;
    bool has_peer = causes[worst].neighbour != 0 && peer >= 0 && peer < plan->stage_count &&
                    plan->stages[peer].replica == plan->stages[index].replica;
    record_text(out, size, "waits for %s%s, %.0f %% of the step", causes[worst].words,
                has_peer ? plan->stages[peer].process : "", 100 * (share < 1 ? share : 1));
}

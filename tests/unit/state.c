/* What a console knows: rows are replaced by key, rings are bounded, ages grow, unknown stays unknown; and the same as
 * JSON. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "console/print.h"
#include "console/report.h"
#include "console/state.h"
#include "console/watch.h"
#include "console/words.h"
#include "ssh/base/clock.h"
#include "ssh/base/mem.h"
#include "ssh/link/link.h"
#include "tests/helpers/dice.h"
#include "tests/helpers/message.h"

#define SECOND CLOCK_SECOND

static const struct wire_run_state running = {
    .run = "sea", .run_id = 0xabc, .phase = PHASE_TRAINING, .step = 41, .steps = 200, .loss = 3.25,
        .first_validation_loss = 5.5,
    .validation_loss = NAN, .gradient_norm = NAN, .tokens_per_second = 12345, .step_seconds = 0.5, .mask_rate = 0.95,
        .tokens = 20480,
};

static void rows_replace_rows(void **unused)
{
    struct state state;
    struct wire_process_row process = {.process = "r0s0", .state = PROCESS_STARTED, .heard_ns_ago = UINT64_MAX};
    struct wire_road_row road = {.from = "r0s0", .to = "r0s1", .lane = LANE_ACT, .sent_bytes = 1};
    (void)unused;
    state_init(&state);
    assert_true(state_age_ns(&state, 5) == UINT64_MAX);
    assert_int_equal(state_apply(&state, WIRE_PROCESS_ROW, &process, 1, NULL), 0);
    assert_true(state_process_age_ns(&state.processes[0], 100) == UINT64_MAX); /* never heard stays never */
    process.state = PROCESS_READY;
    process.heard_ns_ago = 50;
    assert_int_equal(state_apply(&state, WIRE_PROCESS_ROW, &process, 1000, NULL), 0);
    assert_int_equal(state.process_count, 1);
    assert_int_equal(state.processes[0].row.state, PROCESS_READY);
    assert_int_equal(state_process_age_ns(&state.processes[0], 1300), 350);
    assert_int_equal(state_apply(&state, WIRE_ROAD_ROW, &road, 1, NULL), 0);
    road.sent_bytes = 2;
    assert_int_equal(state_apply(&state, WIRE_ROAD_ROW, &road, 2, NULL), 0);
    road.lane = LANE_CONTROL; /* another lane is another row */
    assert_int_equal(state_apply(&state, WIRE_ROAD_ROW, &road, 3, NULL), 0);
    assert_int_equal(state.road_count, 2);
    assert_int_equal(state.roads[0].row.sent_bytes, 2);
    assert_false(state.complete);
    assert_int_equal(state_apply(&state, WIRE_STATE_END, &(struct wire_state_end){0}, 4, NULL), 0);
    assert_true(state.complete);
    assert_int_equal(state_apply(&state, WIRE_HELLO, &process, 4, NULL), ERR_INVALID);
    state_clear(&state);
}

static void rings_are_bounded(void **unused)
{
    struct state state;
    (void)unused;
    state_init(&state);
    for (uint64_t i = 1; i <= STATE_EVENTS + 10; i++) {
        struct wire_event_row event = {.id = i};
        state_apply(&state, WIRE_EVENT_ROW, &event, 1, NULL);
        state_apply(&state, WIRE_EVENT_ROW, &event, 1, NULL); /* a repetition is no second event */
    }
    assert_int_equal(state.event_count, STATE_EVENTS);
    assert_int_equal(state.events[0].id, 11);
    for (int i = 0; i < STATE_PROCESSES + 10; i++) {
        struct wire_process_row row = {.pid = (uint32_t)i};
        snprintf(row.process, sizeof row.process, "p%d", i);
        state_apply(&state, WIRE_PROCESS_ROW, &row, 1, NULL);
    }
    assert_int_equal(state.process_count, STATE_PROCESSES);
    assert_int_equal(state.dropped, 10);
    state_clear(&state);
}

static void eta_is_known_only_while_training(void **unused)
{
    struct state state;
    struct wire_run_state run = running;
    (void)unused;
    state_init(&state);
    assert_true(isnan(state_eta_seconds(&state)));
    state_apply(&state, WIRE_RUN_STATE, &run, 1, NULL);
    assert_true(state_eta_seconds(&state) == 159 * 0.5);
    run.phase = PHASE_HOLDING;
    state_apply(&state, WIRE_RUN_STATE, &run, 1, NULL);
    assert_true(isnan(state_eta_seconds(&state)));
    run = running;
    run.step_seconds = NAN;
    state_apply(&state, WIRE_RUN_STATE, &run, 1, NULL);
    assert_true(isnan(state_eta_seconds(&state)));
    state_clear(&state);
}

static void fill(struct state *state)
{
    struct wire_process_row process = {.process = "r0s0", .host = "local", .role = ROLE_STAGE, .state = PROCESS_READY,
                                       .layers = 3,
                                       .pid = 4711, .compute_share = NAN, .heard_ns_ago = UINT64_MAX,
                                       .waiting = "waits for gradient from r0s1, 31 % of the step"};
    struct wire_road_row road = {.from = "r0s0", .to = "r0s1", .lane = LANE_ACT, .sent_bytes = 500, .dense_bytes = 10000,
                                 .bytes_per_second = 234567, .hold_reasons = HOLD_PACE | HOLD_PRIORITY};
    struct wire_knob_row knob = {.name = "mask.rate", .value = "0.95", .pending = 1, .pending_value = "0.9"};
    struct wire_ledger_row ledger = {.id = 1, .name = "mask.rate", .old_value = "0.95", .new_value = "0.9",
                                     .who = "me@here"};
    struct wire_event_row event = {.id = 1, .level = EVENT_ALERT, .source = "r0s0", .code = "peer-lost",
                                   .text = "r0s1 is gone"};
    state_init(state);
    state_apply(state, WIRE_RUN_STATE, &running, SECOND, NULL);
    state_apply(state, WIRE_PROCESS_ROW, &process, SECOND, NULL);
    state_apply(state, WIRE_ROAD_ROW, &road, SECOND, NULL);
    snprintf(road.from, sizeof road.from, "r0s1");
    snprintf(road.to, sizeof road.to, "r0s0");
    road.bytes_per_second = NAN;
    state_apply(state, WIRE_ROAD_ROW, &road, SECOND, NULL);
    state_apply(state, WIRE_KNOB_ROW, &knob, SECOND, NULL);
    state_apply(state, WIRE_LEDGER_ROW, &ledger, SECOND, NULL);
    state_apply(state, WIRE_EVENT_ROW, &event, SECOND, NULL);
    state_apply(state, WIRE_STATE_END, &(struct wire_state_end){1}, SECOND, NULL);
}

static char *print_line(const struct state *state, const struct style *style)
{
    char *text;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    watch_print_line(state, style, out);
    fclose(out);
    return text;
}

static void one_line_a_second(void **unused)
{
    struct state state;
    struct style style = {.plain = true}, narrow = {.plain = true, .columns = 44}, ascii = {.plain = true, .ascii = true};
    (void)unused;
    fill(&state);
    char *text = print_line(&state, &style);
    assert_string_equal(text, "step 41/200  loss 3.250  12.3k tok/s  r0s0-r0s1 ↓234.6 ↑– kB/s  ETA 1 m 20 s\n");
    free(text);
    text = print_line(&state, &narrow);
    assert_string_equal(text, "step 41/200  loss 3.250  12.3k tok/s\n    r0s0-r0s1 ↓234.6 ↑– kB/s  ETA 1 m 20 s\n");
    free(text);
    text = print_line(&state, &ascii);
    for (char *c = text; *c; c++)
        assert_true((unsigned char)*c < 0x80);
    free(text);
    state_clear(&state);
}

static void status_fits_80_columns(void **unused)
{
    struct state state;
    struct style style = {.plain = true, .columns = 80};
    char *text, *rest, *line;
    size_t size;
    (void)unused;
    fill(&state);
    FILE *out = open_memstream(&text, &size);
    print_status(&state, &style, 10 * SECOND, out);
    fclose(out);
    assert_non_null(strstr(text, "last heard 9.0 s ago"));
    assert_non_null(strstr(text, "5.0 %"));
    assert_non_null(strstr(text, "mask.rate = 0.95"));
    assert_null(strstr(text, "nan"));
    for (rest = text; (line = strsep(&rest, "\n"));)
        if (words_width(line) > 80)
            fail_msg("%s", line);
    free(text);
    state_clear(&state);
}

static void json_has_null_for_unknown(void **unused)
{
    struct state state;
    char *text;
    size_t size;
    (void)unused;
    fill(&state);
    FILE *out = open_memstream(&text, &size);
    report_print(report_status(&state, 2 * SECOND), false, out);
    fclose(out);
    json_t *root = json_loads(text, 0, NULL);
    assert_non_null(root);
    assert_int_equal(json_integer_value(json_object_get(root, "format")), 1);
    assert_true(json_real_value(json_object_get(root, "loss")) == 3.25);
    assert_true(json_is_null(json_object_get(root, "validation_loss")));
    assert_true(json_is_null(json_object_get(root, "gradient_norm")));
    assert_true(json_real_value(json_object_get(root, "age_seconds")) == 1.0);
    json_t *process = json_array_get(json_object_get(root, "processes"), 0);
    assert_true(json_is_null(json_object_get(process, "heard_seconds_ago")));
    json_t *link = json_array_get(json_object_get(root, "links"), 0);
    assert_string_equal(json_string_value(json_array_get(json_object_get(link, "holds"), 0)), "pace");
    assert_true(json_is_null(json_object_get(link, "rtt_seconds")));
    json_t *knob = json_object_get(json_object_get(root, "knobs"), "mask.rate");
    assert_string_equal(json_string_value(json_object_get(knob, "pending")), "0.9");
    json_decref(root);
    assert_null(strstr(text, "nan"));
    free(text);
    state_clear(&state);
}

static void reals_read_back_to_the_same_bits(void **unused)
{
    struct dice dice = {7};
    (void)unused;
    for (int i = 0; i < 1000; i++) {
        double value = (double)dice_u64(&dice) / (double)(1 + dice_u64(&dice)), back;
        json_t *real = report_real(value);
        char *text = json_dumps(real, JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
        back = strtod(text, NULL);
        assert_memory_equal(&back, &value, sizeof value);
        free(text);
        json_decref(real);
    }
}

/* Whatever a scheduler of another mind sends, printing stays whole and JSON stays JSON. */
static void any_row_can_be_shown(void **unused)
{
    static const enum wire_type types[] = {WIRE_RUN_STATE, WIRE_PROCESS_ROW, WIRE_ROAD_ROW, WIRE_EVENT_ROW, WIRE_LEDGER_ROW,
                                           WIRE_KNOB_ROW, WIRE_HOST_ROW, WIRE_SPECTRUM_ROW};
    struct dice dice = {11};
    struct style style = {.columns = 80, .color = true};
    (void)unused;
    for (int round = 0; round < 200; round++) {
        struct state state;
        char *text;
        size_t size;
        state_init(&state);
        for (int i = 0; i < 12; i++) {
            const struct wire_message *message = wire_find((uint16_t)types[dice_below(&dice, sizeof types / sizeof *types)]);
            void *row = message_random(&dice, message, 0);
            assert_int_equal(state_apply(&state, message->type, row, dice_below(&dice, SECOND), NULL), 0);
            message_free(message, row);
        }
        FILE *out = open_memstream(&text, &size);
        print_status(&state, &style, SECOND, out);
        watch_print_line(&state, &style, out);
        for (size_t i = 0; i < state.event_count; i++)
            print_event(&state.events[i], &style, out);
        fclose(out);
        free(text);
        out = open_memstream(&text, &size);
        report_print(report_status(&state, SECOND), true, out);
        fclose(out);
        json_t *root = json_loads(text, 0, NULL);
        assert_non_null(root);
        json_decref(root);
        free(text);
        state_clear(&state);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_replace_rows), cmocka_unit_test(rings_are_bounded),
            cmocka_unit_test(eta_is_known_only_while_training),
        cmocka_unit_test(one_line_a_second), cmocka_unit_test(status_fits_80_columns),
            cmocka_unit_test(json_has_null_for_unknown),
        cmocka_unit_test(reals_read_back_to_the_same_bits), cmocka_unit_test(any_row_can_be_shown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

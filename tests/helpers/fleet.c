#include "tests/helpers/fleet.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ssh/base/clock.h"
#include "ssh/base/mem.h"

static void send_process(const struct fleet_sink *to, int number, int stages)
{
    struct wire_process_row row = {
        .role = ROLE_STAGE, .state = PROCESS_READY, .replica = (uint16_t)(number / stages), .stage = (uint16_t)(number % stages),
        .first_layer = (uint16_t)(2 * (number % stages)), .layers = 2, .incarnation = 1, .pid = (uint32_t)(1000 + number),
        .heard_ns_ago = 100 * CLOCK_MS, .step = 40, .memory_bytes = UINT64_C(1) << 30, .compute_share = 0.5 + (number % 5) / 10.0,
    };
    snprintf(row.process, sizeof row.process, "r%ds%d", number / stages, number % stages);
    snprintf(row.host, sizeof row.host, "h%d", number % 7);
    if (number % stages == 0 && stages > 1)
        snprintf(row.waiting, sizeof row.waiting, "waits for gradient from r%ds1, %d %% of the step", number / stages, 31 + number % 5);
    to->take(WIRE_PROCESS_ROW, &row, to->arg);
}

static void send_road(const struct fleet_sink *to, int number, int stages, bool back, uint64_t now_ns)
{
    uint64_t second = now_ns / CLOCK_SECOND;
    struct wire_road_row row = {
        .lane = LANE_ACT, .sent_bytes = 4000000 + 1000 * second, .dense_bytes = 80000000, .evaluation_bytes = 100000,
        .bytes_per_second = 1e6 * (1 + (number + (int)second) % 4) / (back ? 2 : 1), .rtt_ns = 20 * CLOCK_MS,
        .capacity_bps = back ? 0 : 40000000, .hold_reasons = back ? 0 : 2, .queued_bytes = back ? 0 : 6500,
        .price_per_hour = back ? (double)NAN : 0.036,
    };
    int one = number, other = number + 1;
    snprintf(row.from, sizeof row.from, "r%ds%d", one / stages, (back ? other : one) % stages);
    snprintf(row.to, sizeof row.to, "r%ds%d", one / stages, (back ? one : other) % stages);
    to->take(WIRE_ROAD_ROW, &row, to->arg);
}

static void send_run(const struct fleet_sink *to, uint64_t now_ns)
{
    uint64_t step = now_ns / CLOCK_SECOND - 940;
    struct wire_run_state run = {
        .run = "sea", .run_id = 7, .phase = PHASE_TRAINING, .step = step, .steps = 200, .loss = 2 + 3.0 / (double)(1 + step % 100),
        .first_validation_loss = 5.54, .validation_loss = 3.2, .validation_step = 40, .gradient_norm = 0.9, .tokens_per_second = 12300,
        .step_seconds = 1, .trained_ns = 60 * CLOCK_SECOND, .mask_rate = 0.95, .tokens = step * 2048, .newest_event = 2, .viewers = 1,
        .spent = 1.27, .spend_per_hour = 2.4, .spend_forecast = 4.1,
    };
    to->take(WIRE_RUN_STATE, &run, to->arg);
}

static void send_host(const struct fleet_sink *to, int number)
{
    bool gpu = number % 2 == 0;
    struct wire_host row = {
        .cpu_share = 0.23F + 0.1F * (float)number, .load = 3.2F, .cores = 8, .memory_bytes = UINT64_C(32) << 30,
        .memory_free_bytes = (UINT64_C(1) + (uint64_t)number) << 30, .disk_bytes = UINT64_C(100) << 30, .disk_free_bytes = UINT64_C(41) << 30,
        .gpus = gpu, .gpu = "NVIDIA GeForce RTX 4090", .gpu_share = gpu ? 0.97F : NAN, .gpu_memory_bytes = gpu ? UINT64_C(24) << 30 : 0,
        .gpu_used_bytes = gpu ? UINT64_C(18) << 30 : 0, .gpu_celsius = gpu ? 71 : NAN, .gpu_watts = gpu ? 312 : NAN,
        .clock_offset = number == 3 ? -300.5 : 0.0012, .rtt_ns = 20 * CLOCK_MS, .heard_ns_ago = 100 * CLOCK_MS, .processes = 2,
        .price_per_hour = gpu ? 0.4 : (double)NAN, .login = number == 1 ? LOGIN_SHUT : number == 2 ? LOGIN_UNKNOWN : LOGIN_OPEN,
        .login_ns_ago = number == 2 ? UINT64_MAX : 40 * CLOCK_SECOND,
    };
    snprintf(row.host, sizeof row.host, "h%d", number);
    to->take(WIRE_HOST_ROW, &row, to->arg);
}

void fleet_send(int processes, int stages, uint64_t now_ns, const struct fleet_sink *to)
{
    send_run(to, now_ns);
    for (int i = 0; i < processes; i++)
        send_process(to, i, stages);
    for (int i = 0; i < 7 && i < processes; i++)
        send_host(to, i);
    for (int i = 0; i + 1 < processes; i++) {
        if ((i + 1) % stages == 0)
            continue;
        send_road(to, i, stages, false, now_ns);
        send_road(to, i, stages, true, now_ns);
    }
}

struct shown { /* the sink of fleet_second */
    struct view *view;
    uint64_t now_ns;
};

static void show_row(enum wire_type type, const void *row, void *arg)
{
    const struct shown *shown = arg;
    view_apply(shown->view, type, row, shown->now_ns);
}

void fleet_second(struct view *view, int processes, int stages, uint64_t now_ns)
{
    struct shown shown = {view, now_ns};
    fleet_send(processes, stages, now_ns, &(struct fleet_sink){show_row, &shown});
}

static void send_words(struct view *view, uint64_t now_ns)
{
    static const struct wire_knob_row knobs[] = {{.name = "train.learning_rate", .value = "0.002"}, {.name = "mask.rate", .value = "0.95"}};
    struct wire_ledger_row ledger = {.id = 1, .wall_ms = FLEET_WALL - 20000, .name = "mask.rate", .old_value = "0.9",
                                     .new_value = "0.95", .who = "ada@laptop", .state = LEDGER_ACTIVE, .step = 30};
    struct wire_event_row events[] = {
        {.id = 1, .wall_ms = FLEET_WALL - 60000, .level = EVENT_INFO, .source = "kedged", .code = "phase", .text = "forming → training"},
        {.id = 2, .wall_ms = FLEET_WALL - 5000, .level = EVENT_WARN, .step = 55, .source = "r0s1", .code = "peer-slow",
         .text = "r0s1 waits longer than usual"},
        {.id = 3, .wall_ms = FLEET_WALL - 4000, .level = EVENT_WARN, .step = 56, .source = "r0s1", .code = "peer-slow",
         .text = "r0s1 waits longer than usual"},
        {.id = 4, .wall_ms = FLEET_WALL - 3000, .level = EVENT_ALERT, .step = 57, .source = "r0s0", .code = "non-finite",
         .text = "the gradient of step 57 was not finite and is not applied"},
    };
    for (size_t i = 0; i < 2; i++)
        view_apply(view, WIRE_KNOB_ROW, &knobs[i], now_ns);
    view_apply(view, WIRE_LEDGER_ROW, &ledger, now_ns);
    for (size_t i = 0; i < sizeof events / sizeof *events; i++)
        view_apply(view, WIRE_EVENT_ROW, &events[i], now_ns);
    if (view->state.process_count >= 8) {
        struct wire_anchor_row anchor = {.host = "c", .saying = "computes step 50", .flipped = 50, .used = 40, .pending = 55, .versions = 3,
                                         .staleness = 21, .age = 20, .target = 25, .mix = 0.3, .eta_seconds = 3, .delta_share = 0.1,
                                         .sent_bytes = 30000000, .full_bytes = 300000000, .cosine = 0.31, .inside = 0.6, .norm_ratio = 0.8,
                                         .changed = 0.12, .noise = 0.83, .compute_seconds = 3.1, .validation_loss = 3.3, .validation_version = 21,
                                         .price_per_hour = 0.31, .captured = 1, .sent = 0.62, .returned = 0.5, .computed = 50};
        view_apply(view, WIRE_ANCHOR_ROW, &anchor, now_ns);
        anchor.validation_version = 41;
        anchor.validation_loss = 3.1;
        view_apply(view, WIRE_ANCHOR_ROW, &anchor, now_ns);
        for (int i = 0; i < 2 * MATRIX_CLASSES; i++)
            view_apply(view, WIRE_SPECTRUM_ROW,
                       &(struct wire_spectrum){.version = 40, .layer = (uint16_t)(i % 2), .matrix_class = (uint8_t)(i / 2), .rank = 16, .rows = 64,
                                               .columns = 64, .energy = 150, .values = "9 6 4.5 3 2 1.5 1 .8 .6 .4 .3 .2 .15 .1 .05 .01"},
                       now_ns);
        for (int i = 0; i < MATRIX_CLASSES; i++)
            view_apply(view, WIRE_METER_ROW,
                       &(struct wire_meter){.step = 60, .version = 40, .matrix_class = (uint8_t)i, .matrices = 8, .mix = 0.3F, .gradient = 4,
                                            .corrected = 3, .changed = 0.1, .anchor = 2, .aligned = 1, .inside = 2, .signal = 1, .noise = 3},
                       now_ns);
    }
    view_apply(view, WIRE_STATE_END, &(struct wire_state_end){0}, now_ns);
}

void fleet_view(struct view *view, int processes, int stages, int seconds)
{
    static const struct style style = {.color = false};
    view_init(view, &style, false);
    view_set_clock(view, FLEET_NOW, FLEET_WALL);
    view_open(view, "sea", true, true);
    for (int i = seconds; i >= 0 && processes > 0; i--)
        fleet_second(view, processes, stages, FLEET_NOW - (uint64_t)i * CLOCK_SECOND);
    if (processes > 0)
        send_words(view, FLEET_NOW);
}

char *fleet_text(struct view *view, int rows, int columns, bool ascii)
{
    struct surface surface;
    char *text = NULL;
    size_t bytes = 0;
    surface_init(&surface, rows, columns, ascii);
    view_draw(view, &surface, FLEET_NOW, FLEET_WALL);
    FILE *out = open_memstream(&text, &bytes);
    surface_write(&surface, out);
    fclose(out);
    surface_clear(&surface);
    char *own = mem_text(text);
    free(text);
    return own;
}

void fleet_press(struct view *view, const char *keys)
{
    static const struct { const char *name; uint32_t press; } names[] = {
        {"Up", PRESS_UP}, {"Down", PRESS_DOWN}, {"Left", PRESS_LEFT}, {"Right", PRESS_RIGHT}, {"Enter", PRESS_ENTER},
        {"Esc", PRESS_ESCAPE}, {"Tab", PRESS_TAB}, {"End", PRESS_END}, {"Home", PRESS_HOME}, {"Space", ' '}, {"Erase", PRESS_ERASE},
    };
    for (const char *at = keys; *at;) {
        size_t length = strcspn(at, " ");
        uint32_t press = length == 1 ? (unsigned char)*at : 0;
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            if (strlen(names[i].name) == length && memcmp(at, names[i].name, length) == 0)
                press = names[i].press;
        if (press)
            view_press(view, press, FLEET_NOW);
        at += length + strspn(at + length, " ");
    }
}

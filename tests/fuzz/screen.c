/* Any frames from a scheduler and any keys, in any order, drawn at any size: nothing crashes, and no control character comes out. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "console/view.h"
#include "ssh/base/clock.h"
#include "ssh/base/mem.h"
#include "ssh/wire/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input {
    const uint8_t *data;
    size_t left;
    uint64_t now_ns;
};

static uint8_t take(struct input *input)
{
    if (!input->left)
        return 0;
    input->left--;
    return *input->data++;
}

static void feed_row(struct view *view, struct input *input)
{
    static const enum wire_type types[] = {WIRE_RUN_STATE, WIRE_PROCESS_ROW, WIRE_ROAD_ROW, WIRE_EVENT_ROW, WIRE_LEDGER_ROW,
                                           WIRE_KNOB_ROW, WIRE_STATE_END, WIRE_REPLY, WIRE_ANCHOR_ROW, WIRE_METER_ROW, WIRE_HOST_ROW, WIRE_SPECTRUM_ROW};
    enum wire_type type = types[take(input) % (sizeof types / sizeof *types)];
    size_t bytes = (size_t)take(input) << 8 | take(input);
    const struct wire_message *message = wire_find((uint16_t)type);
    void *row = mem_new(message->struct_bytes);
    bytes = bytes > input->left ? input->left : bytes;
    if (wire_decode((uint16_t)type, input->data, bytes, row, NULL) == 0)
        view_apply(view, type, row, input->now_ns);
    input->data += bytes;
    input->left -= bytes;
    mem_free(row);
}

static void feed_line(struct view *view, struct input *input)
{
    char line[256];
    size_t bytes = take(input);
    bytes = bytes > input->left ? input->left : bytes;
    memcpy(line, input->data, bytes);
    line[bytes] = '\0';
    history_recall(&view->history, &view->state, line);
    snprintf(view->log, sizeof view->log, "%s", line);
    input->data += bytes;
    input->left -= bytes;
}

static void feed_mouse(struct view *view, struct input *input)
{
    struct surface surface;
    int rows = 1 + take(input) % 60, columns = 1 + take(input);
    uint32_t press = PRESS_CLICK + take(input) % 3;
    surface_init(&surface, rows, columns, false);
    view_draw(view, &surface, input->now_ns, UINT64_C(1796000000000));
    view_mouse(view, press, take(input) % 64 - 2, take(input) - 2, &surface, input->now_ns);
    surface_clear(&surface);
}

/* A command at work in the window. */
static void feed_window(struct view *view, struct input *input)
{
    uint8_t what = take(input);
    size_t bytes = take(input);
    bytes = bytes > input->left ? input->left : bytes;
    if (!view->window.open)
        window_open_running(&view->window, "kedge run", what & 1);
    window_take(&view->window, (const char *)input->data, bytes, what & 2);
    if (what >= 0xF0)
        window_over(&view->window);
    input->data += bytes;
    input->left -= bytes;
}

static void feed_key(struct view *view, struct input *input)
{
    uint32_t press = take(input);
    if (press >= 0xF0)
        press = PRESS_UP + (press & 15);
    else if (press >= 0xE0)
        press = (uint32_t)take(input) << 8 | take(input);
    view_press(view, press, input->now_ns);
    for (struct wish wish; view_take(view, &wish);)
        mem_free(wish.text);
}

static void draw(struct view *view, struct input *input)
{
    struct surface surface;
    int rows = 1 + take(input) % 60, columns = 1 + take(input);
    surface_init(&surface, rows, columns, take(input) & 1);
    view_draw(view, &surface, input->now_ns, UINT64_C(1796000000000));
    for (int i = 0; i < rows * columns; i++)
        if (surface.cells[i].code && (surface.cells[i].code < ' ' || surface.cells[i].code == 127))
            abort();
    surface_clear(&surface);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct style style = {.color = false};
    struct view view;
    struct input input = {data, size, 2000 * CLOCK_SECOND};
    if (size > 65536)
        return -1;
    view_init(&view, &style, take(&input) & 1);
    view_open(&view, "sea", true, true);
    while (input.left) {
        uint8_t what = take(&input);
        if (what < 0x60)
            feed_row(&view, &input);
        else if (what < 0xC0)
            feed_key(&view, &input);
        else if (what < 0xCC)
            feed_line(&view, &input);
        else if (what < 0xCE)
            feed_window(&view, &input);
        else if (what < 0xD0)
            feed_mouse(&view, &input);
        else if (what < 0xE0)
            input.now_ns += (uint64_t)take(&input) * CLOCK_SECOND / 4;
        else
            draw(&view, &input);
    }
    draw(&view, &input);
    view_clear(&view);
    return 0;
}

#include "scheduler/events.h"

#include <string.h>

#include "ssh/base/clock.h"
#include "ssh/base/log.h"
#include "ssh/base/mem.h"

#define WINDOWS 32
#define WINDOW_NS CLOCK_SECOND
#define SHOWN_MAX 4 /* rows with different texts that one window shows */

struct window {
    struct wire_event_row last; /* newest of them; its level is the worst one of the counted */
    uint64_t opened_ns;
    uint32_t shown, more;
    bool open;
};

struct events {
    struct record *record;
    struct window windows[WINDOWS];
};

struct events *events_new(struct record *record)
{
    struct events *events = mem_new(sizeof *events);
    events->record = record;
    return events;
}

void events_free(struct events *events)
{
    mem_free(events);
}

static void show(struct events *events, const struct wire_event_row *row)
{
    static const enum log_level levels[] = {LOG_INFO, LOG_WARN, LOG_ERROR};
    struct record_event *event = record_add_event(events->record);
    uint64_t id = event->row.id, wall_ms = event->row.wall_ms;
    event->row = *row;
    event->row.id = id;
    event->row.wall_ms = wall_ms;
    if (row->level == EVENT_ALERT)
        events->record->urgent = true;
    log_at(levels[row->level], "event", "%s [%s] step %llu: %s", row->source, row->code,
           (unsigned long long)row->step, row->text);
}

static void close_window(struct events *events, struct window *window, uint64_t now_ns)
{
    if (window->more > 0) {
        struct wire_event_row row = window->last;
        record_text(row.text, sizeof row.text, "%u more of these in %.1f s, the newest: %s", window->more,
                    (double)(now_ns - window->opened_ns) / 1e9, window->last.text);
        show(events, &row);
    }
    window->open = false;
}

static struct window *find_window(struct events *events, const struct wire_event_row *row, uint64_t now_ns)
{
    struct window *oldest = &events->windows[0];
    for (struct window *window = events->windows; window < events->windows + WINDOWS; window++) {
        if (window->open && strcmp(window->last.source, row->source) == 0 && strcmp(window->last.code, row->code) == 0)
            return window;
        if (!window->open || (oldest->open && window->opened_ns < oldest->opened_ns))
            oldest = window;
    }
    if (oldest->open)
        close_window(events, oldest, now_ns);
    return oldest;
}

void events_add(struct events *events, const struct wire_event_row *row, uint64_t now_ns)
{
    struct window *window = find_window(events, row, now_ns);
    if (window->open && now_ns - window->opened_ns >= WINDOW_NS)
        close_window(events, window, now_ns);
    if (!window->open) {
        *window = (struct window){.open = true, .opened_ns = now_ns, .shown = 1, .last = *row};
        show(events, row);
        return;
    }
    bool repeated = strcmp(window->last.text, row->text) == 0;
    uint8_t worst = window->more > 0 && window->last.level > row->level ? window->last.level : row->level;
    window->last = *row;
    if (repeated || window->shown >= SHOWN_MAX) {
        window->more++;
        window->last.level = worst;
        return;
    }
    window->shown++;
    show(events, row);
}

void events_tick(struct events *events, uint64_t now_ns)
{
    for (struct window *window = events->windows; window < events->windows + WINDOWS; window++)
        if (window->open && now_ns - window->opened_ns >= WINDOW_NS)
            close_window(events, window, now_ns);
}

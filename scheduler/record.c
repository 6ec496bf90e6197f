#include "scheduler/record.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "ssh/base/clock.h"
#include "ssh/base/mem.h"
#include "ssh/base/text.h"

struct record *record_new(void)
{
    struct record *record = mem_new(sizeof *record);
    struct wire_run_state *state = &record->state.row;
    state->loss = state->first_validation_loss = state->validation_loss = state->gradient_norm = (double)NAN;
    state->tokens_per_second = state->step_seconds = state->mask_rate = (double)NAN;
    state->spent = state->spend_per_hour = state->spend_forecast = (double)NAN;
    return record;
}

void record_free(struct record *record)
{
    mem_free(record);
}

void record_touch(struct record *record, uint64_t *version)
{
    *version = ++record->version;
}

struct record_event *record_add_event(struct record *record)
{
    uint64_t id = ++record->newest_event;
    struct record_event *event = &record->events[id % RECORD_EVENTS];
    *event = (struct record_event){.row = {.id = id, .wall_ms = clock_wall_ms()}};
    record_touch(record, &event->version);
    record->state.row.newest_event = id;
    record_touch(record, &record->state.version);
    return event;
}

struct record_ledger *record_add_ledger(struct record *record)
{
    uint64_t id = ++record->newest_ledger;
    struct record_ledger *ledger = &record->ledger[id % RECORD_LEDGER];
    *ledger = (struct record_ledger){.row = {.id = id, .wall_ms = clock_wall_ms()}};
    record_touch(record, &ledger->version);
    record->urgent = true;
    return ledger;
}

struct record_event *record_find_event(struct record *record, uint64_t id)
{
    struct record_event *event = &record->events[id % RECORD_EVENTS];
    return id > 0 && event->row.id == id ? event : NULL;
}

struct record_ledger *record_find_ledger(struct record *record, uint64_t id)
{
    struct record_ledger *ledger = &record->ledger[id % RECORD_LEDGER];
    return id > 0 && ledger->row.id == id ? ledger : NULL;
}

struct record_process *record_find_process(struct record *record, const char *name)
{
    for (size_t i = 0; i < record->process_count; i++)
        if (strcmp(record->processes[i].row.process, name) == 0)
            return &record->processes[i];
    return NULL;
}

struct record_road *record_road(struct record *record, const char *from, const char *to, uint8_t lane)
{
    struct record_road *road;
    for (size_t i = 0; i < record->road_count; i++) {
        road = &record->roads[i];
        if (road->row.lane == lane && strcmp(road->row.from, from) == 0 && strcmp(road->row.to, to) == 0)
            return road;
    }
    if (record->road_count == RECORD_ROADS)
        return NULL;
    road = &record->roads[record->road_count++];
    *road = (struct record_road){.row = {.lane = lane, .bytes_per_second = (double)NAN, .price_per_hour = (double)NAN}};
    record_text(road->row.from, sizeof road->row.from, "%s", from);
    record_text(road->row.to, sizeof road->row.to, "%s", to);
    return road;
}

void record_text(char *out, size_t size, const char *format, ...)
{
    char whole[4 * WIRE_TEXT];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(whole, sizeof whole, format, args);
    va_end(args);
    if (length < 0)
        length = 0;
    if ((size_t)length >= sizeof whole)
        length = (int)sizeof whole - 1;
    text_harmless(whole, (size_t)length, out, size);
}

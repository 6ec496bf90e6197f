/* Events for people: folding of storms, the ring, and texts of strangers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "scheduler/events.h"
#include "ssh/base/clock.h"
#include "ssh/base/log.h"

static struct record *record;
static struct events *events;
static uint64_t now_ns;

static int set_up(void **state)
{
    (void)state;
    record = record_new();
    events = events_new(record);
    now_ns = 100 * CLOCK_SECOND;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    events_free(events);
    record_free(record);
    return 0;
}

static void add(const char *source, const char *code, enum event_level level, const char *text)
{
    struct wire_event_row row = {.level = (uint8_t)level, .step = 3};
    snprintf(row.source, sizeof row.source, "%s", source);
    snprintf(row.code, sizeof row.code, "%s", code);
    snprintf(row.text, sizeof row.text, "%s", text);
    events_add(events, &row, now_ns);
}

static const char *newest(void)
{
    return record_find_event(record, record->newest_event)->row.text;
}

static void a_storm_costs_one_row_a_second(void **state)
{
    (void)state;
    for (int i = 0; i < 1000; i++)
        add("r0s0", "refused", EVENT_WARN, "r0s7 is no process of the run");
    assert_int_equal(record->newest_event, 1);
    now_ns += CLOCK_SECOND / 2;
    events_tick(events, now_ns);
    assert_int_equal(record->newest_event, 1);
    now_ns += CLOCK_SECOND / 2;
    events_tick(events, now_ns);
    assert_int_equal(record->newest_event, 2);
    assert_string_equal(newest(), "999 more of these in 1.0 s, the newest: r0s7 is no process of the run");
    now_ns += 10 * CLOCK_SECOND;
    events_tick(events, now_ns);
    assert_int_equal(record->newest_event, 2);
    add("r0s0", "refused", EVENT_WARN, "r0s7 is no process of the run");
    assert_int_equal(record->newest_event, 3);
}

static void no_tick_is_needed(void **state)
{
    (void)state;
    for (int i = 0; i < 30; i++) {
        add("r0s0", "x", EVENT_INFO, "same");
        now_ns += CLOCK_SECOND / 10;
    }
    assert_int_equal(record->newest_event, 5); /* first, "9 more", first, "9 more", first */
}

static void different_news_is_shown(void **state)
{
    (void)state;
    add("r0s1", "peer-lost", EVENT_ALERT, "r0s0 is lost");
    add("r0s1", "peer-lost", EVENT_ALERT, "r0s2 is lost");
    add("r0s0", "peer-lost", EVENT_ALERT, "r0s1 is lost");
    add("r0s1", "drift", EVENT_ALERT, "r0s0 is lost");
    assert_int_equal(record->newest_event, 4);
    assert_true(record->urgent);
}

static void texts_that_differ_without_end_are_folded_too(void **state)
{
    (void)state;
    for (int i = 0; i < 100; i++) {
        char text[64];
        snprintf(text, sizeof text, "attempt %d", i);
        add("agent@a", "dial", i == 50 ? EVENT_ALERT : EVENT_INFO, text);
    }
    assert_int_equal(record->newest_event, 4);
    now_ns += CLOCK_SECOND;
    events_tick(events, now_ns);
    assert_string_equal(newest(), "96 more of these in 1.0 s, the newest: attempt 99");
    assert_int_equal(record_find_event(record, 5)->row.level, EVENT_ALERT); /* the worst one is not hidden */
}

static void many_sources_at_once(void **state)
{
    (void)state;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 200; i++) {
            char source[32];
            snprintf(source, sizeof source, "r%ds0", i);
            add(source, "x", EVENT_INFO, "news");
            add(source, "x", EVENT_INFO, "news");
        }
    }
    assert_true(record->newest_event >= 600); /* more than it can fold is shown rather than forgotten */
}

static void the_ring_keeps_the_newest(void **state)
{
    (void)state;
    for (int i = 0; i < RECORD_EVENTS + 10; i++) {
        now_ns += 2 * CLOCK_SECOND;
        add("r0s0", "x", EVENT_INFO, "news");
    }
    assert_int_equal(record->newest_event, RECORD_EVENTS + 10);
    assert_null(record_find_event(record, 10));
    assert_non_null(record_find_event(record, 11));
    assert_int_equal(record->state.row.newest_event, RECORD_EVENTS + 10);
}

static void texts_are_cut_between_characters(void **state)
{
    (void)state;
    char out[8];
    record_text(out, sizeof out, "aaaaaa€");
    assert_string_equal(out, "aaaaaa");
    record_text(out, sizeof out, "a\nb");
    assert_string_equal(out, "a\\x0ab");
    char longest[WIRE_TEXT], wide[6000];
    memset(wide, 0, sizeof wide);
    for (int i = 0; i + 3 < (int)sizeof wide; i += 3)
        memcpy(wide + i, "€", 3);
    record_text(longest, sizeof longest, "x%s", wide);
    assert_int_equal(strlen(longest), 1 + 132 * 3);
}

int main(void)
{
    log_set_level(LOG_ERROR);
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        TEST(a_storm_costs_one_row_a_second),
        TEST(no_tick_is_needed),
        TEST(different_news_is_shown),
        TEST(texts_that_differ_without_end_are_folded_too),
        TEST(many_sources_at_once),
        TEST(the_ring_keeps_the_newest),
        TEST(texts_are_cut_between_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

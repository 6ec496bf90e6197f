/* A window: text to read, or what a command says while it works, and its questions. */
#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "console/keys.h"
#include "console/window.h"
#include "ssh/base/mem.h"

static struct window window;

static int tear_down(void **state)
{
    (void)state;
    window_close(&window);
    return 0;
}

static void say(const char *words)
{
    window_take(&window, words, strlen(words), false);
}

/* Each line, and a bar behind it. */
static void assert_lines(const char *expected)
{
    char text[4096] = "";
    for (size_t i = 0; i < window.count; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s|", window.lines[i]);
    assert_string_equal(text, expected);
}

static enum window_end type(const char *words)
{
    for (; *words; words++)
        assert_int_equal(window_press(&window, (unsigned char)*words, ACT_NONE), WINDOW_STAYS);
    return window_press(&window, PRESS_ENTER, ACT_OPEN);
}

static bool shows(const char *words, int rows, int columns)
{
    struct surface surface;
    char *text = NULL;
    size_t bytes = 0;
    surface_init(&surface, rows, columns, false);
    window_draw(&window, &surface, (struct area){0, 0, rows, columns});
    FILE *out = open_memstream(&text, &bytes);
    surface_write(&surface, out);
    fclose(out);
    bool found = strstr(text, words);
    free(text);
    surface_clear(&surface);
    return found;
}

static void text_begins_at_its_beginning(void **state)
{
    (void)state;
    window_open(&window, "Plan", "one\ntwo\r\nthree");
    assert_lines("one|two|three|");
    assert_true(shows("one", 4, 40) && !shows("three", 4, 40) && shows("Plan", 4, 40));
    assert_int_equal(window_press(&window, 'j', ACT_DOWN), WINDOW_STAYS);
    assert_true(shows("three", 4, 40) && !shows("one", 4, 40));
    assert_int_equal(window_press(&window, PRESS_ENTER, ACT_OPEN), WINDOW_LEFT);
}

static void a_host_is_a_row(void **state)
{
    (void)state;
    window_open_running(&window, "kedge run", true);
    say("kedged is ready at 127.0.0.1:1\na: logs in\nb: logs in\na: sends programs\nagent@b is ready\nkedge: a is away\nkedge: b, too\n");
    assert_lines("kedged is ready at 127.0.0.1:1|a: sends programs|agent@b is ready|kedge: a is away|kedge: b, too|");
}

static void what_is_no_row_is_kept_in_order(void **state)
{
    (void)state;
    window_open_running(&window, "kedge check", false);
    say("a: good\na: good\n");
    assert_lines("a: good|a: good|");
}

/* A line without its end is a question; others speak in between; when it is answered, it has had its say. */
static void questions_are_answered(void **state)
{
    (void)state;
    window_open_running(&window, "kedge run", true);
    say("+--+\n|..|\na: logs in\nIs it that host? ");
    assert_true(window.prompt.open && shows("Is it that host?", 12, 60));
    say("\nb: logs in\nIs it that host? ");
    assert_lines("+--+||..||a: logs in|Is it that host? |b: logs in|");
    assert_int_equal(type("save"), WINDOW_ANSWERED);
    assert_string_equal(window.prompt.text, "save");
    window_forget_answer(&window);
    say("save\r\na: sends programs\n");
    assert_lines("a: sends programs|b: logs in|Is it that host? save|");
    assert_false(window.prompt.open);
}

static void secrets_are_not_shown_and_forgotten(void **state)
{
    (void)state;
    static const char secret[] = "hunter2";
    window_open_running(&window, "kedge run", true);
    window_take(&window, "password: ", 10, true);
    for (const char *c = secret; *c; c++)
        window_press(&window, (unsigned char)*c, ACT_NONE);
    assert_string_equal(window.prompt.text, secret);
    assert_false(shows(secret, 12, 60));
    assert_int_equal(window_press(&window, PRESS_ENTER, ACT_OPEN), WINDOW_ANSWERED);
    window_forget_answer(&window);
    assert_null(memmem(&window, sizeof window, secret, strlen(secret)));
}

/* A key that is cut cannot be compared. */
static void long_lines_are_broken(void **state)
{
    (void)state;
    window_open(&window, "Check", "the key of b is not known: sha256:ABCDEFGHIJKLMNOPQRSTUVWXYZ漢字abcdefghijklmnopqrstuvwxyz\nend");
    assert_true(shows("the key of b is not ", 10, 24) && shows("known: sha256:ABCDEF", 10, 24));
    assert_true(shows("uvwxyz", 10, 24) && shows("end", 10, 24));
    assert_false(shows("…", 10, 24));
}

static void esc_interrupts_then_closes(void **state)
{
    (void)state;
    window_open_running(&window, "kedge run", true);
    assert_int_equal(window_press(&window, PRESS_ENTER, ACT_OPEN), WINDOW_STAYS); /* nobody asked */
    assert_int_equal(window_press(&window, PRESS_ESCAPE, ACT_BACK), WINDOW_LEFT);
    say("half a li");
    window_over(&window);
    assert_lines("half a li|");
    assert_false(window.running || window.prompt.open);
    assert_int_equal(window_press(&window, PRESS_ESCAPE, ACT_BACK), WINDOW_LEFT);
}

/* However much is said: bounded lines, and the newest are there. */
static void it_is_bounded(void **state)
{
    (void)state;
    char line[64], longest[3 * WINDOW_LINE];
    window_open_running(&window, "kedge plan", false);
    for (int i = 0; i < 3 * WINDOW_LINES; i++) {
        int bytes = snprintf(line, sizeof line, "line %d\n", i);
        window_take(&window, line, (size_t)bytes, false);
    }
    assert_int_equal(window.count, WINDOW_LINES);
    assert_string_equal(window.lines[WINDOW_LINES - 1], "line 5999");
    assert_true(shows("line 5999", 10, 40));
    memset(longest, 'x', sizeof longest);
    window_take(&window, longest, sizeof longest, false);
    for (size_t i = 0; i < window.count; i++)
        assert_true(strlen(window.lines[i]) < WINDOW_LINE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_teardown(name, tear_down)
        TEST(text_begins_at_its_beginning), TEST(a_host_is_a_row), TEST(what_is_no_row_is_kept_in_order), TEST(questions_are_answered),
        TEST(secrets_are_not_shown_and_forgotten), TEST(long_lines_are_broken),
        TEST(esc_interrupts_then_closes), TEST(it_is_bounded),
    };
    setlocale(LC_CTYPE, "C.UTF-8");
    return cmocka_run_group_tests(tests, NULL, NULL);
}

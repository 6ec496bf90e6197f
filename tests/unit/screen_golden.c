/* Golden pictures of a made-up run, whole screens as text: tests/unit/fixtures/screen/VIEW-COLUMNSxROWS[-ascii].txt. What a change of code
 * does to them is seen in its diff; GOLDEN=1 in the environment writes them anew. */
#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "console/view.h"
#include "ssh/base/file.h"
#include "ssh/base/mem.h"
#include "tests/helpers/fleet.h"

static void compare(const char *name, const char *text)
{
    char path[200];
    uint8_t *golden;
    size_t bytes;
    struct why why = {0};
    snprintf(path, sizeof path, "tests/unit/fixtures/screen/%s.txt", name);
    if (getenv("GOLDEN"))
        assert_int_equal(file_write(path, text, strlen(text), 0644, NULL), 0);
    if (file_read(path, 1 << 20, &golden, &bytes, &why) != 0)
        fail_msg("%s", why.text);
    if (strcmp((char *)golden, text) != 0)
        fail_msg("%s is another picture now; if it shall be, GOLDEN=1 writes it anew:\n%s", path, text);
    mem_free(golden);
}

/* Lists that the screen fetches from this machine. */
static void fill_lists(struct view *view)
{
    static const char *const profiles[] = {"./reef.ini", "/home/ada/.config/kedge/sea.ini", "profiles/laptop.ini"};
    static const struct view_run runs[] = {
        {"sea", true, FLEET_WALL - 2000}, {"reef", false, FLEET_WALL - 90000}, {"old", false, FLEET_WALL - 90000000}};
    view->run_count = sizeof runs / sizeof *runs;
    view->runs = mem_array(view->run_count, sizeof *view->runs);
    memcpy(view->runs, runs, sizeof runs);
    view->profile_count = sizeof profiles / sizeof *profiles;
    view->profiles = mem_array(view->profile_count, sizeof *view->profiles);
    for (size_t i = 0; i < view->profile_count; i++)
        view->profiles[i] = mem_text(profiles[i]);
}

/* In four sizes, in both character sets. */
static void compare_all(struct view *view, const char *name)
{
    static const struct { int rows, columns; } sizes[] = {{24, 80}, {40, 120}, {50, 200}, {16, 60}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int ascii = 0; ascii < 2; ascii++) {
            char path[80];
            char *text = fleet_text(view, sizes[i].rows, sizes[i].columns, ascii);
            snprintf(path, sizeof path, "%s-%dx%d%s", name, sizes[i].columns, sizes[i].rows, ascii ? "-ascii" : "");
            compare(path, text);
            for (const char *c = text; ascii && *c; c++)
                assert_true((unsigned char)*c < 127);
            mem_free(text);
        }
}

static void pictures(void **unused)
{
    struct view view;
    (void)unused;
    fleet_view(&view, 8, 4, 60);
    fill_lists(&view);
    for (int panel = 0; panel < PANEL_COUNT; panel++) {
        view.panel = (enum panel)panel;
        compare_all(&view, keys_panel_name((enum panel)panel));
    }
    view_clear(&view);
}

/* A launch under way: a row for each host, and a question. */
static void a_launch(void **unused)
{
    static const char words[] = "kedged is ready at 127.0.0.1:4000\na: logging in\nb: logging in\na: sending programs, 12 MiB of 53.7 MiB\n"
                                "agent@c is ready\nthe key of b (192.0.2.7:22) is not known: ssh-ed25519 sha256:PR7EMgUYpkJa\n"
                                "Is it that host? [o]nce, [s]ave, anything else refuses: ";
    struct view view;
    (void)unused;
    fleet_view(&view, 8, 4, 60);
    fill_lists(&view);
    view.panel = PANEL_PROFILES;
    window_open_running(&view.window, "kedge run sea.ini", true);
    window_take(&view.window, words, strlen(words), false);
    fleet_press(&view, "s");
    compare_all(&view, "over-launch");
    view_clear(&view);
}

/* Rounds in place of snapshots (anchor.follow): the panel says what travels. */
static void an_anchor_that_follows(void **unused)
{
    struct view view;
    (void)unused;
    fleet_view(&view, 8, 4, 60);
    fill_lists(&view);
    struct wire_anchor_row row = view.state.anchor;
    row.follows = 1;
    view_apply(&view, WIRE_ANCHOR_ROW, &row, view.now_ns);
    view.panel = PANEL_ANCHOR;
    compare_all(&view, "Anchor-follows");
    view_clear(&view);
}

static void what_lies_over(void **unused)
{
    static const struct { const char *name, *keys; } overs[] = {
        {"over-help", "2 ?"}, {"over-stop", "1 S"}, {"over-kill", "1 K s e"}, {"over-filter", "6 / r 0"},
    };
    (void)unused;
    for (size_t i = 0; i < sizeof overs / sizeof *overs; i++) {
        struct view view;
        fleet_view(&view, 8, 4, 60);
        fleet_press(&view, overs[i].keys);
        char *text = fleet_text(&view, 24, 80, false);
        compare(overs[i].name, text);
        mem_free(text);
        view_clear(&view);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(pictures), cmocka_unit_test(a_launch), cmocka_unit_test(an_anchor_that_follows),
                                       cmocka_unit_test(what_lies_over)};
    setlocale(LC_CTYPE, "C.UTF-8");
    setenv("TZ", "UTC", 1);
    tzset();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

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

static void pictures(void **unused)
{
    static const struct { int rows, columns; } sizes[] = {{24, 80}, {40, 120}, {50, 200}, {16, 60}};
    struct view view;
    (void)unused;
    fleet_view(&view, 8, 4, 60);
    for (int panel = PANEL_RUN; panel < PANEL_PROFILES; panel++) {
        if (panel == PANEL_KNOBS) /* whose texts are the settings table's */
            continue;
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            for (int ascii = 0; ascii < 2; ascii++) {
                char name[80];
                view.panel = (enum panel)panel;
                char *text = fleet_text(&view, sizes[i].rows, sizes[i].columns, ascii);
                snprintf(name, sizeof name, "%s-%dx%d%s", keys_panel_name((enum panel)panel), sizes[i].columns, sizes[i].rows,
                         ascii ? "-ascii" : "");
                compare(name, text);
                for (const char *c = text; ascii && *c; c++)
                    assert_true((unsigned char)*c < 127);
                mem_free(text);
            }
    }
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(pictures), cmocka_unit_test(what_lies_over)};
    setlocale(LC_CTYPE, "C.UTF-8");
    setenv("TZ", "UTC", 1);
    tzset();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

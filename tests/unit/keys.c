/* The table of keys: no press means two things, every act is done by somebody, the manual page has the table. */
#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "console/keys.h"
#include "ssh/base/file.h"
#include "ssh/base/mem.h"
#include "tests/helpers/fleet.h"

static void no_press_means_two_things(void **unused)
{
    size_t count;
    const struct key *keys = keys_all(&count);
    (void)unused;
    for (size_t i = 0; i < count; i++) {
        assert_true(keys[i].presses[0] && keys[i].panels && keys[i].shown[0]);
        assert_true(keys[i].help[strlen(keys[i].help) - 1] != '.');
        for (size_t p = 0; p < 4 && keys[i].presses[p]; p++)
            for (int panel = 0; panel < PANEL_COUNT; panel++)
                if (keys[i].panels & ON(panel))
                    assert_ptr_equal(keys_find((enum panel)panel, keys[i].presses[p]), &keys[i]);
    }
}

static void flow_control_and_prefixes_are_left_alone(void **unused)
{
    (void)unused;
    for (int panel = 0; panel < PANEL_COUNT; panel++) /* Ctrl-S, Ctrl-Q: the terminal's; Ctrl-B, Ctrl-A: tmux's and screen's */
        for (const char *letter = "sqba"; *letter; letter++)
            assert_null(keys_find((enum panel)panel, PRESS_CONTROL((unsigned)*letter)));
}

/* A key that is in the help and does nothing would be a lie: each makes something that can be seen, or wishes something. */
static void every_act_is_done(void **unused)
{
    size_t count;
    const struct key *keys = keys_all(&count);
    (void)unused;
    for (size_t i = 0; i < count; i++)
        for (int panel = PANEL_RUN; panel < PANEL_COUNT; panel++) {
            struct view view;
            if (!(keys[i].panels & ON(panel)))
                continue;
            fleet_view(&view, 8, 4, 5);
            view.panel = (enum panel)panel;
            if (!view_press(&view, keys[i].presses[0], FLEET_NOW))
                fail_msg("'%s' does nothing on %s", keys[i].shown, keys_panel_name((enum panel)panel));
            view_clear(&view);
        }
}

static void letters_that_change_a_run_are_capitals(void **unused)
{
    size_t count;
    const struct key *keys = keys_all(&count);
    (void)unused;
    for (size_t i = 0; i < count; i++)
        if (keys[i].act == ACT_PAUSE || keys[i].act == ACT_STOP || keys[i].act == ACT_KILL || keys[i].act == ACT_CHECKPOINT)
            assert_true(keys[i].changes && isupper((int)keys[i].presses[0]) && !keys[i].presses[1]);
}

static void manual_page_has_the_table(void **unused)
{
    uint8_t *page;
    size_t bytes;
    char *list;
    struct why why = {0};
    (void)unused;
    if (file_read("man/kedge.1", 1 << 20, &page, &bytes, &why) != 0)
        fail_msg("%s", why.text);
    FILE *out = open_memstream(&list, &bytes);
    keys_print_mdoc(out);
    fclose(out);
    if (!strstr((char *)page, list)) {
        fprintf(stderr, "%s", list);
        fail_msg("the section KEYS of man/kedge.1 is not that of the table, which is printed above");
    }
    free(list);
    mem_free(page);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_press_means_two_things), cmocka_unit_test(flow_control_and_prefixes_are_left_alone),
        cmocka_unit_test(every_act_is_done), cmocka_unit_test(letters_that_change_a_run_are_capitals),
        cmocka_unit_test(manual_page_has_the_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

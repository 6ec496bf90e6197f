/* A profile as a form: every setting has a row, a wrong value changes nothing, the diff says what will be written, comments stay. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "console/form.h"
#include "console/shelf.h"
#include "ssh/base/file.h"
#include "ssh/base/mem.h"
#include "tests/helpers/fleet.h"

static const char text[] = "# mine\n[run]\nsteps = 10 # few\n[data]\npath = tests/run.sh\n[host a]\nkind = local\n[host b]\nkind = local\n";

static char *path_of_profile(void)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/form.ini", getenv("TMP") ? getenv("TMP") : "/tmp");
    assert_int_equal(file_write(path, text, sizeof text - 1, 0600, NULL), 0);
    return path;
}

static size_t find_row(const struct form *form, const char *name)
{
    for (size_t i = 0; i < form->count; i++)
        if (strcmp(form->rows[i].name, name) == 0)
            return i;
    fail_msg("there is no row %s", name);
    return 0;
}

static void every_setting_has_a_row(void **unused)
{
    struct form form = {.count = 0};
    char *complaints;
    size_t count, rows = 0;
    const struct field *fields = field_all(&count);
    (void)unused;
    assert_int_equal(shelf_open(&form, path_of_profile(), &complaints, NULL), 0);
    assert_string_equal(complaints, "");
    for (size_t i = 0; i < count; i++)
        rows += field_is_host(&fields[i]) ? 2 : 1; /* two hosts */
    assert_int_equal(form.count, rows);
    assert_true(form.rows[find_row(&form, "run.steps")].given);
    assert_false(form.rows[find_row(&form, "run.seed")].given);
    assert_string_equal(form.rows[find_row(&form, "host.b.kind")].value, "local");
    mem_free(complaints);
    form_clear(&form);
    unlink(path_of_profile());
}

static void changes_are_written_and_comments_stay(void **unused)
{
    struct form form = {.count = 0};
    struct why why = {0};
    char *complaints, *path = path_of_profile();
    uint8_t *now;
    size_t bytes;
    (void)unused;
    assert_int_equal(shelf_open(&form, path, &complaints, NULL), 0);
    assert_int_equal(form_set(&form, find_row(&form, "run.steps"), "many", &why), ERR_INVALID);
    assert_non_null(strstr(why.text, "run.steps"));
    assert_int_equal(form_changes(&form), 0);
    assert_int_equal(form_set(&form, find_row(&form, "run.steps"), "20", NULL), 0);
    assert_int_equal(form_set(&form, find_row(&form, "host.b.threads"), "3", NULL), 0);
    assert_int_equal(form_changes(&form), 2);
    char *diff = form_diff(&form);
    assert_string_equal(diff, "- run.steps = 10\n+ run.steps = 20\n- host.b.threads = 0\n+ host.b.threads = 3\n");
    assert_int_equal(shelf_write(&form, NULL), 0);
    assert_int_equal(form_changes(&form), 0);
    assert_int_equal(file_read(path, 4096, &now, &bytes, NULL), 0);
    assert_string_equal((char *)now, "# mine\n[run]\nsteps = 20 # few\n[data]\npath = tests/run.sh\n[host a]\nkind = local\n[host b]\nkind = local\n"
                                     "threads = 3\n");
    mem_free(now);
    mem_free(diff);
    mem_free(complaints);
    form_clear(&form);
    unlink(path);
}

static void the_panel_asks_before_it_writes(void **unused)
{
    struct view view;
    struct wish wish;
    char *complaints, *path = path_of_profile();
    (void)unused;
    fleet_view(&view, 4, 4, 3);
    fleet_press(&view, "7");
    assert_true(view_take(&view, &wish));
    assert_int_equal(wish.kind, WISH_PROFILES);
    assert_int_equal(shelf_open(&view.form, path, &complaints, NULL), 0);
    fleet_press(&view, "W"); /* nothing was changed */
    assert_int_equal(view.dialog.kind, DIALOG_NONE);
    view.form_place.selected = (int)find_row(&view.form, "run.steps");
    fleet_press(&view, "Enter x");
    char *shown = fleet_text(&view, 24, 80, false);
    assert_non_null(strstr(shown, "run.steps")); /* what is wrong stands beside the field while it is typed */
    assert_non_null(strstr(shown, "10x"));
    mem_free(shown);
    fleet_press(&view, "Enter");
    assert_int_equal(form_changes(&view.form), 0);
    fleet_press(&view, "Enter 0 Enter W");
    assert_int_equal(view.dialog.kind, DIALOG_ASK);
    assert_non_null(strstr(view.dialog.text, "+ run.steps = 100"));
    fleet_press(&view, "Enter"); /* Cancel */
    assert_false(view_take(&view, &wish));
    fleet_press(&view, "L"); /* not with changes that are only here */
    assert_int_equal(view.dialog.kind, DIALOG_NONE);
    fleet_press(&view, "W y");
    assert_true(view_take(&view, &wish));
    assert_int_equal(wish.kind, WISH_WRITE_PROFILE);
    fleet_press(&view, "Esc");
    assert_int_equal(view.dialog.kind, DIALOG_ASK); /* leaving with changes asks */
    mem_free(complaints);
    view_clear(&view);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_setting_has_a_row), cmocka_unit_test(changes_are_written_and_comments_stay),
        cmocka_unit_test(the_panel_asks_before_it_writes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

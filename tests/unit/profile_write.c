/* Changing one value keeps every other byte, whatever the style of the file; and what was written is read back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "profiles/fields.h"
#include "profiles/profile.h"
#include "ssh/base/file.h"
#include "ssh/base/mem.h"
#include "tests/helpers/dice.h"
#include "tests/helpers/place.h"

static struct place place;
static struct profile profile, other;

static void put_file(const char *path, const char *text, mode_t mode)
{
    assert_int_equal(file_write(path, text, strlen(text), mode, NULL), 0);
}

static void check_file(const char *path, const char *expected)
{
    uint8_t *bytes;
    size_t count;
    assert_int_equal(file_read(path, 1 << 22, &bytes, &count, NULL), 0);
    assert_string_equal((const char *)bytes, expected);
    assert_int_equal(count, strlen(expected));
    mem_free(bytes);
}

static void every_other_byte_stays(void **state)
{
    (void)state;
    static const struct {
        const char *name, *value, *before, *after;
    } rows[] = {
        {"mask.rate", "0.9", "[mask]\nrate = 0.95\n", "[mask]\nrate = 0.9\n"},
        {"mask.rate", "0.9", "[mask]\nrate=0.95", "[mask]\nrate=0.9"},
        {"mask.rate", "0.9", "\xef\xbb\xbf[mask]\r\n  rate :\t0.95  ; why\r\n# end\r\n",
         "\xef\xbb\xbf[mask]\r\n  rate :\t0.9  ; why\r\n# end\r\n"},
        {"mask.rate", "0.9", "[mask]\nrate =\n", "[mask]\nrate = 0.9\n"},
        {"mask.rate", "0.9", "[mask]\nrate =   # unset\n", "[mask]\nrate = 0.9   # unset\n"},
        {"mask.rate", "0.9", "[mask]\n#rate = 0.5\nrate = 0.95 # a = b\n; rate = 0.1\n",
         "[mask]\n#rate = 0.5\nrate = 0.9 # a = b\n; rate = 0.1\n"},
        {"mask.rate", "0.9", "[run]\nrate = 1\n[ mask ]\nrate_ = 2\nrate = 3\n[run]\nrate = 4\n",
         "[run]\nrate = 1\n[ mask ]\nrate_ = 2\nrate = 0.9\n[run]\nrate = 4\n"},
        /* not there: at the end of its section, before what belongs to the next one */
        {"run.steps", "9", "[run]\nseed = 1 # one\n\n# about the mask\n[mask]\n",
         "[run]\nseed = 1 # one\nsteps = 9\n\n# about the mask\n[mask]\n"},
        {"run.steps", "9", "[mask]\r\n[run]\r\nseed = 1\r\n", "[mask]\r\n[run]\r\nseed = 1\r\nsteps = 9\r\n"},
        {"run.steps", "9", "[run]\nseed = 1", "[run]\nseed = 1\nsteps = 9"},
        {"run.steps", "9", "[run]", "[run]\nsteps = 9"},
        {"run.steps", "9", "[run]\nname = a\n[mask]\n[run]\nseed = 1\n",
         "[run]\nname = a\n[mask]\n[run]\nseed = 1\nsteps = 9\n"},
        {"run.steps", "9", "[data]\npath = a\n  b\n\n[run]\n\n", "[data]\npath = a\n  b\n\n[run]\nsteps = 9\n\n"},
        /* no such section: at the end of the file */
        {"mask.rate", "0.9", "", "[mask]\nrate = 0.9\n"},
        {"mask.rate", "0.9", "# empty", "# empty\n\n[mask]\nrate = 0.9\n"},
        {"mask.rate", "0.9", "[run]\r\nseed = 1\r\n", "[run]\r\nseed = 1\r\n\r\n[mask]\r\nrate = 0.9\r\n"},
        {"host.a.listen", "x:1", "[host b]\nlisten = y:1\n", "[host b]\nlisten = y:1\n\n[host a]\nlisten = x:1\n"},
        /* hosts, whose names may have dots */
        {"host.a.listen", "x:1", "[host a.listen]\nlisten = y:1\n[host\t a ]\nlisten = z:1\n",
         "[host a.listen]\nlisten = y:1\n[host\t a ]\nlisten = x:1\n"},
        {"host.a.b.listen", "x:1", "[host a]\nlisten = y:1\n[host a.b]\nlisten = z:1\n",
         "[host a]\nlisten = y:1\n[host a.b]\nlisten = x:1\n"},
        /* continuations go, their comments stay, what is between stays */
        {"data.path", "/z", "[data]\npath = /a\n  /b\n\n# two\n  /c ; three\n  /d\nvalidation = 0.1\n",
         "[data]\npath = /z\n\n# two\n ; three\nvalidation = 0.1\n"},
        {"data.path", "/z", "[data]\npath =\n  /b\n  /c", "[data]\npath = /z\n"},
        {"data.path", "/z /y", "[data]\n path = /a\n\n[run]\n", "[data]\n path = /z /y\n\n[run]\n"},
        {"run.name", "", "[run]\nname = a # b\n", "[run]\nname =  # b\n"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct why why = {0};
        const char *path = place_file(&place, "a.ini");
        put_file(path, rows[i].before, 0640);
        if (profile_write_value(path, rows[i].name, rows[i].value, &why))
            fail_msg("%s", why.text);
        check_file(path, rows[i].after);
    }
    assert_int_equal(place_count(&place), 1);
}

static void what_cannot_be_written_changes_nothing(void **state)
{
    (void)state;
    static const struct {
        const char *name, *value;
    } rows[] = {
        {"mask.rate", "2"},         {"mask.rate", "x"},         {"mask.rte", "0.9"},           {"data.path", "a #b"},
        {"data.path", ";a"},        {"data.path", "a\n[mask]"}, {"host.listen", "x:1"},        {"host.a b.listen", "x:1"},
        {"run.name", "a\nb = c"},   {"mask.rate\nx", "0.9"},    {"mask.rate=0.9\nrun", "0.9"}, {"", ""},
    };
    const char *text = "[mask]\nrate = 0.5\n";
    const char *path = place_file(&place, "a.ini");
    put_file(path, text, 0640);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct why why = {0};
        if (profile_write_value(path, rows[i].name, rows[i].value, &why) == 0)
            fail_msg("%s = %s was taken", rows[i].name, rows[i].value);
        assert_true(why.text[0] != '\0');
        check_file(path, text);
    }
    assert_int_equal(profile_write_value("/nowhere/a.ini", "mask.rate", "0.5", NULL), ERR_ABSENT);
}

static void mode_and_link_stay(void **state)
{
    (void)state;
    char path[600], link[600];
    struct stat status;
    snprintf(path, sizeof path, "%s", place_file(&place, "a.ini"));
    snprintf(link, sizeof link, "%s", place_file(&place, "link.ini"));
    put_file(path, "[mask]\nrate = 0.5\n", 0640);
    assert_int_equal(symlink(path, link), 0);
    assert_int_equal(profile_write_value(link, "mask.rate", "0.25", NULL), 0);
    check_file(path, "[mask]\nrate = 0.25\n");
    assert_int_equal(lstat(link, &status), 0);
    assert_true(S_ISLNK(status.st_mode));
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_mode & 07777, 0640);
    unlink(link);
}

static void read_back(const char *path)
{
    struct complaints complaints;
    complaints_init(&complaints);
    profile_defaults(&other);
    if (profile_read(path, &other, &complaints, NULL, 0))
        fail_msg("%.*s", (int)buf_used(&complaints.lines), (const char *)buf_peek(&complaints.lines));
    complaints_clear(&complaints);
}

/* One row after the other into the commented template: each reads back, and the lines that were there keep their comments.
 */
static void each_row_reads_back(void **state)
{
    (void)state;
    size_t count, bytes;
    uint8_t *text;
    const struct field *rows = field_all(&count);
    char path[600];
    snprintf(path, sizeof path, "%s", place_file(&place, "a.ini"));
    assert_int_equal(file_read("profiles/laptop.ini", 1 << 20, &text, &bytes, NULL), 0);
    put_file(path, (const char *)text, 0600);
    for (size_t i = 0; i < count; i++) {
        char name[100], value[300], got[PROFILE_PATHS];
        struct why why = {0};
        if (field_is_host(&rows[i]))
            snprintf(name, sizeof name, "host.b.%s", rows[i].key);
        else
            field_name(&rows[i], name, sizeof name);
        if (rows[i].type == FIELD_TEXT)
            snprintf(value, sizeof value, "/x/y:1#;=[a]");
        else if (rows[i].type == FIELD_BOOL)
            snprintf(value, sizeof value, "yes");
        else if (rows[i].type == FIELD_CHOICE)
            snprintf(value, sizeof value, "%s", rows[i].choices[rows[i].choices[1] ? 1 : 0]);
        else
            snprintf(value, sizeof value, "%s%s",
                     rows[i].maximum == 0.999     ? "0.5"
                     : rows[i].type == FIELD_REAL ? "0.003"
                     : rows[i].maximum < 64       ? "7"
                                                  : "64",
                     rows[i].type == FIELD_RATE       ? "Mbit"
                     : rows[i].type == FIELD_DURATION ? "s"
                                                      : "");
        if (rows[i].type == FIELD_DURATION && rows[i].maximum < 64e9)
            snprintf(value, sizeof value, "5ms");
        if (rows[i].type == FIELD_TIME)
            snprintf(value, sizeof value, "2026-12-01T08:00:00Z");
        if (rows[i].minimum == 1 && rows[i].type == FIELD_REAL)
            snprintf(value, sizeof value, "500000");
        if (profile_write_value(path, name, value, &why))
            fail_msg("%s", why.text);
        read_back(path);
        assert_int_equal(profile_get(&other, name, got, sizeof got, NULL), 0);
        assert_string_equal(got, value);
    }
    uint8_t *after;
    assert_int_equal(file_read(path, 1 << 20, &after, &bytes, NULL), 0);
    for (char *rest = NULL, *line = strtok_r((char *)text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
        if (line[0] == '#' || line[0] == '[')
            assert_non_null(strstr((const char *)after, line));
    mem_free(after);
    mem_free(text);
}

/* The copy in the run's folder has another name and is read by programs in other folders: it must say what was decided. */
static void a_copy_means_the_same(void **state)
{
    (void)state;
    char from[600], to[600];
    struct complaints complaints;
    struct buf one, two;
    complaints_init(&complaints);
    snprintf(from, sizeof from, "%s", place_file(&place, "mine.ini"));
    snprintf(to, sizeof to, "%s", place_file(&place, "run.ini"));
    put_file(from, "# keep me\n[data]\npath = README.md # and me\n[mask]\nrate = 0.5\n[host a]\n", 0644);
    assert_int_equal(profile_read(from, &profile, &complaints, NULL, 0), 0);
    assert_int_equal(profile_set(&profile, "model.layers", "12", NULL), 0);
    assert_int_equal(profile_set(&profile, "host.a.threads", "3", NULL), 0);
    assert_int_equal(profile_copy(from, &profile, to, NULL), 0);
    read_back(to);
    assert_string_equal(other.name, "mine");
    assert_int_equal(other.layers, 12);
    buf_init(&one, PROFILE_SETTINGS_BYTES);
    buf_init(&two, PROFILE_SETTINGS_BYTES);
    assert_int_equal(profile_to_settings(&profile, &one, NULL), 0);
    assert_int_equal(profile_to_settings(&other, &two, NULL), 0);
    assert_int_equal(buf_used(&one), buf_used(&two));
    assert_memory_equal(buf_peek(&one), buf_peek(&two), buf_used(&one));
    assert_true(profile_hash(&profile) == profile_hash(&other));

    uint8_t *text;
    size_t bytes;
    struct stat status;
    assert_int_equal(file_read(to, 1 << 20, &text, &bytes, NULL), 0);
    assert_non_null(strstr((const char *)text, "# keep me\n"));
    assert_non_null(strstr((const char *)text, " # and me\n"));
    assert_int_equal(stat(to, &status), 0);
    assert_int_equal(status.st_mode & 07777, 0600);
    mem_free(text);
    buf_clear(&one);
    buf_clear(&two);
    complaints_clear(&complaints);
}

/* Random texts: writing succeeds, and all lines but one stay in place. */
static void random_texts(void **state)
{
    (void)state;
    struct dice dice = {31};
    static const char *const lines[] = {"[mask]",   "rate = 0.5", "  rate=0.1 # x", "what",         "",     "# c",   "[run]",
                                        "seed = 4", "[host a]",   "  more",         "kind = local", "\xff", "[mask", "rate"};
    const char *path = place_file(&place, "a.ini");
    for (int round = 0; round < 300; round++) {
        char text[2000];
        struct why why = {0};
        size_t used = 0;
        text[0] = '\0';
        for (uint64_t i = dice_below(&dice, 20); i > 0; i--)
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%s",
                                     lines[dice_below(&dice, sizeof lines / sizeof *lines)],
                                     dice_below(&dice, 4) ? "\n" : "\r\n");
        put_file(path, text, 0600);
        if (profile_write_value(path, "run.steps", "77", &why))
            fail_msg("%s", why.text);
        uint8_t *after;
        size_t bytes;
        assert_int_equal(file_read(path, 1 << 20, &after, &bytes, NULL), 0);
        char *found = strstr((char *)after, "steps = 77");
        assert_non_null(found);
        char *line = found;
        size_t skip = strcspn(line, "\n") + 1;
        if (strstr(text, "[run]")) { /* without that line it is the old text */
            memmove(line, line + skip, strlen(line + skip) + 1);
            assert_string_equal((char *)after, text);
        } else {
            assert_memory_equal(after, text, used);
        }
        mem_free(after);
    }
}

static int set_up(void **state)
{
    (void)state;
    return place_init(&place);
}

static int tear_down(void **state)
{
    (void)state;
    place_clear(&place);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_other_byte_stays), cmocka_unit_test(what_cannot_be_written_changes_nothing),
        cmocka_unit_test(mode_and_link_stay),     cmocka_unit_test(each_row_reads_back),
        cmocka_unit_test(a_copy_means_the_same),  cmocka_unit_test(random_texts),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

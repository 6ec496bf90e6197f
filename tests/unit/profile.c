/* Reading and checking profiles: the templates are good, every file in profiles/bad is refused with exactly the complaints
 * that it says, and what a file leaves open is filled in as promised. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "profiles/fields.h"
#include "profiles/profile.h"
#include "ssh/base/file.h"
#include "ssh/base/mem.h"
#include "tests/helpers/place.h"

static struct place place;
static struct profile profile;
static struct complaints complaints;

static const char *lines_of(struct complaints *from)
{
    buf_put(&from->lines, "", 1);
    return (const char *)buf_peek(&from->lines);
}

/* As `kedge check` does: what the reader finds, and only then what the checks find. */
static void read_and_check(const char *path)
{
    complaints_clear(&complaints);
    complaints_init(&complaints);
    int err = profile_read(path, &profile, &complaints, NULL, 0);
    assert_int_equal(err != 0, complaints.count != 0);
    if (err == 0) {
        err = profile_check(&profile, path, &complaints);
        assert_int_equal(err != 0, complaints.count != 0);
    }
}

static void read_text(const char *text)
{
    const char *path = place_file(&place, "test.ini");
    assert_int_equal(file_write(path, text, strlen(text), 0600, NULL), 0);
    read_and_check(path);
}

/* The lines "# expect: 7: text" at the file's beginning → "PATH:7: text\n…". */
static void expected_lines(const char *path, char *out, size_t size, int *count)
{
    FILE *file = fopen(path, "r");
    char line[1000];
    size_t used = 0;
    assert_non_null(file);
    *count = 0;
    while (fgets(line, sizeof line, file) && strncmp(line, "# expect: ", 10) == 0) {
        const char *text = line + 10, *colon = strchr(text, ':');
        bool numbered = colon && strspn(text, "0123456789") == (size_t)(colon - text);
        used += (size_t)snprintf(out + used, size - used, "%s:%s%s", path, numbered ? "" : " ", text);
        assert_true(used < size);
        (*count)++;
    }
    fclose(file);
}

static void bad_profiles_say_what_they_expect(void **state)
{
    (void)state;
    DIR *folder = opendir("profiles/bad");
    struct dirent *entry;
    int seen = 0;
    assert_non_null(folder);
    while ((entry = readdir(folder))) {
        char path[300], expected[4000];
        int count;
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "profiles/bad/%s", entry->d_name);
        expected_lines(path, expected, sizeof expected, &count);
        if (count == 0)
            fail_msg("%s does not say what it expects", path);
        read_and_check(path);
        assert_string_equal(lines_of(&complaints), expected);
        assert_int_equal(complaints.count, count);
        seen++;
    }
    closedir(folder);
    assert_true(seen > 40);
}

/* Templates must hold anywhere: only their data may be missing here. */
static void templates_are_good(void **state)
{
    (void)state;
    DIR *folder = opendir("profiles");
    struct dirent *entry;
    int seen = 0;
    assert_non_null(folder);
    while ((entry = readdir(folder))) {
        char path[300];
        size_t length = strlen(entry->d_name);
        if (length < 4 || strcmp(entry->d_name + length - 4, ".ini") != 0)
            continue;
        snprintf(path, sizeof path, "profiles/%s", entry->d_name);
        complaints_clear(&complaints);
        complaints_init(&complaints);
        if (profile_read(path, &profile, &complaints, NULL, 0))
            fail_msg("%s", lines_of(&complaints));
        snprintf(profile.data_paths, sizeof profile.data_paths, "/proc/self/exe");
        if (profile_check(&profile, path, &complaints))
            fail_msg("%s", lines_of(&complaints));
        seen++;
    }
    closedir(folder);
    assert_true(seen >= 1);
}

static void what_is_left_open(void **state)
{
    (void)state;
    char here[PROFILE_TEXT], expected[3 * PROFILE_TEXT];
    assert_non_null(getcwd(here, sizeof here));
    read_text("[data]\npath = README.md /etc/passwd\n  README.md\n");
    assert_string_equal(lines_of(&complaints), "");
    assert_string_equal(profile.name, "test");
    assert_int_equal(profile.host_count, 1);
    assert_string_equal(profile.hosts[0].name, "local");
    assert_string_equal(profile.hosts[0].listen, "127.0.0.1:0");
    snprintf(expected, sizeof expected, "%s/README.md /etc/passwd %s/README.md", here, here);
    assert_string_equal(profile.data_paths, expected);
    assert_int_equal(profile_line(&profile, "data.path"), 2);
    assert_int_equal(profile_line(&profile, "mask.rate"), 0);
    assert_int_equal(profile_set(&profile, "mask.rate", "0.5", NULL), 0);
    assert_int_equal(profile_line(&profile, "mask.rate"), PROFILE_SET);

    setenv("HOME", "/etc", 1);
    read_text("[data]\npath = ~/passwd\n[host one]\n[host t-w.o_2]\nuplink = 200Mbit\n");
    assert_string_equal(lines_of(&complaints), "");
    assert_string_equal(profile.data_paths, "/etc/passwd");
    assert_int_equal(profile.host_count, 2);
    assert_string_equal(profile.hosts[1].name, "t-w.o_2");
    assert_true(profile.hosts[1].uplink_bps == 200000000);
    assert_int_equal(profile_line(&profile, "host.t-w.o_2.uplink"), 5);
    assert_int_equal(profile_line(&profile, "host.one.uplink"), 0);
}

/* A shape from a checkpoint is checked when it is known, not before. */
static void the_shape_of_a_checkpoint(void **state)
{
    (void)state;
    char folder[300], config[400], text[1000];
    snprintf(folder, sizeof folder, "%s", place_file(&place, "model"));
    snprintf(config, sizeof config, "%s/config.json", folder);
    assert_int_equal(mkdir(folder, 0700), 0);
    assert_int_equal(file_write(config, "{}", 2, 0600, NULL), 0);
    snprintf(text, sizeof text, "[data]\npath = /etc/passwd\n[model]\npath = %s\n[pipeline]\nstages = 8\n", folder);
    read_text(text);
    assert_string_equal(lines_of(&complaints), ""); /* 8 stages, and 6 layers are only the default */
    assert_int_equal(profile_set(&profile, "model.layers", "4", NULL), 0);
    complaints_clear(&complaints);
    complaints_init(&complaints);
    assert_int_equal(profile_check(&profile, "x.ini", &complaints), ERR_INVALID);
    assert_string_equal(lines_of(&complaints), "x.ini:6: pipeline.stages = 8 is more than the 4 layers of the model\n");
    remove(config);
    rmdir(folder);
}

static void addresses(void **state)
{
    (void)state;
    static const char *const good[] = {"127.0.0.1:0", "example.org:65535", "[::1]:41", "0.0.0.0:1"};
    static const char *const bad[] = {"",      ":",     ":1",   "a",     "a:",    "a:b",   "a:-1",   "a:65536",
                                      "a:1:2", "::1:2", "[]:1", "[::1]", "a b:1", "a/b:1", "[::1:1", "a:1 "};
    read_text("[data]\npath = /etc/passwd\n");
    for (size_t i = 0; i < sizeof good / sizeof *good + sizeof bad / sizeof *bad; i++) {
        bool is_good = i < sizeof good / sizeof *good;
        complaints_clear(&complaints);
        complaints_init(&complaints);
        snprintf(profile.listen, sizeof profile.listen, "%s", is_good ? good[i] : bad[i - sizeof good / sizeof *good]);
        if (profile_check(&profile, "x", &complaints) != (is_good ? 0 : ERR_INVALID))
            fail_msg("%s", profile.listen);
    }
}

static void where_profiles_are_found(void **state)
{
    (void)state;
    char folder[400], file[500], found[600];
    struct why why = {0};
    snprintf(folder, sizeof folder, "%s", place_file(&place, "config/kedge"));
    snprintf(file, sizeof file, "%s/mine.ini", folder);
    assert_int_equal(file_make_folders(folder, 0700, NULL), 0);
    assert_int_equal(file_write(file, "", 0, 0600, NULL), 0);
    setenv("XDG_CONFIG_HOME", place_file(&place, "config"), 1);
    assert_int_equal(profile_find("mine", found, sizeof found, &why), 0);
    assert_string_equal(found, file);
    assert_int_equal(profile_find("mine.ini", found, sizeof found, &why), 0);
    assert_string_equal(found, file);
    assert_int_equal(profile_find("laptop", found, sizeof found, &why), 0);
    assert_string_equal(found, "profiles/laptop.ini");
    assert_int_equal(profile_find("./README.md", found, sizeof found, &why), 0);
    assert_string_equal(found, "./README.md");
    assert_int_equal(profile_find("README.md", found, sizeof found, &why), 0);
    assert_string_equal(found, "README.md");
    assert_int_equal(profile_find("./mine", found, sizeof found, &why), ERR_ABSENT);
    why = (struct why){0};
    assert_int_equal(profile_find("nobody", found, sizeof found, &why), ERR_ABSENT);
    assert_non_null(strstr(why.text, folder));
    assert_non_null(strstr(why.text, "share/kedge/profiles"));

    complaints_clear(&complaints);
    complaints_init(&complaints);
    assert_int_equal(profile_read("nobody", &profile, &complaints, NULL, 0), ERR_ABSENT);
    assert_int_equal(complaints.count, 1);
    complaints_clear(&complaints);
    complaints_init(&complaints);
    assert_int_equal(profile_read("./profiles", &profile, &complaints, NULL, 0), ERR_INVALID); /* a folder */
    assert_int_equal(complaints.count, 1);
}

/* Before it is sent to anybody. */
static void data_that_is_no_text(void **state)
{
    (void)state;
    char text[1000], expected[1000];
    snprintf(text, sizeof text, "[data]\npath = %s/*\n", place.folder);
    FILE *file = fopen(place_file(&place, "t.jsonl"), "w");
    assert_non_null(file);
    fclose(file);
    read_text(text);
    assert_string_equal(lines_of(&complaints), "");
    file = fopen(place_file(&place, "t.parquet"), "w");
    assert_non_null(file);
    fclose(file);
    read_text(text);
    snprintf(expected, sizeof expected, "data.path: %s is a table of binary columns: write its rows as lines of JSON, .jsonl\n",
             place_file(&place, "t.parquet"));
    assert_non_null(strstr(lines_of(&complaints), expected));
    assert_int_equal(complaints.count, 1);
}

/* A file that is all wrong costs a bounded amount, and its bytes cannot reach the terminal. */
static void complaints_are_bounded_and_harmless(void **state)
{
    (void)state;
    size_t size = 1000000;
    char *text = mem_new(size + 1);
    for (size_t i = 0; i + 2 <= size; i += 2)
        memcpy(text + i, "x\n", 2);
    read_text(text);
    assert_int_equal(complaints.count, 500001); /* and data.path */
    assert_true(buf_used(&complaints.lines) < 100000);
    assert_non_null(strstr(lines_of(&complaints), "and more; mend these first\n"));
    mem_free(text);

    complaints_clear(&complaints);
    complaints_init(&complaints);
    complaints_add(&complaints, "a.ini", 3, "%s", "\x1b[2Jgone");
    assert_string_equal(lines_of(&complaints), "a.ini:3: \\x1b[2Jgone\n");
}

static int set_up(void **state)
{
    (void)state;
    complaints_init(&complaints);
    return place_init(&place);
}

static int tear_down(void **state)
{
    (void)state;
    complaints_clear(&complaints);
    place_clear(&place);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_profiles_say_what_they_expect),
        cmocka_unit_test(templates_are_good),
        cmocka_unit_test(what_is_left_open),
        cmocka_unit_test(the_shape_of_a_checkpoint),
        cmocka_unit_test(addresses),
        cmocka_unit_test(where_profiles_are_found),
        cmocka_unit_test(data_that_is_no_text),
        cmocka_unit_test(complaints_are_bounded_and_harmless),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

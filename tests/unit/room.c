/* The budget of a host's disk: what its shell counts is what the worker counts there, and what goes beyond it is refused with the remedy. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gpu/train/disk.h"
#include "ssh/base/child.h"
#include "ssh/base/clock.h"
#include "ssh/base/file.h"
#include "ssh/base/mem.h"
#include "ssh/launch/room.h"
#include "ssh/launch/script.h"
#include "tests/helpers/place.h"

#define MIB ((uint64_t)1 << 20)

static struct place place;

static int begin(void **state)
{
    (void)state;
    return place_init(&place);
}

static int end(void **state)
{
    (void)state;
    place_clear(&place);
    return 0;
}

static void put(const char *folder, const char *name, size_t bytes)
{
    char *path = mem_format("%s/%s", folder, name);
    uint8_t *noise = mem_new(bytes + 1);
    memset(noise, 'x', bytes);
    assert_int_equal(file_make_folders(folder, 0700, NULL), 0);
    assert_int_equal(file_write(path, noise, bytes, 0600, NULL), 0);
    mem_free(noise);
    mem_free(path);
}

static struct room ask(const struct parcel *const parcels[PARTS])
{
    char *room = room_script(parcels), *script = script_of_run("r", room), out[400];
    const char *const argv[] = {"/bin/sh", "-c", script, NULL};
    struct room answer;
    struct why why = {0};
    int status = 0;
    assert_int_equal(child_output(argv, false, out, sizeof out, 60 * CLOCK_SECOND, &status, &why), 0);
    assert_int_equal(status, 0);
    if (room_read(out, &answer, &why) != 0)
        fail_msg("%s", why.text);
    mem_free(script);
    mem_free(room);
    return answer;
}

/* One parcel is there whole, one in part, one not at all; another run of this host counts, too. */
static void both_ends_count_alike(void **state)
{
    struct parcel_file file = {.bytes = MIB};
    struct parcel whole = {.id = "1111111111111111", .files = &file, .count = 1, .bytes = MIB},
                  part = {.id = "2222222222222222", .files = &file, .count = 1, .bytes = 3 * MIB},
                  none = {.id = "3333333333333333", .files = &file, .count = 1, .bytes = 2 * MIB};
    const struct parcel *const parcels[PARTS] = {&whole, &part, &none, NULL};
    char *data = mem_text(place_file(&place, "data")), *runs = mem_text(place_file(&place, "state")),
         *run = mem_format("%s/kedge/r", runs), *path;
    (void)state;
    setenv("XDG_DATA_HOME", data, 1);
    setenv("XDG_STATE_HOME", runs, 1);
    struct room room = ask(parcels);
    assert_int_equal(room.used, 0);
    assert_true(room.missing >= 6 * 1024 && room.missing <= 6 * 1024 + 3);
    assert_int_equal(disk_used(run), 0);

    put(path = mem_format("%s/kedge/programs/1111111111111111", data), "a", MIB);
    put(path, ".whole", 0);
    mem_free(path);
    put(path = mem_format("%s/kedge/text/2222222222222222", data), "b", MIB);
    mem_free(path);
    put(path = mem_format("%s/log", run), "kedged.log", 100000);
    mem_free(path);
    put(path = mem_format("%s/kedge/other/checkpoint/7", runs), "r0s0.safetensors", MIB);
    mem_free(path);
    room = ask(parcels);
    assert_true(room.used > 3 * 1024 + 90 && room.used < 3 * 1024 + 200);
    assert_true(disk_used(run) / 1024 <= room.used + 1 && room.used <= disk_used(run) / 1024 + 1);
    assert_true(room.missing > 4 * 1024 - 100 && room.missing <= 4 * 1024 + 2);

    struct profile *profile = mem_new(sizeof *profile);
    struct why why = {0};
    profile_defaults(profile);
    struct profile_host *host = profile_add_host(profile, "a", &why);
    assert_int_equal(disk_check(profile, "a", run, 1000 * MIB, &why), 0); /* no budget */
    host->disk_budget = 5 * MIB;
    assert_int_equal(disk_check(profile, "a", run, MIB, &why), 0);
    assert_int_equal(disk_check(profile, "b", run, 9 * MIB, &why), 0); /* another host's */
    assert_int_equal(disk_check(profile, "a", run, 3 * MIB, &why), ERR_FULL);
    assert_non_null(strstr(why.text, "would have 3.0 MiB more, above its disk_budget of 5.0 MiB: raise it"));
    mem_free(profile);
    mem_free(run);
    mem_free(runs);
    mem_free(data);
}

static void what_goes_beyond_is_refused(void **state)
{
    static const struct {
        uint64_t budget;
        struct room room;
        bool fits;
    } rows[] = {
        {0, {UINT64_MAX, UINT64_MAX, UINT64_MAX}, true},
        {100 * MIB, {40 * 1024, 40 * 1024, 20 * 1024}, true},
        {100 * MIB, {40 * 1024, 40 * 1024, 20 * 1024 + 1}, false},
        {100 * MIB, {100 * 1024 + 1, 0, 0}, false},
        {100 * MIB, {UINT64_MAX, 1, 1}, false}, /* a host that lies */
        {100 * MIB, {1, UINT64_MAX, 1}, false},
        {1, {0, 1, 0}, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct profile_host host = {.name = "a", .disk_budget = rows[i].budget};
        struct why why = {0};
        assert_int_equal(room_check(&host, &rows[i].room, &why), rows[i].fits ? 0 : ERR_FULL);
    }
    struct profile_host host = {.name = "a", .disk_budget = 100 * MIB};
    struct room room = {.used = 10 * 1024, .missing = 60 * 1024, .run = 50 * 1024};
    struct why why = {0};
    room_check(&host, &room, &why);
    assert_non_null(strstr(why.text, "kedge has 10.0 MiB there, 60.0 MiB would be sent, and the run would write up to 50.0 MiB: more than its "
                                     "disk_budget of 100.0 MiB; raise that, or delete"));
}

static void nonsense_is_no_answer(void **state)
{
    static const char *const bad[] = {"", "used=\nmissing=\n", "used=1\n", "used=-1\nmissing=2\n", "missing=1\nused=2\n", "\033[2Jused=1"};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct room room;
        struct why why = {0};
        assert_int_equal(room_read(bad[i], &room, &why), ERR_INVALID);
        assert_null(strchr(why.text, '\033'));
    }
}

static void a_disk_is_shown_against_its_budget(void **state)
{
    static const struct {
        uint64_t budget, used, all, free, then_all, then_free;
    } rows[] = {
        {0, 70, 1000, 500, 1000, 500},  {100, 30, 1000, 500, 100, 70}, {100, 130, 1000, 500, 100, 0},
        {100, 30, 1000, 20, 100, 20},   {2000, 100, 1000, 500, 1000, 500}, {100, 0, 0, 0, 100, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint64_t all = rows[i].all, free_bytes = rows[i].free;
        disk_narrow(rows[i].budget, rows[i].used, &all, &free_bytes);
        assert_int_equal(all, rows[i].then_all);
        assert_int_equal(free_bytes, rows[i].then_free);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_ends_count_alike),
        cmocka_unit_test(what_goes_beyond_is_refused),
        cmocka_unit_test(nonsense_is_no_answer),
        cmocka_unit_test(a_disk_is_shown_against_its_budget),
    };
    return cmocka_run_group_tests(tests, begin, end);
}

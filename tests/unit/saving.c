/*
 * Sets of weights on kedged's side: when all stages have said that theirs are saved there is a set, once; one that could not makes
 * none and is an alert; the manifest is written last, and the newest two sets stay.
 */
#include "scheduler/saving.h"

#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>

#include <cmocka.h>

#include "ssh/base/file.h"
#include "ssh/base/mem.h"
#include "tests/helpers/place.h"
#include "tests/helpers/worlds.h"

static struct wire_saved saved_of(int stage, uint64_t step, const char *reason)
{
    struct wire_saved saved = {.step = step, .bytes = 1000 + step, .hash = 77 + (uint64_t)stage};
    snprintf(saved.file, sizeof saved.file, "r0s%d.safetensors", stage);
    snprintf(saved.reason, sizeof saved.reason, "%s", reason);
    return saved;
}

static void say(int stage, uint64_t step, const char *reason)
{
    struct wire_saved saved = saved_of(stage, step, reason);
    assert_int_equal(world_say(&world, stage ? WORLD_R0S1 : WORLD_R0S0, WIRE_SAVED, &saved), 0);
}

static void all_stages_make_a_set_once(void **state)
{
    (void)state;
    world_form(&world);
    say(0, 5, "");
    assert_int_equal(world.saves, 0);
    say(0, 5, ""); /* said again after a lost road */
    assert_int_equal(world.saves, 0);
    say(1, 5, "");
    assert_int_equal(world.saves, 1);
    assert_int_equal(world.saved.step, 5);
    assert_true(world.saved.files[0].hash == 77 && world.saved.files[1].hash == 78);
    assert_int_equal(world_event(&world, "checkpoint", "after step 5"), EVENT_INFO);
    say(1, 5, "");
    say(0, 5, "");
    say(1, 4, ""); /* old news */
    assert_int_equal(world.saves, 1);
    say(1, 9, "");
    say(0, 9, "");
    assert_int_equal(world.saves, 2);
}

static void one_that_could_not_makes_none(void **state)
{
    (void)state;
    world_form(&world);
    say(0, 5, "no space left on device");
    say(1, 5, "");
    assert_int_equal(world.saves, 0);
    assert_int_equal(world_event(&world, "checkpoint", "no space left"), EVENT_ALERT);
    say(0, 5, ""); /* another try */
    say(1, 5, "");
    assert_int_equal(world.saves, 1);
    world.disk_full = true;
    say(0, 6, "");
    say(1, 6, "");
    assert_int_equal(world_event(&world, "checkpoint", "no set: no space"), EVENT_ALERT);
    assert_int_equal(world_phase(&world), PHASE_TRAINING);
}

static void what_nobody_asked_for_is_refused(void **state)
{
    (void)state;
    world_form(&world);
    struct wire_saved saved = saved_of(0, 101, ""); /* the run has 100 steps */
    struct why why = {0};
    assert_int_equal(run_message(world.run, &world.roads[WORLD_R0S0], WIRE_SAVED, &saved, &why), ERR_INVALID);
    saved = saved_of(0, 1, "");
    snprintf(saved.file, sizeof saved.file, "../../x");
    why = (struct why){0};
    assert_int_equal(run_message(world.run, &world.roads[WORLD_R0S0], WIRE_SAVED, &saved, &why), ERR_INVALID);
    assert_int_equal(world.saves, 0);
}

static void orders_reach_the_first_stage(void **state)
{
    (void)state;
    assert_int_equal(world_order(&world, ORDER_CHECKPOINT, "", "").err, ERR_REFUSED);
    world_form(&world);
    world_sample(&world, WORLD_R0S1, STAMP_TRAIN, 3, 2);
    assert_int_equal(world_order(&world, ORDER_CHECKPOINT, "", "").err, 0);
    assert_int_equal(world_count(&world, WORLD_R0S0, WIRE_SAVE), 1);
    assert_int_equal(world_count(&world, WORLD_R0S1, WIRE_SAVE), 0);
    assert_int_equal(world_order(&world, ORDER_PAUSE, "", "").err, 0);
    say(0, 3, "");
    say(1, 3, "");
    struct wire_reply reply = world_order(&world, ORDER_CHECKPOINT, "", "");
    assert_true(reply.err == 0 && reply.ledger == 1 && strstr(reply.text, "already"));
    assert_int_equal(world_count(&world, WORLD_R0S0, WIRE_SAVE), 1);
}

/* ---- files ---- */

static void write_set(const struct place *place, struct saving *saving, uint64_t step)
{
    struct why why = {0};
    char folder[400];
    *saving = (struct saving){.step = step, .has = {true, true},
                               .files = {saved_of(0, step, ""), saved_of(1, step, "")}};
    snprintf(folder, sizeof folder, "%s/checkpoint/%d", place->folder, (int)step);
    assert_int_equal(file_make_folders(folder, 0700, &why), 0);
    const struct saving_run run = {0xabc, &world.profile, &world.profile, &world.plan, &world.record->state.row};
    if (saving_write_manifest(place->folder, &run, saving, &why) != 0)
        fail_msg("%s", why.text);
}

static bool is_there(const struct place *place, int step)
{
    char path[400];
    snprintf(path, sizeof path, "%s/checkpoint/%d", place->folder, step);
    return access(path, F_OK) == 0;
}

static void the_newest_two_stay(void **state)
{
    (void)state;
    struct place place;
    struct saving *saving = mem_new(sizeof *saving);
    char torn[400];
    place_init(&place);
    snprintf(torn, sizeof torn, "%s/checkpoint/20", place.folder); /* never became a set */
    assert_int_equal(file_make_folders(torn, 0700, NULL), 0);
    write_set(&place, saving, 9);
    write_set(&place, saving, 10);
    assert_true(is_there(&place, 9) && is_there(&place, 10) && is_there(&place, 20));
    write_set(&place, saving, 100);
    assert_true(!is_there(&place, 9) && is_there(&place, 10) && is_there(&place, 20) && is_there(&place, 100));
    write_set(&place, saving, 101);
    assert_true(!is_there(&place, 10) && !is_there(&place, 20) && is_there(&place, 100) && is_there(&place, 101));
    place_clear(&place);
    mem_free(saving);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        worlds_test(all_stages_make_a_set_once),       worlds_test(one_that_could_not_makes_none), worlds_test(what_nobody_asked_for_is_refused),
        worlds_test(orders_reach_the_first_stage),     worlds_test(the_newest_two_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include "tests/helpers/worlds.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

struct world world;

int worlds_up(void **state)
{
    (void)state;
    world_init(&world);
    return 0;
}

int worlds_down(void **state)
{
    (void)state;
    world_clear(&world);
    return 0;
}

const struct wire_process_row *worlds_row(int process)
{
    return &record_find_process(world.record, world_name(process))->row;
}

void worlds_assert_says(const char *text, const char *words)
{
    if (!strstr(text, words))
        fail_msg("'%s' is not in '%s'", words, text);
}

void worlds_refuse(int process, struct wire_hello hello, uint32_t incarnation, const char *words)
{
    struct why why = {0};
    assert_int_equal(world_hello_as(&world, process, hello, incarnation, &why), ERR_REFUSED);
    worlds_assert_says(why.text, words);
    assert_int_equal(world_event(&world, "refused", words), EVENT_WARN);
    world_pass(&world, 2);
}

void worlds_finish(void)
{
    struct wire_done done = {.step = 100};
    world_say(&world, WORLD_R0S0, WIRE_DONE, &done);
    assert_int_not_equal(world_phase(&world), PHASE_FINISHED);
    world_say(&world, WORLD_R0S1, WIRE_DONE, &done);
    assert_int_equal(world_phase(&world), PHASE_FINISHED);
}

void worlds_end_processes(void)
{
    world_gone(&world, WORLD_R0S0, 0);
    world_gone(&world, WORLD_R0S1, 0);
    assert_int_equal(world_count(&world, WORLD_AGENT_A, WIRE_STOP), 0);
    world_exit(&world, WORLD_R0S0, 0, 0);
    world_exit(&world, WORLD_R0S1, 0, 0);
    assert_int_equal(world_count(&world, WORLD_AGENT_A, WIRE_STOP), 1);
    assert_int_equal(world_count(&world, WORLD_AGENT_B, WIRE_STOP), 1);
    world_gone(&world, WORLD_AGENT_B, 0);
    assert_false(run_is_over(world.run));
    world_gone(&world, WORLD_AGENT_A, 0);
    assert_true(run_is_over(world.run));
    assert_int_equal(world.record->state.over, 1);
}

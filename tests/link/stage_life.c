/*
 * The life of real stages: a pause, a peer that is killed, a kedged that goes away and comes back, an order in the middle of
 * a step, a start that fails.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "ssh/base/file.h"
#include "ssh/base/mem.h"
#include "tests/helpers/train.h"

static void hold_and_start_change_nothing(void **state)
{
    (void)state;
    struct train train;
    train_begin(&train, 2, true);
    train_form(&train);
    train_start(&train);
    uint64_t first = 1;
    head_until(&train.head, train_step_sampled, &first, TRAIN_PATIENCE, "step 1");
    for (int i = 0; i < 2; i++)
        head_say(train.peers[i], WIRE_HOLD, &(struct wire_hold){.reason = "pause"});
    int samples = -1;
    for (int i = 0; i < 20 && samples != train.peers[0]->samples; i++) { /* the step that is under way may be a slow one */
        samples = train.peers[0]->samples;
        head_for(&train.head, CLOCK_SECOND);
    }
    assert_int_equal(train.peers[0]->samples, samples); /* it stands */
    assert_false(train_all_done(&train.head, NULL));
    train_start(&train);
    head_until(&train.head, train_all_done, NULL, TRAIN_PATIENCE, "done");
    train_stop(&train);
    train_as_pipeline(&train);
    train_end(&train);
}

struct loss_news {
    const char *one, *other;
};

static bool neighbours_told(struct head *head, void *arg)
{
    const struct loss_news *news = arg;
    return head_event(head, news->one, "peer-lost") && head_event(head, news->other, "peer-lost");
}

static void a_killed_stage_is_told_by_its_neighbours(void **state)
{
    (void)state;
    struct train train;
    struct loss_news news = {"r0s0", "r0s2"};
    train_begin(&train, 3, false);
    train.profile.steps = 50;
    train.profile.slow_delay_ns = 20 * CLOCK_MS; /* so that it is in the middle of something */
    train_form(&train);
    train_start(&train);
    uint64_t second = 2;
    head_until(&train.head, train_step_sampled, &second, TRAIN_PATIENCE, "step 2");
    uint64_t killed_ns = clock_now_ns();
    kill(train.peers[1]->pid, SIGKILL);
    head_until(&train.head, neighbours_told, &news, 2 * train.head.timeouts.heartbeat_ns, "peer-lost within two heartbeats");
    const struct head_event *told = head_event(&train.head, "r0s0", "peer-lost");
    assert_int_equal(told->event.level, EVENT_ALERT);
    assert_non_null(strstr(told->event.text, "lost r0s1: "));
    assert_true(told->at_ns - killed_ns < 2 * train.head.timeouts.heartbeat_ns);
    int samples = train.peers[0]->samples;
    head_for(&train.head, 300 * CLOCK_MS);
    assert_int_equal(train.peers[0]->samples, samples); /* idle, not dead */
    assert_true(train.peers[0]->pid > 0 && train.peers[2]->pid > 0);
    train_start(&train); /* it cannot go on, and says so */
    head_for(&train.head, 200 * CLOCK_MS);
    assert_non_null(strstr(train.head.events[train.head.event_count - 1].event.text, "cannot go on"));
    train_stop(&train);
    assert_true(WIFSIGNALED(train.peers[1]->status));
    train_end(&train);
}

static void kedged_may_go_away(void **state)
{
    (void)state;
    struct train train;
    train_begin(&train, 2, true);
    train.profile.steps = 30;
    train.profile.slow_delay_ns = 5 * CLOCK_MS;
    train_form(&train);
    train_start(&train);
    uint64_t first = 1;
    head_until(&train.head, train_step_sampled, &first, TRAIN_PATIENCE, "step 1");
    train.head.deaf = true;
    for (int i = 0; i < 2; i++) {
        link_free(train.peers[i]->link);
        train.peers[i]->link = NULL;
        train.peers[i]->ready = 0;
    }
    head_for(&train.head, 500 * CLOCK_MS);
    train.head.deaf = false;
    int roads = READY_ROADS;
    head_until(&train.head, train_all_connected, NULL, TRAIN_PATIENCE, "hello again");
    head_until(&train.head, train_all_ready, &roads, TRAIN_PATIENCE, "ready again");
    assert_int_equal(train.peers[0]->hellos, 2);
    assert_true(train.peers[0]->hello.profile_hash == profile_hash(&train.profile));
    train_start(&train); /* a kedged that comes back says it again */
    head_until(&train.head, train_all_done, NULL, TRAIN_PATIENCE, "done");
    assert_int_equal(train.head.event_count, 0);
    train_stop(&train);
    train_end(&train);
}

static void stop_is_obeyed_in_the_middle_of_a_step(void **state)
{
    (void)state;
    struct train train;
    train_begin(&train, 2, true);
    train.profile.steps = 60;
    train.profile.slow_delay_ns = 100 * CLOCK_MS;
    train_form(&train);
    train_start(&train);
    head_for(&train.head, 300 * CLOCK_MS);
    uint64_t asked_ns = clock_now_ns();
    train_stop(&train);
    assert_true(clock_now_ns() - asked_ns < 4 * CLOCK_SECOND);
    for (int i = 0; i < 2; i++)
        assert_true(train.peers[i]->said_bye);
    train_end(&train);
}

static void a_stage_that_cannot_load_says_why(void **state)
{
    (void)state;
    struct train train;
    train_begin(&train, 1, true);
    snprintf(train.profile.data_paths, sizeof train.profile.data_paths, "%s/absent", train.head.place.folder);
    train.peers[0] = head_start_stage(&train.head, "r0s0", "a");
    head_until(&train.head, train_all_connected, NULL, TRAIN_PATIENCE, "hello");
    train_assign(&train, 0);
    head_until(&train.head, train_all_gone, NULL, TRAIN_PATIENCE, "the end");
    assert_true(WIFEXITED(train.peers[0]->status) && WEXITSTATUS(train.peers[0]->status) != 0);
    uint8_t *log;
    size_t bytes;
    assert_int_equal(file_read(place_file(&train.head.place, "log/r0s0.log"), 1 << 20, &log, &bytes, NULL), 0);
    assert_non_null(strstr((char *)log, "absent"));
    mem_free(log);
    train_end(&train);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hold_and_start_change_nothing),
        cmocka_unit_test(a_killed_stage_is_told_by_its_neighbours),
        cmocka_unit_test(kedged_may_go_away),
        cmocka_unit_test(stop_is_obeyed_in_the_middle_of_a_step),
        cmocka_unit_test(a_stage_that_cannot_load_says_why),
    };
    head_program(); /* or skip */
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* With which profile a run may go on from a set of it: settings that numbers depend on are the same, others may be anything; what was set
 * live holds on unless the profile was edited. */
#include "profiles/profile.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "ssh/base/mem.h"

static struct profile *begun, *live, *now;

static int up(void **state)
{
    (void)state;
    begun = mem_new(sizeof *begun);
    live = mem_new(sizeof *live);
    now = mem_new(sizeof *now);
    profile_defaults(begun);
    profile_defaults(live);
    profile_defaults(now);
    return 0;
}

static int down(void **state)
{
    (void)state;
    mem_free(begun);
    mem_free(live);
    mem_free(now);
    return 0;
}

static void set(struct profile *profile, const char *name, const char *value)
{
    struct why why = {0};
    if (profile_set(profile, name, value, &why) != 0)
        fail_msg("%s", why.text);
}

static void what_numbers_depend_on_stays(void **state)
{
    static const char *const changes[][2] = {{"run.seed", "2"}, {"model.ffn", "192"}, {"train.moments", "bf16"}, {"train.clip", "2"},
                                             {"replicas.count", "2"}, {"boundary.codec", "dense"}, {"data.path", "/elsewhere"}};
    (void)state;
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        struct why why = {0};
        profile_defaults(now);
        assert_int_equal(profile_check_resume(begun, now, &why), 0);
        set(now, changes[i][0], changes[i][1]);
        assert_int_equal(profile_check_resume(begun, now, &why), ERR_REFUSED);
        assert_non_null(strstr(why.text, changes[i][0]));
        assert_non_null(strstr(why.text, changes[i][1]));
    }
}

static void the_rest_is_free(void **state)
{
    static const char *const changes[][2] = {{"run.steps", "2000"}, {"run.timeout", "3s"}, {"mask.rate", "0.5"}, {"link.security", "plain"},
                                             {"checkpoint.every", "5"}, {"pipeline.layers", "2,2"}, {"train.learning_rate", "0.5"}};
    struct why why = {0};
    (void)state;
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++)
        set(now, changes[i][0], changes[i][1]);
    assert_non_null(profile_add_host(now, "spare", &why));
    if (profile_check_resume(begun, now, &why) != 0)
        fail_msg("%s", why.text);
}

static void on_kept(const char *name, const char *value, void *arg)
{
    size_t used = strlen(arg);
    snprintf((char *)arg + used, 200 - used, "%s=%s ", name, value);
}

static void what_was_set_holds_on(void **state)
{
    char kept[200] = "", value[40];
    struct why why = {0};
    (void)state;
    set(live, "mask.rate", "0.7");
    set(live, "train.learning_rate", "0.125");
    set(now, "train.learning_rate", "0.25"); /* edited since: that is the newer word */
    assert_int_equal(profile_resume_live(begun, live, now, on_kept, kept, &why), 0);
    assert_string_equal(kept, "mask.rate=0.7 ");
    assert_int_equal(profile_get(now, "mask.rate", value, sizeof value, &why), 0);
    assert_string_equal(value, "0.7");
    assert_int_equal(profile_get(now, "train.learning_rate", value, sizeof value, &why), 0);
    assert_string_equal(value, "0.25");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, up, down)

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(what_numbers_depend_on_stays), TEST(the_rest_is_free), TEST(what_was_set_holds_on)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* A profile as NAME=VALUE lines and back: equal for any profile; hostile lines are refused and change nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "profiles/fields.h"
#include "profiles/profile.h"
#include "tests/helpers/dice.h"

static struct profile profile, other;

/* A random value in range, straight into memory: the text forms are what is tested. */
static void random_value(struct dice *dice, const struct field *row, void *base)
{
    void *at = (char *)base + row->offset;
    double share = (double)dice_below(dice, 1000001) / 1e6, value = row->minimum + share * (row->maximum - row->minimum);
    size_t choices = 0, length;
    switch (row->type) {
    case FIELD_BOOL:
        *(bool *)at = dice_below(dice, 2);
        break;
    case FIELD_INTEGER:
        *(int64_t *)at = (int64_t)value;
        break;
    case FIELD_REAL:
        *(double *)at = value > row->maximum ? row->maximum : value;
        break;
    case FIELD_TEXT:
        memset(at, 0, row->size);
        length = dice_below(dice, row->size);
        for (size_t i = 0; i < length; i++) /* no blanks at its ends */
            ((char *)at)[i] = (char)('!' + dice_below(dice, '~' - '!' + 1));
        break;
    case FIELD_CHOICE:
        while (row->choices[choices])
            choices++;
        *(int *)at = (int)dice_below(dice, choices);
        break;
    default:
        *(uint64_t *)at = (uint64_t)value;
    }
}

static void random_profile(struct dice *dice)
{
    size_t count;
    const struct field *rows = field_all(&count);
    uint64_t hosts = dice_below(dice, 16) ? dice_below(dice, 5) : PROFILE_HOSTS;
    profile_defaults(&profile);
    for (uint64_t h = 0; h < hosts; h++) {
        char name[PROFILE_NAME + 24];
        snprintf(name, sizeof name, "%c-%llu.%s", (int)('a' + h % 26), (unsigned long long)h,
                 h % 3 ? "x" : "listen_kind-uplink.eu.forty-bytes");
        assert_non_null(profile_add_host(&profile, name, NULL));
    }
    for (size_t i = 0; i < count; i++) {
        if (!field_is_host(&rows[i]))
            random_value(dice, &rows[i], &profile);
        for (int64_t h = 0; h < profile.host_count && field_is_host(&rows[i]); h++)
            random_value(dice, &rows[i], &profile.hosts[h]);
    }
}

static void check_round_trip(void)
{
    struct why why = {0};
    struct buf text, again;
    buf_init(&text, PROFILE_SETTINGS_BYTES);
    buf_init(&again, PROFILE_SETTINGS_BYTES);
    assert_int_equal(profile_to_settings(&profile, &text, &why), 0);
    if (profile_from_settings(buf_peek(&text), buf_used(&text), &other, &why))
        fail_msg("%s", why.text);
    assert_memory_equal(&profile, &other, sizeof profile);
    assert_true(profile_hash(&profile) == profile_hash(&other));
    assert_int_equal(profile_to_settings(&other, &again, &why), 0);
    assert_int_equal(buf_used(&text), buf_used(&again));
    assert_memory_equal(buf_peek(&text), buf_peek(&again), buf_used(&text));
    buf_clear(&text);
    buf_clear(&again);
}

static void any_profile_comes_back(void **state)
{
    (void)state;
    struct dice dice = {21};
    profile_defaults(&profile); /* what must be given is not given here */
    check_round_trip();
    for (int round = 0; round < 200; round++) {
        random_profile(&dice);
        check_round_trip();
    }
}

static void the_hash_is_of_what_is_not_live(void **state)
{
    (void)state;
    profile_defaults(&profile);
    profile_add_host(&profile, "a", NULL);
    uint64_t hash = profile_hash(&profile);
    assert_int_equal(profile_set(&profile, "mask.rate", "0.5", NULL), 0);
    assert_int_equal(profile_set(&profile, "train.learning_rate", "0.5", NULL), 0);
    assert_true(profile_hash(&profile) == hash);
    assert_int_equal(profile_set(&profile, "host.a.threads", "3", NULL), 0);
    assert_true(profile_hash(&profile) != hash);
    hash = profile_hash(&profile);
    assert_int_equal(profile_set(&profile, "run.seed", "3", NULL), 0);
    assert_true(profile_hash(&profile) != hash);
}

static void one_value_by_its_name(void **state)
{
    (void)state;
    static const struct {
        const char *name, *value;
        int err;
        const char *complaint;
    } rows[] = {
        {"mask.rate", "0.9", 0, ""},
        {"host.a.listen", "0.0.0.0:99", 0, ""},
        {"host.b.c.listen", "0.0.0.0:98", 0, ""},
        {"mask.rate", "2", ERR_INVALID, "mask.rate = 2 is out of range: 0 … 0.999"},
        {"mask.rat", "0.5", ERR_ABSENT, "mask.rat is not a setting; did you mean mask.rate?"},
        {"host.a.lissten", "x:1", ERR_ABSENT, "host.a.lissten is not a setting; did you mean host.listen?"},
        {"host.z.listen", "x:1", ERR_ABSENT, "host.z.listen: the profile has no host named z"},
        {"host.listen", "x:1", ERR_INVALID, "host.listen is a setting of each host: write host.NAME.listen"},
        {"host..listen", "x:1", ERR_ABSENT, "host..listen is not a setting; did you mean host.listen?"},
        {"", "", ERR_ABSENT, " is not a setting; kedge-profile(5) lists them"},
    };
    profile_defaults(&profile);
    profile_add_host(&profile, "a", NULL);
    profile_add_host(&profile, "b.c", NULL);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct why why = {0};
        char value[100];
        other = profile;
        assert_int_equal(profile_set(&profile, rows[i].name, rows[i].value, &why), rows[i].err);
        assert_string_equal(why.text, rows[i].complaint);
        if (rows[i].err) {
            assert_memory_equal(&profile, &other, sizeof profile);
            continue;
        }
        assert_int_equal(profile_get(&profile, rows[i].name, value, sizeof value, &why), 0);
        assert_string_equal(value, rows[i].value);
    }
}

static void hosts_have_names_and_a_number(void **state)
{
    (void)state;
    struct why why = {0};
    profile_defaults(&profile);
    assert_null(profile_add_host(&profile, "", &why));
    assert_null(profile_add_host(&profile, "..", NULL));
    assert_null(profile_add_host(&profile, "a b", NULL));
    assert_null(profile_add_host(&profile, "-a", NULL));
    assert_null(profile_add_host(&profile, "a/b", NULL));
    assert_null(profile_add_host(&profile, "01234567890123456789012345678901234567890", NULL));
    for (int i = 0; i < PROFILE_HOSTS; i++) {
        char name[16];
        snprintf(name, sizeof name, "h%d", i);
        assert_non_null(profile_add_host(&profile, name, NULL));
        assert_null(profile_add_host(&profile, name, NULL));
    }
    why = (struct why){0};
    assert_null(profile_add_host(&profile, "more", &why));
    assert_int_equal(why.err, ERR_FULL);
}

static void hostile_settings(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t bytes;
    } rows[] = {
        {"mask.rate=0.5", 13},  {"mask.rate=\n", 11},       {"mask.rate\n", 10},       {"=\n", 2},
        {"\n", 1},              {"mask.rate=2\n", 12},      {"mask.rte=0.5\n", 13},    {"mask.rate=0.5\0\n", 15},
        {"host.=1\n", 8},       {"host.a=1\n", 9},          {"host.a b.kind=local\n", 20}, {"host./.kind=local\n", 18},
        {"run.name=a\x1b\n", 12}, {"mask.rate=0.5\nx", 15},
    };
    struct dice dice = {22};
    memset(&profile, 0x5a, sizeof profile);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct why why = {0};
        other = profile;
        int err = profile_from_settings((const uint8_t *)rows[i].text, rows[i].bytes, &profile, &why);
        if (err == 0)
            fail_msg("'%s' was taken", rows[i].text);
        assert_true(why.text[0] != '\0');
        assert_memory_equal(&profile, &other, sizeof profile);
    }
    random_profile(&dice);
    struct buf text;
    buf_init(&text, PROFILE_SETTINGS_BYTES);
    assert_int_equal(profile_to_settings(&profile, &text, NULL), 0);
    for (int round = 0; round < 2000; round++) { /* no byte that is flipped does harm */
        uint8_t *byte = text.data + text.start + dice_below(&dice, buf_used(&text)), before = *byte;
        *byte = (uint8_t)dice_u64(&dice);
        profile_from_settings(buf_peek(&text), buf_used(&text) - dice_below(&dice, 3), &other, NULL);
        *byte = before;
    }
    buf_clear(&text);
}

static void a_full_buffer_is_said(void **state)
{
    (void)state;
    struct buf small;
    struct why why = {0};
    profile_defaults(&profile);
    buf_init(&small, 100);
    assert_int_equal(profile_to_settings(&profile, &small, &why), ERR_FULL);
    assert_int_equal(buf_used(&small), 0);
    buf_clear(&small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_profile_comes_back),        cmocka_unit_test(the_hash_is_of_what_is_not_live),
        cmocka_unit_test(one_value_by_its_name),         cmocka_unit_test(hosts_have_names_and_a_number),
        cmocka_unit_test(hostile_settings),              cmocka_unit_test(a_full_buffer_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

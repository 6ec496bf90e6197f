/* The table of settings: every row is whole, its default parses, what is written parses back, and no two rows share memory.
 */
#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "profiles/fields.h"
#include "profiles/profile.h"
#include "ssh/base/log.h"
#include "ssh/base/text.h"
#include "tests/helpers/dice.h"

static void each_row_is_whole(void **state)
{
    (void)state;
    size_t count;
    const struct field *rows = field_all(&count);
    assert_true(count > 30);
    for (size_t i = 0; i < count; i++) {
        const struct field *row = &rows[i];
        char name[64], range[200];
        size_t help = strlen(row->help);
        field_name(row, name, sizeof name);
        assert_ptr_equal(field_find(name), row);
        assert_int_equal(field_index(row), i);
        assert_true(help > 20 && row->help[help - 1] == '.');
        assert_non_null(row->unit);
        assert_true(row->size > 0);
        assert_int_equal(row->choices != NULL, row->type == FIELD_CHOICE);
        if (row->type == FIELD_INTEGER || row->type == FIELD_REAL || row->type == FIELD_RATE || row->type == FIELD_DURATION ||
            row->type == FIELD_BYTES || row->type == FIELD_TIME)
            assert_true(row->minimum < row->maximum);
        field_range(row, range, sizeof range);
        assert_true(strlen(range) > 3);
        if (i > 0 && strcmp(row->section, rows[i - 1].section) != 0) /* sections are not torn */
            for (size_t before = 0; before < i; before++)
                assert_string_not_equal(rows[before].section, row->section);
    }
}

static size_t size_of_type(const struct field *row)
{
    static const size_t sizes[] = {
        [FIELD_BOOL] = sizeof(bool),  [FIELD_INTEGER] = sizeof(int64_t), [FIELD_REAL] = sizeof(double),
        [FIELD_CHOICE] = sizeof(int), [FIELD_RATE] = sizeof(uint64_t),   [FIELD_DURATION] = sizeof(uint64_t),
        [FIELD_BYTES] = sizeof(uint64_t), [FIELD_TIME] = sizeof(uint64_t),
    };
    return row->type == FIELD_TEXT ? row->size : sizes[row->type];
}

static void rows_do_not_overlap(void **state)
{
    (void)state;
    size_t count;
    const struct field *rows = field_all(&count);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(rows[i].size, size_of_type(&rows[i]));
        assert_true(rows[i].offset + rows[i].size <=
                    (field_is_host(&rows[i]) ? offsetof(struct profile_host, line) : offsetof(struct profile, hosts)));
        for (size_t j = 0; j < i; j++)
            if (field_is_host(&rows[i]) == field_is_host(&rows[j]))
                assert_true(rows[i].offset + rows[i].size <= rows[j].offset ||
                            rows[j].offset + rows[j].size <= rows[i].offset);
    }
}

/* A live setting is changed through stage 0, which stamps it; one of the synchronisation acts in every stage, at an agreed step. */
static void live_rows_have_an_applier(void **state)
{
    (void)state;
    static const char *const stamped[] = {"train.learning_rate", "mask.rate", "anchor.mix"};
    static const char *const agreed[] = {"sync.every", "sync.merge", "sync.outer_rate", "sync.rank"};
    static const char *const own[] = {"revert.steps", "revert.loss", "revert.norm"}; /* nobody else has to know */
    size_t count, live = 0;
    const struct field *rows = field_all(&count);
    for (size_t i = 0; i < count; i++)
        live += rows[i].live;
    for (size_t i = 0; i < sizeof stamped / sizeof *stamped; i++)
        assert_true(field_find(stamped[i])->live && field_find(stamped[i])->applier == APPLIES_STAGE);
    for (size_t i = 0; i < sizeof agreed / sizeof *agreed; i++)
        assert_true(field_find(agreed[i])->live && field_find(agreed[i])->applier == APPLIES_ALL_STAGES);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        assert_true(field_find(own[i])->live && field_find(own[i])->applier == APPLIES_SCHEDULER);
    assert_int_equal(live, sizeof stamped / sizeof *stamped + sizeof agreed / sizeof *agreed + sizeof own / sizeof *own);
}

static void check_round_trip(const struct field *row, const char *text)
{
    static struct profile_host host, other_host;
    static struct profile profile, other;
    struct why why = {0};
    char written[PROFILE_PATHS + 64], again[PROFILE_PATHS + 64];
    bool of_host = field_is_host(row);
    void *base = of_host ? (void *)&host : (void *)&profile, *other_base = of_host ? (void *)&other_host : (void *)&other;
    if (field_parse(row, text, base, &why))
        fail_msg("%s", why.text);
    field_format(row, base, written, sizeof written);
    if (field_parse(row, written, other_base, &why))
        fail_msg("'%s' was written as '%s': %s", text, written, why.text);
    assert_memory_equal((char *)base + row->offset, (char *)other_base + row->offset, row->size);
    field_format(row, other_base, again, sizeof again);
    assert_string_equal(written, again);
}

static void random_text(struct dice *dice, const struct field *row, char *out, size_t size)
{
    double share = (double)dice_below(dice, 1000001) / 1e6, value = row->minimum + share * (row->maximum - row->minimum);
    if (value > row->maximum)
        value = row->maximum;
    switch (row->type) {
    case FIELD_BOOL:
        snprintf(out, size, "%s", dice_below(dice, 2) ? "on" : "no");
        break;
    case FIELD_REAL:
        snprintf(out, size, "%.17g", value);
        break;
    case FIELD_RATE:
        snprintf(out, size, "%llubit", (unsigned long long)value);
        break;
    case FIELD_DURATION:
        snprintf(out, size, "%lluns", (unsigned long long)value);
        break;
    case FIELD_TIME:
        text_from_time((uint64_t)value, out, size);
        break;
    case FIELD_TEXT:
        snprintf(out, size, "/a/%llx b;c#ü", (unsigned long long)dice_u64(dice));
        break;
    default:
        snprintf(out, size, "%llu", (unsigned long long)value);
    }
}

static void what_is_written_parses_back(void **state)
{
    (void)state;
    struct dice dice = {3};
    size_t count;
    const struct field *rows = field_all(&count);
    for (size_t i = 0; i < count; i++) {
        char text[200];
        if (rows[i].initial)
            check_round_trip(&rows[i], rows[i].initial);
        for (int round = 0; round < 50 && rows[i].type != FIELD_CHOICE; round++) {
            random_text(&dice, &rows[i], text, sizeof text);
            check_round_trip(&rows[i], text);
        }
        for (int c = 0; rows[i].choices && rows[i].choices[c]; c++)
            check_round_trip(&rows[i], rows[i].choices[c]);
    }
}

/* A default is written as field_format writes it: the manual and a written profile look alike. */
static void defaults_are_in_their_written_form(void **state)
{
    (void)state;
    static struct profile profile;
    size_t count;
    const struct field *rows = field_all(&count);
    profile_defaults(&profile);
    struct profile_host *host = profile_add_host(&profile, "a", NULL);
    for (size_t i = 0; i < count; i++) {
        char text[200];
        field_format(&rows[i], field_is_host(&rows[i]) ? (void *)host : &profile, text, sizeof text);
        assert_string_equal(text, rows[i].initial ? rows[i].initial : "");
    }
}

static void reals_do_not_depend_on_the_locale(void **state)
{
    (void)state;
    static struct profile profile;
    char text[64];
    if (!setlocale(LC_ALL, "de_DE.UTF-8"))
        setlocale(LC_ALL, "");
    assert_int_equal(field_parse(field_find("mask.rate"), "0.125", &profile, NULL), 0);
    field_format(field_find("mask.rate"), &profile, text, sizeof text);
    setlocale(LC_ALL, "C");
    assert_string_equal(text, "0.125");
}

static void complaints_name_setting_value_and_range(void **state)
{
    (void)state;
    static const struct {
        const char *name, *value, *complaint;
    } rows[] = {
        {"mask.rate", "1.5", "mask.rate = 1.5 is out of range: 0 … 0.999"},
        {"mask.rate", "much", "mask.rate = much is not a number: 0 … 0.999"},
        {"mask.rate", "", "mask.rate = (nothing) is not a number: 0 … 0.999"},
        {"mask.rate", "nan", "mask.rate = nan is not a number: 0 … 0.999"},
        {"train.warmup", "-1", "train.warmup = -1 is out of range: 0 … 1000000000 steps"},
        {"train.warmup", "2.5", "train.warmup = 2.5 is not a whole number: 0 … 1000000000 steps"},
        {"train.warmup", "1e30", "train.warmup = 1e30 is out of range: 0 … 1000000000 steps"},
        {"train.warmup", "99999999999999999999",
         "train.warmup = 99999999999999999999 is out of range: 0 … 1000000000 steps"},
        {"pipeline.recompute", "maybe", "pipeline.recompute = maybe is not an answer: yes or no"},
        {"boundary.codec", "zip", "boundary.codec = zip is not known: one of dense, mask, subspace, principal, topk, hybrid, entropy"},
        {"host.kind", "remote", "host.kind = remote is not known: one of local, ssh"},
        {"link.pace", "200", "link.pace = 200 is not a rate such as 200Mbit: 0 … 1000Gbit"},
        {"link.pace", "2000Gbit", "link.pace = 2000Gbit is out of range: 0 … 1000Gbit"},
        {"run.timeout", "10", "run.timeout = 10 is not a time such as 20ms: 100ms … 24h"},
        {"run.timeout", "1ms", "run.timeout = 1ms is out of range: 100ms … 24h"},
        {"run.name", "a\nb", "run.name = a\nb has a control character: at most 63 bytes"},
        {"data.path", " ", "data.path = (nothing) must be given: at most 1023 bytes"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        static union {
            struct profile profile;
            struct profile_host host;
        } before, after;
        struct why why = {0};
        assert_int_equal(field_parse(field_find(rows[i].name), rows[i].value, &after, &why), ERR_INVALID);
        assert_string_equal(why.text, rows[i].complaint);
        assert_memory_equal(&before, &after, sizeof after); /* untouched */
    }
}

static void suggestions(void **state)
{
    (void)state;
    assert_string_equal(field_nearest("mask.rte"), "mask.rate");
    assert_string_equal(field_nearest("mask.reat"), "mask.rate");
    assert_string_equal(field_nearest("train.lerning_rate"), "train.learning_rate");
    assert_string_equal(field_nearest("model.learning_rate"), "train.learning_rate"); /* wrong section */
    assert_string_equal(field_nearest("host.lissten"), "host.listen");
    assert_null(field_nearest("completely.different_thing_altogether"));
    assert_null(field_find("mask"));
    assert_null(field_find("mask."));
    assert_null(field_find("mask.rate."));
    assert_null(field_find("rate"));
    assert_null(field_find(""));
}

static void log_levels_are_those_of_the_log(void **state)
{
    (void)state;
    const struct field *row = field_find("run.log");
    for (int i = 0; row->choices[i]; i++)
        assert_int_equal(log_level_from_name(row->choices[i]), i);
    assert_null(row->choices[LOG_TRACE + 1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_row_is_whole),
        cmocka_unit_test(rows_do_not_overlap),
        cmocka_unit_test(live_rows_have_an_applier),
        cmocka_unit_test(what_is_written_parses_back),
        cmocka_unit_test(defaults_are_in_their_written_form),
        cmocka_unit_test(reals_do_not_depend_on_the_locale),
        cmocka_unit_test(complaints_name_setting_value_and_range),
        cmocka_unit_test(suggestions),
        cmocka_unit_test(log_levels_are_those_of_the_log),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Words and numbers as people write them, and text from strangers. */
#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "ssh/base/text.h"
#include "ssh/base/why.h"
#include "tests/helpers/dice.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define UNTOUCHED UINT64_C(0xdeadbeef)

struct row {
    const char *text;
    uint64_t value; /* UNTOUCHED: refused, and the output stays as it was */
};

static void check_rows(int (*parse)(const char *, uint64_t *), const struct row *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t value = UNTOUCHED;
        int err = parse(rows[i].text, &value);
        if (value != rows[i].value || err != (rows[i].value == UNTOUCHED ? ERR_INVALID : 0))
            fail_msg("'%s' gave %d and %llu", rows[i].text, err, (unsigned long long)value);
    }
}

static void whole_numbers(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"0", 0}, {" 42\t", 42}, {"007", 7}, {"18446744073709551615", UINT64_MAX}, {"18446744073709551616", UNTOUCHED},
        {"99999999999999999999", UNTOUCHED}, {"", UNTOUCHED}, {" ", UNTOUCHED}, {"-1", UNTOUCHED}, {"+1", UNTOUCHED},
        {"1.0", UNTOUCHED}, {"0x10", UNTOUCHED}, {"1 2", UNTOUCHED}, {"1e3", UNTOUCHED}, {"１", UNTOUCHED},
    };
    check_rows(text_to_u64, rows, COUNT(rows));
}

static void sizes(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"512", 512}, {"512B", 512}, {"64KiB", 65536}, {"64 kib", 65536}, {"1.5GiB", UINT64_C(1610612736)},
        {"2GB", 2000000000}, {"0.5 MiB", 524288}, {"0.1kB", 100}, {"1TiB", UINT64_C(1) << 40}, {"16777216TiB", UNTOUCHED},
        {"16777215TiB", UINT64_MAX - (UINT64_C(1) << 40) + 1}, {"64K", UNTOUCHED}, {"64Kbit", UNTOUCHED}, {"-1B", UNTOUCHED},
        {".5MiB", UNTOUCHED}, {"5.MiB", UNTOUCHED}, {"1.2.3MiB", UNTOUCHED}, {"MiB", UNTOUCHED}, {"", UNTOUCHED},
        {"18446744073709551615.9", UNTOUCHED},
    };
    check_rows(text_to_bytes, rows, COUNT(rows));
}

static void rates(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"200Mbit", 200000000}, {"1Gbit", 1000000000}, {"0", 0}, {" 0 ", 0}, {"0.0", 0}, {"1.5 Mbit/s", 1500000},
        {"10kbit", 10000}, {"8bit", 8}, {"200", UNTOUCHED}, {"0.4", UNTOUCHED}, {"200MB", UNTOUCHED},
        {"200Mb", UNTOUCHED}, {"fast", UNTOUCHED}, {"-1Mbit", UNTOUCHED}, {"20000000Tbit", UNTOUCHED},
    };
    check_rows(text_to_rate, rows, COUNT(rows));
}

static void durations(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"20ms", 20000000}, {"1.5s", 1500000000}, {"2m", UINT64_C(120000000000)}, {"2 min", UINT64_C(120000000000)},
        {"1h", UINT64_C(3600000000000)}, {"1d", UINT64_C(86400000000000)}, {"0", 0}, {"7us", 7000}, {"3ns", 3},
        {"20", UNTOUCHED}, {"20 parsecs", UNTOUCHED}, {"1h 2m", UNTOUCHED}, {"nan s", UNTOUCHED}, {"300000d", UNTOUCHED},
    };
    check_rows(text_to_duration, rows, COUNT(rows));
}

static void times_are_utc(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"1970-01-02T00:00Z", 86400}, {"2026-12-01T08:00Z", UINT64_C(1796112000)}, {" 2026-12-01T08:00:07Z ", UINT64_C(1796112007)},
        {"2028-02-29T23:59:59Z", UINT64_C(1835481599)}, {"0", 0}, {"2027-02-29T00:00Z", UNTOUCHED}, {"2026-12-01T08:00", UNTOUCHED},
        {"2026-12-01 08:00Z", UNTOUCHED}, {"2026-12-01T08:00+1", UNTOUCHED}, {"2026-12-01T24:00Z", UNTOUCHED}, {"2026-12-01T08:60Z", UNTOUCHED},
        {"2026-12-01T08:00:Z", UNTOUCHED}, {"2026-12-01T08:00ZZ", UNTOUCHED}, {"2026-12-01", UNTOUCHED}, {"1", UNTOUCHED}, {"", UNTOUCHED},
        {"1969-12-31T23:59Z", UNTOUCHED}, {"2026--1-01T08:00Z", UNTOUCHED}, {"tomorrow at eight", UNTOUCHED},
    };
    char text[40];
    check_rows(text_to_time, rows, COUNT(rows));
    assert_string_equal(text_from_time(UINT64_C(1796112007), text, sizeof text), "2026-12-01T08:00:07Z");
    assert_string_equal(text_from_time(0, text, sizeof text), "0");
}

static void reals_are_finite_and_have_no_locale(void **state)
{
    (void)state;
    static const struct { const char *text; double value; } good[] = {
        {"0.95", 0.95}, {" 1e-3 ", 1e-3}, {"-2", -2}, {"+.5", .5}, {"1E5", 1e5},
    };
    static const char *const bad[] = {"", "nan", "inf", "1e999", "0x1p3", "1,5", "1.5x", "1 2", "e5", "."};
    setlocale(LC_ALL, "de_DE.UTF-8"); /* where it is installed, a comma is the decimal point */
    for (size_t i = 0; i < COUNT(good); i++) {
        double value = -77;
        assert_int_equal(text_to_real(good[i].text, &value), 0);
        assert_true(value == good[i].value);
    }
    for (size_t i = 0; i < COUNT(bad); i++) {
        double value = -77;
        assert_int_equal(text_to_real(bad[i], &value), ERR_INVALID);
        assert_true(value == -77);
    }
    setlocale(LC_ALL, "C");
}

static void booleans(void **state)
{
    (void)state;
    static const char *const yes[] = {"yes", "True", " on ", "1"}, *const no[] = {"no", "FALSE", "off", "0"};
    bool value;
    for (size_t i = 0; i < COUNT(yes); i++) {
        value = false;
        assert_int_equal(text_to_bool(yes[i], &value), 0);
        assert_true(value);
        assert_int_equal(text_to_bool(no[i], &value), 0);
        assert_false(value);
    }
    assert_int_equal(text_to_bool("maybe", &value), ERR_INVALID);
    assert_int_equal(text_to_bool("2", &value), ERR_INVALID);
}

static void numbers_for_people(void **state)
{
    (void)state;
    char out[32];
    static const struct row sizes_out[] = {
        {"0 B", 0}, {"1023 B", 1023}, {"1.0 KiB", 1024}, {"1.5 MiB", 1572864}, {"1.0 MiB", 1048575},
        {"16.0 EiB", UINT64_MAX},
    };
    static const struct row durations_out[] = {
        {"0 ns", 0}, {"999 ns", 999}, {"1 us", 1000}, {"15 ms", 15000000}, {"1 ms", 999999}, {"1.0 s", 999999999},
        {"3.2 s", 3200000000}, {"59.9 s", UINT64_C(59949999999)}, {"1 m 00 s", UINT64_C(59950000000)},
        {"1 h 02 m", UINT64_C(3725000000000)}, {"3 d 04 h", UINT64_C(273600000000000)},
        {"1 h 00 m", UINT64_C(3599500000000)},
    };
    for (size_t i = 0; i < COUNT(sizes_out); i++)
        assert_string_equal(text_from_bytes(sizes_out[i].value, out, sizeof out), sizes_out[i].text);
    for (size_t i = 0; i < COUNT(durations_out); i++)
        assert_string_equal(text_from_duration(durations_out[i].value, out, sizeof out), durations_out[i].text);
    text_from_duration(UINT64_MAX, out, sizeof out);
    assert_string_equal(out, "213503 d 23 h");
    assert_string_equal(text_from_rate(1.2e6, out, sizeof out), "1.2 MB/s");
    assert_string_equal(text_from_rate(0, out, sizeof out), "0 B/s");
    assert_string_equal(text_from_rate(999.7, out, sizeof out), "1.0 kB/s");
    assert_string_equal(text_from_rate((double)NAN, out, sizeof out), "unknown");
    assert_string_equal(text_from_rate(-1, out, sizeof out), "unknown");
    assert_string_equal(text_from_bytes(1572864, out, 4), "1.5");
}

static void nearest_names(void **state)
{
    (void)state;
    static const char *const names[] = {"mask.rate", "train.learning_rate", "run.seed", "link.pace"};
    assert_string_equal(text_nearest("mask.rat", names, 4), "mask.rate");
    assert_string_equal(text_nearest("msak.rate", names, 4), "mask.rate");
    assert_string_equal(text_nearest("msak.rtae", names, 4), "mask.rate"); /* two swaps, not four changes */
    assert_string_equal(text_nearest("train.leraning_rat", names, 4), "train.learning_rate");
    assert_string_equal(text_nearest("run.seeds", names, 4), "run.seed");
    assert_null(text_nearest("optimizer", names, 4));
    assert_null(text_nearest("", names, 4));
    assert_null(text_nearest("mask.rate", names, 0));
    static const char *const shorts[] = {"on", "off"};
    assert_null(text_nearest("xy", shorts, 2)); /* every letter differs */
    char huge[5000];
    memset(huge, 'm', sizeof huge - 1);
    huge[sizeof huge - 1] = 0;
    assert_null(text_nearest(huge, names, 4));
}

static void harmless_text(void **state)
{
    (void)state;
    static const struct { const char *from, *to; } rows[] = {
        {"plain", "plain"}, {"a\nb\tc", "a\\x0ab\\x09c"}, {"\x1b[31mred", "\\x1b[31mred"}, {"\x7f", "\\x7f"},
        {"Zeit → ß 漢 🜨", "Zeit → ß 漢 🜨"},
        {"\xc2\x9b" "31m", "\\xc2\\x9b31m"},                     /* C1 control sequence introducer */
        {"\xe2\x80\xae" "evil", "\\xe2\\x80\\xaeevil"},          /* right-to-left override */
        {"\xc0\x80", "\\xc0\\x80"},                              /* overlong NUL */
        {"\xc1\x81", "\\xc1\\x81"},                              /* overlong A, in all its lengths */
        {"\xe0\x81\x81", "\\xe0\\x81\\x81"},
        {"\xf0\x80\x81\x81", "\\xf0\\x80\\x81\\x81"},
        {"\xed\xa0\x80", "\\xed\\xa0\\x80"},                     /* surrogate */
        {"\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"},            /* beyond Unicode */
        {"cut \xe2\x86", "cut \\xe2\\x86"}, {"\xff", "\\xff"},
    };
    char out[100];
    for (size_t i = 0; i < COUNT(rows); i++) {
        size_t length = strlen(rows[i].from);
        assert_string_equal(text_harmless(rows[i].from, length, out, sizeof out), rows[i].to);
        assert_int_equal(text_is_harmless(rows[i].from, length), strcmp(rows[i].from, rows[i].to) == 0);
    }
    assert_string_equal(text_harmless("a\0b", 3, out, sizeof out), "a\\x00b");
    assert_string_equal(text_harmless("ab→", 5, out, 5), "ab"); /* cut between characters */
    assert_string_equal(text_harmless("ab\n", 3, out, 6), "ab");
    assert_string_equal(text_harmless("abc", 3, out, 1), "");
    memset(out, 'x', 4);
    text_harmless("abc", 3, out, 0);
    assert_int_equal(out[0], 'x');
}

static void whatever_comes_is_harmless_afterwards(void **state)
{
    (void)state;
    struct dice dice = {7};
    for (int round = 0; round < 20000; round++) {
        char from[40], out[60];
        size_t length = dice_below(&dice, sizeof from + 1), size = 1 + dice_below(&dice, sizeof out);
        dice_bytes(&dice, from, length);
        text_harmless(from, length, out, size);
        assert_true(strlen(out) < size);
        assert_true(text_is_harmless(out, strlen(out)));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_numbers),
        cmocka_unit_test(sizes),
        cmocka_unit_test(rates),
        cmocka_unit_test(times_are_utc),
        cmocka_unit_test(durations),
        cmocka_unit_test(reals_are_finite_and_have_no_locale),
        cmocka_unit_test(booleans),
        cmocka_unit_test(numbers_for_people),
        cmocka_unit_test(nearest_names),
        cmocka_unit_test(harmless_text),
        cmocka_unit_test(whatever_comes_is_harmless_afterwards),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

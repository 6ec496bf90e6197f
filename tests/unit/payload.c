/* Payloads of pseudo-gradients: exact sizes, round trips, levels, edges of rows and blocks, and lengths that nobody should believe. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "gpu/math/half.h"
#include "gpu/math/payload.h"
#include "ssh/base/mem.h"
#include "tests/helpers/numbers.h"

static const int64_t shapes[][2] = {{1, 1}, {3, 1}, {1, 2}, {5, 13}, {9, 63}, {2, 64}, {7, 65}, {4, 127}, {3, 128}, {8, 130}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static void test_sizes(void **state)
{
    (void)state;
    assert_int_equal(payload_bytes(PAYLOAD_FP32, 3, 13), 156);
    assert_int_equal(payload_bytes(PAYLOAD_BF16, 3, 13), 78);
    assert_int_equal(payload_bytes(PAYLOAD_INT8, 3, 13), 45);
    assert_int_equal(payload_bytes(PAYLOAD_INT4, 3, 13), 27);
    assert_int_equal(payload_bytes(PAYLOAD_E3M0, 3, 13), 27);
    assert_int_equal(payload_bytes(PAYLOAD_E3M0, 1, 64), 34);
    assert_int_equal(payload_bytes(PAYLOAD_E3M0, 1, 65), 37);
    assert_int_equal(payload_bytes(PAYLOAD_ROWS, 9, 13), 2 + 9 * 15);
    assert_string_equal(payload_name(PAYLOAD_E3M0), "e3m0");
}

/* Every kind and shape: the bytes are those announced, fewer are refused, the error is bounded, a second trip changes nothing. */
static void check_trip(enum payload_kind kind, int64_t rows, int64_t columns, uint64_t seed)
{
    static const float bound[PAYLOAD_KINDS] = {[PAYLOAD_BF16] = 0x1p-8f, [PAYLOAD_INT8] = .51f / 127, [PAYLOAD_INT4] = .51f / 7,
                                               [PAYLOAD_E3M0] = .26f, [PAYLOAD_ROWS] = .51f / 127};
    int64_t count = rows * columns;
    size_t bytes = payload_bytes(kind, rows, columns);
    float *x = mem_array((size_t)count, 4), *y = mem_array((size_t)count, 4), *z = mem_array((size_t)count, 4);
    uint8_t *coded = mem_array(bytes + 1, 1);
    struct why why = {0};
    numbers_noise(x, count, seed, 1);
    size_t used = payload_encode(kind, x, rows, columns, coded + 1); /* not aligned, as behind a header */
    assert_true(kind == PAYLOAD_ROWS ? used <= bytes : used == bytes);
    assert_int_equal(payload_decode(kind, coded + 1, used, rows, columns, y, &why), used);
    for (size_t less = 0; less < used; less += 1 + used / 7)
        assert_int_equal(payload_decode(kind, coded + 1, less, rows, columns, z, NULL), ERR_INVALID);
    for (int64_t r = 0; r < rows; r++) {
        float most = 0;
        for (int64_t i = 0; i < columns; i++)
            most = fmaxf(most, fabsf(x[r * columns + i]));
        for (int64_t i = 0; i < columns; i++)
            assert_true(fabsf(x[r * columns + i] - y[r * columns + i]) <= most * 1.01f * bound[kind]);
    }
    payload_encode(kind, y, rows, columns, coded + 1);
    assert_int_equal(payload_decode(kind, coded + 1, bytes, rows, columns, z, &why), used);
    if (kind != PAYLOAD_INT8 && kind != PAYLOAD_INT4 && kind != PAYLOAD_ROWS) /* their scale may be another one the second time */
        numbers_same(z, y, count * 4, "%s again, %d x %d", payload_name(kind), (int)rows, (int)columns);
    mem_free(x);
    mem_free(y);
    mem_free(z);
    mem_free(coded);
}

static void test_trips(void **state)
{
    (void)state;
    for (int kind = 0; kind < PAYLOAD_KINDS; kind++)
        for (int i = 0; i < SHAPES; i++)
            check_trip((enum payload_kind)kind, shapes[i][0], shapes[i][1], (uint64_t)(kind * SHAPES + i));
}

static void trip(enum payload_kind kind, const float *x, int64_t rows, int64_t columns, float *y)
{
    uint8_t coded[4096];
    assert_true(payload_bytes(kind, rows, columns) <= sizeof coded);
    size_t used = payload_encode(kind, x, rows, columns, coded);
    assert_int_equal(payload_decode(kind, coded, used, rows, columns, y, NULL), used);
}

/* All 15 levels come back as they are; between two levels the nearer one wins, and midway the larger. */
static void test_e3m0_levels(void **state)
{
    (void)state;
    float x[15], y[15];
    for (int k = 0; k < 7; k++) {
        x[k] = ldexpf(3, -k);
        x[14 - k] = -x[k];
    }
    x[7] = 0;
    trip(PAYLOAD_E3M0, x, 1, 15, y);
    numbers_same(y, x, sizeof x, "levels");
    for (int k = 0; k < 7; k++) {
        float lower = k == 6 ? 0 : ldexpf(1, -k - 1), upper = ldexpf(1, -k), middle = (lower + upper) / 2;
        float probes[4] = {1, middle, nextafterf(middle, 0), -nextafterf(middle, 2)}, got[4];
        trip(PAYLOAD_E3M0, probes, 1, 4, got);
        const float want[4] = {1, upper, lower, -upper};
        for (int i = 0; i < 4; i++)
            assert_true(got[i] >= want[i] && got[i] <= want[i]);
    }
}

/* A block has its own scale and ends with its row; an odd count leaves half a byte empty; the code −0 of a stranger is 0. */
static void test_e3m0_blocks(void **state)
{
    (void)state;
    float x[2 * 65], y[2 * 65];
    for (int i = 0; i < 2 * 65; i++)
        x[i] = i == 64 ? 1e-20f : i == 129 ? 1e20f : 1;
    trip(PAYLOAD_E3M0, x, 2, 65, y);
    assert_true(fabsf(y[64] / 1e-20f - 1) < 0.01f);
    assert_true(fabsf(y[129] / 1e20f - 1) < 0.01f);
    assert_true(y[63] >= 1 && y[65] >= 1);
    uint8_t coded[] = {0x80, 0x3F, 0x98, 0x0F}; /* scale 1; codes 8, 9, 15 */
    assert_int_equal(payload_decode(PAYLOAD_E3M0, coded, 4, 1, 3, y, NULL), 4);
    assert_true(y[0] >= 0 && y[0] <= 0 && y[1] <= -0x1p-6f && y[1] >= -0x1p-6f && y[2] >= -1 && y[2] <= -1);
}

/* Zeros stay zeros, what is not finite is not hidden and does not spoil its neighbours. */
static void test_edges(void **state)
{
    (void)state;
    const float bad[] = {NAN, INFINITY, -INFINITY};
    float x[3 * 70] = {0}, y[3 * 70];
    for (int kind = 0; kind < PAYLOAD_KINDS; kind++) {
        memset(x, 0, sizeof x);
        trip((enum payload_kind)kind, x, 3, 70, y);
        numbers_same(y, x, sizeof x, "zeros in %s", payload_name((enum payload_kind)kind));
        for (int i = 0; i < 3; i++) {
            for (int k = 0; k < 3 * 70; k++)
                x[k] = 1;
            x[70 + 5] = bad[i];
            trip((enum payload_kind)kind, x, 3, 70, y);
            assert_false(isfinite(y[75]));
            assert_false(payload_finite(y, 3 * 70));
            assert_true(payload_finite(y, 70) && payload_finite(y + 140, 70));
        }
        for (int k = 0; k < 3 * 70; k++)
            x[k] = k % 2 ? 1e-44f : -2e-42f; /* subnormal */
        trip((enum payload_kind)kind, x, 3, 70, y);
        assert_true(payload_finite(y, 3 * 70));
        for (int k = 0; k < 3 * 70; k++)
            x[k] = k % 2 ? 3e38f : -1e38f;
        trip((enum payload_kind)kind, x, 3, 70, y);
        assert_true(payload_finite(y, 3 * 70));
    }
}

/* Looking without decoding sees what decoding would: what is not finite, and scales of strangers that their codes carry beyond. */
static void test_check(void **state)
{
    (void)state;
    enum { ROWS = 3, WIDTH = 70 };
    float x[ROWS * WIDTH], y[ROWS * WIDTH];
    uint8_t coded[ROWS * WIDTH * sizeof(float) + 8];
    bool finite;
    for (int k = 0; k < PAYLOAD_KINDS; k++) {
        enum payload_kind kind = (enum payload_kind)k;
        for (int i = 0; i < ROWS * WIDTH; i++)
            x[i] = (float)(i % 9 - 4);
        int64_t bytes = (int64_t)payload_encode(kind, x, ROWS, WIDTH, coded);
        assert_int_equal(payload_check(kind, coded, (size_t)bytes, ROWS, WIDTH, y, &finite, NULL), bytes);
        assert_true(finite);
        struct why why = {0};
        assert_int_equal(payload_check(kind, coded, (size_t)bytes - 1, ROWS, WIDTH, y, &finite, &why), ERR_INVALID);
        x[ROWS * WIDTH - 1] = -INFINITY;
        bytes = (int64_t)payload_encode(kind, x, ROWS, WIDTH, coded);
        assert_int_equal(payload_check(kind, coded, (size_t)bytes, ROWS, WIDTH, y, &finite, NULL), bytes);
        assert_false(finite);
    }
    uint8_t stranger[] = {0x7F, 0x7F, 0x08}; /* the largest bf16, and the code −8 */
    assert_int_equal(payload_check(PAYLOAD_INT4, stranger, 3, 1, 1, y, &finite, NULL), 3);
    assert_false(finite);
}

/* Rows that were hardly touched do not travel; their bits say so. */
static void test_rows(void **state)
{
    (void)state;
    enum { ROWS = 11, WIDTH = 6 };
    float x[ROWS * WIDTH] = {0}, y[ROWS * WIDTH];
    uint8_t coded[256];
    for (int i = 0; i < WIDTH; i++) {
        x[2 * WIDTH + i] = 1;
        x[9 * WIDTH + i] = -0.5f;
        x[10 * WIDTH + i] = 1.0f / 300; /* below 1/256 of the largest */
    }
    size_t used = payload_encode(PAYLOAD_ROWS, x, ROWS, WIDTH, coded);
    assert_int_equal(used, 2 + 2 * (2 + WIDTH));
    assert_int_equal(coded[0], 1 << 2);
    assert_int_equal(coded[1], 1 << 1);
    assert_int_equal(payload_decode(PAYLOAD_ROWS, coded, sizeof coded, ROWS, WIDTH, y, NULL), used);
    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < WIDTH; i++)
            assert_true(fabsf(y[r * WIDTH + i] - (r == 10 ? 0 : x[r * WIDTH + i])) < 0.01f);
    coded[1] = 0xFF; /* says more rows than there are bytes */
    assert_int_equal(payload_decode(PAYLOAD_ROWS, coded, used, ROWS, WIDTH, y, NULL), ERR_INVALID);
    assert_int_equal(payload_decode(PAYLOAD_ROWS, coded, 1, ROWS, WIDTH, y, NULL), ERR_INVALID);
}

static void test_half(void **state)
{
    (void)state;
    assert_int_equal(half_from_float(1), 0x3F80);
    assert_int_equal(half_from_float(1.00390625f), 0x3F80); /* a tie: to even */
    assert_int_equal(half_from_float(1.01171875f), 0x3F82);
    assert_int_equal(half_above(1.0001f), 0x3F81);
    assert_int_equal(half_above(1), 0x3F80);
    assert_true(isnan(half_to_float(half_from_float(NAN))));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),       cmocka_unit_test(test_trips), cmocka_unit_test(test_e3m0_levels),
        cmocka_unit_test(test_e3m0_blocks), cmocka_unit_test(test_edges), cmocka_unit_test(test_rows),
        cmocka_unit_test(test_half),        cmocka_unit_test(test_check),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

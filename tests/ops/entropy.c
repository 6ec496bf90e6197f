/* The entropy coder of coefficients: what it costs beside what is possible, what does not fit, what is hostile. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gpu/math/entropy.h"
#include "gpu/math/range.h"
#include "gpu/math/statistics.h"
#include "ssh/base/mem.h"
#include "tests/helpers/dice.h"

enum { ROWS = 2100, COLUMNS = 192 };

static float deviation[COLUMNS];
static float *y, *back;

static double normal(struct dice *dice)
{
    double a = (double)(dice_below(dice, 1 << 30) + 1) / (1 << 30), b = (double)dice_below(dice, 1 << 30) / (1 << 30);
    return sqrt(-2 * log(a)) * cos(2 * M_PI * b);
}

static int begin(void **state)
{
    (void)state;
    struct dice dice = {7};
    y = mem_array(ROWS * COLUMNS, sizeof *y);
    back = mem_array(ROWS * COLUMNS, sizeof *back);
    for (int i = 0; i < COLUMNS; i++)
        deviation[i] = 3 * powf((float)(i + 1), -0.9f);
    for (int r = 0; r < ROWS; r++) {
        double scale = exp2(normal(&dice)); /* rows differ by octaves */
        for (int i = 0; i < COLUMNS; i++)
            y[r * COLUMNS + i] = (float)(scale * normal(&dice) * (double)deviation[i]);
    }
    return 0;
}

static int end(void **state)
{
    (void)state;
    mem_free(y);
    mem_free(back);
    return 0;
}

/* Mean square error of a row whose scale is 1. */
static double error_of(const float *decoded, int rows)
{
    double sum = 0;
    for (int r = 0; r < rows; r++) {
        double error = 0, scale = 0;
        for (int i = 0; i < COLUMNS; i++) {
            double difference = (double)(decoded[r * COLUMNS + i] - y[r * COLUMNS + i]);
            double white = (double)(y[r * COLUMNS + i] / deviation[i]);
            error += difference * difference;
            scale += white * white;
        }
        sum += error * COLUMNS / scale;
    }
    return sum / rows;
}

/* Of a normal source no code is better than the bound; plain rounding with entropy coding is 1.53 dB above it; scales and learning cost
 * the rest. */
static void the_error_is_near_the_bound(void **state)
{
    (void)state;
    double variances[COLUMNS];
    for (int i = 0; i < COLUMNS; i++)
        variances[i] = (double)deviation[i] * (double)deviation[i];
    for (int bits = 40; bits <= 640; bits *= 2) {
        size_t bytes = (size_t)(ROWS * bits / 8);
        uint8_t *message = mem_new(bytes);
        entropy_encode(y, deviation, ROWS, COLUMNS, message, bytes);
        size_t filled = bytes;
        while (filled && !message[filled - 1])
            filled--;
        entropy_decode(message, bytes, deviation, ROWS, COLUMNS, back);
        double error = error_of(back, ROWS), bound = statistics_bound(variances, COLUMNS, bits);
        double expected = entropy_error(deviation, COLUMNS, bits);
        if (getenv("SHOW"))
            printf("%4d bits: %.2f dB above the bound, %.2f expected, %.3f filled, %lld columns\n", bits, 10 * log10(error / bound),
                   10 * log10(expected / bound), (double)filled / (double)bytes, (long long)entropy_told(message, bytes));
        assert_true(error >= bound && error < exp10(bits > 200 ? 0.27 : 0.2) * bound);
        assert_true(fabs(log10(expected / error)) < 0.05);
        assert_true((double)filled > 0.97 * (double)bytes);
        mem_free(message);
    }
}

static void odd_rows_come_back_as_what_they_are(void **state)
{
    (void)state;
    enum { SOME = 8, BYTES = SOME * 60 };
    float *odd = mem_copy(y, SOME * COLUMNS * sizeof *odd);
    uint8_t message[BYTES];
    memset(odd + COLUMNS, 0, COLUMNS * sizeof *odd);       /* zeros */
    odd[2 * COLUMNS + 5] = NAN;
    odd[3 * COLUMNS + 7] = INFINITY;
    odd[4 * COLUMNS] = 1e6f;                               /* far outside what the deviation says */
    for (int i = 0; i < COLUMNS; i++)
        odd[5 * COLUMNS + i] *= 1e-20f;                    /* too small to be seen beside the others */
    entropy_encode(odd, deviation, SOME, COLUMNS, message, BYTES);
    entropy_decode(message, BYTES, deviation, SOME, COLUMNS, back);
    for (int i = 0; i < COLUMNS; i++) {
        assert_true(isfinite(back[i]) && back[COLUMNS + i] == 0 && back[5 * COLUMNS + i] == 0);
        assert_true(isnan(back[2 * COLUMNS + i]) && isnan(back[3 * COLUMNS + i]));
    }
    assert_true(fabsf(back[4 * COLUMNS] - 1e6f) < 1e5f);
    mem_free(odd);
}

/* Whatever room there is, it is kept to; what there is none for is zero. */
static void any_room_will_do(void **state)
{
    (void)state;
    for (int rows = 1; rows < 40; rows += 7)
        for (size_t bytes = 3; bytes < 400; bytes += 1 + bytes / 3) {
            uint8_t *message = mem_new(bytes); /* exactly so long: the address sanitizer looks on */
            entropy_encode(y, deviation, rows, COLUMNS, message, bytes);
            entropy_decode(message, bytes, deviation, rows, COLUMNS, back);
            assert_true(error_of(back, rows) < 1.1 * error_of((memset(back, 0, (size_t)(rows * COLUMNS) * sizeof *back), back), rows));
            mem_free(message);
        }
    /* More than all of it: nearly exact. */
    enum { ENOUGH = 16 * COLUMNS * 3 };
    uint8_t *message = mem_new(ENOUGH);
    entropy_encode(y, deviation, 16, COLUMNS, message, ENOUGH);
    entropy_decode(message, ENOUGH, deviation, 16, COLUMNS, back);
    assert_true(error_of(back, 16) < 1e-6);
    mem_free(message);
}

static void hostile_bytes_stay_inside(void **state)
{
    (void)state;
    struct dice dice = {11};
    for (int i = 0; i < 300; i++) {
        int rows = 1 + (int)dice_below(&dice, 1200);
        size_t bytes = 3 + dice_below(&dice, i % 3 ? 3000 : 8);
        uint8_t *message = mem_new(bytes);
        for (size_t k = 0; k < bytes; k++)
            message[k] = (uint8_t)dice_below(&dice, 256);
        if (i % 2) { /* a step that is one */
            message[0] = (uint8_t)dice_below(&dice, 256);
            message[1] = (uint8_t)(dice_below(&dice, 16) - 8);
        }
        int64_t columns = 1 + (int64_t)dice_below(&dice, COLUMNS);
        float *exact = mem_array((size_t)(rows * columns), sizeof *exact);
        entropy_decode(message, bytes, deviation, rows, columns, exact);
        assert_true(entropy_told(message, bytes) >= 0);
        mem_free(exact);
        mem_free(message);
    }
}

static void the_range_coder_gives_back_what_it_took(void **state)
{
    (void)state;
    enum { BITS = 20000, CONTEXTS = 5 };
    struct dice dice = {3};
    uint8_t *bits = mem_new(BITS), *out = mem_new(BITS);
    for (int i = 0; i < BITS; i++)
        bits[i] = dice_below(&dice, 100) < (i % CONTEXTS == 0 ? 50u : i % CONTEXTS == 4 ? 0u : (unsigned)(i % CONTEXTS));
    struct range_chance chances[CONTEXTS];
    struct range_writer writer;
    for (int i = 0; i < CONTEXTS; i++)
        chances[i] = (struct range_chance){32768, 32768};
    range_start(&writer, out, BITS);
    for (int i = 0; i < BITS; i++)
        if (i % 11 == 0)
            range_put_bits(&writer, bits[i] * 5u, 3);
        else
            range_put(&writer, &chances[i % CONTEXTS], bits[i]);
    size_t bytes = range_end(&writer);
    double entropy = BITS / 11.0 * 3 + BITS * 10 / 11.0 / CONTEXTS * (1 + 0.081 + 0.141 + 0.194);
    if (getenv("SHOW"))
        printf("range coder: %zu bytes, entropy %.0f\n", bytes, entropy / 8);
    assert_true((double)bytes < 1.06 * entropy / 8);
    struct range_reader reader;
    for (int i = 0; i < CONTEXTS; i++)
        chances[i] = (struct range_chance){32768, 32768};
    uint8_t *exact = mem_copy(out, bytes);
    range_open(&reader, exact, bytes);
    for (int i = 0; i < BITS; i++)
        assert_int_equal(i % 11 == 0 ? range_get_bits(&reader, 3) / 5 : (uint32_t)range_get(&reader, &chances[i % CONTEXTS]), bits[i]);
    mem_free(exact);
    mem_free(bits);
    mem_free(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_range_coder_gives_back_what_it_took),
        cmocka_unit_test(the_error_is_near_the_bound),
        cmocka_unit_test(odd_rows_come_back_as_what_they_are),
        cmocka_unit_test(any_room_will_do),
        cmocka_unit_test(hostile_bytes_stay_inside),
    };
    return cmocka_run_group_tests(tests, begin, end);
}

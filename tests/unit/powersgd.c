/*
 * PowerSGD: exact on what has the rank, nothing is lost by error feedback, and the same as the formulas written plainly in doubles.
 * The replicas here are arrays; the wire is bf16 where a test says so.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "gpu/math/half.h"
#include "gpu/math/outer.h"
#include "gpu/math/powersgd.h"
#include "ssh/base/mem.h"
#include "tests/helpers/numbers.h"

enum { REPLICAS = 3, MOST = 40 * 40 };

struct group {
    int replicas, rows, columns, rank;
    bool two_sided, bf16;
    struct powersgd *each[REPLICAS];
    float own[REPLICAS][MOST], decoded[MOST];
};

static void group_init(struct group *group, int replicas, int rows, int columns, int rank, bool two_sided, bool bf16)
{
    struct powersgd_settings settings = {.rows = rows, .columns = columns, .rank = rank, .two_sided = two_sided, .seed = 7};
    *group = (struct group){.replicas = replicas, .rows = rows, .columns = columns, .rank = rank, .two_sided = two_sided, .bf16 = bf16};
    for (int r = 0; r < replicas; r++)
        group->each[r] = powersgd_new(&settings);
}

static void group_clear(struct group *group)
{
    for (int r = 0; r < group->replicas; r++)
        powersgd_free(group->each[r]);
}

/* Contributions as they arrive, and their mean. */
static void exchange(struct group *group, int index, float *mean)
{
    const float *parts[REPLICAS];
    float shares[REPLICAS];
    int64_t count = powersgd_count(group->each[0], index);
    for (int r = 0; r < group->replicas; r++) {
        powersgd_contribute(group->each[r], index, group->own[r]);
        for (int64_t i = 0; group->bf16 && i < count; i++)
            group->own[r][i] = half_to_float(half_from_float(group->own[r][i]));
        parts[r] = group->own[r];
        shares[r] = 1.0f / (float)group->replicas;
    }
    outer_mean(mean, parts, shares, group->replicas, count);
}

/* One round of all; what they decode must be the same bits. */
static void round_of(struct group *group, float given[REPLICAS][MOST], float kept)
{
    float mean[MOST], decoded[MOST];
    for (int r = 0; r < group->replicas; r++)
        powersgd_begin(group->each[r], given[r]);
    exchange(group, 0, mean);
    if (group->two_sided) {
        for (int r = 0; r < group->replicas; r++)
            powersgd_turn(group->each[r], mean);
        exchange(group, 1, mean);
    }
    for (int r = 0; r < group->replicas; r++) {
        powersgd_commit(group->each[r], group->own[r], mean, kept, r ? decoded : group->decoded);
        if (r)
            numbers_same(decoded, group->decoded, (int64_t)(group->rows * group->columns) * 4, "replica %d", r);
    }
}

static void low_rank(float *out, int rows, int columns, int rank, uint64_t seed)
{
    float left[MOST], right[MOST];
    numbers_noise(left, rows * rank, seed, 1);
    numbers_noise(right, columns * rank, seed + 1, 1);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++) {
            double sum = 0;
            for (int k = 0; k < rank; k++)
                sum += (double)left[i * rank + k] * (double)right[j * rank + k];
            out[i * columns + j] = (float)sum;
        }
}

static double distance(const float *a, const float *b, int count)
{
    double sum = 0, norm = 0;
    for (int i = 0; i < count; i++) {
        sum += pow((double)a[i] - (double)b[i], 2);
        norm += pow((double)b[i], 2);
    }
    return sqrt(sum / norm);
}

/* The same matrix of rank r again and again, without feedback: after the first round the basis spans it. */
static void check_exact(int rows, int columns, bool two_sided)
{
    static float given[REPLICAS][MOST];
    struct group group;
    group_init(&group, 1, rows, columns, 4, two_sided, false);
    low_rank(given[0], rows, columns, 4, 11);
    round_of(&group, given, 0);
    for (int round = 1; round < 5; round++) {
        round_of(&group, given, 0);
        assert_true(distance(group.decoded, given[0], rows * columns) < 2e-6);
    }
    group_clear(&group);
}

static void test_exact_after_warm_start(void **state)
{
    (void)state;
    const int shapes[][2] = {{30, 20}, {20, 30}, {40, 40}, {5, 39}};
    for (int i = 0; i < 4; i++) {
        check_exact(shapes[i][0], shapes[i][1], false);
        check_exact(shapes[i][0], shapes[i][1], true);
    }
}

/* With all of the residual kept: Σ of own parts + what is left = Σ of what was given, over 50 rounds; the mean of own parts is what was
 * decoded. */
static void check_conservation(bool two_sided, bool bf16)
{
    enum { ROWS = 24, COLUMNS = 17, ALL = ROWS * COLUMNS };
    static float given[REPLICAS][MOST];
    static double given_sum[ALL], decoded_sum[ALL], largest;
    struct group group;
    group_init(&group, REPLICAS, ROWS, COLUMNS, 3, two_sided, bf16);
    memset(given_sum, 0, sizeof given_sum);
    memset(decoded_sum, 0, sizeof decoded_sum);
    largest = 0;
    for (int round = 0; round < 50; round++) {
        for (int r = 0; r < REPLICAS; r++) {
            numbers_noise(given[r], ALL, (uint64_t)(round * REPLICAS + r), 1);
            for (int i = 0; i < ALL; i++)
                given_sum[i] += (double)given[r][i] / REPLICAS;
        }
        round_of(&group, given, 1);
        for (int i = 0; i < ALL; i++) {
            double left = 0;
            decoded_sum[i] += (double)group.decoded[i];
            for (int r = 0; r < REPLICAS; r++)
                left += (double)powersgd_error(group.each[r])[i] / REPLICAS;
            largest = fmax(largest, fabs(decoded_sum[i] + left - given_sum[i]));
        }
    }
    assert_true(largest < 50 * 20 * 0x1p-22); /* rounding of sums that are about 20 large */
    group_clear(&group);
}

static void test_feedback_conserves(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++)
        check_conservation(i & 1, i & 2);
}

/* Another rank between two rounds, down and up: the same basis everywhere, orthonormal, and nothing of the error is lost. */
static void test_rank_changes(void **state)
{
    (void)state;
    static const int64_t ranks[] = {6, 2, 2, 5, 1, 6, 3};
    for (int two_sided = 0; two_sided < 2; two_sided++) {
        struct group group;
        float given[REPLICAS][MOST];
        double given_sum[MOST] = {0}, decoded_sum[MOST] = {0};
        group_init(&group, REPLICAS, 20, 14, 6, two_sided, true);
        for (int round = 0; round < 42; round++) {
            for (int r = 0; r < REPLICAS; r++) {
                numbers_noise(given[r], 20 * 14, (uint64_t)(100 * round + r), 1);
                powersgd_set_rank(group.each[r], ranks[round % 7]);
                for (int i = 0; i < 20 * 14; i++)
                    given_sum[i] += (double)given[r][i] / REPLICAS;
            }
            int64_t count = powersgd_basis_count(group.each[0]), rank = ranks[round % 7], side = count / rank;
            uint64_t rounds;
            const float *basis = powersgd_basis(group.each[0], &rounds), *other = powersgd_basis(group.each[REPLICAS - 1], &rounds);
            numbers_same(basis, other, count * 4, "basis of round %d", round);
            for (int64_t i = 0; i < rank; i++)
                for (int64_t k = 0; k < rank; k++) {
                    double dot = 0;
                    for (int64_t j = 0; j < side; j++)
                        dot += (double)basis[j * rank + i] * (double)basis[j * rank + k];
                    assert_true(fabs(dot - (i == k)) < 1e-5);
                }
            for (int e = 0; e < powersgd_exchanges(group.each[0]); e++)
                assert_true(powersgd_count(group.each[0], e) <= powersgd_most_count(group.each[0], e));
            round_of(&group, given, 1);
            for (int i = 0; i < 20 * 14; i++)
                decoded_sum[i] += (double)group.decoded[i];
        }
        for (int i = 0; i < 20 * 14; i++) {
            double left = 0;
            for (int r = 0; r < REPLICAS; r++)
                left += (double)powersgd_error(group.each[r])[i] / REPLICAS;
            assert_true(fabs(decoded_sum[i] + left - given_sum[i]) < 1e-3);
        }
        group_clear(&group);
    }
}

/* ---- the formulas, plainly, in doubles ---- */

struct plain {
    int rows, columns, rank, round;
    double basis[MOST], error[MOST], decoded[MOST];
};

static void plain_orthonormalize(double *a, int rows, int rank)
{
    for (int k = 0; k < rank; k++) {
        for (int pass = 0; pass < 2; pass++)
            for (int e = 0; e < k; e++) {
                double share = 0;
                for (int i = 0; i < rows; i++)
                    share += a[i * rank + k] * a[i * rank + e];
                for (int i = 0; i < rows; i++)
                    a[i * rank + k] -= share * a[i * rank + e];
            }
        double norm = 0;
        for (int i = 0; i < rows; i++)
            norm += a[i * rank + k] * a[i * rank + k];
        for (int i = 0; i < rows; i++)
            a[i * rank + k] /= sqrt(norm);
    }
}

static void plain_round(struct plain *p, const float *given, double kept)
{
    double projected[MOST] = {0};
    bool left = p->round++ % 2;
    int side = left ? p->columns : p->rows;
    for (int i = 0; i < p->rows; i++)
        for (int j = 0; j < p->columns; j++)
            for (int k = 0; k < p->rank; k++) {
                double m = (double)given[i * p->columns + j] + p->error[i * p->columns + j];
                projected[(left ? j : i) * p->rank + k] += m * p->basis[(left ? i : j) * p->rank + k];
            }
    for (int i = 0; i < p->rows; i++)
        for (int j = 0; j < p->columns; j++) {
            int at = i * p->columns + j;
            p->decoded[at] = 0;
            for (int k = 0; k < p->rank; k++)
                p->decoded[at] += projected[(left ? j : i) * p->rank + k] * p->basis[(left ? i : j) * p->rank + k];
            p->error[at] = kept * ((double)given[at] + p->error[at] - p->decoded[at]);
        }
    memcpy(p->basis, projected, sizeof projected);
    plain_orthonormalize(p->basis, side, p->rank);
}

static void test_alternation_is_the_plain_one(void **state)
{
    (void)state;
    enum { ROWS = 19, COLUMNS = 26, RANK = 5, ALL = ROWS * COLUMNS };
    static float given[REPLICAS][MOST];
    static struct plain plain;
    struct group group;
    uint64_t rounds;
    group_init(&group, 1, ROWS, COLUMNS, RANK, false, false);
    plain = (struct plain){.rows = ROWS, .columns = COLUMNS, .rank = RANK};
    for (int i = 0; i < COLUMNS * RANK; i++)
        plain.basis[i] = (double)powersgd_basis(group.each[0], &rounds)[i];
    for (int round = 0; round < 12; round++) {
        numbers_noise(given[0], ALL, (uint64_t)round, 1);
        round_of(&group, given, 0.5f);
        plain_round(&plain, given[0], 0.5);
        numbers_near(group.decoded, plain.decoded, ALL, 1e-5, "decoded, round %d", round);
        numbers_near(powersgd_error(group.each[0]), plain.error, ALL, 1e-5, "error, round %d", round);
    }
    group_clear(&group);
}

/* ---- edges ---- */

static void check_orthonormal(const float *a, int64_t rows, int64_t rank)
{
    for (int64_t k = 0; k < rank; k++)
        for (int64_t e = 0; e <= k; e++) {
            double sum = 0;
            for (int64_t i = 0; i < rows; i++)
                sum += (double)a[i * rank + k] * (double)a[i * rank + e];
            assert_true(fabs(sum - (k == e)) < 1e-6);
        }
}

static void test_deficient_columns_are_replaced(void **state)
{
    (void)state;
    enum { ROWS = 12, RANK = 5 };
    float a[ROWS * RANK], b[ROWS * RANK], square[4 * 4] = {0};
    double scratch[ROWS * RANK];
    numbers_noise(a, ROWS * RANK, 3, 1e-30);
    for (int i = 0; i < ROWS; i++) {
        a[i * RANK + 2] = a[i * RANK] + a[i * RANK + 1]; /* dependent */
        a[i * RANK + 4] = 0;
    }
    memcpy(b, a, sizeof a);
    powersgd_orthonormalize(a, ROWS, RANK, 1, 2, scratch);
    check_orthonormal(a, ROWS, RANK);
    powersgd_orthonormalize(b, ROWS, RANK, 1, 2, scratch);
    numbers_same(a, b, sizeof a, "twice");
    powersgd_orthonormalize(square, 4, 4, 1, 2, scratch); /* nothing but replacements, up to the last free direction */
    check_orthonormal(square, 4, 4);
}

/* Zeros decode to zeros and leave no error; afterwards the matrix is as exact as ever. */
static void check_zero(bool two_sided)
{
    static float given[REPLICAS][MOST];
    struct group group;
    uint64_t rounds;
    group_init(&group, 2, 16, 10, 2, two_sided, true);
    memset(given, 0, sizeof given);
    for (int round = 0; round < 3; round++) {
        round_of(&group, given, 1);
        for (int i = 0; i < 160; i++)
            assert_true(fabsf(group.decoded[i]) <= 0 && fabsf(powersgd_error(group.each[0])[i]) <= 0);
    }
    const float *basis = powersgd_basis(group.each[0], &rounds);
    check_orthonormal(basis, powersgd_basis_count(group.each[0]) / 2, 2);
    low_rank(given[0], 16, 10, 1, 5);
    memcpy(given[1], given[0], sizeof given[0]);
    round_of(&group, given, 0);
    round_of(&group, given, 0);
    round_of(&group, given, 0);
    assert_true(distance(group.decoded, given[0], 160) < 0x1p-7);
    group_clear(&group);
}

static void test_zero(void **state)
{
    (void)state;
    check_zero(false);
    check_zero(true);
}

/* A dropped round is as if it had never begun. */
static void test_drop_rolls_back(void **state)
{
    (void)state;
    static float given[REPLICAS][MOST], noise[MOST], values[MOST];
    for (int two_sided = 0; two_sided < 2; two_sided++) {
        struct group one, other;
        group_init(&one, 1, 20, 14, 3, two_sided, true);
        group_init(&other, 1, 20, 14, 3, two_sided, true);
        for (int round = 0; round < 6; round++) {
            numbers_noise(noise, 280, (uint64_t)(100 + round), 5);
            powersgd_begin(one.each[0], noise);
            powersgd_contribute(one.each[0], 0, values);
            if (two_sided && round % 2)
                powersgd_turn(one.each[0], values);
            powersgd_drop(one.each[0]);
            numbers_noise(given[0], 280, (uint64_t)round, 1);
            round_of(&one, given, 0.5f);
            round_of(&other, given, 0.5f);
            numbers_same(one.decoded, other.decoded, 280 * 4, "round %d", round);
            numbers_same(powersgd_error(one.each[0]), powersgd_error(other.each[0]), 280 * 4, "error of round %d", round);
        }
        group_clear(&one);
        group_clear(&other);
    }
}

/* Who joins with basis and round number decodes the same bits from then on (round_of looks), and its error begins at zero. */
static void test_join(void **state)
{
    (void)state;
    static float given[REPLICAS][MOST];
    for (int joined = 1; joined < 4; joined++) {
        struct group group;
        group_init(&group, 2, 20, 14, 3, false, true);
        for (int round = 0; round < 6; round++) {
            uint64_t rounds;
            const float *basis = powersgd_basis(group.each[0], &rounds);
            assert_int_equal(rounds, round);
            if (round == joined) {
                powersgd_free(group.each[1]);
                group.each[1] = powersgd_new(&(struct powersgd_settings){.rows = 20, .columns = 14, .rank = 3, .seed = 8});
                powersgd_join(group.each[1], basis, rounds);
                for (int i = 0; i < 280; i++)
                    assert_true(fabsf(powersgd_error(group.each[1])[i]) <= 0);
            }
            numbers_noise(given[0], 280, (uint64_t)round, 1);
            numbers_noise(given[1], 280, (uint64_t)(50 + round), 1);
            round_of(&group, given, 0.5f);
        }
        group_clear(&group);
    }
}

static void test_pays(void **state)
{
    (void)state;
    assert_true(powersgd_pays(192, 192, 16, false));
    assert_true(powersgd_pays(192, 192, 95, true));
    assert_false(powersgd_pays(192, 192, 96, true));
    assert_false(powersgd_pays(192, 192, 192, false));
    assert_false(powersgd_pays(8, 4096, 9, false));
    assert_false(powersgd_pays(1, 4096, 1, false));
}

static void test_outer(void **state)
{
    (void)state;
    float common[2] = {1, 2}, momentum[2] = {0, 1}, local[2] = {3, 4};
    const float delta[2] = {0.5f, -0.5f}, want[2] = {1 - 0.5f * (0.5f + 0.25f), 2 - 0.5f * (-0.5f + 0.5f * 0)};
    outer_step(common, momentum, delta, 2, 0.5f, 0.5f);
    assert_true(fabsf(momentum[0] - 0.5f) < 1e-7f && fabsf(momentum[1]) < 1e-7f);
    for (int i = 0; i < 2; i++)
        assert_true(fabsf(common[i] - want[i]) < 1e-6f);
    outer_merge(local, common, 2, 0.25f);
    assert_true(fabsf(local[0] - (0.75f + 0.75f * common[0])) < 1e-6f);
    outer_merge(local, common, 2, 0);
    numbers_same(local, common, sizeof local, "all of it");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact_after_warm_start),       cmocka_unit_test(test_rank_changes), cmocka_unit_test(test_feedback_conserves),
        cmocka_unit_test(test_alternation_is_the_plain_one), cmocka_unit_test(test_deficient_columns_are_replaced),
        cmocka_unit_test(test_zero),                         cmocka_unit_test(test_drop_rolls_back),
        cmocka_unit_test(test_join),                         cmocka_unit_test(test_pays),
        cmocka_unit_test(test_outer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * Singular directions against LAPACK's on stored matrices with a gap in the spectrum and without; against what is known of
 * made ones; the same bits twice; warm starts; degenerate shapes; the small eigenproblem.
 */
#include "gpu/math/subspace.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "ssh/base/mem.h"
#include "tests/helpers/backend.h"
#include "tests/helpers/golden.h"
#include "tests/helpers/numbers.h"

static struct backend cpu;

struct found {
    float *left, *right, *singular, *start;
};

static struct found find(const float *matrix, int64_t rows, int64_t columns, int64_t rank, int passes, struct found *warm)
{
    struct why why = {0};
    struct subspace *subspace = subspace_new(cpu.ops, cpu.device, rows, columns, rank, &why);
    assert_non_null(subspace);
    struct found found = {mem_array((size_t)(rows * rank), 4), mem_array((size_t)(columns * rank), 4),
                          mem_array((size_t)rank, 4), mem_array((size_t)(columns * subspace_width(rows, columns, rank)), 4)};
    if (warm)
        memcpy(found.start, warm->start, (size_t)(columns * subspace_width(rows, columns, rank)) * 4);
    float *device = backend_tensor(&cpu, matrix, rows * columns);
    subspace_find(subspace, device, rows, columns, rank, passes, 5, found.start,
                  &(struct subspace_result){found.left, found.right, found.singular});
    cpu.ops->free(cpu.device, device);
    subspace_free(subspace);
    return found;
}

static void drop(struct found *found)
{
    mem_free(found->left);
    mem_free(found->right);
    mem_free(found->singular);
    mem_free(found->start);
}

static void check_orthonormal(const float *a, int64_t rows, int64_t rank)
{
    for (int64_t i = 0; i < rank; i++)
        for (int64_t j = 0; j <= i; j++) {
            double sum = 0;
            for (int64_t r = 0; r < rows; r++)
                sum += (double)a[r * rank + i] * (double)a[r * rank + j];
            assert_true(fabs(sum - (i == j)) < 1e-5);
        }
}

/* Sine of the largest angle between the spaces that the columns of two matrices [rows, rank] span. */
static double angle(const float *ours, const double *theirs, int64_t rows, int64_t rank)
{
    double *cosines = mem_array((size_t)(rank * rank), sizeof(double)),
           *gram = mem_array((size_t)(rank * rank), sizeof(double));
    double *values = mem_array((size_t)rank, sizeof(double)), *vectors = mem_array((size_t)(rank * rank), sizeof(double));
    for (int64_t i = 0; i < rank * rank; i++)
        for (int64_t r = 0; r < rows; r++)
            cosines[i] += (double)ours[r * rank + i / rank] * theirs[r * rank + i % rank];
    for (int64_t i = 0; i < rank * rank; i++)
        for (int64_t k = 0; k < rank; k++)
            gram[i] += cosines[k * rank + i / rank] * cosines[k * rank + i % rank];
    subspace_eigen(gram, rank, values, vectors);
    double least = values[rank - 1];
    mem_free(cosines);
    mem_free(gram);
    mem_free(values);
    mem_free(vectors);
    return least < 1 ? sqrt(1 - least) : 0;
}

static void check_against_lapack(const char *name, int passes, double angle_most, double value_most)
{
    char what[40];
    struct golden golden[4];
    static const char *const parts[] = {"matrix", "singular", "left", "right"};
    for (int i = 0; i < 4; i++) {
        snprintf(what, sizeof what, "%s.%s", name, parts[i]);
        golden_read("tests/ops/fixtures/filter.txt", what, &golden[i]);
    }
    float *matrix = golden_floats(&golden[0]);
    struct found found = find(matrix, golden[0].rows, golden[0].columns, 8, passes, NULL);
    check_orthonormal(found.left, golden[0].rows, 8);
    check_orthonormal(found.right, golden[0].columns, 8);
    for (int k = 0; k < 8; k++)
        assert_true(fabs((double)found.singular[k] - golden[1].values[k]) < value_most * golden[1].values[0]);
    assert_true(angle(found.left, golden[2].values, golden[0].rows, 8) < angle_most);
    assert_true(angle(found.right, golden[3].values, golden[0].columns, 8) < angle_most);
    for (int i = 0; i < 4; i++)
        golden_free(&golden[i]);
    mem_free(matrix);
    drop(&found);
}

/* With a gap one pass finds the space to a thousandth; 1/(1+i) has none to speak of and needs some. */
static void lapack_finds_the_same(void **state)
{
    (void)state;
    check_against_lapack("gap", 1, 2e-2, 1e-3);
    check_against_lapack("gap", 3, 1e-3, 1e-5); /* fp32 tells angles apart down to some 3e-4 */
    check_against_lapack("power", 4, 5e-2, 1e-3);
    check_against_lapack("power", 12, 1e-3, 1e-5);
}

static void the_same_bits_twice(void **state)
{
    (void)state;
    enum { M = 70, N = 50, K = 12 };
    float matrix[M * N];
    numbers_noise(matrix, M * N, 3, 1);
    struct found one = find(matrix, M, N, K, 2, NULL), other = find(matrix, M, N, K, 2, NULL);
    numbers_same(one.left, other.left, M * K * 4, "left");
    numbers_same(one.right, other.right, N * K * 4, "right");
    numbers_same(one.singular, other.singular, K * 4, "singular values");
    drop(&one);
    drop(&other);
}

/* Energy that the basis holds after one pass from where the last call ended, against a cold start. */
static void a_warm_start_goes_on(void **state)
{
    (void)state;
    enum { M = 60, N = 80, K = 6 };
    float matrix[M * N];
    numbers_noise(matrix, M * N, 8, 1); /* white: the hardest spectrum */
    struct found cold = find(matrix, M, N, K, 1, NULL), warm = find(matrix, M, N, K, 1, &cold);
    for (int i = 0; i < 8; i++) {
        struct found next = find(matrix, M, N, K, 1, &warm);
        drop(&warm);
        warm = next;
    }
    struct found many = find(matrix, M, N, K, 40, NULL);
    double energy[3] = {0};
    for (int k = 0; k < K; k++) {
        energy[0] += pow((double)cold.singular[k], 2);
        energy[1] += pow((double)warm.singular[k], 2);
        energy[2] += pow((double)many.singular[k], 2);
    }
    assert_true(energy[0] < 0.9 * energy[2]);
    assert_true(energy[1] > 0.97 * energy[2]);
    drop(&cold);
    drop(&warm);
    drop(&many);
}

static void degenerate_matrices(void **state)
{
    (void)state;
    float row[7] = {0, 3, 0, -4, 0, 0, 0}, zero[6 * 5] = {0}, rank_one[6 * 5];
    struct found found = find(row, 1, 7, 1, 1, NULL);
    assert_true(fabs((double)found.singular[0] - 5) < 1e-5);
    assert_true(fabs((double)found.left[0] - 1) < 1e-6 && fabs((double)found.right[1] - 0.6) < 1e-6);
    drop(&found);
    found = find(row, 7, 1, 1, 1, NULL);
    assert_true(fabs((double)found.singular[0] - 5) < 1e-5);
    drop(&found);
    found = find(zero, 6, 5, 4, 2, NULL);
    for (int k = 0; k < 4; k++)
        assert_true(found.singular[k] >= 0 && found.singular[k] <= 0);
    check_orthonormal(found.left, 6, 4);
    check_orthonormal(found.right, 5, 4);
    drop(&found);
    for (int i = 0; i < 30; i++)
        rank_one[i] = (float)((i / 5 + 1) * (i % 5 - 2));
    found = find(rank_one, 6, 5, 5, 2, NULL);
    assert_true(fabs((double)found.singular[0] - sqrt(91.0 * 10)) < 1e-3 && found.singular[1] < 1e-3f);
    check_orthonormal(found.right, 5, 5);
    drop(&found);
}

static void eigenvalues_of_a_known_matrix(void **state)
{
    (void)state;
    double a[9] = {2, -1, 0, -1, 2, -1, 0, -1, 2}, values[3], vectors[9];
    subspace_eigen(a, 3, values, vectors);
    assert_true(fabs(values[0] - 2 - sqrt(2)) < 1e-12 && fabs(values[1] - 2) < 1e-12 &&
                fabs(values[2] - 2 + sqrt(2)) < 1e-12);
    assert_true(fabs(fabs(vectors[0]) - 0.5) < 1e-12 && fabs(fabs(vectors[3]) - sqrt(0.5)) < 1e-12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lapack_finds_the_same),         cmocka_unit_test(the_same_bits_twice),
        cmocka_unit_test(a_warm_start_goes_on),          cmocka_unit_test(degenerate_matrices),
        cmocka_unit_test(eigenvalues_of_a_known_matrix),
    };
    backend_open(&cpu, 1);
    cmocka_set_message_output(CM_OUTPUT_STDOUT);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    backend_close(&cpu);
    return failed;
}

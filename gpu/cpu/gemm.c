/*
 * Matrix products: in panels where our kernels are faster and they are large enough (panels.c), else by oneDNN: dnnl_sgemm and its
 * like for bf16, which are the same in oneDNN 2.x and 3.x, and row-major as we are; and primitives where those are faster (product.c):
 * gradients of weights in fp32, short sums in bf16.
 * No header declares the second one, so a library without it must do: products of bf16 are then made in fp32, as on a processor that has no instruction for them.
 *
 * oneDNN divides the work by the calling thread's OpenMP setting, so that is set before each call; then the division, and
 * with it the order of every sum, depends on the shape and the number of threads alone.
 */
#include <dnnl.h>
#include <string.h>

#include "gpu/cpu/cpu.h"
#include "gpu/cpu/threads.h"

enum {
    SMALL = 1 << 18, /* multiply-adds that are done before a second thread would have begun */
    PIECE = 1 << 18, /* floats that are made of bf16 at a time: 1 MiB */
    LONG_SUM = 2048, /* from here on gemm makes products of bf16 faster than primitives do */
};

extern dnnl_status_t dnnl_gemm_bf16bf16f32(char transpose_a, char transpose_b, dnnl_dim_t m, dnnl_dim_t n, dnnl_dim_t k, float alpha,
                                           const uint16_t *a, dnnl_dim_t lda, const uint16_t *b, dnnl_dim_t ldb, float beta, float *c,
                                           dnnl_dim_t ldc) __attribute__((weak));

const char *gemm_version(char *out, size_t size)
{
    const dnnl_version_t *version = dnnl_version();
    snprintf(out, size, "oneDNN %d.%d.%d", version->major, version->minor, version->patch);
    return out;
}

/* Is nothing left to do? An empty sum is zero. */
static bool gemm_is_empty(float *c, int64_t m, int64_t n, int64_t k, int64_t ldc, bool accumulate)
{
    for (int64_t i = 0; i < m && k == 0 && !accumulate; i++)
        memset(c + i * ldc, 0, (size_t)n * sizeof *c);
    return m == 0 || n == 0 || k == 0;
}

static void must_succeed(const char *call, dnnl_status_t status, int64_t m, int64_t n, int64_t k, int64_t lda, int64_t ldb, int64_t ldc)
{
    if (status != dnnl_success)
        BUG("%s says %d for m %lld n %lld k %lld lda %lld ldb %lld ldc %lld", call, (int)status, (long long)m, (long long)n,
            (long long)k, (long long)lda, (long long)ldb, (long long)ldc);
}

/* Panels are filled up with zeros, so narrow products are not for them. */
static bool gemm_by_panels(const struct device *device, int64_t m, int64_t n, int64_t k)
{
    return device->kernels->panels && m >= 16 && n >= 16 && k >= 16 && m * n * k >= SMALL;
}

static bool gemm_floats_by_panels(const struct device *device, int64_t m, int64_t n, int64_t k)
{
    return gemm_by_panels(device, m, n, k) && device->kernels->panels->floats;
}

/* Gradients of weights: sums over many rows, onto what is there. With AVX-512 primitives are a tenth faster than gemm at them. */
static bool gemm_is_gradient(const struct device *device, const struct product_shape *s)
{
    return s->transpose_a && !s->transpose_b && s->accumulate && s->m * s->n * s->k >= SMALL &&
           device->kernels->vector == &vector_kernels_avx512;
}

void gemm_matmul(struct device *device, float *c, const float *a, const float *b, int64_t m, int64_t n, int64_t k,
                 int64_t lda, int64_t ldb, int64_t ldc, bool transpose_a, bool transpose_b, bool accumulate)
{
    if (gemm_is_empty(c, m, n, k, ldc, accumulate))
        return;
    const struct product_shape shape = {m, n, k, lda, ldb, ldc, transpose_a, transpose_b, false, accumulate};
    if (gemm_floats_by_panels(device, m, n, k)) {
        panels_product(device, c, a, b, &shape, false, false, accumulate);
        return;
    }
    if (gemm_is_gradient(device, &shape) && product_make(device, c, a, b, &shape))
        return;
    threads_set(m * n * k < SMALL ? 1 : device->threads);
    dnnl_status_t status = dnnl_sgemm(transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N', m, n, k, 1.0f, a, lda, b, ldb,
                                      accumulate ? 1.0f : 0.0f, c, ldc);
    must_succeed("dnnl_sgemm", status, m, n, k, lda, ldb, ldc);
}

static const float *gemm_widen(struct device *device, float *to, const uint16_t *from, int64_t rows, int64_t columns, int64_t stride)
{
    const struct vector_kernels *kernels = device->kernels->vector;
#pragma omp parallel for num_threads(cpu_threads_for(device, rows *columns)) schedule(static)
    for (int64_t r = 0; r < rows; r++)
        kernels->widen(to + r * columns, from + r * stride, columns);
    return to;
}

/* b goes in pieces of whole stored rows: columns of c when it is transposed, else parts of the sum. */
static void gemm_in_pieces(struct device *device, float *c, const float *a, const uint16_t *b, float *scratch, int64_t m, int64_t n,
                           int64_t k, int64_t lda, int64_t ldb, int64_t ldc, bool transpose_a, bool transpose_b, bool accumulate)
{
    int64_t rows = transpose_b ? n : k, columns = transpose_b ? k : n, most = PIECE / columns > 1 ? PIECE / columns : 1;
    for (int64_t at = 0; at < rows; at += most) {
        int64_t count = rows - at < most ? rows - at : most;
        const float *piece = gemm_widen(device, scratch, b + at * ldb, count, columns, ldb);
        if (transpose_b)
            gemm_matmul(device, c + at, a, piece, m, count, k, lda, k, ldc, transpose_a, true, accumulate);
        else
            gemm_matmul(device, c, a + (transpose_a ? at * lda : at), piece, m, n, count, lda, n, ldc, transpose_a, false,
                        accumulate || at > 0);
    }
}

static size_t gemm_piece_bytes(int64_t n, int64_t k, bool transpose_b)
{
    int64_t columns = transpose_b ? k : n;
    return (size_t)(columns > PIECE ? columns : PIECE) * sizeof(float);
}

void gemm_words(struct device *device, float *c, const float *a, const uint16_t *b, int64_t m, int64_t n, int64_t k, int64_t lda,
                int64_t ldb, int64_t ldc, bool transpose_a, bool transpose_b, bool accumulate)
{
    if (gemm_is_empty(c, m, n, k, ldc, accumulate))
        return;
    if (gemm_floats_by_panels(device, m, n, k)) {
        const struct product_shape shape = {m, n, k, lda, ldb, ldc, transpose_a, transpose_b, false, accumulate};
        panels_product(device, c, a, b, &shape, false, true, accumulate);
        return;
    }
    float *scratch = cpu_scratch(device, gemm_piece_bytes(n, k, transpose_b));
    gemm_in_pieces(device, c, a, b, scratch, m, n, k, lda, ldb, ldc, transpose_a, transpose_b, accumulate);
}

/* Why oneDNN cannot make products of bf16; NULL: it can. */
static const char *gemm_half_is_missing(const struct device *device)
{
    if (!dnnl_gemm_bf16bf16f32)
        return "this oneDNN does not export dnnl_gemm_bf16bf16f32";
    if (device->kernels->vector != &vector_kernels_avx512 || !__builtin_cpu_supports("avx512bf16"))
        return "this processor has neither AVX-512 BF16 nor AMX";
    return NULL;
}

const char *gemm_half_is_slow(const struct device *device)
{
    const char *missing = gemm_half_is_missing(device);
    if (!missing && !device->kernels->amx && __builtin_cpu_is("intel"))
        return "this processor has no AMX, and its AVX-512 BF16 is slower than fp32";
    return missing;
}

void gemm_half(struct device *device, float *c, const uint16_t *a, const uint16_t *b, int64_t m, int64_t n, int64_t k, int64_t lda,
               int64_t ldb, int64_t ldc, bool transpose_a, bool transpose_b, bool accumulate)
{
    if (gemm_is_empty(c, m, n, k, ldc, accumulate))
        return;
    const struct product_shape shape = {m, n, k, lda, ldb, ldc, transpose_a, transpose_b, true, accumulate};
    if (gemm_by_panels(device, m, n, k) && (device->kernels->panels->floats || gemm_half_is_slow(device))) {
        panels_product(device, c, a, b, &shape, true, true, accumulate);
        return;
    }
    if (gemm_half_is_missing(device)) {
        int64_t rows = transpose_a ? k : m, columns = transpose_a ? m : k;
        size_t piece = gemm_piece_bytes(n, k, transpose_b);
        float *scratch = cpu_scratch(device, piece + (size_t)(rows * columns) * sizeof *scratch);
        const float *wide = gemm_widen(device, scratch + piece / sizeof *scratch, a, rows, columns, lda);
        gemm_in_pieces(device, c, wide, b, scratch, m, n, k, columns, ldb, ldc, transpose_a, transpose_b, accumulate);
        return;
    }
    if (!accumulate && k < LONG_SUM && m * n * k >= SMALL && product_make(device, c, a, b, &shape))
        return;
    threads_set(m * n * k < SMALL ? 1 : device->threads);
    dnnl_status_t status = dnnl_gemm_bf16bf16f32(transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N', m, n, k, 1.0f, a, lda, b, ldb,
                                                 accumulate ? 1.0f : 0.0f, c, ldc);
    must_succeed("dnnl_gemm_bf16bf16f32", status, m, n, k, lda, ldb, ldc);
}

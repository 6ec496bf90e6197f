/*
 * Matrix products by oneDNN. Only dnnl_sgemm is used: it is the same in the C interface of oneDNN 2.x and 3.x, and it is
 * row-major as we are. What may ever differ between versions stays in this file.
 *
 * oneDNN divides the work by the calling thread's OpenMP setting, so that is set before each call; then the division, and
 * with it the order of every sum, depends on the shape and the number of threads alone.
 */
#include <dnnl.h>
#include <string.h>

#include "gpu/cpu/cpu.h"
#include "gpu/cpu/threads.h"

enum { SMALL = 1 << 18 }; /* multiply-adds that are done before a second thread would have begun */

const char *gemm_version(char *out, size_t size)
{
    const dnnl_version_t *version = dnnl_version();
    snprintf(out, size, "oneDNN %d.%d.%d", version->major, version->minor, version->patch);
    return out;
}

void gemm_matmul(struct device *device, float *c, const float *a, const float *b, int64_t m, int64_t n, int64_t k,
                 int64_t lda, int64_t ldb, int64_t ldc, bool transpose_a, bool transpose_b, bool accumulate)
{
    if (m == 0 || n == 0 || (k == 0 && accumulate))
        return;
    if (k == 0) { /* an empty sum */
        for (int64_t i = 0; i < m; i++)
            memset(c + i * ldc, 0, (size_t)n * sizeof *c);
        return;
    }
    threads_set(m * n * k < SMALL ? 1 : device->threads);
    dnnl_status_t status = dnnl_sgemm(transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N', m, n, k, 1.0f, a, lda, b, ldb,
                                      accumulate ? 1.0f : 0.0f, c, ldc);
    if (status != dnnl_success)
        BUG("dnnl_sgemm says %d for m %lld n %lld k %lld lda %lld ldb %lld ldc %lld", (int)status, (long long)m,
            (long long)n, (long long)k, (long long)lda, (long long)ldb, (long long)ldc);
}

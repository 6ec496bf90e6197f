/* The mask codec's ops, shared out by rows; gpu/math/mask.h says which channels they are. */
#include "gpu/math/mask.h"

#include "gpu/cpu/cpu.h"
#include "gpu/cpu/threads.h"

enum { ROWS = 64, EXPECT_ROWS = 4 }; /* rows that one piece of a loop takes */

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void mask_check(int64_t width, int64_t keep)
{
    if (keep < 1 || keep > width || width > MASK_MAX_WIDTH)
        BUG("a mask cannot keep %lld of %lld channels", (long long)keep, (long long)width);
}

void mask_channels(struct device *device, uint16_t *channels, const struct mask_key *key, int64_t rows, int64_t width,
                   int64_t keep, int64_t first_row)
{
    const struct mask_kernels *kernels = device->kernels->mask;
    mask_check(width, keep);
    if (key->micro_batch > MASK_MAX_MICRO_BATCH || key->boundary > MASK_MAX_BOUNDARY)
        BUG("a mask has no micro-batch %u of boundary %u", (unsigned)key->micro_batch, (unsigned)key->boundary);
    const int64_t blocks = (keep + 3) / 4, padded = (blocks + MASK_PAD - 1) / MASK_PAD * MASK_PAD;
    uint64_t *first = cpu_scratch(device, (size_t)(8 * padded) * sizeof *first), *widths = first + 4 * padded;
    for (int64_t i = 0; i < 4 * padded; i++) {
        int64_t at = i % 4 * padded + i / 4;
        first[at] = i < keep ? (uint64_t)mask_stratum_first(i, width, keep) : 0;
        widths[at] = i < keep ? (uint64_t)mask_stratum_width(i, width, keep) : 0;
    }
    struct mask_strata strata = {.first = first, .width = widths, .keep = keep, .padded = padded};
    mask_stream(key, strata.key, strata.counter);
#pragma omp parallel for num_threads(cpu_threads_for(device, rows *keep)) schedule(static)
    for (int64_t r = 0; r < rows; r += ROWS)
        kernels->channels(channels + r * keep, &strata, (uint32_t)(first_row + r), smaller(ROWS, rows - r));
}

void mask_largest(struct device *device, uint16_t *channels, const float *x, int64_t rows, int64_t width, int64_t keep)
{
    const struct mask_kernels *kernels = device->kernels->mask;
    mask_check(width, keep);
    const int64_t pieces = (rows + ROWS - 1) / ROWS;
    uint32_t *scratch = cpu_scratch(device, (size_t)(pieces * width) * sizeof *scratch);
#pragma omp parallel for num_threads(cpu_threads_for(device, rows *width)) schedule(static)
    for (int64_t r = 0; r < rows; r += ROWS)
        kernels->largest(channels + r * keep, x + r * width, smaller(ROWS, rows - r), width, keep, scratch + r / ROWS * width);
}

/* The gain of each stratum, for the rule that has one (unbiased: its width); NULL else. */
static const float *mask_stratum_gain(struct device *device, int64_t width, int64_t keep, int gain_rule)
{
    mask_check(width, keep);
    if (gain_rule != 1)
        return NULL;
    float *gain = cpu_scratch(device, (size_t)keep * sizeof *gain);
    for (int64_t i = 0; i < keep; i++)
        gain[i] = (float)mask_stratum_width(i, width, keep);
    return gain;
}

void mask_gather(struct device *device, float *values, float *row_gain, const float *x, const float *reference,
                 const uint16_t *channels, int64_t rows, int64_t width, int64_t keep, int gain_rule)
{
    const struct mask_kernels *kernels = device->kernels->mask;
    const float *stratum_gain = mask_stratum_gain(device, width, keep, gain_rule);
    float *per_row = gain_rule == 2 ? row_gain : NULL;
#pragma omp parallel for num_threads(cpu_threads_for(device, rows *width)) schedule(static)
    for (int64_t r = 0; r < rows; r += ROWS)
        kernels->gather(values + r * keep, per_row ? per_row + r : NULL, x + r * width, reference, channels + r * keep,
                        stratum_gain, smaller(ROWS, rows - r), width, keep);
}

void mask_scatter(struct device *device, float *x, const float *values, const float *reference, const uint16_t *channels,
                  int64_t rows, int64_t width, int64_t keep)
{
    const struct mask_kernels *kernels = device->kernels->mask;
    mask_check(width, keep);
#pragma omp parallel for num_threads(cpu_threads_for(device, rows *width)) schedule(static)
    for (int64_t r = 0; r < rows; r += ROWS)
        kernels->scatter(x + r * width, values + r * keep, reference, channels + r * keep, smaller(ROWS, rows - r), width,
                         keep);
}

void mask_scatter_gradient(struct device *device, float *dx, const float *values, const float *row_gain,
                           const uint16_t *channels, int64_t rows, int64_t width, int64_t keep, int gain_rule)
{
    const struct mask_kernels *kernels = device->kernels->mask;
    const float *stratum_gain = mask_stratum_gain(device, width, keep, gain_rule);
    const float *per_row = gain_rule == 2 ? row_gain : NULL;
#pragma omp parallel for num_threads(cpu_threads_for(device, rows *width)) schedule(static)
    for (int64_t r = 0; r < rows; r += ROWS)
        kernels->scatter_gradient(dx + r * width, values + r * keep, per_row ? per_row + r : NULL, channels + r * keep,
                                  stratum_gain, smaller(ROWS, rows - r), width, keep);
}

void mask_expect(struct device *device, float *z, const float *values, const uint16_t *channels, const float *factors,
                 const float *noise, int64_t rows, int64_t rank, int64_t width, int64_t keep)
{
    const struct expect_kernels *kernels = device->kernels->expect;
    const struct mask_law law = {.factors = factors, .noise = noise, .rank = rank};
    mask_check(width, keep);
    const int64_t n = (smaller(keep, rank) + EXPECT_PAD - 1) / EXPECT_PAD * EXPECT_PAD, m = keep > rank ? keep : rank,
                  each = m * n + n * n + 2 * n;
    const int threads = cpu_threads_for(device, rows *rank *keep);
    double *scratch = cpu_scratch(device, (size_t)(threads * each) * sizeof *scratch);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t r = 0; r < rows; r += EXPECT_ROWS)
        kernels->rows(z + r * rank, values + r * keep, channels + r * keep, &law, smaller(EXPECT_ROWS, rows - r), keep,
                      scratch + threads_index() * each);
}

void mask_put(struct device *device, float *x, const float *values, const uint16_t *channels, int64_t rows, int64_t width,
              int64_t keep)
{
    (void)device; /* where pragmas are ignored */
    mask_check(width, keep);
#pragma omp parallel for num_threads(cpu_threads_for(device, rows *keep)) schedule(static)
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < keep; i++)
            x[r * width + channels[r * keep + i]] = values[r * keep + i];
}

/* Ops over plain arrays: the array is cut into chunks of fixed size, so sums do not depend on the number of threads. */
#include <string.h>

#include "gpu/cpu/cpu.h"

enum {
    CHUNK = 16384, /* elements: 64 KiB of each operand */
    SUMS = 256,    /* most partial sums of one reduction */
    COLUMNS = 64,  /* of a column mean */
};

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

void vector_halve(struct device *device, uint16_t *to, const float *from, int64_t count)
{
    const struct vector_kernels *kernels = device->kernels->vector;
#pragma omp parallel for num_threads(cpu_threads_for(device, count)) schedule(static)
    for (int64_t begin = 0; begin < count; begin += CHUNK)
        kernels->halve(to + begin, from + begin, smaller(CHUNK, count - begin));
}

void vector_widen(struct device *device, float *to, const uint16_t *from, int64_t count)
{
    const struct vector_kernels *kernels = device->kernels->vector;
#pragma omp parallel for num_threads(cpu_threads_for(device, count)) schedule(static)
    for (int64_t begin = 0; begin < count; begin += CHUNK)
        kernels->widen(to + begin, from + begin, smaller(CHUNK, count - begin));
}

void vector_fill(struct device *device, float *x, float value, int64_t count)
{
    const struct vector_kernels *kernels = device->kernels->vector;
#pragma omp parallel for num_threads(cpu_threads_for(device, count)) schedule(static)
    for (int64_t begin = 0; begin < count; begin += CHUNK)
        kernels->fill(x + begin, value, smaller(CHUNK, count - begin));
}

void vector_add(struct device *device, float *y, const float *x, int64_t count)
{
    const struct vector_kernels *kernels = device->kernels->vector;
#pragma omp parallel for num_threads(cpu_threads_for(device, count)) schedule(static)
    for (int64_t begin = 0; begin < count; begin += CHUNK)
        kernels->add(y + begin, x + begin, smaller(CHUNK, count - begin));
}

void vector_scale(struct device *device, float *x, float factor, int64_t count)
{
    const struct vector_kernels *kernels = device->kernels->vector;
#pragma omp parallel for num_threads(cpu_threads_for(device, count)) schedule(static)
    for (int64_t begin = 0; begin < count; begin += CHUNK)
        kernels->scale(x + begin, factor, smaller(CHUNK, count - begin));
}

double vector_sum_squares(struct device *device, const float *x, int64_t count)
{
    const struct vector_kernels *kernels = device->kernels->vector;
    double sums[SUMS], total = 0;
    int64_t part = (count + SUMS - 1) / SUMS;
    part = part < CHUNK ? CHUNK : part;
    int64_t parts = (count + part - 1) / part;
#pragma omp parallel for num_threads(cpu_threads_for(device, count)) schedule(static)
    for (int64_t i = 0; i < parts; i++)
        sums[i] = kernels->sum_squares(x + i * part, smaller(part, count - i * part));
    for (int64_t i = 0; i < parts; i++)
        total += sums[i];
    return total;
}

bool vector_all_finite(struct device *device, const float *x, int64_t count)
{
    const struct vector_kernels *kernels = device->kernels->vector;
    int bad = 0;
#pragma omp parallel for num_threads(cpu_threads_for(device, count)) schedule(static) reduction(| : bad)
    for (int64_t begin = 0; begin < count; begin += CHUNK)
        bad |= !kernels->all_finite(x + begin, smaller(CHUNK, count - begin));
    return !bad;
}

void vector_add_rows(struct device *device, float *y, const float *x, int64_t rows, int64_t width)
{
    const struct vector_kernels *kernels = device->kernels->vector;
#pragma omp parallel for num_threads(cpu_threads_for(device, rows *width)) schedule(static)
    for (int64_t r = 0; r < rows; r++)
        kernels->add(y + r * width, x, width);
}

/* sum[COLUMNS] of the columns from `begin` on, rows in their order. */
static int64_t sum_columns(const struct vector_kernels *kernels, double *sum, const float *x, int64_t rows, int64_t width,
                           int64_t begin)
{
    int64_t columns = smaller(COLUMNS, width - begin);
    for (int64_t r = 0; r < rows; r++)
        kernels->add_wide(sum, x + r * width + begin, columns);
    return columns;
}

void vector_sum_rows(struct device *device, float *sum, const float *x, int64_t rows, int64_t width)
{
    const struct vector_kernels *kernels = device->kernels->vector;
#pragma omp parallel for num_threads(cpu_threads_for(device, rows *width)) schedule(static)
    for (int64_t begin = 0; begin < width; begin += COLUMNS) {
        double wide[COLUMNS] = {0};
        int64_t columns = sum_columns(kernels, wide, x, rows, width, begin);
        for (int64_t c = 0; c < columns; c++)
            sum[begin + c] = (float)((double)sum[begin + c] + wide[c]);
    }
}

void vector_column_mean(struct device *device, float *mean, const float *x, int64_t rows, int64_t width)
{
    const struct vector_kernels *kernels = device->kernels->vector;
#pragma omp parallel for num_threads(cpu_threads_for(device, rows *width)) schedule(static)
    for (int64_t begin = 0; begin < width; begin += COLUMNS) {
        double wide[COLUMNS] = {0};
        int64_t columns = sum_columns(kernels, wide, x, rows, width, begin);
        for (int64_t c = 0; c < columns; c++)
            mean[begin + c] = rows ? (float)(wide[c] / (double)rows) : 0;
    }
}

void vector_adamw(struct device *device, float *parameter, float *gradient, float *m, float *v, int64_t count,
                  const struct adamw *settings)
{
    const struct vector_kernels *kernels = device->kernels->vector;
#pragma omp parallel for num_threads(cpu_threads_for(device, count)) schedule(static)
    for (int64_t begin = 0; begin < count; begin += CHUNK)
        kernels->adamw(parameter + begin, gradient + begin, m + begin, v + begin, smaller(CHUNK, count - begin), settings);
}

void vector_adamw_half(struct device *device, float *parameter, float *gradient, uint16_t *m, uint16_t *v, int64_t count,
                       const struct adamw *settings, uint32_t seed)
{
    const struct vector_kernels *kernels = device->kernels->vector;
#pragma omp parallel for num_threads(cpu_threads_for(device, count)) schedule(static)
    for (int64_t begin = 0; begin < count; begin += CHUNK)
        kernels->adamw_half(parameter + begin, gradient + begin, m + begin, v + begin, smaller(CHUNK, count - begin), settings, seed,
                            (uint32_t)begin);
}

void vector_adamw_byte(struct device *device, float *parameter, float *gradient, uint8_t *m, uint8_t *v, uint8_t *m_base,
                       uint8_t *v_base, int64_t count, const struct adamw *settings, uint32_t seed)
{
    const struct vector_kernels *kernels = device->kernels->vector;
    _Static_assert(CHUNK % ADAMW_BLOCK == 0, "a block is of one chunk");
#pragma omp parallel for num_threads(cpu_threads_for(device, count)) schedule(static)
    for (int64_t begin = 0; begin < count; begin += CHUNK)
        kernels->adamw_byte(parameter + begin, gradient + begin, m + begin, v + begin, m_base + begin / ADAMW_BLOCK,
                            v_base + begin / ADAMW_BLOCK, smaller(CHUNK, count - begin), settings, seed, (uint32_t)begin);
}

/* Inner loops over plain arrays. Sums run in as many lanes as the compiler likes, so they are fixed for one instruction set.
 */
#include "gpu/cpu/kernels.h"

#include <math.h>

#include "gpu/cpu/kernels_math.h"

static void fill(float *x, float value, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        x[i] = value;
}

static void add(float *restrict y, const float *restrict x, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        y[i] += x[i];
}

static void scale(float *x, float factor, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        x[i] *= factor;
}

static double sum_squares(const float *x, int64_t count)
{
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < count; i++)
        sum += (double)x[i] * (double)x[i];
    return sum;
}

static bool all_finite(const float *x, int64_t count)
{
    uint32_t bad = 0;
    for (int64_t i = 0; i < count; i++)
        bad |= (math_to_bits(x[i]) & 0x7F800000u) == 0x7F800000u;
    return !bad;
}

static void add_wide(double *restrict sum, const float *restrict x, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        sum[i] += (double)x[i];
}

static void adamw(float *restrict parameter, const float *restrict gradient, float *restrict m, float *restrict v,
                  int64_t count, const struct adamw *settings)
{
    const float beta1 = settings->beta1, beta2 = settings->beta2, rest1 = 1.0f - beta1, rest2 = 1.0f - beta2;
    const float rate = settings->learning_rate, epsilon = settings->epsilon, decay = settings->weight_decay;
    const float inverse1 = 1.0f / settings->correction1, inverse2 = 1.0f / settings->correction2;
    const float gradient_scale = settings->gradient_scale;
    for (int64_t i = 0; i < count; i++) {
        float g = gradient[i] * gradient_scale;
        float m_new = beta1 * m[i] + rest1 * g;
        float v_new = beta2 * v[i] + rest2 * (g * g);
        m[i] = m_new;
        v[i] = v_new;
        float direction = m_new * inverse1 / (sqrtf(v_new * inverse2) + epsilon);
        parameter[i] -= rate * (decay * parameter[i] + direction);
    }
}

const struct vector_kernels KERNEL_TABLE(vector_kernels) = {
    .fill = fill,
    .add = add,
    .scale = scale,
    .sum_squares = sum_squares,
    .all_finite = all_finite,
    .add_wide = add_wide,
    .adamw = adamw,
};

/* See outer.h. */
#include "gpu/math/outer.h"

void outer_mean(float *out, const float *const *parts, const float *shares, int count, int64_t elements)
{
    for (int64_t i = 0; i < elements; i++)
        out[i] = shares[0] * parts[0][i];
    for (int p = 1; p < count; p++)
        for (int64_t i = 0; i < elements; i++)
            out[i] += shares[p] * parts[p][i];
}

void outer_step(float *common, float *momentum, const float *delta, int64_t count, float rate, float momentum_share)
{
    for (int64_t i = 0; i < count; i++) {
        momentum[i] = momentum_share * momentum[i] + delta[i];
        common[i] -= rate * (delta[i] + momentum_share * momentum[i]);
    }
}

void outer_merge(float *local, const float *common, int64_t count, float alpha)
{
    for (int64_t i = 0; i < count; i++)
        local[i] = alpha * local[i] + (1 - alpha) * common[i];
}

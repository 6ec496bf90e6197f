/* The angles of rotary positions, plain or stretched for a longer context than the model was first trained with. */
#include <math.h>

#include "gpu/model/model.h"

/* Slow turns are stretched by the factor, fast ones are left alone, those between go from one to the other. */
static double scale_llama3(const struct model_shape *s, double frequency)
{
    const double two_pi = 6.283185307179586;
    double turns = (double)s->scaling_context * frequency / two_pi; /* within the first context */
    double share = (turns - (double)s->scaling_low) / ((double)s->scaling_high - (double)s->scaling_low);
    share = share < 0 ? 0 : share > 1 ? 1 : share;
    return (1 - share) * frequency / (double)s->scaling_factor + share * frequency;
}

void model_frequency(const struct model_shape *s, float *frequency)
{
    for (int64_t i = 0; i < s->head_width / 2; i++) {
        double plain = pow((double)s->rope_theta, -2.0 * (double)i / (double)s->head_width);
        if (s->scaling == SCALING_LINEAR)
            plain /= (double)s->scaling_factor;
        else if (s->scaling == SCALING_LLAMA3)
            plain = scale_llama3(s, plain);
        frequency[i] = (float)plain;
    }
}

/* See rate.h. */
#include "gpu/train/rate.h"

#include <math.h>

double rate_factor(const struct rate *rate, uint64_t step)
{
    if (step < rate->warmup)
        return (double)step / (double)rate->warmup;
    if (!rate->cosine || rate->steps <= rate->warmup)
        return 1;
    if (step >= rate->steps)
        return rate->final_share;
    double pi = acos(-1.0), progress = (double)(step - rate->warmup) / (double)(rate->steps - rate->warmup);
    return rate->final_share + (1 - rate->final_share) * 0.5 * (1 + cos(pi * progress));
}

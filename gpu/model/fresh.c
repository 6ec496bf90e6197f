#include "gpu/model/fresh.h"

#include <string.h>

#include "gpu/math/philox.h"
#include "ssh/base/hash.h"

void fresh_normal(uint64_t seed, const char *name, uint64_t first, int64_t count, float deviation, float *out)
{
    /* Eight uniform halves: mean 8·(2^16 − 1)/2, variance 8·(2^32 − 1)/12. */
    const int32_t mean = 4 * 65535;
    const double one_deviation = 53509.978;
    const float scale = (float)((double)deviation / one_deviation);
    uint64_t tensor = hash_bytes(name, strlen(name));
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    for (int64_t i = 0; i < count; i++) {
        uint64_t index = first + (uint64_t)i;
        uint32_t counter[4] = {(uint32_t)index, (uint32_t)(index >> 32), (uint32_t)tensor, (uint32_t)(tensor >> 32)},
                 word[4];
        philox4x32(counter, key, word);
        int32_t sum = -mean;
        for (int w = 0; w < 4; w++)
            sum += (int32_t)(word[w] & 0xffff) + (int32_t)(word[w] >> 16);
        out[i] = (float)sum * scale;
    }
}

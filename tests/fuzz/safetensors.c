/* Any bytes as a safetensors file: refused, or all that it says can be read. */
#include "gpu/model/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    struct safetensors *file;
    struct why why = {0};
    if (safetensors_parse(bytes, count, "fuzz", &file, &why) == 0) {
        const int64_t shapes[][2] = {{1, 1}, {2, 2}, {4, 1}};
        float out[4];
        for (int i = 0; i < 3; i++)
            safetensors_get(file, "a", 1 + i % 2, shapes[i], 0, shapes[i][0] * (i % 2 ? shapes[i][1] : 1), out, NULL);
        safetensors_close(file);
    } else if (!why.err || !why.text[0]) {
        __builtin_trap(); /* every refusal has a reason */
    }
    return 0;
}

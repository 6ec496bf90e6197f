/* Attention shared out to threads: forward by (sequence, head, block of queries), backward by (sequence, kv head). */
#include "gpu/cpu/cpu.h"
#include "gpu/cpu/threads.h"

/* Scratch of one thread, in floats, with its parts on cache lines: what the larger of both kernels carves out. */
static int64_t attention_scratch(int64_t d)
{
    int64_t padded = (d + ATTENTION_PAD - 1) / ATTENTION_PAD * ATTENTION_PAD;
    return 8 * ATTENTION_BLOCK * padded + 2 * ATTENTION_BLOCK * ATTENTION_BLOCK + 4 * ATTENTION_BLOCK;
}

static void attention_by_half(struct device *device, const struct attention *a, bool forward)
{
    const struct attention_half_kernels *kernels = &amx_attention;
    int64_t bytes = (kernels->scratch_bytes(a) + 63) / 64 * 64;
    uint8_t *scratch = cpu_scratch(device, (size_t)(device->threads * bytes));
#pragma omp parallel for num_threads(cpu_threads_for(device, a->sequences * a->tokens * a->heads * a->d)) schedule(dynamic)
    for (int64_t unit = 0; unit < a->sequences * a->kv_heads; unit++)
        (forward ? kernels->forward : kernels->backward)(a, unit / a->kv_heads, unit % a->kv_heads, scratch + threads_index() * bytes);
}

void attention_forward(struct device *device, float *o, float *log_sum, const float *q, const float *k, const float *v,
                       int64_t sequences, int64_t tokens, int64_t heads, int64_t kv_heads, int64_t d, int64_t q_stride,
                       int64_t kv_stride, const int32_t *starts, bool half)
{
    const struct attention a = {.o = o,
                                .log_sum = log_sum,
                                .q = q,
                                .k = k,
                                .v = v,
                                .sequences = sequences,
                                .tokens = tokens,
                                .heads = heads,
                                .kv_heads = kv_heads,
                                .d = d,
                                .q_stride = q_stride,
                                .kv_stride = kv_stride,
                                .starts = starts};
    if (half && device->kernels->amx) {
        attention_by_half(device, &a, true);
        return;
    }
    const struct attention_kernels *kernels = device->kernels->attention;
    int64_t floats = attention_scratch(d), blocks = (tokens + ATTENTION_BLOCK - 1) / ATTENTION_BLOCK;
    float *scratch = cpu_scratch(device, (size_t)(device->threads * floats) * sizeof *scratch);
    /* Later blocks see more keys, so pieces are taken as threads become free: each writes its own rows, who does it changes
     * nothing. */
#pragma omp parallel for num_threads(cpu_threads_for(device, sequences *tokens *heads *d)) schedule(dynamic)
    for (int64_t piece = 0; piece < sequences * heads * blocks; piece++) {
        int64_t unit = piece / blocks, block = blocks - 1 - piece % blocks;
        kernels->forward(&a, unit / heads, unit % heads, block, scratch + threads_index() * floats);
    }
}

void attention_backward(struct device *device, float *dq, float *dk, float *dv, const float *d_o, const float *o,
                        const float *log_sum, const float *q, const float *k, const float *v, int64_t sequences,
                        int64_t tokens, int64_t heads, int64_t kv_heads, int64_t d, int64_t q_stride, int64_t kv_stride,
                        const int32_t *starts, bool half)
{
    const struct attention a = {.dq = dq,
                                .dk = dk,
                                .dv = dv,
                                .d_o = d_o,
                                .forward_o = o,
                                .forward_log_sum = log_sum,
                                .q = q,
                                .k = k,
                                .v = v,
                                .sequences = sequences,
                                .tokens = tokens,
                                .heads = heads,
                                .kv_heads = kv_heads,
                                .d = d,
                                .q_stride = q_stride,
                                .kv_stride = kv_stride,
                                .starts = starts};
    if (half && device->kernels->amx) {
        attention_by_half(device, &a, false);
        return;
    }
    const struct attention_kernels *kernels = device->kernels->attention;
    int64_t floats = attention_scratch(d);
    float *scratch = cpu_scratch(device, (size_t)(device->threads * floats) * sizeof *scratch);
#pragma omp parallel for num_threads(cpu_threads_for(device, sequences *tokens *heads *d)) schedule(dynamic)
    for (int64_t unit = 0; unit < sequences * kv_heads; unit++)
        kernels->backward(&a, unit / kv_heads, unit % kv_heads, scratch + threads_index() * floats);
}

void attention_cached(struct device *device, float *o, const float *q, const float *k, const float *v, int64_t tokens,
                      int64_t first, int64_t heads, int64_t kv_heads, int64_t d, int64_t q_stride, int64_t kv_stride)
{
    const struct attention_kernels *kernels = device->kernels->attention;
    int64_t floats = (first + tokens + 15) / 16 * 16, group = heads / kv_heads;
    float *scratch = cpu_scratch(device, (size_t)(device->threads * floats) * sizeof *scratch);
#pragma omp parallel for num_threads(cpu_threads_for(device, tokens *(first + tokens) * heads *d)) schedule(static)
    for (int64_t unit = 0; unit < tokens * heads; unit++) {
        int64_t token = unit / heads, head = unit % heads;
        kernels->cached(o + unit * d, q + token * q_stride + head * d, k + head / group * d, v + head / group * d,
                        first + token + 1, d, kv_stride, scratch + threads_index() * floats);
    }
}

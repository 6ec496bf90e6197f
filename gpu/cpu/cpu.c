/* The device of the CPU backend and its op table. */
#include "gpu/cpu/cpu.h"

#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "gpu/cpu/threads.h"
#include "ssh/base/mem.h"

static const char *wanted_isa;

int cpu_use_isa(const char *isa)
{
    const struct kernels *kernels = kernels_choose(isa);
    if (!kernels)
        return ERR_ABSENT;
    wanted_isa = isa ? kernels->isa : NULL;
    return 0;
}

/* The cores that this process may use. */
static int cpu_cores(void)
{
    cpu_set_t set;
    int cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : (int)sysconf(_SC_NPROCESSORS_ONLN);
    return cores < 1 ? 1 : cores;
}

static int cpu_open(struct device **out, int threads, struct why *why)
{
    if (threads < 0 || threads > 4096)
        return why_set(why, ERR_INVALID, "%d threads cannot be used; 0 means one for each core", threads);
    struct device *device = mem_new(sizeof *device);
    device->threads = threads ? threads : cpu_cores();
    device->kernels = kernels_choose(wanted_isa);
    char library[40];
    snprintf(device->description, sizeof device->description, "cpu: %s, %d thread%s%s, %s", device->kernels->isa,
             device->threads, device->threads == 1 ? "" : "s",
             device->threads > 1 && !threads_in_kernels ? " in matrix products" : "", gemm_version(library, sizeof library));
    *out = device;
    return 0;
}

static void cpu_close(struct device *device)
{
    if (!device)
        return;
    product_close(device);
    mem_large_free(device->scratch);
    mem_free(device->angles);
    mem_free(device->frequency);
    mem_free(device);
}

static const char *cpu_describe(const struct device *device)
{
    return device->description;
}

static void *cpu_alloc(struct device *device, size_t bytes)
{
    (void)device;
    return mem_large(bytes ? bytes : 1);
}

static void cpu_free(struct device *device, void *pointer)
{
    (void)device;
    mem_large_free(pointer);
}

static void cpu_copy(struct device *device, void *to, const void *from, size_t bytes)
{
    (void)device;
    if (bytes)
        memcpy(to, from, bytes);
}

static void cpu_finish(struct device *device)
{
    (void)device; /* every op is done when it returns */
}

void *cpu_scratch(struct device *device, size_t bytes)
{
    if (bytes > device->scratch_bytes) {
        mem_large_free(device->scratch);
        device->scratch = mem_large(bytes);
        if (!device->scratch)
            BUG("out of memory: %zu bytes of scratch were asked for", bytes);
        device->scratch_bytes = bytes;
    }
    return device->scratch;
}

size_t cpu_scratch_held(const struct device *device)
{
    return device->scratch_bytes;
}

int cpu_threads_for(const struct device *device, int64_t elements)
{
    return elements < 16384 ? 1 : device->threads;
}

extern const struct ops kedge_ops_v1; /* OPS_SYMBOL */
const struct ops kedge_ops_v1 = {
    .name = "cpu",
    .open = cpu_open,
    .close = cpu_close,
    .describe = cpu_describe,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .copy_in = cpu_copy,
    .copy_out = cpu_copy,
    .finish = cpu_finish,
    .matmul = gemm_matmul,
    .matmul_half = gemm_half,
    .matmul_words = gemm_words,
    .half_is_slow = gemm_half_is_slow,
    .halve = vector_halve,
    .widen = vector_widen,
    .fill = vector_fill,
    .add = vector_add,
    .scale = vector_scale,
    .add_rows = vector_add_rows,
    .sum_rows = vector_sum_rows,
    .sum_squares = vector_sum_squares,
    .all_finite = vector_all_finite,
    .rmsnorm_forward = layer_rmsnorm_forward,
    .rmsnorm_backward = layer_rmsnorm_backward,
    .rope = layer_rope,
    .attention_forward = attention_forward,
    .attention_cached = attention_cached,
    .attention_backward = attention_backward,
    .swiglu_forward = layer_swiglu_forward,
    .swiglu_backward = layer_swiglu_backward,
    .swiglu_forward_half = layer_swiglu_forward_half,
    .swiglu_backward_half = layer_swiglu_backward_half,
    .embedding_forward = layer_embedding_forward,
    .embedding_backward = layer_embedding_backward,
    .softmax_chunk = layer_softmax_chunk,
    .softmax_backward_chunk = layer_softmax_backward_chunk,
    .softmax_backward_half = layer_softmax_backward_half,
    .softmax_whole = layer_softmax_whole,
    .softmax_loss = layer_softmax_loss,
    .adamw = vector_adamw,
    .adamw_half = vector_adamw_half,
    .adamw_byte = vector_adamw_byte,
    .mask_channels = mask_channels,
    .mask_largest = mask_largest,
    .mask_gather = mask_gather,
    .mask_scatter = mask_scatter,
    .mask_scatter_gradient = mask_scatter_gradient,
    .mask_expect = mask_expect,
    .mask_put = mask_put,
    .column_mean = vector_column_mean,
    .pack = pack_encode,
    .unpack = pack_decode,
    .levels_pack = pack_levels,
    .levels_unpack = pack_levels_back,
};

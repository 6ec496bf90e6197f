/*
 * Training steps of one model on this machine: `step [THREADS [STEPS [BATCH [SEQUENCE [PRECISION]]]]]`, default all cores, 3 steps of 8
 * sequences of 512 tokens in fp32; PRECISION may be bf16. The model: hidden 512, 8 layers, 8 heads, 4 kv heads, ffn 1408, vocabulary 32000, AdamW; against_torch.sh trains
 * the same one with PyTorch. Figures are medians of steps, by the clock and by the time on processors (which another program on
 * the machine disturbs less); matrix products are also done again alone, and by oneDNN called the same way on the same shapes. Rates of
 * products are those of a processor.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "gpu/model/model.h"
#include "ssh/base/clock.h"
#include "ssh/base/mem.h"
#include "tests/helpers/rig.h"

enum { STEPS_MOST = 100, SHAPES_MOST = 64 };

struct shape {
    int64_t m, n, k, lda, ldb, ldc;
    bool half, transpose_a, transpose_b, accumulate;
    uint64_t calls, ns;
};

/* On all processors together. */
static uint64_t cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * CLOCK_SECOND + (uint64_t)now.tv_nsec;
}

static const struct ops *inner;
static struct rig onednn; /* a device whose products are all oneDNN's */
static struct shape shapes[SHAPES_MOST];
static int shape_count;

static void product(struct device *device, const struct shape *s, float *c, const void *a, const void *b)
{
    if (s->half)
        inner->matmul_half(device, c, a, b, s->m, s->n, s->k, s->lda, s->ldb, s->ldc, s->transpose_a, s->transpose_b, s->accumulate);
    else
        inner->matmul(device, c, a, b, s->m, s->n, s->k, s->lda, s->ldb, s->ldc, s->transpose_a, s->transpose_b, s->accumulate);
}

static void timed(struct device *device, struct shape now, float *c, const void *a, const void *b)
{
    int i = 0;
    while (i < shape_count && memcmp(&shapes[i], &now, offsetof(struct shape, accumulate) + sizeof now.accumulate) != 0)
        i++;
    BUG_IF(i == SHAPES_MOST);
    if (i == shape_count)
        shapes[shape_count++] = now;
    uint64_t began_ns = cpu_ns();
    product(device, &now, c, a, b);
    shapes[i].ns += cpu_ns() - began_ns;
    shapes[i].calls++;
}

static void timed_matmul(struct device *device, float *c, const float *a, const float *b, int64_t m, int64_t n, int64_t k,
                         int64_t lda, int64_t ldb, int64_t ldc, bool transpose_a, bool transpose_b, bool accumulate)
{
    timed(device, (struct shape){m, n, k, lda, ldb, ldc, false, transpose_a, transpose_b, accumulate, 0, 0}, c, a, b);
}

static void timed_half(struct device *device, float *c, const uint16_t *a, const uint16_t *b, int64_t m, int64_t n, int64_t k,
                       int64_t lda, int64_t ldb, int64_t ldc, bool transpose_a, bool transpose_b, bool accumulate)
{
    timed(device, (struct shape){m, n, k, lda, ldb, ldc, true, transpose_a, transpose_b, accumulate, 0, 0}, c, a, b);
}

static double flops_of(const struct shape *s)
{
    return 2.0 * (double)s->m * (double)s->n * (double)s->k * (double)s->calls;
}

/* Seconds of this product alone, the best of three. */
static double alone(struct device *device, const struct shape *s)
{
    int64_t a_count = (s->transpose_a ? s->k : s->m) * s->lda, b_count = (s->transpose_b ? s->n : s->k) * s->ldb;
    size_t bytes = s->half ? sizeof(uint16_t) : sizeof(float);
    uint16_t *a = mem_large((size_t)a_count * bytes), *b = mem_large((size_t)b_count * bytes); /* small numbers, either way */
    float *c = mem_large((size_t)(s->m * s->ldc) * sizeof *c);
    BUG_IF(!a || !b || !c);
    for (int64_t i = 0; i < a_count * (int64_t)bytes / 2; i++)
        a[i] = (uint16_t)(0x3F00 + i % 7);
    for (int64_t i = 0; i < b_count * (int64_t)bytes / 2; i++)
        b[i] = (uint16_t)(0x3F00 + i % 5);
    double best = 1e30;
    for (int i = 0; i < 3; i++) {
        uint64_t began_ns = cpu_ns();
        product(device, s, c, a, b);
        double seconds = (double)(cpu_ns() - began_ns) / 1e9;
        best = seconds < best ? seconds : best;
    }
    mem_large_free(a);
    mem_large_free(b);
    mem_large_free(c);
    return best;
}

static int by_value(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static long argument(int argc, char **argv, int index, long otherwise)
{
    return argc > index ? strtol(argv[index], NULL, 10) : otherwise;
}

struct seconds {
    double wall, cpu;
};

/* One step; the loss of the fresh model must be that of a guess, or nothing was computed. */
static struct seconds step(struct stage *stage, const uint32_t *ids, const uint32_t *targets, int64_t sequences, int64_t tokens, int64_t t,
                           double *loss)
{
    const struct adamw settings = {.learning_rate = 3e-4f, .beta1 = 0.9f, .beta2 = 0.95f, .epsilon = 1e-8f, .weight_decay = 0.1f,
                                   .gradient_scale = 1};
    uint64_t began_ns = clock_now_ns(), began_cpu_ns = cpu_ns();
    stage_forward(stage, 0, ids, NULL, sequences, tokens);
    *loss = stage_loss(stage, 0, targets, 1.0f / (float)(sequences * tokens)) / (double)(sequences * tokens);
    stage_backward(stage, 0, NULL);
    stage_step(stage, &settings, t);
    return (struct seconds){(double)(clock_now_ns() - began_ns) / 1e9, (double)(cpu_ns() - began_cpu_ns) / 1e9};
}

static double median(const struct seconds *seconds, long steps, bool cpu)
{
    double values[STEPS_MOST];
    for (long i = 0; i < steps; i++)
        values[i] = cpu ? seconds[i].cpu : seconds[i].wall;
    qsort(values, (size_t)steps, sizeof *values, by_value);
    return values[steps / 2];
}

static void report(struct rig *rig, const struct seconds *seconds, long steps, int64_t tokens, double all_seconds)
{
    double matmul_seconds = 0, flops = 0, bare_seconds = 0;
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    for (int i = 0; i < shape_count; i++) {
        double best = alone(rig->device, &shapes[i]), bare = alone(onednn.device, &shapes[i]);
        matmul_seconds += (double)shapes[i].ns / 1e9;
        bare_seconds += bare * (double)shapes[i].calls;
        flops += flops_of(&shapes[i]);
        printf("step.matmul %6lld x %6lld x %6lld %c%c%s: %6.1f GFLOP/s, alone %6.1f, oneDNN %6.1f, %4.1f %% of the time\n", (long long)shapes[i].m,
               (long long)shapes[i].n, (long long)shapes[i].k, shapes[i].transpose_a ? 'T' : 'N', shapes[i].transpose_b ? 'T' : 'N',
               shapes[i].accumulate ? "+" : " ", flops_of(&shapes[i]) / (double)shapes[i].ns,
               flops_of(&shapes[i]) / (double)shapes[i].calls / best / 1e9, flops_of(&shapes[i]) / (double)shapes[i].calls / bare / 1e9,
               (double)shapes[i].ns / 1e7 / all_seconds);
    }
    printf("step.tokens_per_second %.1f tokens/s\n", (double)tokens / median(seconds, steps, false));
    printf("step.tokens_per_cpu_second %.1f tokens/s\n", (double)tokens / median(seconds, steps, true));
    printf("step.peak %.0f MiB\n", (double)usage.ru_maxrss / 1024);
    printf("step.matmul_share %.1f %% of the time\n", 100 * matmul_seconds / all_seconds);
    printf("step.matmul_rate %.1f GFLOP/s of a processor (%.3f of oneDNN with the same products alone)\n", flops / matmul_seconds / 1e9,
           bare_seconds / matmul_seconds);
}

int main(int argc, char **argv)
{
    long threads = argument(argc, argv, 1, 0), steps = argument(argc, argv, 2, 3);
    int64_t sequences = argument(argc, argv, 3, 8), tokens = argument(argc, argv, 4, 512), rows = sequences * tokens;
    struct stage_shape shape = {
        .model = {.hidden = 512, .layers = 8, .heads = 8, .kv_heads = 4, .ffn = 1408, .vocabulary = 32000, .head_width = 64,
                  .rope_theta = 10000, .norm_epsilon = 1e-5f},
        .layers = 8, .first = true, .last = true, .sequences = sequences, .tokens = tokens, .slots = 1,
        .half_products = argc > 5 && strcmp(argv[5], "bf16") == 0};
    struct rig rig;
    struct stage *stage;
    struct why why = {0};
    struct seconds seconds[STEPS_MOST];
    double loss = 0, all_seconds = 0;
    BUG_IF(steps < 1 || steps > STEPS_MOST || rows < 1);
    rig_open(&onednn, rig_onednn(), (int)threads);
    rig_open(&rig, NULL, (int)threads);
    inner = rig.ops;
    struct ops watched = *inner;
    watched.matmul = timed_matmul;
    watched.matmul_half = timed_half;
    if (stage_new(&watched, rig.device, &shape, &stage, &why) != 0) {
        fprintf(stderr, "%s\n", why.text);
        return 1;
    }
    stage_fresh(stage, 1);
    uint32_t *ids = mem_array((size_t)rows, sizeof *ids), *targets = mem_array((size_t)rows, sizeof *targets);
    for (int64_t i = 0; i < rows; i++) {
        ids[i] = (uint32_t)(i * 2654435761u % 32000);
        targets[i] = (uint32_t)((i + 1) * 2654435761u % 32000);
    }
    step(stage, ids, targets, sequences, tokens, 1, &loss); /* touches all memory */
    shape_count = 0;
    memset(shapes, 0, sizeof shapes);
    for (long i = 0; i < steps; i++) {
        seconds[i] = step(stage, ids, targets, sequences, tokens, i + 2, &loss);
        all_seconds += seconds[i].cpu;
    }
    printf("step: %s, %s, %lld x %lld tokens, loss %.4f\n", rig.label, shape.half_products ? "bf16" : "fp32", (long long)sequences, (long long)tokens, loss);
    report(&rig, seconds, steps, rows, all_seconds);
    mem_free(ids);
    mem_free(targets);
    stage_free(stage);
    rig_close(&onednn);
    rig_close(&rig);
    return 0;
}

/*
 * Speed of the CPU backend: `ops [THREADS]`, default one for each core. A line is: name value unit (what it is compared
 * with). Each figure is the best of several runs over about a second, and what it is compared with was measured in the same
 * run on the same bytes.
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ssh/base/clock.h"
#include "tests/helpers/rig.h"

struct bench {
    struct rig rig;
    int threads;
    struct device *device; /* another one than the rig's */
    double memcpy_bytes_per_second; /* one thread */
    double matmul_per_second;       /* best floating-point operations */
    void (*run)(struct bench *bench);
    float *a, *b, *c, *d;
    uint16_t *channels;
    uint8_t *packed;
    int64_t m, n, k, heads, kv_heads, width, keep;
    int flags;
};

/* Seconds of the fastest of at least three runs. */
static double best_seconds(struct bench *bench)
{
    double best = 1e30, total = 0;
    bench->run(bench);
    for (int i = 0; i < 3 || (total < 0.4 && i < 1000); i++) {
        uint64_t start = clock_now_ns();
        bench->run(bench);
        double seconds = (double)(clock_now_ns() - start) * 1e-9;
        best = seconds < best ? seconds : best;
        total += seconds;
    }
    return best;
}

static void say(double value, const char *unit, double ratio, const char *peer, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
static void say(double value, const char *unit, double ratio, const char *peer, const char *format, ...)
{
    char name[100];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(name, sizeof name, format, arguments);
    va_end(arguments);
    printf("%-36s %8.2f %s", name, value, unit);
    if (peer)
        printf(" (%.2f of %s)", ratio, peer);
    printf("\n");
}

static void run_memcpy(struct bench *bench)
{
    memcpy(bench->b, bench->a, (size_t)(bench->m * bench->width) * sizeof(float));
}

static void run_matmul(struct bench *bench)
{
    int64_t m = bench->m, n = bench->n, k = bench->k;
    bool turn_a = bench->flags & 1, turn_b = bench->flags & 2;
    bench->rig.ops->matmul(bench->rig.device, bench->c, bench->a, bench->b, m, n, k, turn_a ? m : k, turn_b ? k : n, n,
                           turn_a, turn_b, bench->flags & 4);
}

/* The products of one linear layer: y = x·Wᵀ, dx = dy·W, dW += dyᵀ·x. */
static void bench_matmul(struct bench *bench, int64_t rows, int64_t out, int64_t in)
{
    const struct {
        const char *name;
        int64_t m, n, k;
        int flags;
    } products[] = {{"forward", rows, out, in, 2}, {"dx", rows, in, out, 0}, {"dw", out, in, rows, 1 | 4}};
    for (int i = 0; i < 3; i++) {
        bench->m = products[i].m;
        bench->n = products[i].n;
        bench->k = products[i].k;
        bench->flags = products[i].flags;
        bench->run = run_matmul;
        double speed = 2.0 * (double)rows * (double)out * (double)in / best_seconds(bench);
        bench->matmul_per_second = speed > bench->matmul_per_second ? speed : bench->matmul_per_second;
        say(speed * 1e-9, "GFLOP/s", 0, NULL, "matmul.%s %lldx%lldx%lld", products[i].name, (long long)rows, (long long)out,
            (long long)in);
    }
}

/* Products of a layer of step.c's model and of its head, both ways, of fp32 and of bf16, beside oneDNN. */
static void run_product(struct bench *bench)
{
    int64_t m = bench->m, n = bench->n, k = bench->k, lda = bench->flags & 1 ? m : k, ldb = bench->flags & 2 ? k : n;
    bool turn_a = bench->flags & 1, turn_b = bench->flags & 2, accumulate = bench->flags & 4;
    const struct ops *ops = bench->rig.ops;
    struct device *device = bench->device ? bench->device : bench->rig.device;
    if (bench->flags & 8)
        ops->matmul_half(device, bench->c, (uint16_t *)bench->a, (uint16_t *)bench->b, m, n, k, lda, ldb, n, turn_a, turn_b,
                         accumulate);
    else
        ops->matmul(device, bench->c, bench->a, bench->b, m, n, k, lda, ldb, n, turn_a, turn_b, accumulate);
}

/* The fastest of several runs in turn: ours, and oneDNN's on a device of its own. */
static double in_turn(struct bench *bench, struct device *onednn, double *bare)
{
    double best[2] = {1e30, 1e30}, total = 0;
    for (int i = 0; i < 8 || (total < 0.8 && i < 1000); i++) {
        bench->device = i % 2 ? onednn : NULL;
        uint64_t start = clock_now_ns();
        run_product(bench);
        double seconds = (double)(clock_now_ns() - start) * 1e-9;
        best[i % 2] = seconds < best[i % 2] ? seconds : best[i % 2];
        total += seconds;
    }
    *bare = best[1];
    return best[0];
}

static void bench_products(struct bench *bench)
{
    static const int64_t linears[][3] = {{4096, 1024, 512}, {4096, 2816, 512}, {4096, 512, 1408}, {524, 32000, 512}};
    struct rig onednn;
    rig_open(&onednn, rig_onednn(), bench->threads);
    for (int i = 0; i < 24; i++) {
        const int64_t *linear = linears[i / 6], rows = linear[0], out = linear[1], in = linear[2];
        static const char *const names[] = {"forward", "dx", "dw"};
        const int64_t sides[3][3] = {{rows, out, in}, {rows, in, out}, {out, in, rows}};
        static const int flags[] = {2, 0, 1 | 4};
        int way = i % 3;
        bench->m = sides[way][0];
        bench->n = sides[way][1];
        bench->k = sides[way][2];
        bench->flags = flags[way] | (i % 6 < 3 ? 0 : 8);
        double bare, seconds = in_turn(bench, onednn.device, &bare);
        say(2e-9 * (double)(rows * out * in) / seconds, "GFLOP/s", bare / seconds, "oneDNN", "product.%s %s %lldx%lldx%lld", names[way],
            i % 6 < 3 ? "fp32" : "bf16", (long long)rows, (long long)out, (long long)in);
    }
    rig_close(&onednn);
}

static void run_choose(struct bench *bench)
{
    const struct mask_key key = {.seed = 1, .step = 2};
    bench->rig.ops->mask_channels(bench->rig.device, bench->channels, &key, bench->m, bench->width, bench->keep, 0);
}

static void run_encode(struct bench *bench)
{
    const struct ops *ops = bench->rig.ops;
    run_choose(bench);
    ops->mask_gather(bench->rig.device, bench->c, NULL, bench->a, NULL, bench->channels, bench->m, bench->width, bench->keep,
                     0);
    ops->pack(bench->rig.device, bench->packed, bench->c, bench->m, bench->keep, FORMAT_BF16);
}

static void run_decode(struct bench *bench)
{
    const struct ops *ops = bench->rig.ops;
    run_choose(bench);
    ops->unpack(bench->rig.device, bench->c, bench->packed, bench->m, bench->keep, FORMAT_BF16);
    ops->mask_scatter(bench->rig.device, bench->b, bench->c, NULL, bench->channels, bench->m, bench->width, bench->keep);
}

/* A mask of 95 %: bytes of the dense tensor that are scanned or made, beside a plain copy of it. */
static void bench_mask(struct bench *bench, int64_t width, double megabytes)
{
    static const struct {
        const char *name;
        void (*run)(struct bench *bench);
    } parts[] = {{"encode", run_encode}, {"decode", run_decode}, {"choose", run_choose}};
    bench->width = width;
    bench->m = (int64_t)(megabytes * 1e6) / (4 * width);
    bench->keep = (int64_t)(0.05 * (double)width + 0.5);
    double bytes = (double)(bench->m * width) * sizeof(float);
    bench->run = run_memcpy;
    bench->memcpy_bytes_per_second = bytes / best_seconds(bench);
    say(bench->memcpy_bytes_per_second * 1e-9, "GB/s", 0, NULL, "memcpy %.0f MB", bytes * 1e-6);
    for (int i = 0; i < 3; i++) {
        bench->run = parts[i].run;
        double speed = bytes / best_seconds(bench);
        say(speed * 1e-9, "GB/s", speed / bench->memcpy_bytes_per_second, "memcpy, one thread", "mask.%s H=%lld %.0f MB",
            parts[i].name, (long long)width, bytes * 1e-6);
    }
}

static void run_pack(struct bench *bench)
{
    bench->rig.ops->pack(bench->rig.device, bench->packed, bench->a, bench->m, bench->width, bench->flags);
}

/* Whole rows in each format: the dense codec. */
static void bench_pack(struct bench *bench)
{
    static const char *const names[] = {[FORMAT_BF16] = "bf16", [FORMAT_INT8] = "int8", [FORMAT_INT4] = "int4"};
    bench->width = 2048;
    bench->m = 4000;
    bench->run = run_pack;
    for (bench->flags = FORMAT_BF16; bench->flags <= FORMAT_INT4; bench->flags++) {
        double speed = (double)(bench->m * bench->width) * sizeof(float) / best_seconds(bench);
        say(speed * 1e-9, "GB/s", speed / bench->memcpy_bytes_per_second, "memcpy, one thread", "pack.%s",
            names[bench->flags]);
    }
}

static void run_attention(struct bench *bench)
{
    int64_t d = bench->width, stride = (bench->heads + 2 * bench->kv_heads) * d, k = bench->heads * d,
            v = k + bench->kv_heads * d;
    const struct ops *ops = bench->rig.ops;
    float *o = bench->b, *log_sum = bench->b + bench->m * bench->n * bench->heads * d;
    if (bench->flags == 0)
        ops->attention_forward(bench->rig.device, o, log_sum, bench->a, bench->a + k, bench->a + v, bench->m, bench->n,
                               bench->heads, bench->kv_heads, d, stride, stride, NULL, false);
    else
        ops->attention_backward(bench->rig.device, bench->c, bench->c + k, bench->c + v, bench->d, o, log_sum, bench->a,
                                bench->a + k, bench->a + v, bench->m, bench->n, bench->heads, bench->kv_heads, d, stride,
                                stride, NULL, false);
}

/* Counted are the products that causal attention needs: 2 forward, 5 backward, each of d·tokens²/2 multiply-adds a head. */
static void bench_attention(struct bench *bench, int64_t sequences, int64_t tokens, int64_t heads, int64_t kv_heads,
                            int64_t d)
{
    bench->m = sequences;
    bench->n = tokens;
    bench->heads = heads;
    bench->kv_heads = kv_heads;
    bench->width = d;
    bench->run = run_attention;
    double product = (double)(sequences * heads * d) * (double)tokens * (double)(tokens + 1);
    for (bench->flags = 0; bench->flags < 2; bench->flags++) {
        double speed = product * (bench->flags ? 5 : 2) / best_seconds(bench);
        say(speed * 1e-9, "GFLOP/s", speed / bench->matmul_per_second, "the best matmul",
            "attention.%s %lldx%lld %lld/%lldx%lld", bench->flags ? "backward" : "forward", (long long)sequences,
            (long long)tokens, (long long)heads, (long long)kv_heads, (long long)d);
    }
}

static void run_adamw(struct bench *bench)
{
    const struct adamw settings = {.learning_rate = 1e-3f,
                                   .beta1 = 0.9f,
                                   .beta2 = 0.95f,
                                   .epsilon = 1e-8f,
                                   .weight_decay = 0.1f,
                                   .gradient_scale = 1,
                                   .correction1 = 0.5f,
                                   .correction2 = 0.5f};
    bench->rig.ops->adamw(bench->rig.device, bench->a, bench->b, bench->c, bench->d, bench->m, &settings);
}

static void run_swiglu(struct bench *bench)
{
    bench->rig.ops->swiglu_forward(bench->rig.device, bench->c, bench->a, bench->m, bench->width);
}

static void run_rmsnorm(struct bench *bench)
{
    bench->rig.ops->rmsnorm_forward(bench->rig.device, bench->c, bench->d, bench->a, bench->b, bench->m, bench->width,
                                    1e-5f);
}

/* What memory allows: bytes read and written, beside twice the bytes that memcpy copies. */
static void bench_elementwise(struct bench *bench)
{
    const struct {
        const char *name;
        void (*run)(struct bench *bench);
        int64_t rows, width, bytes_each;
    } parts[] = {{"adamw", run_adamw, 4000000, 1, 28},
                 {"swiglu", run_swiglu, 2000, 2048, 12},
                 {"rmsnorm", run_rmsnorm, 4000, 1024, 8}};
    for (int i = 0; i < 3; i++) {
        bench->m = parts[i].rows;
        bench->width = parts[i].width;
        bench->run = parts[i].run;
        double speed = (double)(bench->m * bench->width * parts[i].bytes_each) / best_seconds(bench);
        say(speed * 1e-9, "GB/s", speed / (2 * bench->memcpy_bytes_per_second), "memcpy, one thread, both ways", "%s",
            parts[i].name);
    }
}

int main(int count, char **arguments)
{
    enum { FLOATS = 16 << 20 };
    struct bench bench = {0};
    bench.threads = count > 1 ? (int)strtol(arguments[1], NULL, 10) : 0;
    rig_open(&bench.rig, NULL, bench.threads);
    printf("%s\n", bench.rig.label);
    bench.a = rig_noise(&bench.rig, FLOATS, 1, 1);
    bench.b = rig_noise(&bench.rig, FLOATS, 2, 1);
    bench.c = rig_zeros(&bench.rig, FLOATS);
    bench.d = rig_zeros(&bench.rig, FLOATS);
    bench.channels = rig_take(&bench.rig, FLOATS);
    bench.packed = rig_take(&bench.rig, 2 * FLOATS);
    bench_matmul(&bench, 1024, 768, 256);
    bench_matmul(&bench, 1024, 256, 688);
    bench_matmul(&bench, 2048, 2048, 2048);
    bench_matmul(&bench, 128, 256, 256);
    bench_products(&bench);
    bench_mask(&bench, 256, 1);
    bench_mask(&bench, 256, 32);
    bench_mask(&bench, 2048, 32);
    bench_mask(&bench, 4096, 32);
    bench_pack(&bench);
    bench_attention(&bench, 8, 128, 4, 2, 64);
    bench_attention(&bench, 1, 1024, 8, 2, 64);
    bench_attention(&bench, 1, 1024, 4, 4, 128);
    bench_elementwise(&bench);
    rig_close(&bench.rig);
    return 0;
}

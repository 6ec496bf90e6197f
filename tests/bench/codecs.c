/*
 * Speed and error of the boundary codecs: `codecs [THREADS]`. A micro-batch of 2,048 tokens at mask.rate 0.95, activations
 * with a falling
 * spectrum; forward one way is encode and decode. Compared with copying the activations and with the matrix products that
 * the codec cannot do
 * without, both measured in the same run. The error is that of the activations through the codec, relative to what the
 * reference leaves.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "gpu/math/codec.h"
#include "ssh/base/clock.h"
#include "ssh/base/mem.h"
#include "tests/helpers/backend.h"
#include "tests/helpers/dice.h"

enum { ROWS = 2048, TOKENS = 128, VOCABULARY = 256 };

struct bench {
    struct backend cpu;
    struct codec_settings settings;
    struct codec_use use;
    float *x, *out;    /* device [ROWS, width] */
    uint8_t *message;
    uint32_t *windows;
    double copy_seconds, product_seconds; /* of a micro-batch; of [ROWS, width]·[width, width] */
};

static double seconds_since(uint64_t start_ns)
{
    return (double)(clock_now_ns() - start_ns) * 1e-9;
}

static void settle(struct codec *codec, enum codec_way way, const char *name, int64_t width)
{
    uint8_t *state;
    size_t bytes;
    struct why why = {0};
    uint64_t start_ns = clock_now_ns();
    if (codec_settle(codec, way) < 0 || codec_export(codec, way, &state, &bytes) < 0 ||
        codec_import(codec, way, 1, state, bytes, &why) < 0) {
        printf("no state: %s\n", why.text);
        exit(1);
    }
    printf("%-10s %5d   state %s %8.3f s, %zu bytes\n", name, (int)width, way == CODEC_FORWARD ? "forward " : "backward",
           seconds_since(start_ns), bytes);
    mem_free(state);
}

static void run(struct bench *bench, const char *name)
{
    const struct ops *ops = bench->cpu.ops;
    struct codec *codec;
    struct why why = {0};
    int64_t width = bench->settings.width, cells = ROWS * width;
    if (codec_new(ops, bench->cpu.device, &bench->settings, &codec, &why) < 0) {
        printf("%s\n", why.text);
        exit(1);
    }
    bench->use.keep = codec_keep(&bench->settings, 0.95);
    if (codec_has_state(&bench->settings, CODEC_FORWARD)) {
        codec_measure(codec, &bench->use, bench->x);
        settle(codec, CODEC_FORWARD, name, width);
    }
    if (codec_has_state(&bench->settings, CODEC_BACKWARD)) {
        codec_measure_gradient(codec, &bench->use, bench->x);
        settle(codec, CODEC_BACKWARD, name, width);
    }
    bench->use.version = codec_newest(codec);
    double encode = 1e30, decode = 1e30, error = 0, energy = 0;
    size_t bytes = codec_bytes(&bench->settings, &bench->use, CODEC_FORWARD);
    for (int i = 0; i < 4; i++) {
        uint64_t start_ns = clock_now_ns();
        codec_encode(codec, &bench->use, bench->x, bench->message);
        encode = fmin(encode, seconds_since(start_ns));
        start_ns = clock_now_ns();
        if (codec_decode(codec, &bench->use, bench->message, bytes, bench->out, &why) < 0)
            exit(1);
        ops->finish(bench->cpu.device);
        decode = fmin(decode, seconds_since(start_ns));
    }
    float *x = mem_array((size_t)cells, sizeof *x), *out = mem_array((size_t)cells, sizeof *out);
    backend_get(&bench->cpu, x, bench->x, cells);
    backend_get(&bench->cpu, out, bench->out, cells);
    for (int64_t i = 0; i < cells; i++) {
        error += pow((double)x[i] - (double)out[i], 2);
        energy += pow((double)x[i], 2);
    }
    printf("%-10s %5d %6.1f bytes a token: encode %7.2f ms, decode %7.2f ms (%.1f and %.1f copies, %.2f and %.2f products); "
           "error %.4f\n",
           name, (int)width, (double)bytes / ROWS, encode * 1e3, decode * 1e3, encode / bench->copy_seconds,
           decode / bench->copy_seconds, encode / bench->product_seconds, decode / bench->product_seconds, error / energy);
    double expected, bound;
    if (codec_distortion(codec, CODEC_FORWARD, bench->use.keep, &expected, &bound))
        printf("%-10s %5d   expected error is %.2f dB above the Gaussian rate-distortion bound\n", name, (int)width,
               10 * log10(expected / bound));
    mem_free(x);
    mem_free(out);
    codec_free(codec);
}

/* Channels of falling size, turned by a few reflections; a part of it follows the token. */
static void fill(struct bench *bench, float *x, int64_t width)
{
    struct dice dice = {5};
    float *v = mem_array((size_t)width, sizeof *v);
    for (int64_t r = 0; r < ROWS; r++)
        for (int64_t c = 0; c < width; c++) {
            double sum = 0;
            for (int i = 0; i < 4; i++)
                sum += (double)dice_below(&dice, 20001) / 10000 - 1;
            x[r * width + c] = (float)(sum / pow((double)(c + 1), 0.8));
        }
    for (int turn = 0; turn < 3; turn++) {
        double square = 0;
        for (int64_t c = 0; c < width; c++) {
            v[c] = (float)dice_below(&dice, 20001) / 10000 - 1;
            square += (double)v[c] * (double)v[c];
        }
        for (int64_t r = 0; r < ROWS; r++) {
            double along = 0;
            for (int64_t c = 0; c < width; c++)
                along += (double)x[r * width + c] * (double)v[c];
            for (int64_t c = 0; c < width; c++)
                x[r * width + c] -= (float)(2 * along / square) * v[c];
        }
    }
    for (int64_t i = 0; i < ROWS / TOKENS * (TOKENS + 1); i++)
        bench->windows[i] = (uint32_t)dice_below(&dice, VOCABULARY);
    mem_free(v);
}

static void measure_peers(struct bench *bench, int64_t width)
{
    const struct ops *ops = bench->cpu.ops;
    float *square = backend_tensor(&bench->cpu, NULL, width * width);
    bench->copy_seconds = bench->product_seconds = 1e30;
    for (int i = 0; i < 5; i++) {
        uint64_t start_ns = clock_now_ns();
        memcpy(bench->out, bench->x, (size_t)(ROWS * width) * sizeof(float));
        bench->copy_seconds = fmin(bench->copy_seconds, seconds_since(start_ns));
        start_ns = clock_now_ns();
        ops->matmul(bench->cpu.device, bench->out, bench->x, square, ROWS, width, width, width, width, width, false,
                    false, false);
        ops->finish(bench->cpu.device);
        bench->product_seconds = fmin(bench->product_seconds, seconds_since(start_ns));
    }
    ops->free(bench->cpu.device, square);
}

static void of_width(struct bench *bench, int64_t width, int64_t rank)
{
    static const struct {
        const char *name;
        int kind, decoding;
    } kinds[] = {{"dense", CODEC_KIND_DENSE, 0},         {"mask", CODEC_KIND_MASK, 0},
                 {"mask mmse", CODEC_KIND_MASK, CODEC_DECODING_MMSE}, {"topk", CODEC_KIND_TOPK, 0},
                 {"principal", CODEC_KIND_PRINCIPAL, 0}, {"hybrid", CODEC_KIND_HYBRID, 0}, {"subspace", CODEC_KIND_SUBSPACE, 0},
                 {"entropy", CODEC_KIND_ENTROPY, 0}};
    int64_t cells = ROWS * width, features = rank ? rank : width;
    float *x = mem_array((size_t)cells, sizeof *x), *table = mem_array((size_t)((VOCABULARY + 1) * features), sizeof *table);
    struct dice dice = {6};
    fill(bench, x, width);
    for (int64_t i = 0; i < VOCABULARY * features; i++)
        table[i] = (float)dice_below(&dice, 20001) / 10000 - 1;
    bench->x = backend_tensor(&bench->cpu, x, cells);
    bench->out = backend_tensor(&bench->cpu, NULL, cells);
    bench->message = mem_array((size_t)cells, sizeof(float));
    float *device_table = backend_tensor(&bench->cpu, table, (VOCABULARY + 1) * features);
    measure_peers(bench, width);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        bench->settings = (struct codec_settings){.kind = kinds[i].kind, .decoding = kinds[i].decoding, .format = FORMAT_BF16, .width = width,
                                                  .max_rows = ROWS,
                                                  .reference = CODEC_REFERENCE_TOKENS, .slots = 1, .rank = rank,
                                                      .context = 2,
                                                  .table = device_table, .vocabulary = VOCABULARY, .forward_share = 0.6,
                                                  .decay = 0.5, .bits = 2};
        bench->use = (struct codec_use){.step = 1, .rows = ROWS, .format_override = -1, .windows = bench->windows,
                                        .tokens = TOKENS};
        run(bench, kinds[i].name);
    }
    bench->cpu.ops->free(bench->cpu.device, device_table);
    bench->cpu.ops->free(bench->cpu.device, bench->x);
    bench->cpu.ops->free(bench->cpu.device, bench->out);
    mem_free(bench->message);
    mem_free(table);
    mem_free(x);
}

int main(int argc, char **argv)
{
    struct bench bench = {0};
    setvbuf(stdout, NULL, _IOLBF, 0);
    backend_open(&bench.cpu, argc > 1 ? (int)strtol(argv[1], NULL, 10) : 1);
    bench.windows = mem_array(ROWS / TOKENS * (TOKENS + 1), sizeof *bench.windows);
    of_width(&bench, 192, 0);
    of_width(&bench, 2048, 256);
    mem_free(bench.windows);
    backend_close(&bench.cpu);
    return 0;
}

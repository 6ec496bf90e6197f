/*
 * One stage of a model of 1.2 billion parameters (Llama-3.2-1B's shape, four stages, random weights): `one_billion [STAGE [THREADS
 * [TOKENS]]]`, default stage 1, all cores, micro-batches of 1 x 512 tokens. Forward of all micro-batches that may be in flight,
 * backward of all of them, one optimiser step; then the memory that the process has really had beside what the plan printed
 * before anything was taken.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

#include "gpu/train/shape.h"
#include "scheduler/plan.h"
#include "ssh/base/clock.h"
#include "ssh/base/mem.h"
#include "ssh/base/text.h"
#include "tests/helpers/backend.h"

static void describe(struct profile *p, int64_t tokens)
{
    static const char *const hosts[] = {"a", "b", "c", "d"};
    profile_defaults(p);
    for (int i = 0; i < 4; i++)
        profile_add_host(p, hosts[i], NULL);
    p->hidden = 2048;
    p->layers = 16;
    p->heads = 32;
    p->kv_heads = 8;
    p->head_width = 64;
    p->ffn = 8192;
    p->vocabulary = 128256;
    p->head_tie = HEAD_TIED;
    p->rope_theta = 500000;
    p->sequence = tokens;
    p->micro_batch = 1;
    p->micro_batches = 4;
    p->stages = 4;
}

static long argument(int argc, char **argv, int index, long otherwise)
{
    return argc > index ? strtol(argv[index], NULL, 10) : otherwise;
}

static double cpu_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void fill(const struct backend *cpu, float *to, int64_t count)
{
    cpu->ops->fill(cpu->device, to, 0.01f, count);
}

/* All slots forward, then backward, in the order of a pipeline. Returns how many tokens went both ways. */
static int64_t step(const struct backend *cpu, struct stage *stage, const struct stage_shape *shape, const uint32_t *ids)
{
    int64_t rows = shape->sequences * shape->tokens;
    for (int slot = 0; slot < (int)shape->slots; slot++) {
        if (!shape->first)
            fill(cpu, stage_input(stage, slot), rows * shape->model.hidden);
        stage_forward(stage, slot, shape->first ? ids : NULL, stage_input(stage, slot), shape->sequences, shape->tokens);
        if (!shape->last)
            continue;
        stage_loss(stage, slot, ids, 1.0f / (float)rows);
        stage_backward(stage, slot, NULL);
    }
    for (int slot = 0; slot < (int)shape->slots && !shape->last; slot++) {
        fill(cpu, stage_gradient(stage), rows * shape->model.hidden);
        stage_backward(stage, slot, stage_gradient(stage));
    }
    const struct adamw settings = {.learning_rate = 2e-5f, .beta1 = 0.9f, .beta2 = 0.95f, .epsilon = 1e-8f, .gradient_scale = 1};
    stage_step(stage, &settings, 1);
    return shape->slots * rows;
}

static void report(const struct plan_stage *planned, int64_t tokens, double wall, double cpu)
{
    struct rusage usage;
    char plan[32], peak[32];
    getrusage(RUSAGE_SELF, &usage);
    double real = (double)usage.ru_maxrss * 1024;
    printf("one_billion.memory %s planned, %s at most in the process (%.3f)\n", text_from_bytes(planned->total_bytes, plan, sizeof plan),
           text_from_bytes((uint64_t)real, peak, sizeof peak), real / (double)planned->total_bytes);
    printf("one_billion.tokens_per_second %.1f tokens/s, %.1f tokens/s of a processor\n", (double)tokens / wall, (double)tokens / cpu);
}

int main(int argc, char **argv)
{
    long index = argument(argc, argv, 1, 1), threads = argument(argc, argv, 2, 0), tokens = argument(argc, argv, 3, 512);
    static struct profile profile;
    static struct plan plan;
    struct why why = {0};
    struct backend cpu;
    struct stage *stage;
    describe(&profile, tokens);
    BUG_IF(index < 0 || index > 3 || tokens < 1);
    if (plan_make_for(&profile, 4, &plan, &why) != 0) {
        fprintf(stderr, "%s\n", why.text);
        return 1;
    }
    const struct plan_stage *planned = &plan.stages[index];
    struct stage_shape shape = {.model = shape_of_profile(&profile), .first_layer = planned->first_layer, .layers = planned->layers,
                                .first = index == 0, .last = index == 3, .sequences = 1, .tokens = tokens,
                                .slots = planned->in_flight, .recompute = profile.recompute};
    backend_open(&cpu, (int)threads);
    if (stage_new(cpu.ops, cpu.device, &shape, &stage, &why) != 0) {
        fprintf(stderr, "%s\n", why.text);
        return 1;
    }
    printf("one_billion: stage %ld of 4, layers %d to %d, %llu parameters, %d micro-batches of %ld tokens in flight\n", index,
           planned->first_layer, planned->first_layer + planned->layers - 1, (unsigned long long)planned->parameters,
           planned->in_flight, tokens);
    stage_fresh(stage, 1);
    uint32_t *ids = mem_array((size_t)tokens, sizeof *ids);
    for (long i = 0; i < tokens; i++)
        ids[i] = (uint32_t)(i * 7919 % 128256);
    uint64_t began_ns = clock_now_ns();
    double began = cpu_seconds();
    int64_t done = step(&cpu, stage, &shape, ids);
    report(planned, done, (double)(clock_now_ns() - began_ns) / 1e9, cpu_seconds() - began);
    mem_free(ids);
    stage_free(stage);
    backend_close(&cpu);
    return 0;
}

/*
 * A whole model as one frozen stage whose layers keep their keys and values. Prompts go through in pieces of ROWS tokens, so that
 * what one call needs does not grow with the text.
 */
#include "gpu/model/generate.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/math/philox.h"
#include "gpu/model/checkpoint.h"
#include "gpu/model/inside.h"
#include "ssh/base/mem.h"

#define ROWS 64 /* tokens that go through the model together */

struct generator {
    struct stage *stage;
    float *keys, *values; /* device, [layers][context][kv] */
    int64_t context, length;
};

static int take_cache(struct generator *generator, const struct ops *ops, struct device *device, struct why *why)
{
    const struct model_shape *m = &generator->stage->shape.model;
    size_t bytes = (size_t)(m->layers * generator->context * carve_key_width(m)) * sizeof(float);
    generator->keys = ops->alloc(device, bytes);
    generator->values = ops->alloc(device, bytes);
    if (!generator->keys || !generator->values)
        return why_set(why, ERR_MEMORY, "the keys and values of %" PRId64 " tokens need %.2f GiB; ask for fewer tokens",
                       generator->context, 2 * (double)bytes / 0x1p30);
    return 0;
}

static int check_context(const struct model_shape *model, int64_t context, struct why *why)
{
    if (context < 1 || context > 1 << 20)
        return why_set(why, ERR_INVALID, "a text of %" PRId64 " tokens; 1 to %d are possible", context, 1 << 20);
    if (model->window && context > model->window)
        return why_set(why, ERR_INVALID, "a text of %" PRId64 " tokens, but attention of this model sees only %" PRId64
                       ": sliding windows are not supported, ask for fewer tokens", context, model->window);
    return 0;
}

int generator_new(const struct ops *ops, struct device *device, const char *folder, const char *adapter, int64_t context,
                  struct generator **generator, struct why *why)
{
    struct stage_shape shape = {.sequences = 1, .tokens = context < ROWS ? context : ROWS, .slots = 1, .frozen = true, .head_rows = 1};
    int err = checkpoint_shape(folder, &shape.model, why);
    if (!err)
        err = check_context(&shape.model, context, why);
    if (err)
        return err;
    struct generator *new = mem_new(sizeof *new);
    new->context = context;
    err = stage_open(ops, device, &shape, folder, adapter, &new->stage, why);
    if (!err)
        err = take_cache(new, ops, device, why);
    if (err)
        generator_free(new);
    else
        *generator = new;
    return err;
}

void generator_free(struct generator *generator)
{
    if (!generator)
        return;
    if (generator->stage) {
        struct stage *stage = generator->stage;
        if (generator->keys)
            stage->ops->free(stage->device, generator->keys);
        if (generator->values)
            stage->ops->free(stage->device, generator->values);
    }
    stage_free(generator->stage);
    mem_free(generator);
}

const struct model_shape *generator_shape(const struct generator *generator)
{
    return &generator->stage->shape.model;
}

int64_t generator_length(const struct generator *generator)
{
    return generator->length;
}

int64_t generator_room(const struct generator *generator)
{
    return generator->context - generator->length;
}

void generator_rewind(struct generator *generator)
{
    generator->length = 0;
}

/* At most ROWS tokens, to the stage's `output`. */
static void feed_some(struct generator *generator, const uint32_t *ids, int64_t count)
{
    struct stage *stage = generator->stage;
    const struct model_shape *m = &stage->shape.model;
    int64_t cache = generator->context * carve_key_width(m);
    float *output = stage->scratch + stage->work.output;
    linear_embed(stage, stage_x(stage, 0, 0), ids, count);
    for (int64_t i = 0; i < m->layers; i++) {
        struct layer layer = stage_layer(stage, 0, i);
        layer_forward_cached(stage, &layer, count, generator->length, generator->keys + i * cache, generator->values + i * cache,
                             i + 1 < m->layers ? stage_x(stage, 0, i + 1) : output);
    }
    generator->length += count;
}

void generator_feed(struct generator *generator, const uint32_t *ids, int64_t count, float *logits)
{
    struct stage *stage = generator->stage;
    int64_t hidden = stage->shape.model.hidden, last = 0;
    BUG_IF(count < 1 || count > generator_room(generator) || !model_ids_fit(&stage->shape.model, ids, count));
    for (int64_t done = 0; done < count; done += last) {
        last = count - done < stage->shape.tokens ? count - done : stage->shape.tokens;
        feed_some(generator, ids + done, last);
    }
    float *output = stage->scratch + stage->work.output;
    if (last > 1) {
        stage->ops->fill(stage->device, output, 0, hidden);
        stage->ops->add(stage->device, output, output + (last - 1) * hidden, hidden);
    }
    head_logits(stage, 1, logits);
}

/* ---- choosing ---- */

static uint32_t most_likely(const float *logits, int64_t vocabulary)
{
    int64_t best = 0;
    for (int64_t i = 1; i < vocabulary; i++)
        if (logits[i] > logits[best])
            best = i;
    return (uint32_t)best;
}

struct candidate {
    float logit;
    uint32_t id;
};

static int by_logit(const void *a, const void *b)
{
    const struct candidate *left = a, *right = b;
    if (left->logit < right->logit || left->logit > right->logit)
        return left->logit > right->logit ? -1 : 1;
    return left->id < right->id ? -1 : left->id > right->id;
}

/* In [0, 1). */
static double throw_dice(struct choice *choice)
{
    uint32_t counter[4] = {(uint32_t)choice->state, (uint32_t)(choice->state >> 32), 0, 0}, key[2] = {0x6b656467, 0x65}, out[4];
    choice->state++;
    philox4x32(counter, key, out);
    return ((double)out[0] * 0x1p21 + (double)(out[1] >> 11)) * 0x1p-53;
}

uint32_t choice_make(struct choice *choice, const float *logits, int64_t vocabulary)
{
    if (!(choice->temperature > 0))
        return most_likely(logits, vocabulary);
    struct candidate *all = mem_array((size_t)vocabulary, sizeof *all);
    double *shares = mem_array((size_t)vocabulary, sizeof *shares), sum = 0, kept = 0;
    for (int64_t i = 0; i < vocabulary; i++)
        all[i] = (struct candidate){logits[i], (uint32_t)i};
    qsort(all, (size_t)vocabulary, sizeof *all, by_logit);
    for (int64_t i = 0; i < vocabulary; i++)
        sum += shares[i] = exp(((double)all[i].logit - (double)all[0].logit) / (double)choice->temperature);
    int64_t count = 0;
    while (count < vocabulary && (count == 0 || kept < (double)choice->top_p * sum))
        kept += shares[count++];
    double left = throw_dice(choice) * kept;
    int64_t chosen = 0;
    while (chosen + 1 < count && left >= shares[chosen])
        left -= shares[chosen++];
    uint32_t id = all[chosen].id;
    mem_free(all);
    mem_free(shares);
    return id;
}

#include "tests/helpers/pipeline.h"

#include <math.h>

#include "gpu/model/checkpoint.h"
#include "gpu/train/rate.h"
#include "gpu/train/shape.h"
#include "scheduler/plan.h"
#include "ssh/base/mem.h"

static void must(int err, const struct why *why)
{
    if (err)
        BUG("%s", why->text);
}

static void shape_of(const struct profile *p, struct model_shape *shape)
{
    struct why why = {0};
    *shape = shape_of_profile(p);
    if (p->model_path[0])
        must(checkpoint_shape(p->model_path, shape, &why), &why);
}

static void open_stages(struct pipeline *pipeline, const int64_t *layers)
{
    const struct profile *p = &pipeline->profile;
    const struct backend *cpu = pipeline->backend;
    struct why why = {0};
    struct plan *plan = mem_new(sizeof *plan);
    struct stage_shape shape = {.sequences = p->micro_batch, .tokens = p->sequence, .slots = 1, .recompute = p->recompute};
    if (!layers)
        must(plan_make(p, plan, &why), &why);
    shape_of(p, &shape.model);
    for (int i = 0; i < pipeline->stages; i++, shape.first_layer += shape.layers) {
        shape.layers = layers ? layers[i] : plan->stages[i].layers;
        shape.first = i == 0;
        shape.last = i == pipeline->stages - 1;
        must(stage_new(cpu->ops, cpu->device, &shape, &pipeline->stage[i], &why), &why);
        if (p->model_path[0])
            must(stage_load(pipeline->stage[i], p->model_path, &why), &why);
        else
            stage_fresh(pipeline->stage[i], (uint64_t)p->seed);
    }
    mem_free(plan);
}

static void open_codecs(struct pipeline *pipeline)
{
    const struct profile *p = &pipeline->profile;
    const struct backend *cpu = pipeline->backend;
    struct why why = {0};
    struct codec_settings settings = {.kind = p->codec,
                                      .format = p->values,
                                      .gain = p->gain,
                                      .reference = p->reference,
                                      .width = p->hidden,
                                      .max_rows = p->micro_batch * p->sequence,
                                      .seed = (uint64_t)p->seed,
                                      .slots = 1};
    for (int i = 0; i + 1 < pipeline->stages; i++) {
        settings.boundary = (uint32_t)i;
        must(codec_new(cpu->ops, cpu->device, &settings, &pipeline->sender[i], &why), &why);
        must(codec_new(cpu->ops, cpu->device, &settings, &pipeline->receiver[i], &why), &why);
    }
}

void pipeline_init(struct pipeline *pipeline, const struct backend *backend, const struct profile *profile,
                   const int64_t *layers)
{
    struct why why = {0};
    size_t rows = (size_t)(profile->micro_batch * profile->sequence);
    *pipeline = (struct pipeline){.backend = backend, .profile = *profile, .stages = (int)profile->stages};
    struct data_settings settings = {.paths = profile->data_paths, .validation_share = profile->validation_share};
    must(data_open(&settings, &pipeline->data, &why), &why);
    must(data_check(pipeline->data, profile->sequence, profile->validation_windows, &why), &why);
    open_stages(pipeline, layers);
    open_codecs(pipeline);
    pipeline->bytes = mem_array(rows * (size_t)profile->hidden, sizeof(float)); /* dense fp32: no message is larger */
    pipeline->ids = mem_array(rows, sizeof *pipeline->ids);
    pipeline->targets = mem_array(rows, sizeof *pipeline->targets);
}

void pipeline_clear(struct pipeline *pipeline)
{
    for (int i = 0; i < pipeline->stages; i++) {
        stage_free(pipeline->stage[i]);
        codec_free(pipeline->sender[i]);
        codec_free(pipeline->receiver[i]);
    }
    data_close(pipeline->data);
    mem_free(pipeline->bytes);
    mem_free(pipeline->ids);
    mem_free(pipeline->targets);
}

/* ---- one micro-batch ---- */

static void put_window(struct pipeline *pipeline, int64_t sequence, const uint32_t *window)
{
    int64_t tokens = pipeline->profile.sequence;
    memcpy(pipeline->ids + sequence * tokens, window, (size_t)tokens * sizeof *window);
    memcpy(pipeline->targets + sequence * tokens, window + 1, (size_t)tokens * sizeof *window);
}

static size_t message_bytes(const struct pipeline *pipeline, const struct codec_use *use)
{
    const struct profile *p = &pipeline->profile;
    return codec_bytes(&(struct codec_settings){.kind = p->codec, .format = p->values, .width = p->hidden}, use);
}

/* All stages forward; the last one's summed loss. */
static double run_forward(struct pipeline *pipeline, const struct codec_use *use, int64_t sequences, bool measure,
                          float scale)
{
    int64_t tokens = pipeline->profile.sequence;
    struct why why = {0};
    const float *x = stage_forward(pipeline->stage[0], 0, pipeline->ids, NULL, sequences, tokens);
    for (int i = 0; i + 1 < pipeline->stages; i++) {
        float *input = stage_input(pipeline->stage[i + 1], 0);
        size_t bytes = message_bytes(pipeline, use);
        if (measure)
            codec_measure(pipeline->sender[i], x, use->rows);
        codec_encode(pipeline->sender[i], use, x, pipeline->bytes);
        must(codec_decode(pipeline->receiver[i], use, pipeline->bytes, bytes, input, &why), &why);
        BUG_IF(codec_checksum(pipeline->sender[i], use) != codec_checksum(pipeline->receiver[i], use));
        if (scale != 0)
            pipeline->forward_bytes += bytes;
        x = stage_forward(pipeline->stage[i + 1], 0, NULL, input, sequences, tokens);
    }
    return stage_loss(pipeline->stage[pipeline->stages - 1], 0, pipeline->targets, scale);
}

static void run_backward(struct pipeline *pipeline, const struct codec_use *use)
{
    struct why why = {0};
    const float *dx = stage_backward(pipeline->stage[pipeline->stages - 1], 0, NULL);
    for (int i = pipeline->stages - 2; i >= 0; i--) {
        float *dy = stage_gradient(pipeline->stage[i]);
        size_t bytes = message_bytes(pipeline, use);
        codec_encode_gradient(pipeline->receiver[i], use, dx, pipeline->bytes);
        must(codec_decode_gradient(pipeline->sender[i], use, pipeline->bytes, bytes, dy, &why), &why);
        pipeline->backward_bytes += bytes;
        dx = stage_backward(pipeline->stage[i], 0, dy);
    }
}

/* ---- one step ---- */

/* What was measured in this step is version `step` on both ends, and the next step is stamped with it; what was measured in
 * a step that is not applied is forgotten. */
static void ship_references(struct pipeline *pipeline, uint64_t step, bool applied)
{
    struct why why = {0};
    bool all = applied && pipeline->stages > 1;
    for (int i = 0; i + 1 < pipeline->stages; i++) {
        uint8_t *state = NULL;
        size_t bytes;
        if (codec_export(pipeline->sender[i], (uint32_t)step, &state, &bytes) == 0 && applied) {
            must(codec_import(pipeline->sender[i], (uint32_t)step, state, bytes, &why), &why);
            must(codec_import(pipeline->receiver[i], (uint32_t)step, state, bytes, &why), &why);
        } else {
            all = false;
        }
        mem_free(state);
    }
    if (all)
        pipeline->codec_version = (uint32_t)step;
}

/* First and last stage of a tied model step with the sum of both gradients. */
static void exchange_tied(struct pipeline *pipeline)
{
    struct stage *first = pipeline->stage[0], *last = pipeline->stage[pipeline->stages - 1];
    enum { PIECE = 1000 };
    float values[PIECE];
    int64_t total = stage_tied_count(first);
    BUG_IF(total != stage_tied_count(last));
    for (int64_t done = 0; done < total; done += PIECE) {
        int64_t count = total - done < PIECE ? total - done : PIECE;
        stage_tied_get(last, done, count, values);
        stage_tied_add(first, done, count, values);
        stage_tied_get(first, done, count, values);
        stage_tied_set(last, done, count, values);
    }
}

static void apply(struct pipeline *pipeline, struct pipeline_step *result)
{
    const struct profile *p = &pipeline->profile;
    struct adamw settings = {.learning_rate = result->learning_rate,
                             .beta1 = (float)p->beta1,
                             .beta2 = (float)p->beta2,
                             .epsilon = (float)p->epsilon,
                             .weight_decay = (float)p->weight_decay,
                             .gradient_scale = result->clip_scale};
    result->applied = isfinite(result->loss) && isfinite(result->norm);
    if (result->applied)
        pipeline->applied++;
    else
        pipeline->skipped++;
    for (int i = 0; i < pipeline->stages; i++) {
        if (result->applied)
            stage_step(pipeline->stage[i], &settings, pipeline->applied);
        else
            stage_zero_gradients(pipeline->stage[i]);
    }
}

struct pipeline_step pipeline_train(struct pipeline *pipeline, uint64_t step)
{
    const struct profile *p = &pipeline->profile;
    const struct rate rate = {.cosine = p->schedule == SCHEDULE_COSINE,
                              .warmup = (uint64_t)p->warmup,
                              .steps = (uint64_t)p->steps,
                              .final_share = p->final_share};
    int64_t per_step = p->micro_batches * p->micro_batch * p->sequence;
    struct codec_settings codec = {.kind = p->codec, .width = p->hidden};
    struct codec_use use = {.step = step, .rows = p->micro_batch * p->sequence, .keep = codec_keep(&codec, p->mask_rate),
                            .format_override = -1, .version = pipeline->codec_version};
    bool measure = p->reference == REFERENCE_MEAN && use.keep && (step - 1) % (uint64_t)p->refresh == 0;
    struct pipeline_step result = {.learning_rate = (float)(p->learning_rate * rate_factor(&rate, step)), .clip_scale = 1};
    double loss = 0, squares = 0;
    uint32_t *window = mem_array((size_t)p->sequence + 1, sizeof *window);
    uint8_t *marks = mem_array((size_t)p->sequence + 1, 1);
    struct why why = {0};
    for (use.micro_batch = 0; use.micro_batch < p->micro_batches; use.micro_batch++) {
        for (int64_t s = 0; s < p->micro_batch; s++) {
            must(data_train_window(pipeline->data, (uint64_t)p->seed, step, use.micro_batch, (uint32_t)s, p->sequence, window,
                                   marks, &why), &why);
            put_window(pipeline, s, window);
        }
        loss += run_forward(pipeline, &use, p->micro_batch, measure, 1.0f / (float)per_step);
        run_backward(pipeline, &use);
    }
    mem_free(window);
    mem_free(marks);
    exchange_tied(pipeline);
    for (int i = pipeline->stages - 1; i >= 0; i--)
        squares += stage_gradient_squares(pipeline->stage[i]);
    result.loss = loss / (double)per_step;
    result.norm = sqrt(squares);
    if (p->clip > 0 && result.norm > p->clip)
        result.clip_scale = (float)(p->clip / result.norm);
    apply(pipeline, &result);
    if (measure)
        ship_references(pipeline, step, result.applied);
    return result;
}

double pipeline_evaluate(struct pipeline *pipeline, uint64_t step)
{
    const struct profile *p = &pipeline->profile;
    struct codec_use use = {.step = step, .format_override = FORMAT_FP32};
    double loss = 0;
    uint32_t *window = mem_array((size_t)p->sequence + 1, sizeof *window);
    uint8_t *marks = mem_array((size_t)p->sequence + 1, 1);
    struct why why = {0};
    for (int64_t done = 0; done < p->validation_windows; use.micro_batch++) {
        int64_t left = p->validation_windows - done, sequences = left < p->micro_batch ? left : p->micro_batch;
        for (int64_t s = 0; s < sequences; s++) {
            must(data_validation_window(pipeline->data, done + s, p->validation_windows, p->sequence, window, marks, &why),
                 &why);
            put_window(pipeline, s, window);
        }
        use.rows = sequences * p->sequence;
        loss += run_forward(pipeline, &use, sequences, false, 0);
        done += sequences;
    }
    mem_free(window);
    mem_free(marks);
    return loss / (double)(p->validation_windows * p->sequence);
}

int pipeline_run(struct pipeline *pipeline, struct pipeline_step *steps, double *validation)
{
    const struct profile *p = &pipeline->profile;
    int count = 0;
    validation[count++] = pipeline_evaluate(pipeline, 0);
    for (int64_t step = 1; step <= p->steps; step++) {
        steps[step - 1] = pipeline_train(pipeline, (uint64_t)step);
        if (step == p->steps || (p->evaluate_every && step % p->evaluate_every == 0))
            validation[count++] = pipeline_evaluate(pipeline, (uint64_t)step);
    }
    return count;
}

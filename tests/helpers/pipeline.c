#include "tests/helpers/pipeline.h"

#include <math.h>

#include "gpu/model/checkpoint.h"
#include "gpu/model/token_table.h"
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
    struct stage_shape shape = {.lora = shape_lora(p), .sequences = p->micro_batch, .tokens = p->sequence, .slots = 1, .recompute = p->recompute,
                                .half_products = p->precision == PRECISION_BF16, .words_only = shape_words_only(p)};
    if (!layers)
        must(plan_make(p, plan, &why), &why);
    shape_of(p, &shape.model);
    for (int i = 0; i < pipeline->stages; i++, shape.first_layer += shape.layers) {
        shape.layers = layers ? layers[i] : plan->stages[i].layers;
        shape.first = i == 0;
        shape.last = i == pipeline->stages - 1;
        must(stage_new(cpu->ops, cpu->device, &shape, &pipeline->stage[i], &why), &why);
        must(shape_begin(pipeline->stage[i], p, &why), &why);
    }
    mem_free(plan);
}

static void open_codecs(struct pipeline *pipeline)
{
    const struct profile *p = &pipeline->profile;
    const struct backend *cpu = pipeline->backend;
    struct why why = {0};
    struct codec_settings settings;
    struct model_shape shape;
    shape_of(p, &shape);
    if (shape_needs_table(p))
        must(token_table_new(cpu->ops, cpu->device, &shape, p->model_path, (uint64_t)p->seed, p->rank, &pipeline->table,
                             &why),
             &why);
    for (int i = 0; i + 1 < pipeline->stages; i++) {
        shape_codec(p, i, &settings);
        settings.table = pipeline->table;
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
    pipeline->windows = mem_array((size_t)(profile->micro_batch * (profile->sequence + 1)), sizeof *pipeline->windows);
    pipeline->ids = mem_array(rows, sizeof *pipeline->ids);
    pipeline->targets = mem_array(rows, sizeof *pipeline->targets);
}

static void free_state(struct pipeline_state *state)
{
    for (int i = 0; i < PROFILE_MAX_STAGES; i++)
        for (int way = 0; way < 2; way++)
            mem_free(state->state[i][way]);
}

void pipeline_clear(struct pipeline *pipeline)
{
    for (int i = 0; i < pipeline->stages; i++) {
        stage_free(pipeline->stage[i]);
        codec_free(pipeline->sender[i]);
        codec_free(pipeline->receiver[i]);
    }
    for (int i = 0; i < pipeline->waiting_count; i++)
        free_state(&pipeline->waiting[i]);
    mem_free(pipeline->waiting);
    if (pipeline->table)
        pipeline->backend->ops->free(pipeline->backend->device, pipeline->table);
    data_close(pipeline->data);
    mem_free(pipeline->windows);
    mem_free(pipeline->bytes);
    mem_free(pipeline->ids);
    mem_free(pipeline->targets);
}

/* ---- one micro-batch ---- */

static void put_window(struct pipeline *pipeline, int64_t sequence, const uint32_t *window)
{
    int64_t tokens = pipeline->profile.sequence;
    memcpy(pipeline->windows + sequence * (tokens + 1), window, (size_t)(tokens + 1) * sizeof *window);
    memcpy(pipeline->ids + sequence * tokens, window, (size_t)tokens * sizeof *window);
    memcpy(pipeline->targets + sequence * tokens, window + 1, (size_t)tokens * sizeof *window);
}

static size_t message_bytes(const struct pipeline *pipeline, const struct codec_use *use, enum codec_way way)
{
    struct codec_settings settings;
    shape_codec(&pipeline->profile, 0, &settings);
    return codec_bytes(&settings, use, way);
}

static bool weighs(const struct pipeline *pipeline)
{
    struct codec_settings settings;
    shape_codec(&pipeline->profile, 0, &settings);
    return codec_weighs(&settings);
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
        size_t bytes = message_bytes(pipeline, use, CODEC_FORWARD);
        if (measure)
            codec_measure(pipeline->sender[i], use, x);
        codec_encode(pipeline->sender[i], use, x, pipeline->bytes);
        must(codec_decode(pipeline->receiver[i], use, pipeline->bytes, bytes, input, &why), &why);
        if (measure && weighs(pipeline))
            codec_measure(pipeline->receiver[i], use, input);
        BUG_IF(codec_checksum(pipeline->sender[i], use) != codec_checksum(pipeline->receiver[i], use));
        if (scale != 0)
            pipeline->forward_bytes += bytes;
        x = stage_forward(pipeline->stage[i + 1], 0, NULL, input, sequences, tokens);
    }
    return stage_loss(pipeline->stage[pipeline->stages - 1], 0, pipeline->targets, scale);
}

static void run_backward(struct pipeline *pipeline, const struct codec_use *use, bool measure)
{
    struct why why = {0};
    const float *dx = stage_backward(pipeline->stage[pipeline->stages - 1], 0, NULL);
    for (int i = pipeline->stages - 2; i >= 0; i--) {
        float *dy = stage_gradient(pipeline->stage[i]);
        size_t bytes = message_bytes(pipeline, use, CODEC_BACKWARD);
        if (measure)
            codec_measure_gradient(pipeline->receiver[i], use, dx);
        codec_encode_gradient(pipeline->receiver[i], use, dx, pipeline->bytes);
        must(codec_decode_gradient(pipeline->sender[i], use, pipeline->bytes, bytes, dy, &why), &why);
        if (measure && weighs(pipeline))
            codec_measure_gradient(pipeline->sender[i], use, dy);
        pipeline->backward_bytes += bytes;
        dx = stage_backward(pipeline->stage[i], 0, dy);
    }
}

/* ---- one step ---- */

/* What was measured waits as version `version` for step `due`; what was measured in a step that is not applied is
 * forgotten. */
static void keep_statistics(struct pipeline *pipeline, uint32_t version, uint64_t due, bool applied)
{
    struct pipeline_state state = {.version = version, .due = due};
    for (int i = 0; i + 1 < pipeline->stages; i++)
        for (int way = 0; way < 2; way++) {
            struct codec *owner = way == CODEC_FORWARD ? pipeline->sender[i] : pipeline->receiver[i];
            struct codec_settings settings;
            shape_codec(&pipeline->profile, i, &settings);
            if (!codec_has_state(&settings, (enum codec_way)way))
                continue;
            if (codec_weighs(&settings) && applied)
                codec_settle(owner, (enum codec_way)!way);
            else if (codec_weighs(&settings))
                codec_forget(owner, (enum codec_way)!way);
            if (applied)
                BUG_IF(codec_settle(owner, (enum codec_way)way) != 0 ||
                       codec_export(owner, (enum codec_way)way, &state.state[i][way], &state.bytes[i][way]) != 0);
            else
                codec_forget(owner, (enum codec_way)way);
        }
    if (!applied)
        return;
    pipeline->waiting = mem_grow(pipeline->waiting, (size_t)pipeline->waiting_count + 1, sizeof *pipeline->waiting);
    pipeline->waiting[pipeline->waiting_count++] = state;
}

/* The newest version that is due for this step comes into use at both ends. */
static void use_statistics(struct pipeline *pipeline, uint64_t step)
{
    int due = 0;
    struct why why = {0};
    while (due < pipeline->waiting_count && pipeline->waiting[due].due <= step)
        due++;
    if (!due)
        return;
    struct pipeline_state *state = &pipeline->waiting[due - 1];
    for (int i = 0; i + 1 < pipeline->stages; i++)
        for (int way = 0; way < 2; way++) {
            struct codec_settings settings;
            shape_codec(&pipeline->profile, i, &settings);
            const uint8_t *bytes = state->state[i][way];
            size_t count = state->bytes[i][way];
            if (!bytes)
                continue;
            must(codec_import(pipeline->sender[i], (enum codec_way)way, state->version, bytes, count, &why), &why);
            must(codec_import(pipeline->receiver[i], (enum codec_way)way, state->version, bytes, count, &why), &why);
            pipeline->state_bytes += codec_state_bytes(&settings, (enum codec_way)way);
        }
    pipeline->codec_version = state->version;
    for (int i = 0; i < due; i++)
        free_state(&pipeline->waiting[i]);
    pipeline->waiting_count -= due;
    memmove(pipeline->waiting, pipeline->waiting + due, (size_t)pipeline->waiting_count * sizeof *pipeline->waiting);
}

static bool calibrates(const struct profile *p)
{
    return profile_has_directions(p) || (p->codec != CODEC_DENSE && p->reference == REFERENCE_TOKENS);
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

static struct codec_use training_use(const struct pipeline *pipeline, uint64_t step)
{
    const struct profile *p = &pipeline->profile;
    struct codec_settings codec;
    shape_codec(p, 0, &codec);
    struct codec_use use = {.step = step, .rows = p->micro_batch * p->sequence, .keep = codec_keep(&codec, p->mask_rate),
                            .format_override = -1, .version = pipeline->codec_version, .windows = pipeline->windows,
                            .tokens = p->sequence};
    bool old = p->stale && step > pipeline->codec_version + (uint64_t)p->stale;
    if (codec_needs_state(&codec) && (!pipeline->codec_version || old))
        use.keep = 0;
    return use;
}

void pipeline_calibrate(struct pipeline *pipeline)
{
    const struct profile *p = &pipeline->profile;
    if (!calibrates(p) || pipeline->stages == 1)
        return;
    struct codec_use use = {.rows = p->micro_batch * p->sequence, .format_override = CODEC_CALIBRATION_FORMAT,
                            .windows = pipeline->windows,
                            .tokens = p->sequence};
    uint32_t *window = mem_array((size_t)p->sequence + 1, sizeof *window);
    uint8_t *marks = mem_array((size_t)p->sequence + 1, 1);
    struct why why = {0};
    uint64_t forward = pipeline->forward_bytes, backward = pipeline->backward_bytes;
    for (; use.micro_batch < p->calibrate; use.micro_batch++) {
        for (int64_t s = 0; s < p->micro_batch; s++) {
            must(data_train_window(pipeline->data, (uint64_t)p->seed, (uint64_t)p->steps + 1, use.micro_batch, (uint32_t)s,
                                   p->sequence, window, marks, &why), &why);
            put_window(pipeline, s, window);
        }
        run_forward(pipeline, &use, p->micro_batch, true, 1.0f / (float)(p->calibrate * use.rows));
        run_backward(pipeline, &use, true);
    }
    pipeline->forward_bytes = forward; /* those count training only */
    pipeline->backward_bytes = backward;
    for (int i = 0; i < pipeline->stages; i++)
        stage_zero_gradients(pipeline->stage[i]);
    pipeline->calibrated = 1;
    keep_statistics(pipeline, 1, 1, true);
    mem_free(window);
    mem_free(marks);
}

void pipeline_lend(const struct pipeline *from, struct pipeline *to)
{
    struct pipeline_state state = {.version = 1, .due = 1};
    BUG_IF(from->waiting_count != 1 || to->waiting_count != 0);
    for (int i = 0; i + 1 < to->stages; i++)
        for (int way = 0; way < 2; way++) {
            struct codec_settings settings;
            shape_codec(&to->profile, i, &settings);
            size_t bytes = codec_made_bytes(&settings, (enum codec_way)way);
            BUG_IF(bytes > from->waiting[0].bytes[i][way]);
            if (!bytes)
                continue;
            state.state[i][way] = mem_copy(from->waiting[0].state[i][way], bytes);
            state.bytes[i][way] = bytes;
        }
    to->calibrated = 1;
    to->waiting = mem_grow(NULL, 1, sizeof state);
    to->waiting[to->waiting_count++] = state;
}

double pipeline_loss_through(struct pipeline *pipeline, const uint8_t *text, const int64_t *starts, int64_t windows,
                             bool dense)
{
    const struct profile *p = &pipeline->profile;
    double loss = 0;
    uint32_t *window = mem_array((size_t)p->sequence + 1, sizeof *window);
    use_statistics(pipeline, 1);
    for (int64_t done = 0; done < windows;) {
        struct codec_use use = training_use(pipeline, (uint64_t)(done + 1)); /* another mask for every micro-batch */
        int64_t sequences = windows - done < p->micro_batch ? windows - done : p->micro_batch;
        for (int64_t s = 0; s < sequences; s++) {
            for (int64_t t = 0; t <= p->sequence; t++)
                window[t] = text[starts[done + s] + t];
            put_window(pipeline, s, window);
        }
        use.rows = sequences * p->sequence;
        if (dense)
            use = (struct codec_use){.rows = use.rows, .format_override = FORMAT_FP32};
        loss += run_forward(pipeline, &use, sequences, false, 0);
        done += sequences;
    }
    mem_free(window);
    return loss / (double)(windows * p->sequence);
}

struct pipeline_step pipeline_train(struct pipeline *pipeline, uint64_t step)
{
    const struct profile *p = &pipeline->profile;
    const struct rate rate = {.cosine = p->schedule == SCHEDULE_COSINE,
                              .warmup = (uint64_t)p->warmup,
                              .steps = (uint64_t)p->steps,
                              .final_share = p->final_share};
    int64_t per_step = p->micro_batches * p->micro_batch * p->sequence;
    bool late = calibrates(p),
        measures = pipeline->stages > 1 && p->codec != CODEC_DENSE && (late || p->reference == REFERENCE_MEAN);
    bool measure = measures && (step - 1) % (uint64_t)p->refresh == 0 && step > pipeline->calibrated;
    use_statistics(pipeline, step);
    struct codec_use use = training_use(pipeline, step);
    struct pipeline_step result = {.learning_rate = (float)(p->learning_rate * rate_factor(&rate, step)), .clip_scale = 1};
    double loss = 0, squares = 0;
    uint32_t *window = mem_array((size_t)p->sequence + 1, sizeof *window);
    uint8_t *marks = mem_array((size_t)p->sequence + 1, 1);
    struct why why = {0};
    for (use.micro_batch = 0; use.micro_batch < p->micro_batches; use.micro_batch++) {
        for (int64_t s = 0; s < p->micro_batch; s++) {
            must(data_train_window(pipeline->data, (uint64_t)p->seed, step, use.micro_batch, (uint32_t)s, p->sequence,
                                   window,
                                   marks, &why), &why);
            put_window(pipeline, s, window);
        }
        loss += run_forward(pipeline, &use, p->micro_batch, measure, 1.0f / (float)per_step);
        run_backward(pipeline, &use, measure);
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
        keep_statistics(pipeline, (uint32_t)step, step + (late ? (uint64_t)p->late : 1), result.applied);
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
    pipeline_calibrate(pipeline);
    for (int64_t step = 1; step <= p->steps; step++) {
        steps[step - 1] = pipeline_train(pipeline, (uint64_t)step);
        if (step == p->steps || (p->evaluate_every && step % p->evaluate_every == 0))
            validation[count++] = pipeline_evaluate(pipeline, (uint64_t)step);
    }
    return count;
}

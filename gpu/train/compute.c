/* See compute.h. Here: the life of the thread and loading; where each letter belongs is in accept.c. */
#include "gpu/train/compute.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#include "gpu/model/token_table.h"
#include "gpu/train/save.h"
#include "gpu/train/shape.h"
#include "gpu/train/siblings.h"
#include "ssh/base/clock.h"
#include "ssh/base/file.h"
#include "ssh/base/mem.h"

#define MESSAGE_FIXED 2048 /* bytes of any payload beside its tail */
#define LETTERS_SPARE 64
#define IDLE_LOOK_NS (500 * CLOCK_MS)

/* ---- words to kedged ---- */

struct letter compute_letter(enum wire_type type, const void *payload, size_t tail_bytes, enum mail_road road, uint64_t step,
                             uint32_t micro_batch)
{
    struct buf buf;
    struct why why = {0};
    buf_init(&buf, MESSAGE_FIXED + tail_bytes);
    if (!buf_reserve(&buf, MESSAGE_FIXED + tail_bytes) || wire_encode(type, payload, &buf, &why) < 0)
        BUG("message %d: %s", (int)type, why.text);
    return (struct letter){.type = (uint16_t)type,
                           .road = (uint8_t)road,
                           .step = step,
                           .micro_batch = micro_batch,
                           .payload = buf.data,
                           .bytes = buf_used(&buf)};
}

void compute_tell(struct compute *compute, enum wire_type type, const void *payload, uint64_t step)
{
    struct letter letter = compute_letter(type, payload, 0, MAIL_CONTROL, step, 0);
    mail_send(compute->mail, &letter, NULL);
}

void compute_say(struct compute *compute, enum event_level level, uint64_t step, const char *code, const char *format, ...)
{
    struct wire_event event = {.level = (uint8_t)level, .step = step};
    va_list list;
    va_start(list, format);
    vsnprintf(event.text, sizeof event.text, format, list);
    va_end(list);
    snprintf(event.code, sizeof event.code, "%s", code);
    compute_tell(compute, WIRE_EVENT, &event, step);
}

int compute_halt(struct compute *compute, uint64_t step, const char *format, ...)
{
    char text[WIRE_TEXT];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    if (!compute->halted)
        compute_say(compute, EVENT_ALERT, step, "drift", "%s", text);
    compute->halted = true;
    return ERR_INVALID;
}


/* ---- loading ---- */

static struct stage_shape shape_of(const struct compute_settings *settings, int slots)
{
    const struct profile *profile = &settings->profile;
    const struct wire_assign *assign = &settings->assign;
    int64_t still = profile->frozen - assign->first_layer;
    return (struct stage_shape){
        .model = shape_of_profile(profile),
        .lora = shape_lora(profile),
        .first_layer = assign->first_layer,
        .layers = assign->layers,
        .still = still < 0 ? 0 : still < assign->layers ? still : assign->layers,
        .first = assign->stage == 0,
        .last = assign->stage + 1 == assign->stages,
        .sequences = profile->micro_batch,
        .tokens = profile->sequence,
        .slots = slots,
        .half_products = profile->precision == PRECISION_BF16,
        .words_only = shape_words_only(profile),
        .moments = (enum stage_moments)profile->moments,
        .apart = profile->data_documents == DOCUMENTS_APART,
        .recompute = profile->recompute,
        .corrects = profile_corrects(profile),
    };
}

void compute_boundary(const struct compute_settings *settings, bool down, struct codec_settings *codec)
{
    const struct wire_assign *assign = &settings->assign;
    shape_codec(&settings->profile, assign->stage - !down, codec);
    codec->one_way = assign->first_layer + (down ? assign->layers : 0) <= settings->profile.frozen;
}

static int load_boundary(struct compute *compute, bool down, struct boundary *boundary, struct why *why)
{
    compute_boundary(&compute->settings, down, &boundary->settings);
    boundary->settings.slots = compute->slots;
    boundary->settings.table = compute->table;
    enum codec_way own = down ? CODEC_FORWARD : CODEC_BACKWARD; /* of which this end measures */
    compute->memory_bytes += codec_memory_bytes(&boundary->settings) + codec_owner_bytes(&boundary->settings, own);
    return codec_new(compute->ops, compute->device, &boundary->settings, &boundary->codec, why);
}

/* Both boundaries of a stage look at the same features. */
static int load_table(struct compute *compute, struct why *why)
{
    const struct profile *profile = &compute->settings.profile;
    if (!shape_needs_table(profile))
        return 0;
    struct model_shape shape = shape_of_profile(profile);
    compute->memory_bytes += (uint64_t)token_table_count(&shape, profile->rank) * sizeof(float);
    return token_table_new(compute->ops, compute->device, &shape, profile->model_path, (uint64_t)profile->seed, profile->rank,
                           &compute->table, why);
}

_Static_assert((int)TEMPLATE_MISTRAL == (int)CHAT_MISTRAL && (int)TEMPLATE_LLAMA3 == (int)CHAT_LLAMA3 &&
                   (int)TEMPLATE_CHATML == (int)CHAT_CHATML && (int)TEMPLATE_PLAIN == (int)CHAT_PLAIN,
               "the table of settings and the templates have one order");

static void tell_data(const char *text, void *arg)
{
    compute_say(arg, EVENT_WARN, 0, "data", "%s", text);
}

int compute_open_data(const struct profile *profile, int threads, void (*tell_cb)(const char *text, void *arg), void *arg,
                      struct data **data, struct why *why)
{
    struct tokenizer *tokenizer = NULL;
    int err = profile->tokenizer == TOKENIZER_MODEL ? tokenizer_open(profile->model_path, &tokenizer, why) : 0;
    if (err)
        return err;
    struct data_settings settings = {
        .paths = profile->data_paths,
        .validation_share = profile->validation_share,
        .tokenizer = tokenizer,
        .template = (enum chat_template)profile->data_template,
        .skip_bad_lines = profile->bad_lines == BAD_LINES_SKIP,
        .vocabulary = (uint32_t)profile->vocabulary,
        .threads = threads,
        .order = profile->data_windows == WINDOWS_EPOCHS ? DATA_EPOCHS : DATA_RANDOM,
        .micro_batches = profile->micro_batches,
        .sequences = profile->micro_batch,
        .tell_cb = tell_cb,
        .arg = arg,
    };
    err = data_open(&settings, data, why);
    tokenizer_close(tokenizer);
    return err ? err : data_check(*data, profile->sequence, profile->validation_windows, why);
}

static int load_data(struct compute *compute, struct why *why)
{
    int err = compute_open_data(&compute->settings.profile, compute->settings.assign.threads, tell_data, compute, &compute->data, why);
    if (err)
        return err;
    compute->planes = compute->least_planes ? compute->least_planes : data_masked(compute->data);
    return 0;
}

static int load_backend(struct compute *compute, struct why *why)
{
    char folder[1024];
    int err = file_program_folder(folder, sizeof folder, why);
    if (err)
        return err;
    compute->ops = ops_load(folder, "cpu", why);
    err = compute->ops ? compute->ops->open(&compute->device, compute->settings.assign.threads, why) : why->err;
    const char *slow = err ? NULL : compute->ops->half_is_slow(compute->device);
    if (slow && compute->settings.profile.precision == PRECISION_BF16)
        compute_say(compute, EVENT_WARN, 0, "precision", "train.precision = bf16 saves no time here, %s: products are made in fp32 of "
                    "rounded numbers", slow);
    return err;
}

static int load_weights(struct compute *compute, struct why *why)
{
    const struct profile *profile = &compute->settings.profile;
    struct stage_shape shape = shape_of(&compute->settings, compute->slots);
    int err = stage_new(compute->ops, compute->device, &shape, &compute->model, why);
    if (err)
        return err;
    compute->memory_bytes += stage_memory(&shape).total;
    return shape_begin(compute->model, profile, why);
}

static int load(struct compute *compute, struct why *why)
{
    int err = load_backend(compute, why);
    if (!err)
        err = load_weights(compute, why);
    if (!err)
        err = load_table(compute, why);
    if (!err && !compute->first)
        err = load_boundary(compute, false, &compute->up, why);
    if (!err && !compute->last)
        err = load_boundary(compute, true, &compute->down, why);
    if (!err && compute->first)
        err = load_data(compute, why);
    struct stage_shape shape = shape_of(&compute->settings, compute->slots);
    if (!err)
        err = correct_load(compute, &shape, why);
    if (!err)
        err = siblings_load(compute, &shape, why);
    if (!err)
        err = save_load(compute, why);
    return err ? err : save_resume(compute, why);
}

void compute_ready(struct compute *compute, enum ready_state state)
{
    struct stage_shape shape = shape_of(&compute->settings, compute->slots);
    struct wire_ready ready = {
        .state = (uint8_t)state, .parameters = (uint64_t)model_parameters(&shape), .memory_bytes = compute->memory_bytes};
    compute_tell(compute, WIRE_READY, &ready, 0);
}

static void tell_failed(struct compute *compute, int err, const char *text)
{
    struct letter letter = {.type = MAIL_FAILED,
                            .road = MAIL_CONTROL,
                            .micro_batch = (uint32_t)-err,
                            .payload = (uint8_t *)mem_text(text),
                            .bytes = strlen(text)};
    mail_send(compute->mail, &letter, NULL);
}

/* ---- life ---- */

static bool next_pass(struct compute *compute, struct wire_stamp *stamp, uint64_t *step)
{
    if (compute->first)
        return drive_next(compute, stamp, step);
    bool stamped = compute->stamped;
    *stamp = compute->stamp;
    *step = compute->stamp_step;
    compute->stamped = false;
    return stamped;
}

static void run_passes(struct compute *compute)
{
    struct wire_stamp stamp;
    uint64_t step;
    int err = 0;
    while (!err || err == ERR_AGAIN) {
        /* Not beyond a stamp: what is behind it belongs to the pass that it begins. */
        while (!compute->stamped && (err = compute_accept(compute, 0)) == 0)
            ;
        if (err && err != ERR_AGAIN)
            break;
        save_look(compute, false);
        if (next_pass(compute, &stamp, &step))
            err = step_run(compute, &stamp, step);
        else
            err = compute_accept(compute, IDLE_LOOK_NS);
    }
}

static void *compute_main(void *arg)
{
    struct compute *compute = arg;
    struct why why = {0};
    int err = load(compute, &why);
    if (err) {
        tell_failed(compute, err, why.text);
    } else {
        compute_ready(compute, READY_LOADED);
        if (!join_is_due(compute) || join_run(compute) == 0)
            run_passes(compute);
    }
    save_look(compute, true);
    struct letter ended = {.type = MAIL_ENDED, .road = MAIL_CONTROL};
    mail_send(compute->mail, &ended, NULL);
    return NULL;
}

static int64_t most_micro_batches(const struct profile *profile)
{
    int64_t evaluation = (profile->validation_windows + profile->micro_batch - 1) / profile->micro_batch;
    int64_t most = evaluation > profile->micro_batches ? evaluation : profile->micro_batches;
    return measures_calibrates(profile) && profile->calibrate > most ? profile->calibrate : most;
}

static int check(const struct compute_settings *settings, struct why *why)
{
    const struct profile *profile = &settings->profile;
    const struct wire_assign *assign = &settings->assign;
    bool first = assign->stage == 0, last = assign->stage + 1 == assign->stages;
    if (assign->stage >= assign->stages || assign->stages > PROFILE_MAX_STAGES || assign->in_flight == 0)
        return why_set(why, ERR_INVALID, "stage %u of %u with %u micro-batches in flight: no such stage", assign->stage,
                       assign->stages, assign->in_flight);
    if (first != (assign->first_layer == 0) || last != (assign->first_layer + assign->layers == profile->layers))
        return why_set(why, ERR_INVALID, "layers %u to %u of %" PRId64 " do not fit stage %u of %u", assign->first_layer,
                       assign->first_layer + assign->layers, profile->layers, assign->stage, assign->stages);
    if (assign->replicas < 1 || assign->replicas > PROFILE_MAX_REPLICAS || assign->replica >= assign->replicas)
        return why_set(why, ERR_INVALID, "replica %u of %u: no such replica", assign->replica, assign->replicas);
    struct fragments fragments = {
        .every = profile->sync_every, .count = profile->sync_fragments, .overlap = profile->sync_overlap};
    if (assign->replicas > 1 && fragments_check(&fragments, why) < 0)
        return ERR_INVALID;
    if (!profile->head_width && profile->hidden % profile->heads != 0)
        return why_set(why, ERR_INVALID, "model.heads = %" PRId64 " does not divide model.hidden = %" PRId64, profile->heads,
                       profile->hidden);
    if (most_micro_batches(profile) > UINT16_MAX)
        return why_set(why, ERR_INVALID, "%" PRId64 " micro-batches in a pass: at most %d can be stamped",
                       most_micro_batches(profile), UINT16_MAX);
    if (crossing_body_bytes(profile) > PROFILE_MESSAGE_BYTES)
        return why_set(why, ERR_INVALID,
                       "a micro-batch of %" PRId64 " × %" PRId64 " tokens does not fit one message; make "
                       "train.micro_batch or train.sequence smaller",
                       profile->micro_batch, profile->sequence);
    return measures_check(profile, why);
}

void compute_bounds(const struct compute_settings *settings, size_t *letters, size_t *bytes)
{
    struct stage_shape shape = shape_of(settings, 1);
    size_t sync_letters, sync_bytes;
    siblings_bounds(&settings->profile, &shape, settings->assign.replicas, &sync_letters, &sync_bytes);
    size_t most = (size_t)most_micro_batches(&settings->profile);
    size_t tied = (size_t)tied_count(&settings->profile, settings->assign.stages) * sizeof(float);
    *letters = 2 * most + LETTERS_SPARE + (size_t)tied_pieces(&settings->profile, settings->assign.stages);
    *bytes = tied + tied / 64 + most * (crossing_body_bytes(&settings->profile) + MESSAGE_FIXED) +
             LETTERS_SPARE * MESSAGE_FIXED + 4 * measures_letter_bytes(&settings->profile);
    *letters += sync_letters;
    *bytes += sync_bytes;
}

int compute_new(const struct compute_settings *settings, struct compute **compute, struct why *why)
{
    int err = check(settings, why);
    if (err)
        return err;
    struct compute *made = mem_new(sizeof *made);
    const struct profile *profile = &settings->profile;
    made->settings = *settings;
    made->timeouts = timeouts_derive(profile->timeout_ns);
    made->stage = settings->assign.stage;
    made->stages = settings->assign.stages;
    made->first = made->stage == 0;
    made->last = made->stage == made->stages - 1;
    made->most = (int)most_micro_batches(profile);
    made->slots = settings->assign.in_flight < made->most ? settings->assign.in_flight : made->most;
    struct stage_shape shape = shape_of(&made->settings, made->slots);
    err = stage_check(&shape, why);
    if (err)
        goto free_made;
    made->rate = (struct rate){.cosine = profile->schedule == SCHEDULE_COSINE,
                               .warmup = (uint64_t)profile->warmup,
                               .steps = (uint64_t)profile->steps,
                               .final_share = profile->final_share};
    size_t windows = (size_t)profile->micro_batch * (size_t)(profile->sequence + 1);
    made->windows = mem_array(windows, sizeof *made->windows);
    made->marks = mem_array(windows, 1);
    made->least_planes = profile->data_documents == DOCUMENTS_APART ? 2 : 0;
    made->begins = mem_array(windows, sizeof *made->begins);
    made->inputs = mem_array(windows, sizeof *made->inputs);
    made->targets = mem_array(windows, sizeof *made->targets);
    made->acts = mem_array((size_t)made->most, sizeof *made->acts);
    made->grads = mem_array((size_t)made->most, sizeof *made->grads);
    made->tied = mem_array((size_t)tied_pieces(profile, made->stages) + 1, sizeof *made->tied);
    made->forward_ns = mem_array((size_t)made->slots, sizeof *made->forward_ns);
    if (made->stages > 1) {
        made->body_bytes = crossing_body_bytes(profile);
        made->body = mem_large(made->body_bytes);
        if (!made->body)
            err = why_set(why, ERR_MEMORY, "no memory for a message of %zu bytes", made->body_bytes);
    }
    made->memory_bytes = made->body_bytes + windows * (3 * sizeof *made->windows + 2);
    if (made->first)
        made->memory_bytes += (uint64_t)tied_count(profile, made->stages) * sizeof(float);
    if (!err) {
        *compute = made;
        return 0;
    }
free_made:
    compute_free(made);
    return err;
}

struct stage_shape compute_shape(const struct compute_settings *settings)
{
    return shape_of(settings, 1);
}

int compute_start(struct compute *compute, struct mail *mail, struct why *why)
{
    compute->mail = mail;
    int code = pthread_create(&compute->thread, NULL, compute_main, compute);
    if (code)
        return why_set(why, ERR_SYSTEM, "cannot start the compute thread: %s", strerror(code));
    compute->running = true;
    return 0;
}

void compute_join(struct compute *compute)
{
    if (compute->running)
        pthread_join(compute->thread, NULL);
    compute->running = false;
}

void compute_free(struct compute *compute)
{
    if (!compute)
        return;
    BUG_IF(compute->running);
    for (int i = 0; i < compute->most && compute->acts && compute->grads; i++) {
        mem_free(compute->acts[i].payload);
        mem_free(compute->grads[i].payload);
    }
    for (int64_t i = 0; compute->tied && i < tied_pieces(&compute->settings.profile, compute->stages); i++)
        mem_free(compute->tied[i].payload);
    save_free(compute);
    siblings_free(compute->siblings);
    correct_free(compute);
    data_close(compute->data);
    measures_free(&compute->measures); /* it may be looking at what the codecs measured */
    codec_free(compute->up.codec);
    codec_free(compute->down.codec);
    if (compute->table)
        compute->ops->free(compute->device, compute->table);
    stage_free(compute->model);
    if (compute->device)
        compute->ops->close(compute->device);
    mem_free(compute->windows);
    mem_free(compute->marks);
    mem_free(compute->begins);
    mem_free(compute->inputs);
    mem_free(compute->targets);
    mem_free(compute->acts);
    mem_free(compute->grads);
    mem_free(compute->forward_ns);
    mem_free(compute->tied);
    mem_large_free(compute->body);
    mem_free(compute);
}

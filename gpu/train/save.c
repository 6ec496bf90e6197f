/*
 * A process's part of a checkpoint set: checkpoint/STEP/NAME.safetensors of the run's folder, and the word of it to kedged, who writes the
 * manifest. It has all that training goes on from: weights and moments (gpu/model/stage_save.c), what stage 0 decides by, statistics of
 * the boundaries, and what siblings have in common. The order of the text and the learning rate are functions of the step.
 *
 * With checkpoint.every all of it is copied at the step boundary into memory that was taken at loading, and a thread of its own writes it
 * while training goes on; without, nobody waits for anything but the set, and it is written at once.
 */
#include "gpu/train/save.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "gpu/model/safetensors.h"
#include "gpu/model/safetensors_write.h"
#include "gpu/model/set.h"
#include "gpu/train/disk.h"
#include "ssh/base/clock.h"
#include "ssh/base/file.h"
#include "ssh/base/mem.h"
#include "ssh/base/text.h"

#define FORMAT 1 /* of what follows; another one is refused */
#define BLOCKS_MOST 5

enum word { WORD_FORMAT, WORD_STEP, WORD_APPLIED, WORD_SKIPPED, WORD_TOKENS, WORD_EVALUATED, WORD_BAD_IN_ROW, WORD_CALIBRATED, WORD_NAMED,
            WORD_DENSE, WORDS };

static const char state_name[] = "kedge.state", up_name[] = "kedge.boundary_up", down_name[] = "kedge.boundary_down",
                  waiting_name[] = "kedge.boundary_waiting", siblings_name[] = "kedge.siblings";

/* ---- what is in it beside weights and moments ---- */

struct content {
    uint64_t words[WORDS];
    struct stage_block blocks[BLOCKS_MOST];
    size_t count;
    uint8_t *owned[BLOCKS_MOST];
};

static uint64_t tokens_of(const struct compute *compute)
{
    return compute->data ? data_train_tokens(compute->data) + data_validation_tokens(compute->data) : 0;
}

static void fill_words(const struct compute *compute, uint64_t step, uint64_t words[WORDS])
{
    const struct measures *measures = &compute->measures;
    const struct drive *drive = &compute->drive;
    const uint64_t values[WORDS] = {
        [WORD_FORMAT] = FORMAT,
        [WORD_STEP] = step,
        [WORD_APPLIED] = (uint64_t)compute->optimizer.applied,
        [WORD_SKIPPED] = compute->optimizer.skipped,
        [WORD_TOKENS] = tokens_of(compute),
        [WORD_EVALUATED] = drive->evaluated,
        [WORD_BAD_IN_ROW] = (uint64_t)drive->bad_in_row,
        [WORD_CALIBRATED] = measures->calibrated,
        [WORD_NAMED] = measures->named,
        [WORD_DENSE] = measures->dense,
    };
    memcpy(words, values, sizeof values);
}

/* Room of so many bytes; the caller fills it. */
static uint8_t *add_block(struct content *content, const char *name, size_t bytes)
{
    uint8_t *data = content->owned[content->count] = mem_new(bytes + 1);
    content->blocks[content->count++] = (struct stage_block){.name = name, .data = data, .bytes = bytes};
    return data;
}

static void add_boundary(struct content *content, const char *name, const struct boundary *side)
{
    if (side->codec && codec_save_bytes(&side->settings))
        codec_save(side->codec, add_block(content, name, codec_save_bytes(&side->settings)));
}

static void collect(struct compute *compute, uint64_t step, struct content *content)
{
    *content = (struct content){.count = 0};
    fill_words(compute, step, content->words);
    content->blocks[content->count++] = (struct stage_block){state_name, content->words, sizeof content->words};
    add_boundary(content, up_name, &compute->up);
    add_boundary(content, down_name, &compute->down);
    measures_save(compute, add_block(content, waiting_name, measures_save_bytes(compute)));
    if (siblings_save_bytes(compute))
        siblings_save(compute, add_block(content, siblings_name, siblings_save_bytes(compute)));
}

static void release(struct content *content)
{
    for (size_t i = 0; i < content->count; i++)
        mem_free(content->owned[i]);
}

/* ---- out ---- */

static void *write_main(void *arg)
{
    struct saver *saver = arg;
    uint64_t began_ns = clock_now_ns();
    struct wire_saved *saved = &saver->saved;
    saver->err = safetensors_finish(saver->out, &saved->bytes, &saved->hash, &saver->why);
    saved->elapsed_ns = saved->held_ns + (clock_now_ns() - began_ns);
    atomic_store(&saver->written, true);
    return NULL;
}

static void tell(struct compute *compute)
{
    struct saver *saver = &compute->saver;
    if (saver->err)
        text_harmless(saver->why.text, strlen(saver->why.text), saver->saved.reason, sizeof saver->saved.reason);
    compute_tell(compute, WIRE_SAVED, &saver->saved, saver->saved.step);
}

void save_look(struct compute *compute, bool wait)
{
    struct saver *saver = &compute->saver;
    if (!saver->running || (!wait && !atomic_load(&saver->written)))
        return;
    pthread_join(saver->thread, NULL);
    saver->running = false;
    tell(compute);
}

/* Into the file, or into memory when there is room for it. */
static int copy(struct compute *compute, struct why *why)
{
    struct saver *saver = &compute->saver;
    struct content content;
    char folder[sizeof compute->settings.folder + 40], path[sizeof folder + WIRE_NAME + 4];
    int used = snprintf(folder, sizeof folder, "%s/checkpoint/%" PRIu64, compute->settings.folder, saver->saved.step);
    snprintf(path, sizeof path, "%.*s/%s", used, folder, saver->saved.file);
    collect(compute, saver->saved.step, &content);
    uint64_t bytes = stage_save_bytes(compute->model, content.blocks, content.count);
    bool fits = saver->room && bytes <= saver->room_bytes;
    int err = disk_check(&compute->settings.profile, compute->settings.host, compute->settings.folder, bytes, why);
    if (!err)
        err = file_make_folders(folder, 0700, why);
    if (!err)
        err = stage_save_begin(compute->model, path, content.blocks, content.count, fits ? saver->room : NULL, &saver->out, why);
    release(&content);
    return err;
}

void save_set(struct compute *compute)
{
    struct saver *saver = &compute->saver;
    uint64_t began_ns = clock_now_ns();
    save_look(compute, true);
    atomic_store(&saver->written, false);
    saver->saved = (struct wire_saved){.step = compute->pass.step, .all = compute->pass.stamp.capture};
    saver->why = (struct why){0};
    snprintf(saver->saved.file, sizeof saver->saved.file, "%.40s.safetensors", compute->settings.name);
    saver->err = copy(compute, &saver->why);
    saver->saved.held_ns = saver->saved.elapsed_ns = clock_now_ns() - began_ns;
    saver->running = !saver->err && saver->room && pthread_create(&saver->thread, NULL, write_main, saver) == 0;
    if (!saver->err && !saver->running) {
        write_main(saver);
        saver->saved.held_ns = saver->saved.elapsed_ns;
    }
    if (!saver->running)
        tell(compute);
    compute->pass.compute_ns += clock_now_ns() - began_ns;
}

static size_t most_bytes(struct compute *compute)
{
    const struct stage_block blocks[] = {
        {state_name, NULL, WORDS * sizeof(uint64_t)},
        {up_name, NULL, compute->up.codec ? codec_save_bytes(&compute->up.settings) : 0},
        {down_name, NULL, compute->down.codec ? codec_save_bytes(&compute->down.settings) : 0},
        {waiting_name, NULL, measures_save_most(compute)},
        {siblings_name, NULL, siblings_save_bytes(compute)},
    };
    return stage_save_bytes(compute->model, blocks, sizeof blocks / sizeof *blocks);
}

int save_load(struct compute *compute, struct why *why)
{
    struct saver *saver = &compute->saver;
    if (!compute->settings.profile.checkpoint_every)
        return 0;
    saver->room_bytes = most_bytes(compute);
    saver->room = mem_large(saver->room_bytes);
    compute->memory_bytes += saver->room_bytes;
    return saver->room ? 0 : why_set(why, ERR_MEMORY, "no memory for a copy of what a set holds, %zu MiB; checkpoint.every = 0 needs none",
                                     saver->room_bytes >> 20);
}

void save_free(struct compute *compute)
{
    BUG_IF(compute->saver.running);
    mem_large_free(compute->saver.room);
}


/* ---- in ---- */

static int read_words(struct compute *compute, const struct safetensors *file, uint64_t step, uint64_t words[WORDS], struct why *why)
{
    const uint8_t *bytes;
    int err = safetensors_raw(file, state_name, WORDS * sizeof *words, &bytes, why);
    if (err)
        return err;
    memcpy(words, bytes, WORDS * sizeof *words);
    if (words[WORD_FORMAT] != FORMAT)
        return why_set(why, ERR_INVALID, "its state has format %" PRIu64 ", this program reads %d", words[WORD_FORMAT], FORMAT);
    if (words[WORD_STEP] != step || words[WORD_APPLIED] > step || words[WORD_BAD_IN_ROW] > step || words[WORD_CALIBRATED] > step + 1 ||
        words[WORD_NAMED] > step + 1)
        return why_set(why, ERR_INVALID, "its state is not that after step %" PRIu64, step);
    if (words[WORD_TOKENS] != tokens_of(compute))
        return why_set(why, ERR_REFUSED, "data.path has %" PRIu64 " tokens now and had %" PRIu64 " when the set was written: the order of the text "
                       "would be another one", tokens_of(compute), words[WORD_TOKENS]);
    return 0;
}

static void take_words(struct compute *compute, const uint64_t words[WORDS])
{
    struct measures *measures = &compute->measures;
    compute->optimizer.applied = (int64_t)words[WORD_APPLIED];
    compute->optimizer.skipped = words[WORD_SKIPPED];
    compute->trained = words[WORD_STEP];
    compute->drive.resumed = true;
    compute->drive.evaluated = words[WORD_EVALUATED];
    compute->drive.bad_in_row = (int)words[WORD_BAD_IN_ROW];
    compute->drive.saved = compute->drive.noted = words[WORD_STEP] + 1;
    measures->calibrated = (uint32_t)words[WORD_CALIBRATED];
    measures->named = (uint32_t)words[WORD_NAMED];
    measures->dense = words[WORD_DENSE];
}

static int resume_boundary(const struct safetensors *file, const char *name, struct boundary *side, struct why *why)
{
    const uint8_t *bytes;
    size_t count = side->codec ? codec_save_bytes(&side->settings) : 0;
    int err = count ? safetensors_raw(file, name, count, &bytes, why) : 0;
    return !count || err ? err : codec_restore(side->codec, bytes, count, why);
}

static int resume_waiting(struct compute *compute, const struct safetensors *file, struct why *why)
{
    const uint8_t *bytes;
    size_t count;
    int err = safetensors_raw_bytes(file, waiting_name, &count, why);
    if (!err)
        err = safetensors_raw(file, waiting_name, count, &bytes, why);
    return err ? err : measures_restore(compute, bytes, count, why);
}

static int resume_siblings(struct compute *compute, const struct safetensors *file, uint64_t step, struct why *why)
{
    const uint8_t *bytes;
    size_t count = siblings_save_bytes(compute);
    int err = count ? safetensors_raw(file, siblings_name, count, &bytes, why) : 0;
    return !count || err ? err : siblings_resume(compute, step, bytes, count, why);
}

static int resume_from(struct compute *compute, const char *path, uint64_t step, struct why *why)
{
    struct safetensors *file = NULL;
    struct why own = {0};
    uint64_t words[WORDS];
    const struct wire_assign *assign = &compute->settings.assign;
    int err = set_check_file(path, assign->resume_bytes, assign->resume_hash, why);
    if (!err)
        err = safetensors_open(path, &file, why);
    if (err)
        return err;
    err = read_words(compute, file, step, words, &own);
    if (!err)
        err = stage_resume(compute->model, file, &own);
    if (!err)
        err = resume_boundary(file, up_name, &compute->up, &own);
    if (!err)
        err = resume_boundary(file, down_name, &compute->down, &own);
    if (!err)
        err = resume_waiting(compute, file, &own);
    if (!err)
        err = resume_siblings(compute, file, step, &own);
    if (!err)
        take_words(compute, words);
    safetensors_close(file);
    return err ? why_set(why, err, "cannot go on from %s: %s", path, own.text) : 0;
}

int save_resume(struct compute *compute, struct why *why)
{
    const struct wire_assign *assign = &compute->settings.assign;
    char path[sizeof compute->settings.folder + 2 * WIRE_NAME];
    if (!assign->resume_bytes)
        return 0;
    uint64_t step = assign->first_step - 1;
    snprintf(path, sizeof path, "%s/checkpoint/%" PRIu64 "/%.40s.safetensors", compute->settings.folder, step, compute->settings.name);
    return resume_from(compute, path, step, why);
}

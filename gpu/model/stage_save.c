/*
 * A stage as a file, and back: its weights by their Hugging Face names, and, where training is to go on, all that AdamW keeps and what the
 * trainer adds as blocks of bytes. One file has both, so that `kedge export` and a run that goes on read the same set.
 *
 *   NAME…            F32  weights
 *   kedge.tied       F32  the last stage's copy of a tied embedding, under a name that export does not look for
 *   kedge.first, kedge.second   U8  AdamW's moments as they lie in memory, in the format of train.moments
 *   kedge.layout     U8   hash of what lies where in them
 */
#include "gpu/model/model.h"

#include <string.h>

#include "gpu/model/inside.h"
#include "gpu/model/safetensors.h"
#include "gpu/model/safetensors_write.h"
#include "ssh/base/hash.h"
#include "ssh/base/mem.h"

#define PIECE ((int64_t)1 << 20) /* floats, or bytes times four, of the host buffer */
#define TIED "kedge.tied"

static const char *const moment_names[] = {"kedge.first", "kedge.second"};

static size_t moment_bytes(const struct stage *stage)
{
    return carve_moment_bytes(stage->shape.moments, stage->learned.floats - stage->still, stage->learned.tensors);
}

/* Of all that decides which byte of the moments belongs to what. */
static uint64_t layout_of(const struct stage *stage)
{
    uint64_t hash = HASH_START, format[2] = {(uint64_t)stage->shape.moments, stage->still};
    hash = hash_add(hash, format, sizeof format);
    for (int i = 0; i < stage->learned.tensors; i++) {
        const struct carve_tensor *t = &stage->tensors[i];
        uint64_t place[] = {t->offset, (uint64_t)t->rows, (uint64_t)t->columns};
        hash = hash_add(hash_add(hash, t->name, strlen(t->name)), place, sizeof place);
    }
    return hash_finish(hash);
}

static void raw_entry(const char *name, size_t bytes, struct safetensors_entry *entry)
{
    *entry = (struct safetensors_entry){.dims = 1, .shape = {(int64_t)bytes, 0}, .raw = true};
    snprintf(entry->name, sizeof entry->name, "%s", name);
}

/* mem_free */
static struct safetensors_entry *list_entries(const struct stage *stage, bool whole, const struct stage_block *blocks, size_t block_count,
                                              size_t *count)
{
    struct safetensors_entry *entries = mem_array((size_t)stage->learned.tensors + 3 + block_count, sizeof *entries);
    *count = 0;
    for (int i = 0; i < stage->learned.tensors; i++) {
        bool copy = stage->tensors[i].offset == stage_tied_copy(stage);
        if (copy && !whole)
            continue;
        carve_entry(&stage->tensors[i], &entries[*count]);
        if (copy)
            snprintf(entries[*count].name, sizeof entries->name, TIED);
        ++*count;
    }
    for (int i = 0; i < 2 && whole; i++)
        raw_entry(moment_names[i], moment_bytes(stage), &entries[(*count)++]);
    if (whole)
        raw_entry("kedge.layout", sizeof(uint64_t), &entries[(*count)++]);
    for (size_t i = 0; i < block_count; i++)
        raw_entry(blocks[i].name, blocks[i].bytes, &entries[(*count)++]);
    return entries;
}

/* ---- out ---- */

static int save_tensor(struct stage *stage, const struct carve_tensor *t, struct safetensors_out *out, float *piece, struct why *why)
{
    int64_t total = t->rows * t->columns;
    int err = 0;
    for (int64_t done = 0; done < total && !err; done += PIECE) {
        int64_t count = total - done < PIECE ? total - done : PIECE;
        stage->ops->copy_out(stage->device, piece, stage->trained + t->offset + done, (size_t)count * sizeof *piece);
        stage->ops->finish(stage->device);
        err = safetensors_add(out, piece, count, why);
    }
    return err;
}

static int save_moment(struct stage *stage, const uint8_t *moment, struct safetensors_out *out, float *piece, struct why *why)
{
    size_t total = moment_bytes(stage), most = (size_t)PIECE * sizeof *piece;
    int err = 0;
    for (size_t done = 0; done < total && !err; done += most) {
        size_t count = total - done < most ? total - done : most;
        stage->ops->copy_out(stage->device, piece, moment + done, count);
        stage->ops->finish(stage->device);
        err = safetensors_add_raw(out, piece, count, why);
    }
    return err;
}

static int save_all(struct stage *stage, bool whole, const struct stage_block *blocks, size_t count, struct safetensors_out *out, struct why *why)
{
    float *piece = mem_array((size_t)PIECE, sizeof *piece);
    int err = 0;
    for (int i = 0; i < stage->learned.tensors && !err; i++)
        if (whole || stage->tensors[i].offset != stage_tied_copy(stage))
            err = save_tensor(stage, &stage->tensors[i], out, piece, why);
    for (int i = 0; i < 2 && whole && !err; i++)
        err = save_moment(stage, stage->moments[i], out, piece, why);
    uint64_t layout = layout_of(stage);
    if (whole && !err)
        err = safetensors_add_raw(out, &layout, sizeof layout, why);
    for (size_t i = 0; i < count && !err; i++)
        err = safetensors_add_raw(out, blocks[i].data, blocks[i].bytes, why);
    mem_free(piece);
    return err;
}

static int begin(struct stage *stage, const char *path, bool whole, const struct stage_block *blocks, size_t block_count, uint8_t *room,
                 struct safetensors_out **out, struct why *why)
{
    size_t count;
    struct safetensors_entry *entries = list_entries(stage, whole, blocks, block_count, &count);
    struct safetensors_out *made = NULL;
    int err = safetensors_create(path, entries, count, WEIGHTS_F32, NULL, &made, why);
    mem_free(entries);
    if (!err && room)
        safetensors_hold(made, room);
    if (!err)
        err = save_all(stage, whole, blocks, block_count, made, why);
    if (err)
        safetensors_abandon(made);
    else
        *out = made;
    return err;
}

int stage_save_begin(struct stage *stage, const char *path, const struct stage_block *blocks, size_t count, uint8_t *room,
                     struct safetensors_out **out, struct why *why)
{
    return begin(stage, path, true, blocks, count, room, out, why);
}

int stage_save(struct stage *stage, const char *path, uint64_t *bytes, uint64_t *hash, struct why *why)
{
    struct safetensors_out *out = NULL;
    int err = begin(stage, path, false, NULL, 0, NULL, &out, why);
    return err ? err : safetensors_finish(out, bytes, hash, why);
}

uint64_t stage_save_bytes(const struct stage *stage, const struct stage_block *blocks, size_t block_count)
{
    size_t count;
    struct safetensors_entry *entries = list_entries(stage, true, blocks, block_count, &count);
    uint64_t bytes = safetensors_data_bytes(entries, count, WEIGHTS_F32);
    mem_free(entries);
    return bytes;
}

/* ---- in ---- */

static int resume_tensor(struct stage *stage, const struct carve_tensor *t, const struct safetensors *file, float *piece, struct why *why)
{
    const int64_t shape[] = {t->rows, t->columns};
    int64_t total = t->rows * t->columns;
    const char *name = t->offset == stage_tied_copy(stage) ? TIED : t->name;
    int err = 0;
    for (int64_t done = 0; done < total && !err; done += PIECE) {
        int64_t count = total - done < PIECE ? total - done : PIECE;
        err = safetensors_get(file, name, t->dims, shape, done, count, piece, why);
        if (err)
            break;
        stage->ops->copy_in(stage->device, stage->trained + t->offset + done, piece, (size_t)count * sizeof *piece);
        stage->ops->finish(stage->device);
    }
    return err;
}

static int resume_moment(struct stage *stage, int which, const struct safetensors *file, struct why *why)
{
    const uint8_t *bytes;
    size_t total = moment_bytes(stage), most = (size_t)PIECE * sizeof(float);
    int err = safetensors_raw(file, moment_names[which], total, &bytes, why);
    for (size_t done = 0; done < total && !err; done += most) {
        size_t count = total - done < most ? total - done : most;
        stage->ops->copy_in(stage->device, (uint8_t *)stage->moments[which] + done, bytes + done, count);
        stage->ops->finish(stage->device);
        safetensors_release(file, bytes + done, count);
    }
    return err;
}

int stage_resume(struct stage *stage, const struct safetensors *file, struct why *why)
{
    const uint8_t *bytes;
    uint64_t layout;
    int err = safetensors_raw(file, "kedge.layout", sizeof layout, &bytes, why);
    if (err)
        return err;
    memcpy(&layout, bytes, sizeof layout);
    if (layout != layout_of(stage))
        return why_set(why, ERR_INVALID, "it is of another stage: its layers, its shape, train.frozen or train.moments are not those of this one");
    float *piece = mem_array((size_t)PIECE, sizeof *piece);
    for (int i = 0; i < stage->learned.tensors && !err; i++)
        err = resume_tensor(stage, &stage->tensors[i], file, piece, why);
    for (int i = 0; i < 2 && !err; i++)
        err = resume_moment(stage, i, file, why);
    mem_free(piece);
    stage_changed(stage);
    return err;
}

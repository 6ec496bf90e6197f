/* `kedge-worker export --folder RUN DIR [--dtype FORMAT] [--merge]`: the newest set of weights of a run as a Hugging Face folder, of a
 * run with LoRA as a PEFT folder or merged with the model that it began with. */
#include "gpu/model/export.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "gpu/model/set.h"
#include "gpu/train/command.h"
#include "gpu/train/offline.h"
#include "gpu/train/shape.h"
#include "ssh/base/mem.h"
#include "ssh/base/text.h"

#define USAGE "export --folder RUN DIR [--dtype f32|bf16|f16] [--merge]"

struct wish {
    const char *run, *out, *dtype;
    bool merge;
};

static int read_words(int count, char **words, struct wish *wish, struct why *why)
{
    const struct offline_option options[] = {
        {"--folder", .text = &wish->run}, {"--dtype", .text = &wish->dtype}, {"--merge", .flag = &wish->merge}, {.name = NULL}};
    int found = offline_read_words(count, words, options, USAGE, 1, 1, &wish->out, why);
    if (found < 0)
        return found;
    return wish->run ? 0 : why_set(why, ERR_INVALID, "usage: kedge-worker " USAGE);
}

static int read_format(const char *dtype, int *format, struct why *why)
{
    static const char *const names[] = {[WEIGHTS_F32] = "f32", [WEIGHTS_BF16] = "bf16", [WEIGHTS_F16] = "f16"};
    *format = -1;
    for (int i = 0; dtype && i < WEIGHTS_FORMATS; i++)
        if (strcmp(dtype, names[i]) == 0)
            *format = i;
    return !dtype || *format >= 0 ? 0 : why_set(why, ERR_INVALID, "--dtype %s: say f32, bf16 or f16", dtype);
}

static int write_set(const struct wish *wish, const struct set *set, int format, struct why *why)
{
    struct profile *profile = mem_new(sizeof *profile);
    struct export_result result;
    int err = profile_from_settings((const uint8_t *)set->settings, strlen(set->settings), profile, why);
    struct export_settings settings = {
        .files = (const char *const *)set->files,
        .file_count = set->count,
        .origin = profile->model_path[0] ? profile->model_path : NULL,
        .context = profile->sequence,
        .format = format,
        .merge = wish->merge,
        .shard_bytes = EXPORT_SHARD_BYTES,
        .out = wish->out,
    };
    if (!err && wish->merge && !profile->lora_rank)
        err = why_set(why, ERR_INVALID, "--merge is for runs with adapters (section lora): this run's weights are whole already");
    if (!err) {
        settings.shape = shape_of_profile(profile);
        settings.lora = shape_lora(profile);
        err = export_write(&settings, &result, why);
    }
    if (!err) {
        char size[32];
        text_from_bytes(result.bytes, size, sizeof size);
        printf("%s holds the weights after step %" PRIu64 ": %d tensors, %s, %s in %d file%s\n", wish->out, set->step, result.tensors,
               weights_format_name(result.format), size, result.shards, result.shards == 1 ? "" : "s");
    }
    mem_free(profile);
    return err;
}

int export_main(int count, char **words)
{
    struct wish wish = {0};
    struct set *set = NULL;
    struct why why = {0};
    uint64_t run_id;
    int format, err = read_words(count, words, &wish, &why);
    if (!err)
        err = read_format(wish.dtype, &format, &why);
    if (!err)
        err = command_run_id(wish.run, &run_id, &why);
    if (!err)
        err = set_find(wish.run, run_id, &set, &why);
    if (!err)
        err = write_set(&wish, set, format, &why);
    set_free(set);
    if (err)
        fprintf(stderr, "kedge: %s\n", why.text);
    return command_exit(err);
}

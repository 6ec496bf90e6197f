/*
 * `kedge-worker probe FOLDER`: the shape of a Hugging Face checkpoint as lines NAME=VALUE of the settings table, so that the console
 * needs no reader of its own. What kedge cannot train is refused here, before anything is started.
 */
#include <inttypes.h>
#include <stdio.h>

#include "gpu/model/checkpoint.h"
#include "gpu/train/command.h"
#include "profiles/fields.h"
#include "profiles/profile.h"
#include "ssh/base/mem.h"

/* The shortest decimal that is this float: people wrote 1e-05, not 9.999999747378752e-06. */
static double written(float value)
{
    char text[32];
    int digits = 1;
    do
        snprintf(text, sizeof text, "%.*g", digits, (double)value);
    while (strtof(text, NULL) != value && ++digits < 10);
    return strtod(text, NULL);
}

static void fill(struct profile *profile, const struct model_shape *shape)
{
    profile->hidden = shape->hidden;
    profile->layers = shape->layers;
    profile->heads = shape->heads;
    profile->kv_heads = shape->kv_heads;
    profile->ffn = shape->ffn;
    profile->vocabulary = shape->vocabulary;
    profile->head_tie = shape->tied ? HEAD_TIED : HEAD_UNTIED;
    profile->rope_theta = written(shape->rope_theta);
    profile->norm_epsilon = written(shape->norm_epsilon);
}

/* Each row says its own name, and must accept what it says: what is out of its range cannot be a profile. */
static int print(const struct model_shape *shape, struct why *why)
{
    static const char *const names[] = {"model.hidden", "model.layers", "model.heads", "model.kv_heads", "model.ffn", "model.vocabulary",
                                        "model.head", "model.rope_theta", "model.norm_epsilon"};
    struct profile *profile = mem_new(sizeof *profile);
    int err = 0;
    profile_defaults(profile);
    fill(profile, shape);
    for (size_t i = 0; i < sizeof names / sizeof *names && !err; i++) {
        char value[128];
        err = profile_get(profile, names[i], value, sizeof value, why);
        if (!err)
            err = profile_set(profile, names[i], value, why);
        if (!err)
            printf("%s=%s\n", names[i], value);
    }
    mem_free(profile);
    return err;
}

int probe_main(int count, char **words)
{
    struct model_shape shape;
    struct why why = {0};
    int err = count == 1 ? 0 : why_set(&why, ERR_INVALID, "usage: kedge-worker probe FOLDER");
    if (!err)
        err = checkpoint_shape(words[0], &shape, &why);
    if (!err && shape.head_width * shape.heads != shape.hidden)
        err = why_set(&why, ERR_INVALID, "%s: head_dim %" PRId64 " × %" PRId64 " heads is not hidden_size %" PRId64 ": this shape is not "
                      "supported", words[0], shape.head_width, shape.heads, shape.hidden);
    if (!err)
        err = print(&shape, &why);
    if (err)
        printf("error %s\n", why.text);
    return command_exit(err);
}

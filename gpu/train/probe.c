/*
 * `kedge-worker probe FOLDER [ADAPTER]`: the shape of a Hugging Face checkpoint, and of a PEFT adapter for it,
 * as lines NAME=VALUE of the settings table, so that the console
 * needs no reader of its own. What kedge cannot train is refused here, before anything is started.
 */
#include <stdio.h>

#include "gpu/model/adapter.h"
#include "gpu/train/command.h"
#include "gpu/train/shape.h"
#include "profiles/fields.h"
#include "profiles/profile.h"
#include "ssh/base/mem.h"

/* Each row says its own name, and must accept what it says: what is out of its range cannot be a profile. */
static int print(struct profile *profile, const char *const *names, struct why *why)
{
    int err = 0;
    for (const char *const *name = names; *name && !err; name++) {
        char value[128];
        err = profile_get(profile, *name, value, sizeof value, why);
        if (!err)
            err = profile_set(profile, *name, value, why);
        if (!err)
            printf("%s=%s\n", *name, value);
    }
    return err;
}

static int probe(const char *folder, const char *adapter, struct why *why)
{
    struct model_shape shape;
    struct lora_shape lora;
    struct checkpoint *tensors = NULL;
    struct profile *profile = mem_new(sizeof *profile);
    profile_defaults(profile);
    int err = checkpoint_shape(folder, &shape, why);
    if (!err && adapter)
        err = adapter_read(adapter, &lora, why);
    if (!err && adapter)
        err = adapter_open(adapter, &shape, &lora, &tensors, why);
    if (!err)
        shape_to_profile(&shape, profile);
    if (!err)
        err = print(profile, shape_rows(), why);
    if (!err && adapter)
        shape_lora_to_profile(&lora, profile);
    if (!err && adapter)
        err = print(profile, shape_lora_rows(), why);
    checkpoint_close(tensors);
    mem_free(profile);
    return err;
}

int probe_main(int count, char **words)
{
    struct why why = {0};
    int err = count == 1 || count == 2 ? probe(words[0], count == 2 ? words[1] : NULL, &why)
                                       : why_set(&why, ERR_INVALID, "usage: kedge-worker probe FOLDER [ADAPTER]");
    if (err)
        printf("error %s\n", why.text);
    return command_exit(err);
}

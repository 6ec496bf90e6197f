/*
 * `kedge-worker probe FOLDER`: the shape of a Hugging Face checkpoint as lines NAME=VALUE of the settings table, so that the console
 * needs no reader of its own. What kedge cannot train is refused here, before anything is started.
 */
#include <stdio.h>

#include "gpu/model/checkpoint.h"
#include "gpu/train/command.h"
#include "gpu/train/shape.h"
#include "profiles/fields.h"
#include "profiles/profile.h"
#include "ssh/base/mem.h"

/* Each row says its own name, and must accept what it says: what is out of its range cannot be a profile. */
static int print(const struct model_shape *shape, struct why *why)
{
    struct profile *profile = mem_new(sizeof *profile);
    int err = 0;
    profile_defaults(profile);
    shape_to_profile(shape, profile);
    for (const char *const *name = shape_rows(); *name && !err; name++) {
        char value[128];
        err = profile_get(profile, *name, value, sizeof value, why);
        if (!err)
            err = profile_set(profile, *name, value, why);
        if (!err)
            printf("%s=%s\n", *name, value);
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
    if (!err)
        err = print(&shape, &why);
    if (err)
        printf("error %s\n", why.text);
    return command_exit(err);
}

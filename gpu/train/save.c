/* A stage's weights into checkpoint/STEP/ of the run's folder, and the word of it to kedged, who writes the manifest. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "gpu/train/disk.h"
#include "gpu/train/inside.h"
#include "ssh/base/clock.h"
#include "ssh/base/file.h"
#include "ssh/base/text.h"

static int write_weights(struct compute *compute, struct wire_saved *saved, struct why *why)
{
    char folder[sizeof compute->settings.folder + 40], path[sizeof folder + WIRE_NAME + 4];
    int used = snprintf(folder, sizeof folder, "%s/checkpoint/%" PRIu64, compute->settings.folder, saved->step);
    snprintf(path, sizeof path, "%.*s/%s", used, folder, saved->file);
    struct stage_shape shape = compute_shape(&compute->settings);
    uint64_t most = (uint64_t)stage_word_count(&shape) * sizeof(float);
    int err = disk_check(&compute->settings.profile, compute->settings.host, compute->settings.folder, most, why);
    if (!err)
        err = file_make_folders(folder, 0700, why);
    return err ? err : stage_save(compute->model, path, &saved->bytes, &saved->hash, why);
}

void save_weights(struct compute *compute)
{
    struct wire_saved saved = {.step = compute->pass.step};
    struct why why = {0};
    uint64_t began_ns = clock_now_ns();
    snprintf(saved.file, sizeof saved.file, "%.40s.safetensors", compute->settings.name);
    if (write_weights(compute, &saved, &why) != 0)
        text_harmless(why.text, strlen(why.text), saved.reason, sizeof saved.reason);
    compute_tell(compute, WIRE_SAVED, &saved, saved.step);
    compute->pass.compute_ns += clock_now_ns() - began_ns;
}

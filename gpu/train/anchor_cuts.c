/*
 * Statistics of the run's cuts, measured by the anchor: its passes are not compressed, so what it sees at the layers where the
 * run is cut is what the stages would see without codecs. It joins them over versions as a stage does over steps (codec.h), and
 * tells both ends of a cut; they use them from the step on from which directions of the same version are used.
 */
#include <string.h>

#include "gpu/model/token_table.h"
#include "gpu/train/anchor_inside.h"
#include "gpu/train/inside.h"
#include "gpu/train/shape.h"
#include "ssh/base/mem.h"

static int count_of(const struct anchor *anchor)
{
    return anchor->settings.assign.stages - 1;
}

int cuts_load(struct anchor *anchor, struct why *why)
{
    const struct profile *profile = &anchor->settings.profile;
    struct model_shape shape = shape_of_profile(profile);
    int err = 0;
    if (!profile_anchor_measures(profile) || count_of(anchor) < 1)
        return 0;
    if (shape_needs_table(profile)) {
        anchor->memory_bytes += (uint64_t)token_table_count(&shape, profile->rank) * sizeof(float);
        err = token_table_new(anchor->ops, anchor->device, &shape, profile->model_path, (uint64_t)profile->seed, profile->rank,
                              &anchor->table, why);
    }
    anchor->cuts = mem_array((size_t)count_of(anchor), sizeof *anchor->cuts);
    for (int i = 0; i < count_of(anchor) && !err; i++) {
        struct codec_settings settings;
        shape_codec(profile, i, &settings);
        settings.table = anchor->table;
        anchor->memory_bytes += codec_memory_bytes(&settings) + codec_measured_bytes(&settings, CODEC_FORWARD) +
                                codec_measured_bytes(&settings, CODEC_BACKWARD);
        err = codec_new(anchor->ops, anchor->device, &settings, &anchor->cuts[i], why);
    }
    return err;
}

void cuts_free(struct anchor *anchor)
{
    for (int i = 0; anchor->cuts && i < count_of(anchor); i++)
        codec_free(anchor->cuts[i]);
    mem_free(anchor->cuts);
    if (anchor->table)
        anchor->ops->free(anchor->device, anchor->table);
}

size_t cuts_letter_bytes(const struct profile *profile)
{
    struct codec_settings settings;
    shape_codec(profile, 0, &settings);
    size_t both = codec_made_bytes(&settings, CODEC_FORWARD) + codec_made_bytes(&settings, CODEC_BACKWARD) + 512;
    return profile_anchor_measures(profile) ? 2 * (size_t)(profile->stages - 1) * both : 0;
}

/* Layers of the model before the cut. */
static int layers_before(const struct anchor *anchor, int cut)
{
    int first, layers;
    assembly_layers(anchor->assembly, cut + 1, &first, &layers);
    return first;
}

static void on_layer(int64_t layer, const float *x, const float *dx, void *arg)
{
    struct anchor *anchor = arg;
    const struct profile *profile = &anchor->settings.profile;
    struct codec_use use = {
        .rows = profile->micro_batch * profile->sequence, .windows = anchor->windows, .tokens = profile->sequence};
    for (int i = 0; i < count_of(anchor); i++)
        if (layer == layers_before(anchor, i)) {
            codec_measure(anchor->cuts[i], &use, x);
            codec_measure_gradient(anchor->cuts[i], &use, dx);
        }
}

void cuts_watch(struct anchor *anchor)
{
    stage_watch(anchor->model, anchor->cuts ? on_layer : NULL, anchor);
}

static int send_part(struct anchor *anchor, int cut, enum codec_way way, uint64_t version)
{
    const struct wire_assign *assign = &anchor->settings.assign;
    struct wire_statistics statistics = {.version = version, .boundary = (uint16_t)cut, .backward = way == CODEC_BACKWARD};
    uint8_t *state;
    size_t bytes;
    int err = codec_export(anchor->cuts[cut], way, &state, &bytes);
    if (err)
        return err;
    statistics.body = (struct wire_bytes){state, (uint32_t)bytes};
    for (int i = 0; i < 2 * assign->replicas && !err; i++) {
        enum mail_road road = (enum mail_road)(MAIL_STAGES + i / 2 * assign->stages + cut + i % 2);
        struct letter letter = compute_letter(WIRE_STATISTICS, &statistics, bytes, road, version, 0);
        err = mail_send(anchor->mail, &letter, NULL);
    }
    mem_free(state);
    return err;
}

int cuts_send(struct anchor *anchor, uint64_t version)
{
    int err = 0;
    for (int i = 0; anchor->cuts && i < count_of(anchor) && !err; i++) {
        bool one_way = layers_before(anchor, i) <= anchor->settings.profile.frozen;
        struct codec_settings settings;
        shape_codec(&anchor->settings.profile, i, &settings);
        bool backward = !one_way && codec_has_state(&settings, CODEC_BACKWARD);
        err = codec_settle(anchor->cuts[i], CODEC_FORWARD);
        if (!err && codec_has_state(&settings, CODEC_BACKWARD)) /* either may weigh by the other */
            err = codec_settle(anchor->cuts[i], CODEC_BACKWARD);
        err = err ? err : send_part(anchor, i, CODEC_FORWARD, version);
        err = err || !backward ? err : send_part(anchor, i, CODEC_BACKWARD, version);
        if (!err && mail_orders(anchor->mail))
            err = ERR_GONE;
    }
    return err;
}

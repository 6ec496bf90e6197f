/*
 * What crosses a boundary: a micro-batch as a wire message, made by the boundary's codec, and back. Every message is checked
 * against what the stamp and the profile say it must be; a difference means that the stages do not agree (drift), and the
 * stage halts.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "gpu/train/inside.h"
#include "ssh/base/clock.h"
#include "ssh/base/mem.h"
#include "ssh/wire/frame.h"

static int id_bytes(const struct profile *profile)
{
    return profile->vocabulary <= 256 ? 1 : profile->vocabulary <= 65536 ? 2 : 4;
}

static const uint8_t plane_marks[] = {TOKEN_LEARNED, TOKEN_BEGINS}; /* that may travel */

/* A bit for each id, whole bytes. */
static size_t plane_bytes(size_t ids)
{
    return (ids + 7) / 8;
}

size_t crossing_body_bytes(const struct profile *profile)
{
    size_t rows = (size_t)profile->micro_batch * (size_t)profile->sequence, ids = rows + (size_t)profile->micro_batch;
    return rows * (size_t)profile->hidden * 4 + ids * (size_t)id_bytes(profile) +
           sizeof plane_marks * plane_bytes(ids);
}

void crossing_shape(const struct compute *compute, uint32_t index, struct micro_batch *micro_batch)
{
    const struct profile *profile = &compute->settings.profile;
    const struct pass *pass = &compute->pass;
    bool trains = pass->stamp.kind == STAMP_TRAIN, evaluates = pass->stamp.kind == STAMP_EVALUATE;
    int64_t sequences = profile->micro_batch, left = profile->validation_windows - (int64_t)index * sequences;
    if (evaluates && left < sequences)
        sequences = left;
    uint32_t of_run = index + (evaluates ? 0 : compute->settings.assign.replica * (uint32_t)pass->stamp.micro_batches);
    *micro_batch = (struct micro_batch){.index = index,
                                        .of_run = of_run,
                                        .slot = (int)index % compute->slots,
                                        .sequences = sequences,
                                        .tokens = profile->sequence,
                                        .rows = sequences * profile->sequence};
    micro_batch->use = (struct codec_use){
        .step = pass->step,
        .micro_batch = of_run,
        .rows = micro_batch->rows,
        .keep = trains ? pass->stamp.keep : 0,
        .format_override = trains ? -1 : evaluates ? FORMAT_FP32 : CODEC_CALIBRATION_FORMAT,
        .version = trains ? pass->stamp.codec_version : 0,
        .slot = micro_batch->slot,
        .windows = compute->windows,
        .tokens = profile->sequence,
    };
}

/* ---- token ids ---- */

static void put_ids(uint8_t *out, const uint32_t *ids, size_t count, int bytes)
{
    for (size_t i = 0; i < count; i++)
        for (int b = 0; b < bytes; b++)
            *out++ = (uint8_t)(ids[i] >> (8 * b));
}

static void get_ids(uint32_t *ids, const uint8_t *in, size_t count, int bytes)
{
    for (size_t i = 0; i < count; i++) {
        ids[i] = 0;
        for (int b = 0; b < bytes; b++)
            ids[i] |= (uint32_t)*in++ << (8 * b);
    }
}

/* ---- which of them are learned, and begin documents ---- */

static void put_planes(uint8_t *out, int planes, const uint8_t *marks, size_t count)
{
    for (int plane = 0; plane < planes; plane++, out += plane_bytes(count)) {
        memset(out, 0, plane_bytes(count));
        for (size_t i = 0; i < count; i++)
            out[i / 8] |= (uint8_t)((marks[i] & plane_marks[plane] ? 1 : 0) << i % 8);
    }
}

/* Without a plane all tokens are learned, and none is known to begin a document. */
static void get_planes(uint8_t *marks, int planes, const uint8_t *in, size_t count)
{
    memset(marks, planes ? 0 : TOKEN_LEARNED, count);
    for (int plane = 0; plane < planes; plane++, in += plane_bytes(count))
        for (size_t i = 0; i < count; i++)
            if (in[i / 8] >> i % 8 & 1)
                marks[i] |= plane_marks[plane];
}

static size_t id_count(const struct micro_batch *micro_batch)
{
    return (size_t)micro_batch->sequences * (size_t)(micro_batch->tokens + 1);
}

/* ---- both directions ---- */

static int check_mask(struct compute *compute, const struct micro_batch *micro_batch, struct boundary *boundary,
                      uint32_t theirs, const char *peer)
{
    if (theirs == 0)
        return 0;
    uint32_t ours = codec_checksum(boundary->codec, &micro_batch->use);
    if (ours == theirs)
        return 0;
    return compute_halt(compute, compute->pass.step,
                        "the masks of boundary %u differ in step %" PRIu64
                        ", micro-batch %u: checksum %08x here, %08x at %s",
                        boundary->settings.boundary, compute->pass.step, micro_batch->index, ours, theirs, peer);
}

static int halt_size(struct compute *compute, const struct micro_batch *micro_batch, const char *what, const char *peer,
                     size_t bytes, size_t expected)
{
    return compute_halt(compute, compute->pass.step,
                        "%s of step %" PRIu64 ", micro-batch %u, from %s have %zu bytes instead of %zu", what,
                        compute->pass.step, micro_batch->index, peer, bytes, expected);
}

/* What bf16 without a mask would have cost on this lane. Evaluation is exact for everybody, so it is only counted apart; a
 * dense exchange
 * needs no calibration. */
static void note_dense(const struct compute *compute, const struct micro_batch *micro_batch, size_t coded,
                       struct letter *letter)
{
    letter->evaluation = compute->pass.stamp.kind == STAMP_EVALUATE;
    if (compute->pass.stamp.kind == STAMP_TRAIN)
        letter->dense_bytes = letter->bytes + FRAME_HEADER_BYTES;
    if (compute->pass.stamp.kind == STAMP_TRAIN && coded)
        letter->dense_bytes += (uint64_t)micro_batch->rows * (uint64_t)compute->settings.profile.hidden * 2 - coded;
}

static uint32_t debug_checksum(struct compute *compute, struct boundary *boundary, const struct micro_batch *micro_batch)
{
    return compute->settings.profile.debug_checksum ? codec_checksum(boundary->codec, &micro_batch->use) : 0;
}

/* ---- activations ---- */

static int decode_activations(struct compute *compute, const struct micro_batch *micro_batch, const struct wire_act *act)
{
    const char *peer = compute->settings.upstream;
    int width = id_bytes(&compute->settings.profile);
    size_t count = id_count(micro_batch), ids = count * (size_t)width, planes = act->marks * plane_bytes(count);
    size_t coded = codec_bytes(&compute->up.settings, &micro_batch->use, CODEC_FORWARD);
    if (act->sequences != micro_batch->sequences || act->tokens != micro_batch->tokens || act->id_bytes != width)
        return compute_halt(compute, compute->pass.step,
                            "%s sent %u × %u positions with %u-byte ids in step %" PRIu64
                            ", micro-batch %u; here it is %" PRId64 " × %" PRId64 " with %d",
                            peer, act->sequences, act->tokens, act->id_bytes, compute->pass.step, micro_batch->index,
                            micro_batch->sequences, micro_batch->tokens, width);
    if (act->marks < compute->least_planes)
        return compute_halt(compute, compute->pass.step,
                            "%s does not say where documents begin in step %" PRIu64 ", micro-batch %u", peer, compute->pass.step,
                            micro_batch->index);
    if (act->body.bytes != ids + planes + coded)
        return halt_size(compute, micro_batch, "the activations", peer, act->body.bytes, ids + planes + coded);
    get_ids(compute->windows, act->body.data, count, width);
    get_planes(compute->marks, act->marks, act->body.data + ids, count);
    compute->planes = act->marks;
    struct model_shape shape = {.vocabulary = compute->settings.profile.vocabulary};
    if (!model_ids_fit(&shape, compute->windows, (int64_t)count))
        return compute_halt(compute, compute->pass.step,
                            "%s sent a token id beyond the vocabulary in step %" PRIu64 ", micro-batch %u", peer,
                            compute->pass.step, micro_batch->index);
    int err = check_mask(compute, micro_batch, &compute->up, act->mask_checksum, peer);
    struct why why = {0};
    if (!err && codec_decode(compute->up.codec, &micro_batch->use, act->body.data + ids + planes, coded,
                             stage_input(compute->model, micro_batch->slot), &why) < 0)
        err = compute_halt(compute, compute->pass.step, "activations from %s: %s", peer, why.text);
    if (!err)
        measures_arrived(compute, micro_batch, stage_input(compute->model, micro_batch->slot));
    return err;
}

int crossing_receive_activations(struct compute *compute, const struct micro_batch *micro_batch)
{
    struct letter *letter = &compute->acts[micro_batch->index % (uint32_t)compute->most];
    struct wire_act act;
    struct why why = {0};
    if (wire_decode(WIRE_ACT, letter->payload, letter->bytes, &act, &why) < 0)
        BUG("the loop thread let bad activations pass: %s", why.text);
    uint64_t began_ns = clock_now_ns();
    int err = decode_activations(compute, micro_batch, &act);
    compute->pass.pack_ns += clock_now_ns() - began_ns;
    mem_free(letter->payload);
    letter->payload = NULL;
    return err;
}

int crossing_send_activations(struct compute *compute, const struct micro_batch *micro_batch, const float *x)
{
    int width = id_bytes(&compute->settings.profile);
    size_t count = id_count(micro_batch), ids = count * (size_t)width, planes = compute->planes * plane_bytes(count);
    size_t coded = codec_bytes(&compute->down.settings, &micro_batch->use, CODEC_FORWARD), bytes = ids + planes + coded;
    BUG_IF(bytes > compute->body_bytes);
    measures_activations(compute, micro_batch, x);
    uint64_t began_ns = clock_now_ns();
    put_ids(compute->body, compute->windows, count, width);
    put_planes(compute->body + ids, compute->planes, compute->marks, count);
    codec_encode(compute->down.codec, &micro_batch->use, x, compute->body + ids + planes);
    compute->pass.pack_ns += clock_now_ns() - began_ns;
    struct wire_act act = {
        .sequences = (uint16_t)micro_batch->sequences,
        .tokens = (uint16_t)micro_batch->tokens,
        .id_bytes = (uint8_t)width,
        .marks = compute->planes,
        .mask_checksum = debug_checksum(compute, &compute->down, micro_batch),
        .body = {compute->body, (uint32_t)bytes},
    };
    struct letter letter =
        compute_letter(WIRE_ACT, &act, bytes, MAIL_DOWNSTREAM, compute->pass.step, micro_batch->index);
    note_dense(compute, micro_batch, coded, &letter);
    compute->pass.act_bytes = letter.bytes;
    return mail_send(compute->mail, &letter, &compute->pass.wait_ns[WAIT_SEND]);
}

/* ---- gradients ---- */

static int decode_gradient(struct compute *compute, const struct micro_batch *micro_batch, const struct wire_grad *grad)
{
    const char *peer = compute->settings.downstream;
    size_t coded = codec_bytes(&compute->down.settings, &micro_batch->use, CODEC_BACKWARD);
    struct why why = {0};
    if (compute->pass.stamp.kind == STAMP_EVALUATE)
        return grad->body.bytes == 0 ? 0 : halt_size(compute, micro_batch, "the acknowledgement", peer, grad->body.bytes, 0);
    if (grad->body.bytes != coded)
        return halt_size(compute, micro_batch, "the gradients", peer, grad->body.bytes, coded);
    int err = check_mask(compute, micro_batch, &compute->down, grad->mask_checksum, peer);
    if (!err && codec_decode_gradient(compute->down.codec, &micro_batch->use, grad->body.data, grad->body.bytes,
                                      stage_gradient(compute->model), &why) < 0)
        err = compute_halt(compute, compute->pass.step, "gradients from %s: %s", peer, why.text);
    if (!err)
        measures_returned(compute, micro_batch, stage_gradient(compute->model));
    return err;
}

int crossing_receive_gradient(struct compute *compute, const struct micro_batch *micro_batch, double *squares)
{
    struct letter *letter = &compute->grads[micro_batch->index % (uint32_t)compute->most];
    struct wire_grad grad;
    struct why why = {0};
    if (wire_decode(WIRE_GRAD, letter->payload, letter->bytes, &grad, &why) < 0)
        BUG("the loop thread let a bad gradient pass: %s", why.text);
    uint64_t began_ns = clock_now_ns();
    int err = decode_gradient(compute, micro_batch, &grad);
    compute->pass.pack_ns += clock_now_ns() - began_ns;
    compute->pass.loss = grad.loss;
    compute->pass.targets = grad.targets;
    *squares = grad.squares;
    mem_free(letter->payload);
    letter->payload = NULL;
    return err;
}

int crossing_send_gradient(struct compute *compute, const struct micro_batch *micro_batch, const float *dx, double squares)
{
    bool learns = compute->pass.stamp.kind != STAMP_EVALUATE;
    size_t coded = learns ? codec_bytes(&compute->up.settings, &micro_batch->use, CODEC_BACKWARD) : 0;
    uint64_t began_ns = clock_now_ns();
    BUG_IF(coded > compute->body_bytes);
    if (learns)
        codec_encode_gradient(compute->up.codec, &micro_batch->use, dx, compute->body);
    compute->pass.pack_ns += clock_now_ns() - began_ns;
    struct wire_grad grad = {
        .mask_checksum = learns ? debug_checksum(compute, &compute->up, micro_batch) : 0,
        .squares = squares,
        .loss = compute->pass.loss,
        .targets = compute->pass.targets,
        .body = {compute->body, (uint32_t)coded},
    };
    struct letter letter = compute_letter(WIRE_GRAD, &grad, coded, MAIL_UPSTREAM, compute->pass.step, micro_batch->index);
    note_dense(compute, micro_batch, coded, &letter);
    return mail_send(compute->mail, &letter, &compute->pass.wait_ns[WAIT_SEND]);
}

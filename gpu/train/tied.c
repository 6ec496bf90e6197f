/*
 * A tied head on more than one stage: the first and the last stage hold the same table and must step with the sum of both
 * gradients.
 *
 *   last stage ── its gradient ──► … ──► first stage adds, ── the sum ──► … ──► last stage
 *
 * There is no road between the two, so the stages between pass the pieces on. They go ahead of the last GRAD of a step
 * upstream and ahead of the next STAMP downstream, on the same ordered lane: no counting and no extra wait. The first stage
 * adds after its own last backward, so that the order of summation does not depend on timing. This travels dense: V·H·4
 * bytes, twice, over every cut.
 */
#include <inttypes.h>

#include "gpu/train/inside.h"
#include "ssh/base/mem.h"
#include "ssh/wire/frame.h"

int64_t tied_count(const struct profile *profile, int stages)
{
    return profile->head_tie == HEAD_TIED && stages > 1 && !profile->lora_rank ? profile->vocabulary * profile->hidden : 0;
}

int64_t tied_pieces(const struct profile *profile, int stages)
{
    return (tied_count(profile, stages) + WIRE_TIED_FLOATS - 1) / WIRE_TIED_FLOATS;
}

static int64_t piece_count(const struct compute *compute, int64_t first)
{
    int64_t left = tied_count(&compute->settings.profile, compute->stages) - first;
    return left < WIRE_TIED_FLOATS ? left : WIRE_TIED_FLOATS;
}

static int send_piece(struct compute *compute, struct letter *letter)
{
    letter->dense_bytes = letter->bytes + FRAME_HEADER_BYTES; /* a dense exchange would have sent it too */
    return mail_send(compute->mail, letter, &compute->pass.wait_ns[WAIT_SEND]);
}

int tied_send(struct compute *compute, enum mail_road road)
{
    int64_t total = tied_count(&compute->settings.profile, compute->stages);
    float *values = total ? mem_array(WIRE_TIED_FLOATS, sizeof *values) : NULL;
    int err = 0;
    for (int64_t first = 0; first < total && !err; first += WIRE_TIED_FLOATS) {
        int64_t count = piece_count(compute, first);
        size_t bytes = (size_t)count * sizeof *values;
        stage_tied_get(compute->model, first, count, values);
        struct wire_tied piece = {.first = (uint64_t)first, .body = {(const uint8_t *)values, (uint32_t)bytes}};
        struct letter letter =
            compute_letter(WIRE_TIED, &piece, bytes, road, compute->pass.step, (uint32_t)(first / WIRE_TIED_FLOATS));
        err = send_piece(compute, &letter);
    }
    mem_free(values);
    return err;
}

/* The piece of a letter, which must be number `index` of its step. */
static int check_piece(struct compute *compute, const struct letter *letter, int64_t index, struct wire_tied *piece)
{
    if (wire_decode(WIRE_TIED, letter->payload, letter->bytes, piece, NULL) < 0)
        BUG("the loop thread let a bad piece pass");
    int64_t first = index * WIRE_TIED_FLOATS, pieces = tied_pieces(&compute->settings.profile, compute->stages);
    if (index >= pieces || piece->first != (uint64_t)first || letter->step != compute->trained ||
        piece->body.bytes != (uint64_t)piece_count(compute, first) * sizeof(float))
        return compute_halt(compute, letter->step,
                            "piece %" PRId64 " of %" PRId64 " of the tied embedding's gradient in step %" PRIu64
                            " came as %u bytes from element %" PRIu64 " of step %" PRIu64,
                            index, pieces, compute->trained, piece->body.bytes, piece->first, letter->step);
    return 0;
}

int tied_accept(struct compute *compute, struct letter *letter)
{
    struct wire_tied piece;
    int64_t *arrived = &compute->tied_arrived[letter->road];
    if (!compute->first && !compute->last) {
        letter->road = letter->road == MAIL_UPSTREAM ? MAIL_DOWNSTREAM : MAIL_UPSTREAM;
        int err = send_piece(compute, letter);
        letter->payload = NULL;
        return err;
    }
    int err = check_piece(compute, letter, *arrived, &piece);
    if (err)
        return err;
    if (compute->first) {
        compute->tied[*arrived] = *letter; /* until our own last backward */
        letter->payload = NULL;
    } else {
        stage_tied_set(compute->model, (int64_t)piece.first, piece_count(compute, (int64_t)piece.first),
                       (const void *)piece.body.data);
    }
    ++*arrived;
    return 0;
}

int tied_add(struct compute *compute)
{
    int64_t pieces = tied_pieces(&compute->settings.profile, compute->stages);
    int64_t *arrived = &compute->tied_arrived[MAIL_DOWNSTREAM];
    if (*arrived != pieces)
        return compute_halt(compute, compute->pass.step,
                            "%" PRId64 " of %" PRId64 " pieces of the tied embedding's gradient came with step %" PRIu64,
                            *arrived, pieces, compute->pass.step);
    for (int64_t i = 0; i < pieces; i++) {
        struct wire_tied piece;
        struct letter *letter = &compute->tied[i];
        if (wire_decode(WIRE_TIED, letter->payload, letter->bytes, &piece, NULL) < 0)
            BUG("a piece cannot be read twice");
        stage_tied_add(compute->model, (int64_t)piece.first, piece_count(compute, (int64_t)piece.first),
                       (const void *)piece.body.data);
        mem_free(letter->payload);
        letter->payload = NULL;
    }
    *arrived = 0;
    return 0;
}

int tied_settle(struct compute *compute)
{
    int64_t pieces = tied_pieces(&compute->settings.profile, compute->stages),
            arrived = compute->tied_arrived[MAIL_UPSTREAM];
    compute->tied_arrived[MAIL_UPSTREAM] = 0;
    if (compute->last && compute->pass.stamp.apply && arrived != pieces)
        return compute_halt(compute, compute->pass.step,
                            "%" PRId64 " of %" PRId64 " pieces of the tied embedding's summed gradient came", arrived,
                            pieces);
    return 0;
}

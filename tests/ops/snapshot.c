/*
 * Snapshots from stages to the anchor's images, without a network: for 50 versions of weights that training moves, the image
 * that is held is the stages' weights word for word; a damaged chunk comes again whole; a road that is lost in the middle
 * goes on where it was; an anchor that forgot everything gets all of it; a version that was given up leaves no trace.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "gpu/train/assembly.h"
#include "gpu/train/bases.h"
#include "gpu/train/snap.h"
#include "ssh/base/mem.h"
#include "tests/helpers/backend.h"
#include "tests/helpers/numbers.h"

enum { STAGES = 2 };

static struct backend cpu;
static struct loop *loop;
static const struct model_shape model = {.hidden = 96,
                                         .layers = 5,
                                         .heads = 4,
                                         .kv_heads = 2,
                                         .ffn = 1024,
                                         .vocabulary = 4096,
                                         .head_width = 24,
                                         .rope_theta = 10000,
                                         .norm_epsilon = 1e-5f,
                                         .tied = true};

struct world {
    struct stage *stages[STAGES];
    struct snap *snaps[STAGES];
    struct assembly *assembly;
    uint16_t *expected; /* of the newest capture */
    uint64_t words, travelled;
};

static void nothing(void *arg)
{
    (void)arg;
}

static struct stage_shape shape_of(int first, int layers)
{
    return (struct stage_shape){.model = model,
                                .first_layer = first,
                                .layers = layers,
                                .first = first == 0,
                                .last = first + layers == 5,
                                .sequences = 1,
                                .tokens = 4,
                                .slots = 1};
}

static void open_assembly(struct world *w)
{
    struct stage_shape whole = shape_of(0, 5);
    struct why why = {0};
    assert_int_equal(assembly_new(&whole, STAGES, &w->assembly, &why), 0);
}

static struct world world_open(void)
{
    struct world w = {0};
    struct why why = {0};
    for (int i = 0; i < STAGES; i++) {
        struct stage_shape shape = i ? shape_of(3, 2) : shape_of(0, 3);
        assert_int_equal(stage_new(cpu.ops, cpu.device, &shape, &w.stages[i], &why), 0);
        stage_fresh(w.stages[i], 3);
        assert_int_equal(snap_new(loop, &shape, nothing, NULL, &w.snaps[i], &why), 0);
        w.words += (uint64_t)stage_word_count(&shape);
    }
    struct stage_shape whole = shape_of(0, 5);
    assert_int_equal(w.words, stage_word_count(&whole)); /* the parts are the whole */
    w.expected = mem_large(2 * w.words);
    open_assembly(&w);
    return w;
}

static void world_close(struct world *w)
{
    for (int i = 0; i < STAGES; i++) {
        snap_free(w->snaps[i]);
        stage_free(w->stages[i]);
    }
    assembly_free(w->assembly);
    mem_large_free(w->expected);
}

static void greet(struct world *w, int stage)
{
    struct wire_held held;
    snap_road(w->snaps[stage], true);
    assembly_held(w->assembly, stage, &held);
    snap_held(w->snaps[stage], &held);
}

static void move_weights(struct world *w, uint64_t seed)
{
    for (int i = 0; i < STAGES; i++)
        for (int t = 0; t < stage_tensor_count(w->stages[i]); t++) {
            struct tensor_info info;
            stage_tensor(w->stages[i], t, &info);
            int64_t count = info.shape[0] * (info.dims == 2 ? info.shape[1] : 1);
            float *values = mem_array((size_t)count, 4), *moves = mem_array((size_t)count, 4);
            stage_tensor_get(w->stages[i], t, values, false);
            numbers_noise(moves, count, seed * 1000 + (uint64_t)t, 1e-5);
            for (int64_t k = 0; k < count; k++)
                values[k] += moves[k];
            stage_tensor_set(w->stages[i], t, values);
            mem_free(values);
            mem_free(moves);
        }
}

static void capture(struct world *w, uint64_t version)
{
    uint16_t *at = w->expected;
    for (int i = 0; i < STAGES; i++) {
        struct stage_shape shape = i ? shape_of(3, 2) : shape_of(0, 3);
        stage_words_get(w->stages[i], snap_begin(w->snaps[i]));
        snap_commit(w->snaps[i], version);
        stage_words_get(w->stages[i], at);
        at += stage_word_count(&shape);
    }
}

/* The next piece of a stage, waiting for its thread. */
static bool next_piece(struct world *w, int stage, struct snap_piece *piece)
{
    for (int i = 0; i < 20000; i++) {
        if (snap_next(w->snaps[stage], piece))
            return true;
        usleep(500);
    }
    return false;
}

/* One piece over: 1 = the version is whole. `damage`: a byte of a chunk is flipped on the way. */
static int carry(struct world *w, int stage, bool damage)
{
    struct snap_piece piece;
    union {
        struct wire_snapshot snapshot;
        struct wire_chunk chunk;
    } message;
    struct why why = {0};
    int got;
    if (!next_piece(w, stage, &piece))
        fail_msg("nothing comes of stage %d", stage);
    w->travelled += piece.bytes;
    if (damage && piece.type == WIRE_CHUNK)
        piece.payload[piece.bytes - 20] ^= 1;
    assert_int_equal(wire_decode((uint16_t)piece.type, piece.payload, piece.bytes, &message, &why), 0);
    if (piece.type == WIRE_SNAPSHOT) {
        got = assembly_begin(w->assembly, stage, &message.snapshot, &why);
    } else {
        got = assembly_chunk(w->assembly, stage, &message.chunk, &why);
        struct wire_want want = {message.chunk.version, message.chunk.chunk};
        if (got == ERR_AGAIN)
            assert_int_equal(snap_want(w->snaps[stage], &want, &why), 0);
    }
    if (got < 0 && got != ERR_AGAIN)
        fail_msg("%s", why.text);
    mem_free(piece.payload);
    return got;
}

static void check_held(struct world *w, uint64_t version)
{
    uint64_t held;
    const uint16_t *words = assembly_lock(w->assembly, &held);
    assert_int_equal(held, version);
    numbers_same(words, w->expected, (int64_t)(2 * w->words), "version %llu", (unsigned long long)version);
    assembly_unlock(w->assembly);
    for (int i = 0; i < STAGES; i++) {
        struct wire_held message;
        assembly_held(w->assembly, i, &message);
        snap_held(w->snaps[i], &message);
        assert_int_equal(snap_version(w->snaps[i]), 0); /* through */
    }
}

static uint64_t chunks_of(int stage)
{
    struct stage_shape shape = stage ? shape_of(3, 2) : shape_of(0, 3);
    return ((uint64_t)stage_word_count(&shape) + WIRE_CHUNK_WORDS - 1) / WIRE_CHUNK_WORDS;
}

/* All of a version, stage by stage. */
static void carry_all(struct world *w, uint64_t version)
{
    int whole = 0;
    for (int i = 0; i < STAGES; i++)
        for (uint64_t k = 0; k < 1 + chunks_of(i); k++)
            whole = carry(w, i, false);
    assert_int_equal(whole, 1);
    check_held(w, version);
}

static void fifty_versions_are_the_same_words(void **state)
{
    struct world w = world_open();
    (void)state;
    greet(&w, 0);
    greet(&w, 1);
    for (uint64_t version = 1; version <= 50; version++) {
        w.travelled = 0;
        capture(&w, version);
        carry_all(&w, version);
        if (version > 1)
            assert_true((double)w.travelled < 0.15 * 2 * (double)w.words);
        move_weights(&w, version);
    }
    uint64_t bytes, full, versions;
    assembly_bytes(w.assembly, &bytes, &full, &versions);
    assert_int_equal(versions, 50);
    assert_int_equal(full, 2 * w.words);
    assert_int_equal(assembly_repeated(w.assembly), 0);
    world_close(&w);
}

static void a_damaged_chunk_comes_again(void **state)
{
    struct world w = world_open();
    int again = 0, whole = 0;
    (void)state;
    greet(&w, 0);
    greet(&w, 1);
    capture(&w, 1);
    carry_all(&w, 1);
    move_weights(&w, 1);
    capture(&w, 2);
    for (uint64_t k = 0; k < 1 + chunks_of(0); k++)
        again += carry(&w, 0, true) == ERR_AGAIN;
    assert_int_equal(again, chunks_of(0));
    for (uint64_t k = 0; k < chunks_of(0); k++)
        assert_int_equal(carry(&w, 0, false), 0);
    for (uint64_t k = 0; k < 1 + chunks_of(1); k++)
        whole = carry(&w, 1, false);
    assert_int_equal(whole, 1);
    assert_int_equal(assembly_repeated(w.assembly), chunks_of(0));
    check_held(&w, 2);
    world_close(&w);
}

static void a_lost_road_goes_on_where_it_was(void **state)
{
    struct world w = world_open();
    int whole = 0;
    (void)state;
    greet(&w, 0);
    greet(&w, 1);
    capture(&w, 1);
    carry(&w, 0, false);
    carry(&w, 0, false); /* the first chunk */
    snap_road(w.snaps[0], false);
    greet(&w, 0);
    for (uint64_t k = 0; k < chunks_of(0); k++) /* its header again, and the rest */
        assert_int_equal(carry(&w, 0, false), 0);
    for (uint64_t k = 0; k < 1 + chunks_of(1); k++)
        whole = carry(&w, 1, false);
    assert_int_equal(whole, 1);
    check_held(&w, 1);
    /* An anchor without memory: all of it, whole. */
    assembly_free(w.assembly);
    open_assembly(&w);
    move_weights(&w, 1);
    capture(&w, 2);
    greet(&w, 0);
    greet(&w, 1);
    w.travelled = 0;
    carry_all(&w, 2);
    assert_true((double)w.travelled > 0.5 * 2 * (double)w.words);
    world_close(&w);
}

static void what_is_given_up_leaves_no_trace(void **state)
{
    struct world w = world_open();
    (void)state;
    greet(&w, 0);
    greet(&w, 1);
    capture(&w, 1);
    carry_all(&w, 1);
    move_weights(&w, 1);
    capture(&w, 2);
    carry(&w, 0, false);
    carry(&w, 0, false);
    move_weights(&w, 2);
    capture(&w, 3);
    carry_all(&w, 3);
    world_close(&w);
}

static void strangers_are_refused(void **state)
{
    struct world w = world_open();
    struct why why = {0};
    (void)state;
    struct stage_shape shape = shape_of(0, 3);
    struct wire_snapshot right = {.version = 1,
                                  .layers = 3,
                                  .chunks = (uint32_t)chunks_of(0),
                                  .words = (uint64_t)stage_word_count(&shape)},
                         wrong;
    assert_int_equal(assembly_begin(w.assembly, 0, &right, &why), 0);
    wrong = right, wrong.layers = 4;
    assert_int_equal(assembly_begin(w.assembly, 1, &wrong, &why), ERR_INVALID);
    wrong = right, wrong.words--;
    assert_int_equal(assembly_begin(w.assembly, 1, &wrong, &why), ERR_INVALID);
    wrong = right, wrong.first_layer = 65535;
    assert_int_equal(assembly_begin(w.assembly, 1, &wrong, &why), ERR_INVALID);
    wrong = right, wrong.chunks = UINT32_MAX;
    assert_int_equal(assembly_begin(w.assembly, 1, &wrong, &why), ERR_INVALID);
    struct wire_chunk chunk = {.version = 1, .chunk = right.chunks, .coding = CHUNK_WHOLE};
    assert_int_equal(assembly_chunk(w.assembly, 0, &chunk, &why), ERR_INVALID);
    chunk.chunk = 0, chunk.coding = CHUNK_DELTA; /* of nothing that is held */
    assert_int_equal(assembly_chunk(w.assembly, 0, &chunk, &why), ERR_AGAIN);
    struct wire_want want = {.version = 1, .chunk = UINT32_MAX};
    assert_int_equal(snap_want(w.snaps[0], &want, &why), ERR_INVALID);
    world_close(&w);
}

/* Directions, or whole gradients (rank 0), wait whole and in order; what does not fit the stage is refused. */
static void check_waiting(int64_t rank)
{
    struct stage_shape shape = shape_of(3, 2);
    struct bases *bases = bases_new(&shape, rank, NULL, 0);
    struct matrix matrices[14];
    struct bases_set set;
    struct why why = {0};
    static uint8_t body[1 << 20];
    assert_int_equal(matrices_count(&shape), 14);
    matrices_list(&shape, matrices);
    for (uint64_t version = 1; version <= 3; version++)
        for (uint16_t i = 0; i < 14; i++) {
            struct wire_basis basis = {.version = version,
                                       .matrix = i,
                                       .matrices = 14,
                                       .rows = (uint32_t)matrices[i].rows,
                                       .columns = (uint32_t)matrices[i].columns,
                                       .rank = (uint16_t)matrices_rank(&matrices[i], rank),
                                       .body = {body, (uint32_t)matrices_basis_bytes(&matrices[i], rank)}};
            struct wire_basis wrong = basis;
            wrong.rows++;
            assert_int_equal(bases_put(bases, &wrong, &why), ERR_INVALID);
            wrong = basis, wrong.rank = rank ? 0 : 8;
            assert_int_equal(bases_put(bases, &wrong, &why), ERR_INVALID);
            wrong = basis, wrong.matrix = 14;
            assert_int_equal(bases_put(bases, &wrong, &why), ERR_INVALID);
            assert_false(bases_take(bases, version, &set));
            assert_int_equal(bases_put(bases, &basis, &why), i == 13);
            assert_int_equal(bases_put(bases, &basis, &why), 0); /* said again */
        }
    assert_true(bases_take(bases, 2, &set));
    assert_int_equal(set.count, 14);
    bases_set_clear(&set);
    assert_false(bases_take(bases, 1, &set)); /* older: given up */
    assert_true(bases_take(bases, 3, &set));
    bases_set_clear(&set);
    bases_free(bases);
}

static void directions_wait_for_their_step(void **state)
{
    (void)state;
    check_waiting(8);
    check_waiting(0);
}

/* Statistics of cuts wait with the directions of their version; what no codec of this stage could use is refused at once. */
static void statistics_wait_with_them(void **state)
{
    enum { WIDTH = 8, RANK = 4, BYTES = 4 * RANK + 2 * RANK * WIDTH };
    const struct codec_settings settings = {.kind = CODEC_KIND_SUBSPACE, .width = WIDTH, .max_rows = 4, .slots = 1, .rank = RANK,
                                            .forward_share = 0.5, .boundary = 3};
    const struct bases_part parts[] = {{settings, CODEC_FORWARD}, {settings, CODEC_BACKWARD}};
    struct stage_shape shape = shape_of(3, 2);
    struct bases_set set;
    struct why why = {0};
    uint8_t body[BYTES] = {0};
    (void)state;
    for (int i = 0; i < RANK; i++)
        memcpy(body + 4 * i, &(float){(float)(RANK - i)}, sizeof(float));
    assert_int_equal(codec_state_bytes(&settings, CODEC_FORWARD), BYTES);
    for (int64_t rank = 0; rank <= 8; rank += 8) {
        struct bases *bases = bases_new(&shape, rank ? rank : -1, parts, 2);
        struct wire_statistics good = {.version = 5, .boundary = 3, .body = {body, BYTES}}, bad = good;
        bad.boundary = 2;
        assert_int_equal(bases_put_statistics(bases, &bad, &why), ERR_INVALID);
        bad = good, bad.body.bytes--;
        assert_int_equal(bases_put_statistics(bases, &bad, &why), ERR_INVALID);
        bad = good, bad.version = (uint64_t)UINT32_MAX + 1;
        assert_int_equal(bases_put_statistics(bases, &bad, &why), ERR_INVALID);
        memcpy(body + 4, &(float){NAN}, sizeof(float));
        assert_int_equal(bases_put_statistics(bases, &good, &why), ERR_INVALID);
        memcpy(body + 4, &(float){RANK - 1}, sizeof(float));
        assert_int_equal(bases_put_statistics(bases, &good, &why), 0);
        assert_int_equal(bases_put_statistics(bases, &good, &why), 0); /* said again */
        assert_false(bases_take(bases, 5, &set));
        good.backward = 1;
        assert_int_equal(bases_put_statistics(bases, &good, &why), rank == 0);
        assert_int_equal(bases_take(bases, 5, &set), rank == 0); /* directions are still missing */
        if (rank == 0) {
            assert_memory_equal(set.states[0], body, BYTES);
            assert_memory_equal(set.states[1], body, BYTES);
            bases_set_clear(&set);
        }
        assert_null(bases_part(bases, 2));
        bases_free(bases);
    }
    struct bases *none = bases_new(&shape, 8, NULL, 0);
    assert_int_equal(bases_put_statistics(none, &(struct wire_statistics){.version = 5, .boundary = 3, .body = {body, BYTES}}, &why), ERR_INVALID);
    bases_free(none);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fifty_versions_are_the_same_words),
        cmocka_unit_test(a_damaged_chunk_comes_again),
        cmocka_unit_test(a_lost_road_goes_on_where_it_was),
        cmocka_unit_test(what_is_given_up_leaves_no_trace),
        cmocka_unit_test(strangers_are_refused),
        cmocka_unit_test(directions_wait_for_their_step),
        cmocka_unit_test(statistics_wait_with_them),
    };
    struct why why = {0};
    backend_open(&cpu, 1);
    loop = loop_new(&why);
    cmocka_set_message_output(CM_OUTPUT_STDOUT);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    loop_free(loop);
    backend_close(&cpu);
    return failed;
}

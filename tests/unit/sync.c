/*
 * Replicas in one thread: weights that wander apart, contributions passed around as bytes. Whatever the payloads are, the common copy
 * is the same bits everywhere, for hundreds of rounds, and a round that fails leaves no trace.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "gpu/train/sync.h"
#include "ssh/base/mem.h"
#include "tests/helpers/dice.h"
#include "tests/helpers/numbers.h"

enum { MOST_REPLICAS = 4, TENSORS = 10, FLOATS = 2048 };

/* One of each kind, in three fragments; the low ranks pay and do not pay. */
static const struct sync_tensor mixed[TENSORS] = {
    {.rows = 24, .columns = 17, .fragment = 0, .kind = SYNC_INT4},
    {.rows = 17, .columns = 24, .fragment = 0, .kind = SYNC_POWERSGD, .rank = 3, .seed = 1},
    {.rows = 24, .columns = 1, .fragment = 0, .kind = SYNC_BF16},
    {.rows = 40, .columns = 9, .fragment = 1, .kind = SYNC_POWERSGD, .rank = 2, .seed = 2},
    {.rows = 5, .columns = 70, .fragment = 1, .kind = SYNC_E3M0},
    {.rows = 3, .columns = 3, .fragment = 1, .kind = SYNC_POWERSGD, .rank = 4, .seed = 3},
    {.rows = 30, .columns = 12, .fragment = 2, .kind = SYNC_ROWS},
    {.rows = 12, .columns = 20, .fragment = 2, .kind = SYNC_INT8},
    {.rows = 20, .columns = 1, .fragment = 2, .kind = SYNC_FP32},
    {.rows = 8, .columns = 30, .fragment = 2, .kind = SYNC_BF16},
};

struct replica {
    struct sync *sync;
    float weights[TENSORS][FLOATS];
    uint8_t *bytes;
    size_t count;
};

struct world {
    int replicas;
    struct replica each[MOST_REPLICAS];
    struct dice dice;
};

static void get(void *arg, int tensor, float *out)
{
    const struct replica *replica = arg;
    memcpy(out, replica->weights[tensor], (size_t)(mixed[tensor].rows * mixed[tensor].columns) * sizeof *out);
}

static void set(void *arg, int tensor, const float *values)
{
    struct replica *replica = arg;
    memcpy(replica->weights[tensor], values, (size_t)(mixed[tensor].rows * mixed[tensor].columns) * sizeof *values);
}

static struct sync_weights weights_of(struct replica *replica)
{
    return (struct sync_weights){get, set, replica};
}

static struct world *world_new(int replicas, bool two_sided)
{
    struct world *world = mem_new(sizeof *world);
    struct sync_settings settings = {.fragments = 3, .two_sided = two_sided};
    struct why why = {0};
    world->replicas = replicas;
    world->dice.state = 1;
    for (int r = 0; r < replicas; r++) {
        struct replica *replica = &world->each[r];
        for (int t = 0; t < TENSORS; t++)
            numbers_noise(replica->weights[t], mixed[t].rows * mixed[t].columns, (uint64_t)t, 1);
        assert_int_equal(sync_new(&settings, mixed, TENSORS, &replica->sync, &why), 0);
        struct sync_weights weights = weights_of(replica);
        sync_begin(replica->sync, &weights);
        replica->bytes = mem_array(8 * FLOATS, 4);
    }
    return world;
}

static void world_free(struct world *world)
{
    for (int r = 0; r < world->replicas; r++) {
        sync_free(world->each[r].sync);
        mem_free(world->each[r].bytes);
    }
    mem_free(world);
}

/* What local training does: small steps in directions of its own, some rows only. */
static void wander(struct world *world)
{
    float noise[FLOATS];
    for (int r = 0; r < world->replicas; r++)
        for (int t = 0; t < TENSORS; t++) {
            int64_t rows = mixed[t].rows, columns = mixed[t].columns;
            numbers_noise(noise, rows * columns, dice_u64(&world->dice), 0.01);
            for (int64_t i = 0; i < rows * columns; i++)
                if (mixed[t].kind != SYNC_ROWS || dice_below(&world->dice, 3) == 0)
                    world->each[r].weights[t][i] += noise[i];
        }
}

static int exchange(struct world *world, int fragment, int index)
{
    static const struct sync_outer outer = {.rate = 0.7f, .momentum = 0.9f, .alpha = 0.5f};
    struct sync_part parts[MOST_REPLICAS];
    int first = 0;
    for (int r = 0; r < world->replicas; r++)
        parts[r] = (struct sync_part){.replica = r, .bytes = world->each[r].bytes, .count = world->each[r].count,
                                      .share = (float)(r + 1) * 2 / (float)(world->replicas * (world->replicas + 1))};
    for (int r = 0; r < world->replicas; r++) {
        struct why why = {0};
        int err = sync_receive(world->each[r].sync, fragment, index, parts, world->replicas, r, &outer, &why);
        assert_true(r == 0 || err == first);
        first = err;
    }
    return first;
}

static void contribute(struct world *world, int fragment, int index)
{
    for (int r = 0; r < world->replicas; r++) {
        struct replica *replica = &world->each[r];
        struct sync_weights weights = weights_of(replica);
        replica->count = sync_contribute(replica->sync, fragment, index, &weights, replica->bytes);
        assert_true(replica->count <= sync_most_bytes(replica->sync, fragment, index));
    }
}

static int round_of(struct world *world, int fragment)
{
    int err = 0;
    for (int e = 0; e < sync_exchanges(world->each[0].sync, fragment) && !err; e++) {
        contribute(world, fragment, e);
        err = exchange(world, fragment, e);
    }
    for (int r = 0; r < world->replicas && !err; r++) {
        struct sync_weights weights = weights_of(&world->each[r]);
        assert_int_equal(sync_merge(world->each[r].sync, fragment, 0.5f, &weights), sync_hash(world->each[r].sync, fragment));
    }
    return err;
}

static void check_same(struct world *world)
{
    for (int f = 0; f < 3; f++)
        for (int r = 1; r < world->replicas; r++)
            assert_int_equal(sync_hash(world->each[r].sync, f), sync_hash(world->each[0].sync, f));
}

/* Acceptance: the same bits on all replicas after 200 rounds of mixed kinds. */
static void check_rounds(int replicas, bool two_sided)
{
    struct world *world = world_new(replicas, two_sided);
    uint64_t before = sync_hash(world->each[0].sync, 0);
    for (int round = 0; round < 200; round++) {
        wander(world);
        for (int r = 0; r < replicas && round % 10 == 7; r++) /* another rank now and then, as the operator may set it */
            sync_set_rank(world->each[r].sync, round / 10 % 3 + 1);
        assert_int_equal(round_of(world, round % 3), 0);
        check_same(world);
    }
    assert_true(sync_hash(world->each[0].sync, 0) != before);
    for (int t = 0; t < TENSORS; t++) {
        numbers_same(sync_common(world->each[0].sync, t), sync_common(world->each[replicas - 1].sync, t),
                     mixed[t].rows * mixed[t].columns * 4, "tensor %d", t);
        for (int64_t i = 0; i < mixed[t].rows * mixed[t].columns; i++)
            assert_true(fabsf(sync_common(world->each[0].sync, t)[i]) < 100);
    }
    world_free(world);
}

static void test_same_bits(void **state)
{
    (void)state;
    for (int replicas = 2; replicas <= MOST_REPLICAS; replicas++) {
        check_rounds(replicas, false);
        check_rounds(replicas, true);
    }
}

/* With kind fp32 and no outer optimiser a round is the mean of the weights. */
static void test_mean(void **state)
{
    (void)state;
    enum { ROWS = 20 }; /* tensor 8: fp32 */
    static const struct sync_outer mean = {.rate = 1};
    struct world *world = world_new(2, false);
    float want[ROWS];
    wander(world);
    for (int i = 0; i < ROWS; i++)
        want[i] = (world->each[0].weights[8][i] + world->each[1].weights[8][i]) / 2;
    contribute(world, 2, 0);
    struct sync_part parts[2];
    for (int r = 0; r < 2; r++)
        parts[r] = (struct sync_part){.replica = r, .bytes = world->each[r].bytes, .count = world->each[r].count, .share = 0.5f};
    for (int r = 0; r < 2; r++) {
        struct sync_weights weights = weights_of(&world->each[r]);
        assert_int_equal(sync_receive(world->each[r].sync, 2, 0, parts, 2, r, &mean, NULL), 0);
        sync_merge(world->each[r].sync, 2, 0, &weights);
        for (int i = 0; i < ROWS; i++)
            assert_true(fabsf(world->each[r].weights[8][i] - want[i]) < 1e-6f);
    }
    world_free(world);
}

/* Not finite in any tensor, too short or too long: all refuse, and all goes on as if the round had never been. */
static void test_bad_rounds(void **state)
{
    (void)state;
    for (int two_sided = 0; two_sided < 2; two_sided++) {
        struct world *world = world_new(3, two_sided);
        for (int round = 0; round < 30; round++) {
            wander(world);
            int fragment = round % 3, tensor = (int)dice_below(&world->dice, TENSORS);
            uint64_t hash = sync_hash(world->each[0].sync, mixed[tensor].fragment);
            float kept = world->each[1].weights[tensor][1];
            world->each[1].weights[tensor][1] = round % 2 ? NAN : INFINITY;
            assert_int_equal(round_of(world, mixed[tensor].fragment), ERR_INVALID);
            world->each[1].weights[tensor][1] = kept;
            assert_int_equal(sync_hash(world->each[0].sync, mixed[tensor].fragment), hash);
            contribute(world, fragment, 0);
            world->each[2].count += round % 2 ? 1 : (size_t)-1;
            assert_int_equal(exchange(world, fragment, 0), ERR_INVALID);
            assert_int_equal(round_of(world, fragment), 0);
            check_same(world);
        }
        world_free(world);
    }
}

/* A run with failed rounds in it is the same run without them. */
static void test_failed_round_leaves_no_trace(void **state)
{
    (void)state;
    struct world *one = world_new(2, false), *other = world_new(2, false);
    for (int round = 0; round < 20; round++) {
        wander(one);
        wander(other);
        contribute(one, round % 3, 0);
        for (int r = 0; r < 2; r++)
            sync_drop(one->each[r].sync, round % 3);
        assert_int_equal(round_of(one, round % 3), 0);
        assert_int_equal(round_of(other, round % 3), 0);
        assert_int_equal(sync_hash(one->each[0].sync, round % 3), sync_hash(other->each[0].sync, round % 3));
        for (int t = 0; t < TENSORS; t++)
            numbers_same(one->each[1].weights[t], other->each[1].weights[t], mixed[t].rows * mixed[t].columns * 4, "tensor %d", t);
    }
    world_free(one);
    world_free(other);
}

/* At the end all have the mean of all weights, to the rounding of bf16 of the difference, and the same bits. */
static void test_end(void **state)
{
    (void)state;
    struct world *world = world_new(3, false);
    for (int round = 0; round < 6; round++) {
        wander(world);
        round_of(world, round % 3);
    }
    for (int t = 0; t < TENSORS; t++) {
        int64_t count = mixed[t].rows * mixed[t].columns;
        double want[FLOATS], spread[FLOATS];
        uint64_t left_out;
        struct sync_part parts[3];
        for (int64_t i = 0; i < count; i++) {
            want[i] = spread[i] = 0;
            for (int r = 0; r < 3; r++) {
                want[i] += (double)world->each[r].weights[t][i] / 3;
                spread[i] += fabs((double)world->each[r].weights[t][i] - (double)sync_common(world->each[0].sync, t)[i]);
            }
        }
        for (int r = 0; r < 3; r++) {
            struct sync_weights weights = weights_of(&world->each[r]);
            sync_final_contribute(world->each[r].sync, t, &weights, world->each[r].bytes);
            parts[r] = (struct sync_part){r, world->each[r].bytes, sync_final_bytes(world->each[r].sync, t), 1.0f / 3};
        }
        for (int r = 0; r < 3; r++) {
            struct sync_weights weights = weights_of(&world->each[r]);
            assert_int_equal(sync_final_receive(world->each[r].sync, t, parts, 3, &weights, &left_out, NULL), 0);
            assert_int_equal(left_out, 0);
            numbers_same(world->each[r].weights[t], world->each[0].weights[t], count * 4, "tensor %d", t);
        }
        for (int64_t i = 0; i < count; i++)
            assert_true(fabs((double)world->each[0].weights[t][i] - want[i]) <= spread[i] * 0x1p-8 + 1e-6);
        parts[1].count--;
        struct sync_weights weights = weights_of(&world->each[0]);
        assert_int_equal(sync_final_receive(world->each[0].sync, t, parts, 3, &weights, &left_out, NULL), ERR_INVALID);
    }
    world_free(world);
}

/* Who is not finite at the end is left out by all alike and gets the mean of the others; when nobody is finite, the common copy is what
 * there is. Before the end, what is not finite becomes the common copy, tensor by tensor. */
static void test_not_finite(void **state)
{
    (void)state;
    for (int bad = 1; bad <= 3; bad++) {
        struct world *world = world_new(3, false);
        wander(world);
        assert_int_equal(round_of(world, 0), 0);
        wander(world);
        int64_t count = mixed[1].rows * mixed[1].columns;
        struct sync_part parts[3];
        double want[FLOATS];
        float common[FLOATS];
        memcpy(common, sync_common(world->each[0].sync, 1), (size_t)count * sizeof *common);
        for (int64_t i = 0; i < count; i++) {
            want[i] = bad == 3 ? (double)common[i] : 0;
            for (int r = bad; r < 3; r++)
                want[i] += (double)world->each[r].weights[1][i] / (3 - bad);
        }
        for (int r = 0; r < 3; r++) {
            struct sync_weights weights = weights_of(&world->each[r]);
            if (r < bad)
                world->each[r].weights[1][r] = r ? NAN : -INFINITY;
            sync_final_contribute(world->each[r].sync, 1, &weights, world->each[r].bytes);
            parts[r] = (struct sync_part){r, world->each[r].bytes, sync_final_bytes(world->each[r].sync, 1), 1.0f / 3};
        }
        struct sync_weights first = weights_of(&world->each[0]);
        assert_int_equal(sync_restore(world->each[0].sync, &first), 1);
        assert_int_equal(sync_restore(world->each[0].sync, &first), 0);
        numbers_same(world->each[0].weights[1], common, count * 4, "restored");
        for (int r = 0; r < 3; r++) {
            struct sync_weights weights = weights_of(&world->each[r]);
            uint64_t left_out = 0;
            assert_int_equal(sync_final_receive(world->each[r].sync, 1, parts, 3, &weights, &left_out, NULL), 0);
            assert_int_equal(left_out, (1 << bad) - 1);
            numbers_same(world->each[r].weights[1], world->each[0].weights[1], count * 4, "replica %d", r);
        }
        for (int64_t i = 0; i < count; i++)
            assert_true(fabs((double)world->each[0].weights[1][i] - want[i]) < 1e-3);
        world_free(world);
    }
}

/* One that joins gets a fragment as it is, in pieces of any size, at any moment between two exchanges; what is under way then it gets when
 * that has ended. From then on it has the same bits as the others, whatever the payload, and takes part. */
static void copy_fragment(struct world *world, int from, int to, int fragment, size_t piece)
{
    size_t total = sync_state_bytes(world->each[from].sync, fragment);
    uint8_t *bytes = mem_array(total, 1);
    struct why why = {0};
    for (size_t at = 0; at < total; at += piece)
        sync_state_get(world->each[from].sync, fragment, at, total - at < piece ? total - at : piece, bytes + at);
    assert_int_equal(sync_state_put(world->each[to].sync, fragment, bytes, total - 1, &why), ERR_INVALID);
    assert_int_equal(sync_state_put(world->each[to].sync, fragment, bytes, total, &why), 0);
    mem_free(bytes);
    assert_int_equal(sync_hash(world->each[to].sync, fragment), sync_hash(world->each[from].sync, fragment));
}

static void test_join(void **state)
{
    (void)state;
    static const size_t pieces[] = {1, 7, 100, 4096, SIZE_MAX / 2};
    for (int joins = 0; joins < 12; joins++) { /* before round 0 … 11: every fragment, both sides of an alternating basis */
        bool two_sided = joins % 2, under_way = joins % 3 == 0;
        struct world *world = world_new(3, two_sided);
        world->replicas = 2;
        for (int round = 0; round < joins; round++) {
            wander(world);
            for (int r = 0; r < 2; r++)
                sync_set_rank(world->each[r].sync, round % 3 + 1);
            assert_int_equal(round_of(world, round % 3), 0);
        }
        wander(world);
        if (under_way)
            contribute(world, joins % 3, 0);
        for (int f = 0; f < 3; f++)
            copy_fragment(world, f % 2, 2, f, pieces[joins % 5]);
        if (under_way) {
            for (int e = 0; e < sync_exchanges(world->each[0].sync, joins % 3); e++) {
                if (e > 0)
                    contribute(world, joins % 3, e);
                assert_int_equal(exchange(world, joins % 3, e), 0);
            }
            copy_fragment(world, 1, 2, joins % 3, pieces[joins % 5]);
        }
        struct sync_weights weights = weights_of(&world->each[2]);
        sync_take(world->each[2].sync, &weights);
        for (int t = 0; t < TENSORS; t++)
            numbers_same(world->each[2].weights[t], sync_common(world->each[0].sync, t), mixed[t].rows * mixed[t].columns * 4, "tensor %d", t);
        sync_set_rank(world->each[2].sync, joins > 0 ? (joins - 1) % 3 + 1 : 4);
        world->replicas = 3;
        for (int round = joins + 1; round < joins + 16; round++) {
            wander(world);
            assert_int_equal(round_of(world, round % 3), 0);
            check_same(world);
        }
        world->replicas = 3;
        world_free(world);
    }
}

/* What goes to disk is all there is: another one of the same weights sends the same bytes in the next rounds, errors included. */
static void test_on_disk(void **state)
{
    (void)state;
    struct world *world = world_new(3, false);
    struct replica *left = &world->each[0];
    struct replica *other = mem_new(sizeof *other);
    struct sync_settings settings = {.fragments = 3};
    struct why why = {0};
    for (int round = 0; round < 7; round++) {
        wander(world);
        contribute(world, round % 3, 0);
        assert_int_equal(exchange(world, round % 3, 0), 0);
    }
    size_t bytes = sync_save_bytes(left->sync);
    uint8_t *saved = mem_new(bytes), *sent = mem_array(8 * FLOATS, 4);
    sync_save(left->sync, saved);
    memcpy(other->weights, left->weights, sizeof other->weights);
    assert_int_equal(sync_new(&settings, mixed, TENSORS, &other->sync, &why), 0);
    assert_int_equal(sync_load(other->sync, saved, bytes - 1, &why), ERR_INVALID);
    assert_int_equal(sync_load(other->sync, saved, bytes, &why), 0);
    for (int f = 0; f < 3; f++) {
        struct sync_weights ours = weights_of(left), theirs = weights_of(other);
        size_t count = sync_contribute(left->sync, f, 0, &ours, left->bytes);
        assert_int_equal(sync_contribute(other->sync, f, 0, &theirs, sent), count);
        assert_memory_equal(sent, left->bytes, count);
    }
    sync_free(other->sync);
    mem_free(other);
    mem_free(saved);
    mem_free(sent);
    world_free(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),                    cmocka_unit_test(test_mean), cmocka_unit_test(test_bad_rounds),
        cmocka_unit_test(test_failed_round_leaves_no_trace), cmocka_unit_test(test_end),
        cmocka_unit_test(test_not_finite),                   cmocka_unit_test(test_join),
        cmocka_unit_test(test_on_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

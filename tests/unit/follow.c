/*
 * An anchor that follows rounds, without a network: for 50 rounds of every payload the version that it holds is the common copy
 * of two replicas word for word, and what is common travels once; a damaged contribution, a lost one, a road that breaks, a queue
 * without room and another replica that tells make it ask for what is common, never guess; what has no place is refused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "gpu/math/half.h"
#include "gpu/model/carve.h"
#include "gpu/train/follow.h"
#include "gpu/train/replay.h"
#include "gpu/train/shape.h"
#include "gpu/train/siblings.h"
#include "ssh/base/mem.h"
#include "tests/helpers/numbers.h"

enum { STAGES = 2, REPLICAS = 2, FRAGMENTS = 3 };

struct side { /* a stage of all replicas */
    struct stage_shape shape;
    struct siblings_list list;
    struct sync *sync[REPLICAS];
    float *weights[REPLICAS];
    size_t floats;
    struct follow *follow;
    uint64_t ended[FRAGMENTS];
};

struct world {
    struct side sides[STAGES];
    struct replay *replay;
    struct assembly *assembly;
    uint64_t rounds, travelled;
    int states, teller; /* states: that began to travel; teller: the replica that the anchor hears */
    int damaged;        /* versions that cannot become whole */
    bool damage, drop;  /* the next contribution */
};

struct weights {
    struct side *side;
    int replica;
};

static struct profile profile;
static bool adapters; /* and nothing else is trained */
static struct loop *loop;

static void nothing(void *arg)
{
    (void)arg;
}

static size_t offset_of(const struct side *side, int tensor)
{
    size_t at = 0;
    for (int i = 0; i < tensor; i++)
        at += (size_t)(side->list.tensors[i].rows * side->list.tensors[i].columns);
    return at;
}

static size_t bytes_of(const struct side *side, int tensor)
{
    return (size_t)(side->list.tensors[tensor].rows * side->list.tensors[tensor].columns) * sizeof(float);
}

static void get(void *arg, int tensor, float *out)
{
    const struct weights *weights = arg;
    memcpy(out, weights->side->weights[weights->replica] + offset_of(weights->side, tensor), bytes_of(weights->side, tensor));
}

static void set(void *arg, int tensor, const float *values)
{
    const struct weights *weights = arg;
    memcpy(weights->side->weights[weights->replica] + offset_of(weights->side, tensor), values, bytes_of(weights->side, tensor));
}

static void set_profile(const char *name, const char *value)
{
    struct why why = {0};
    if (profile_set(&profile, name, value, &why) < 0)
        fail_msg("%s", why.text);
}

static void make_profile(const char *payload, const char *power, const char *hidden)
{
    profile_defaults(&profile);
    assert_non_null(profile_add_host(&profile, "a", NULL));
    static const char *const settings[][2] = {{"replicas.count", "2"}, {"pipeline.stages", "2"},
                                              {"model.heads", "4"}, {"model.kv_heads", "2"}, {"model.ffn", "48"},
                                              {"model.layers", "5"}, {"model.vocabulary", "64"}, {"model.head", "tied"},
                                              {"sync.fragments", "3"}, {"sync.rank", "6"}};
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        set_profile(settings[i][0], settings[i][1]);
    set_profile("model.hidden", hidden);
    set_profile("lora.rank", adapters ? "6" : "0");
    set_profile("sync.payload", payload);
    set_profile("sync.power", power);
}

static struct stage_shape shape_of(int first, int layers)
{
    return (struct stage_shape){.model = shape_of_profile(&profile), .lora = shape_lora(&profile), .first_layer = first, .layers = layers,
                                .first = first == 0, .last = first + layers == 5, .sequences = 1, .tokens = 2, .slots = 1};
}

static void open_side(struct side *side, int index)
{
    struct why why = {0};
    side->shape = index ? shape_of(3, 2) : shape_of(0, 3);
    siblings_list(&profile, &side->shape, &side->list);
    side->floats = offset_of(side, side->list.count);
    for (int r = 0; r < REPLICAS; r++) {
        struct weights weights = {side, r};
        struct sync_weights as = {get, set, &weights};
        side->weights[r] = mem_array(side->floats, sizeof(float));
        numbers_noise(side->weights[r], (int64_t)side->floats, (uint64_t)index, 1);
        assert_int_equal(sync_new(&side->list.settings, side->list.tensors, side->list.count, &side->sync[r], &why), 0);
        sync_begin(side->sync[r], &as);
    }
    side->follow = follow_new(loop, &side->shape, FRAGMENTS, nothing, NULL);
    follow_set_bound(side->follow, follow_bound(side->sync[0], FRAGMENTS, REPLICAS));
}

static void open_anchor(struct world *world)
{
    struct stage_shape whole = shape_of(0, 5);
    struct why why = {0};
    world->replay = replay_new(&profile, &whole, STAGES);
    assert_int_equal(assembly_new(&whole, STAGES, &world->assembly, &why), 0);
}

static void greet(struct world *world)
{
    struct why why = {0};
    for (int i = 0; i < STAGES; i++) {
        follow_road(world->sides[i].follow, true);
        for (int f = 0; f < FRAGMENTS; f++) {
            struct wire_want want = {.version = replay_held(world->replay, i, f), .chunk = (uint32_t)f};
            assert_int_equal(follow_want(world->sides[i].follow, &want, &why), 0);
        }
    }
}

static struct world *world_open_of(const char *payload, const char *power, const char *hidden)
{
    struct world *world = mem_new(sizeof *world);
    make_profile(payload, power, hidden);
    for (int i = 0; i < STAGES; i++)
        open_side(&world->sides[i], i);
    open_anchor(world);
    greet(world);
    return world;
}

static struct world *world_open(const char *payload, const char *power)
{
    return world_open_of(payload, power, "32");
}

static void close_anchor(struct world *world)
{
    replay_free(world->replay);
    assembly_free(world->assembly);
}

static void world_close(struct world *world)
{
    for (int i = 0; i < STAGES; i++) {
        struct side *side = &world->sides[i];
        for (int r = 0; r < REPLICAS; r++) {
            sync_free(side->sync[r]);
            mem_free(side->weights[r]);
        }
        siblings_list_clear(&side->list);
        follow_free(side->follow);
    }
    close_anchor(world);
    mem_free(world);
}

static void exchange(struct side *side, int fragment, int index, uint64_t round, uint16_t rank)
{
    const struct sync_outer outer = {.rate = 0.7f, .momentum = 0.9f, .alpha = 0.5f};
    struct sync_part parts[REPLICAS];
    struct why why = {0};
    for (int r = 0; r < REPLICAS; r++) {
        struct weights weights = {side, r};
        struct sync_weights as = {get, set, &weights};
        uint8_t *bytes = mem_array(sync_most_bytes(side->sync[r], fragment, index) + 1, 1);
        size_t count = sync_contribute(side->sync[r], fragment, index, &as, bytes);
        parts[r] = (struct sync_part){.replica = r, .bytes = bytes, .count = count, .share = r ? 0.25f : 0.75f};
    }
    for (int r = 0; r < REPLICAS; r++)
        assert_int_equal(sync_receive(side->sync[r], fragment, index, parts, REPLICAS, r, &outer, &why), 0);
    struct wire_follow is = {.number = round, .fragment = (uint16_t)fragment, .exchange = (uint8_t)index, .rank = rank, .rate = outer.rate,
                             .momentum = outer.momentum};
    follow_round(side->follow, &is, index + 1 == sync_exchanges(side->sync[0], fragment), parts, REPLICAS);
    for (int r = 0; r < REPLICAS; r++)
        mem_free((void *)(uintptr_t)parts[r].bytes);
}

/* Local training, and a round of the next fragment; PowerSGD's rank changes now and then. */
static void train(struct world *world)
{
    uint64_t round = ++world->rounds;
    int fragment = (int)(round % FRAGMENTS);
    uint16_t rank = (uint16_t)(2 + round / 10 % 4);
    for (int i = 0; i < STAGES; i++) {
        struct side *side = &world->sides[i];
        float *noise = mem_array(side->floats, sizeof *noise);
        for (int r = 0; r < REPLICAS; r++) {
            numbers_noise(noise, (int64_t)side->floats, 100 * round + 10 * (uint64_t)i + (uint64_t)r, 0.01);
            for (size_t k = 0; k < side->floats; k++)
                side->weights[r][k] += noise[k];
            sync_set_rank(side->sync[r], rank);
        }
        mem_free(noise);
        for (int e = 0; e < sync_exchanges(side->sync[0], fragment); e++)
            exchange(side, fragment, e, round, rank);
        for (int r = 0; r < REPLICAS; r++) {
            struct weights weights = {side, r};
            struct sync_weights as = {get, set, &weights};
            sync_merge(side->sync[r], fragment, 0.5f, &as);
        }
        side->ended[fragment] = round;
    }
}

static void capture(struct world *world, uint64_t version)
{
    for (int i = 0; i < STAGES; i++)
        assert_true(follow_version(world->sides[i].follow, world->sides[i].sync[world->teller], version, world->sides[i].ended) > 0);
}

/* All that a stage has to tell; 1: a version is whole. */
static int carry(struct world *world, int stage)
{
    struct snap_piece piece;
    struct why why = {0};
    int whole = 0, fragment;
    while (follow_next(world->sides[stage].follow, &piece)) {
        struct wire_follow message;
        assert_int_equal(wire_decode(WIRE_FOLLOW, piece.payload, piece.bytes, &message, &why), 0);
        bool round = message.kind == FOLLOW_ROUND && message.body.bytes > 1;
        if (round && world->damage)
            ((uint8_t *)(uintptr_t)message.body.data)[message.body.bytes - 1] ^= 1;
        bool dropped = round && world->drop;
        world->damage &= !round;
        world->drop &= !round;
        world->states += message.kind == FOLLOW_STATE && message.offset == 0;
        world->travelled += piece.bytes;
        int got = dropped ? 0 : replay_take(world->replay, world->assembly, stage, world->teller, &message, &why);
        if (got < 0 && !(round && got == ERR_INVALID)) /* the second part of what was dropped */
            fail_msg("%s", why.text);
        whole |= got == 1;
        world->damaged += got == 2;
        mem_free(piece.payload);
        while ((fragment = replay_lost(world->replay, stage)) >= 0)
            assert_int_equal(follow_want(world->sides[stage].follow, &(struct wire_want){.chunk = (uint32_t)fragment}, &why), 0);
    }
    return whole;
}

static int carry_all(struct world *world)
{
    int first = carry(world, 0);
    return carry(world, 1) | first;
}

static void check_held(struct world *world, uint64_t version)
{
    uint64_t held;
    const uint16_t *words = assembly_lock(world->assembly, &held);
    assert_int_equal(held, version);
    for (int i = 0; i < STAGES; i++) {
        struct side *side = &world->sides[i];
        struct carve_block block;
        struct carve_tensor *tensors = carve_trained(&side->shape, &block);
        for (int t = 0; t < side->list.count; t++) {
            const float *values = sync_common(side->sync[1], t);
            bool copy = i == 1 && strcmp(tensors[side->list.index[t]].name, CARVE_EMBEDDING) == 0;
            for (size_t k = 0; k < bytes_of(side, t) / sizeof(float) && !copy; k++)
                if (*words++ != half_from_float(values[k]))
                    fail_msg("version %llu, stage %d, tensor %d, element %zu", (unsigned long long)version, i, t, k);
        }
        mem_free(tensors);
    }
    assembly_unlock(world->assembly);
}

static void advance(struct world *world, uint64_t version)
{
    train(world);
    capture(world, version);
    assert_int_equal(carry_all(world), 1);
    check_held(world, version);
}

static void check_payload(const char *payload, const char *power)
{
    struct world *world = world_open(payload, power);
    capture(world, 1);
    assert_int_equal(carry_all(world), 1);
    check_held(world, 1);
    uint64_t first = world->travelled;
    for (uint64_t version = 2; version <= 51; version++)
        advance(world, version);
    assert_int_equal(world->states, STAGES * FRAGMENTS);
    assert_int_equal(replay_repeated(world->replay), 0);
    if (strcmp(payload, "fp32") != 0)
        assert_true(world->travelled - first < 50 * first / FRAGMENTS / 2); /* a round is less than the state of its fragment */
    world_close(world);
}

static void fifty_rounds_are_the_same_words(void **state)
{
    (void)state;
    check_payload("int4", "alternating");
    check_payload("fp32", "alternating");
    check_payload("powersgd", "alternating");
    check_payload("powersgd", "two-sided");
    adapters = true;
    check_payload("int4", "alternating");
    adapters = false;
}

/* States and contributions that travel in pieces. */
static void large_ones_travel_in_pieces(void **state)
{
    struct world *world = world_open_of("fp32", "alternating", "512");
    (void)state;
    assert_true(sync_state_bytes(world->sides[0].sync[0], 0) > 2 * WIRE_SYNC_BYTES);
    assert_true(sync_most_bytes(world->sides[0].sync[0], 0, 0) > WIRE_SYNC_BYTES);
    for (uint64_t version = 1; version <= 4; version++)
        advance(world, version);
    assert_int_equal(world->states, STAGES * FRAGMENTS);
    assert_int_equal(replay_repeated(world->replay), 0);
    world_close(world);
}

/* Versions that nobody captured, and several rounds between two. */
static void rounds_wait_for_the_next_version(void **state)
{
    struct world *world = world_open("int4", "alternating");
    (void)state;
    train(world);
    advance(world, 1);
    for (int i = 0; i < 5; i++)
        train(world);
    capture(world, 2); /* given up by the next */
    train(world);
    advance(world, 3);
    assert_int_equal(world->states, STAGES * FRAGMENTS);
    world_close(world);
}

/* Nothing is guessed: that version is not whole, the next one is, and the fragment has come whole. */
static void what_is_damaged_or_missing_comes_whole(void **state)
{
    (void)state;
    for (int drop = 0; drop < 2; drop++) {
        struct world *world = world_open("int8", "alternating");
        advance(world, 1);
        world->damage = !drop;
        world->drop = drop;
        train(world);
        capture(world, 2);
        assert_int_equal(carry_all(world), 0);
        assert_int_equal(replay_repeated(world->replay), 1);
        assert_int_equal(world->damaged, 1);
        advance(world, 3);
        assert_int_equal(world->states, STAGES * FRAGMENTS + 1);
        advance(world, 4);
        assert_int_equal(world->states, STAGES * FRAGMENTS + 1);
        assert_int_equal(world->damaged, 1);
        world_close(world);
    }
}

static void a_road_that_comes_back_goes_on(void **state)
{
    struct world *world = world_open("int8", "alternating");
    struct snap_piece piece;
    (void)state;
    advance(world, 1);
    for (int i = 0; i < STAGES; i++)
        follow_road(world->sides[i].follow, false);
    train(world);
    assert_false(follow_next(world->sides[0].follow, &piece)); /* nobody is there */
    greet(world);
    advance(world, 2);
    assert_int_equal(world->states, STAGES * FRAGMENTS); /* nothing was missed */
    train(world);
    capture(world, 3);
    assert_true(follow_next(world->sides[0].follow, &piece)); /* on its way when the road breaks, and not all of it */
    mem_free(piece.payload);
    follow_road(world->sides[0].follow, false);
    greet(world);
    assert_int_equal(carry_all(world), 1);
    check_held(world, 3);
    assert_int_equal(world->states, STAGES * FRAGMENTS);
    train(world);
    capture(world, 4);
    for (int i = 0; i < REPLICAS; i++) { /* a whole round that never arrives */
        assert_true(follow_next(world->sides[0].follow, &piece));
        mem_free(piece.payload);
    }
    follow_road(world->sides[0].follow, false);
    greet(world);
    assert_int_equal(carry_all(world), 0);
    advance(world, 5);
    assert_int_equal(world->states, STAGES * FRAGMENTS + 1);
    /* An anchor without memory. */
    close_anchor(world);
    open_anchor(world);
    greet(world);
    advance(world, 6);
    assert_int_equal(world->states, 2 * STAGES * FRAGMENTS + 1);
    /* Another one, for which a version is captured before it says so. */
    for (int i = 0; i < STAGES; i++)
        follow_road(world->sides[i].follow, false);
    assert_false(follow_is_greeted(world->sides[0].follow));
    close_anchor(world);
    open_anchor(world);
    train(world);
    capture(world, 7);
    greet(world);
    assert_true(follow_is_greeted(world->sides[0].follow));
    assert_int_equal(carry_all(world), 1);
    check_held(world, 7);
    world_close(world);
}

static void what_has_no_room_comes_whole(void **state)
{
    struct world *world = world_open("int8", "alternating");
    (void)state;
    advance(world, 1);
    for (int i = 0; i < 40; i++)
        train(world); /* and no version: more than the bound */
    advance(world, 2);
    assert_true(world->states > STAGES * FRAGMENTS);
    assert_int_equal(replay_repeated(world->replay), 0); /* nobody had to ask */
    int states = world->states;
    advance(world, 3);
    assert_int_equal(world->states, states);
    follow_lose(world->sides[1].follow, (int)((world->rounds + 1) % FRAGMENTS)); /* as after a round that was skipped */
    advance(world, 4);
    assert_int_equal(world->states, states + 1);
    world_close(world);
}

/* The one that told has left in the middle of something. */
static void another_replica_tells(void **state)
{
    struct world *world = world_open("powersgd", "alternating");
    struct snap_piece piece;
    struct wire_follow message;
    struct why why = {0};
    (void)state;
    advance(world, 1);
    train(world);
    capture(world, 2);
    assert_true(follow_next(world->sides[0].follow, &piece));
    assert_int_equal(wire_decode(WIRE_FOLLOW, piece.payload, piece.bytes, &message, &why), 0);
    assert_int_equal(replay_take(world->replay, world->assembly, 0, 0, &message, &why), 0);
    for (int i = 0; i < STAGES; i++) {
        follow_free(world->sides[i].follow);
        world->sides[i].follow = follow_new(loop, &world->sides[i].shape, FRAGMENTS, nothing, NULL);
        follow_set_bound(world->sides[i].follow, UINT64_MAX);
    }
    world->teller = 1;
    greet(world);
    advance(world, 3);
    assert_int_equal(world->states, 2 * STAGES * FRAGMENTS);
    message.part = 1;
    assert_int_equal(replay_take(world->replay, world->assembly, 0, 0, &message, &why), 0); /* it has left */
    mem_free(piece.payload);
    advance(world, 4);
    assert_int_equal(world->states, 2 * STAGES * FRAGMENTS);
    world_close(world);
}

static void refuse(struct world *world, struct wire_follow piece)
{
    struct why why = {0};
    assert_int_equal(replay_take(world->replay, world->assembly, 0, 0, &piece, &why), ERR_INVALID);
    assert_true(why.text[0] != '\0');
}

static void strangers_are_refused(void **state)
{
    struct world *world = world_open("int8", "alternating");
    static uint8_t body[1 << 16];
    struct why why = {0};
    (void)state;
    struct wire_follow good = {.number = 1, .kind = FOLLOW_ROUND, .layers = 3, .rank = 1, .parts = 2, .total = 100, .body = {body, 10}}, bad;
    bad = good, bad.layers = 0, refuse(world, bad);
    bad = good, bad.layers = 6, refuse(world, bad);
    bad = good, bad.first_layer = 65535, refuse(world, bad);
    assert_int_equal(replay_take(world->replay, world->assembly, 0, 0, &good, &why), 0);
    bad = good, bad.fragment = FRAGMENTS, refuse(world, bad);
    bad = good, bad.layers = 2, refuse(world, bad);
    bad = good, bad.parts = 0, refuse(world, bad);
    bad = good, bad.parts = PROFILE_MAX_REPLICAS + 1, refuse(world, bad);
    bad = good, bad.total = UINT64_MAX, refuse(world, bad);
    bad = good, bad.total = 9, refuse(world, bad);
    bad = good, bad.body.bytes = 0, refuse(world, bad);
    bad = good, bad.kind = FOLLOW_STATE, refuse(world, bad);
    bad = good, bad.offset = 10, refuse(world, bad); /* of nothing that is open: it was refused */
    bad = good, bad.part = 1, refuse(world, bad);
    bad = good, bad.kind = FOLLOW_STATE, bad.parts = 1, bad.total = 10, refuse(world, bad); /* not the bytes of that fragment */
    bad = good, bad.kind = FOLLOW_VERSION, bad.parts = 1, bad.total = 10, refuse(world, bad);
    bad = good, bad.kind = FOLLOW_VERSION, bad.parts = 1, bad.number = 0, bad.total = bad.body.bytes = 8 * FRAGMENTS, refuse(world, bad);
    assert_int_equal(follow_want(world->sides[0].follow, &(struct wire_want){.chunk = FRAGMENTS}, &why), ERR_INVALID);
    /* Rounds of what is held that are not what they must be: it is lost, and nothing worse. */
    advance(world, 1);
    bad = good, bad.parts = 1, bad.total = 10, bad.before = world->sides[0].ended[0], bad.fragment = 0;
    assert_int_equal(replay_take(world->replay, world->assembly, 0, 0, &bad, &why), 0);
    assert_int_equal(replay_repeated(world->replay), 1);
    assert_int_equal(replay_lost(world->replay, 0), 0);
    assert_int_equal(replay_lost(world->replay, 0), -1);
    world_close(world);
}

static int open_loop(void **state)
{
    struct why why = {0};
    (void)state;
    loop = loop_new(&why);
    return loop ? 0 : -1;
}

static int close_loop(void **state)
{
    (void)state;
    loop_free(loop);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fifty_rounds_are_the_same_words),    cmocka_unit_test(rounds_wait_for_the_next_version),
        cmocka_unit_test(what_is_damaged_or_missing_comes_whole), cmocka_unit_test(a_road_that_comes_back_goes_on),
        cmocka_unit_test(what_has_no_room_comes_whole),       cmocka_unit_test(another_replica_tells),
        cmocka_unit_test(strangers_are_refused),              cmocka_unit_test(large_ones_travel_in_pieces),
    };
    return cmocka_run_group_tests(tests, open_loop, close_loop);
}

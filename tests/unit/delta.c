/* Chunks of snapshots: there and back without a loss, whatever the words; small steps make small chunks; what is not exactly
 * right is refused. */
#include "gpu/train/delta.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "gpu/math/half.h"
#include "ssh/base/hash.h"
#include "ssh/base/mem.h"
#include "tests/helpers/dice.h"
#include "tests/helpers/numbers.h"

enum { COUNT = 100000 };

static uint16_t words[COUNT], base[COUNT], got[COUNT];
static uint8_t scratch[2 * COUNT], *coded;

static size_t there_and_back(const uint16_t *from, uint64_t count)
{
    struct why why = {0};
    size_t bytes = delta_encode(words, from, count, scratch, coded);
    assert_true(bytes <= delta_bound());
    memset(got, 0xa5, sizeof got);
    if (delta_decode(coded, bytes, from, count, hash_block(words, 2 * count), scratch, got, &why) != 0)
        fail_msg("%s", why.text);
    numbers_same(got, words, (int64_t)(2 * count), "%llu words", (unsigned long long)count);
    return bytes;
}

static void any_words_come_back(void **state)
{
    struct dice dice = {7};
    (void)state;
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < COUNT; i++) {
            words[i] = (uint16_t)dice_below(&dice, 65536);
            base[i] = round % 2 ? (uint16_t)dice_below(&dice, 65536) : (uint16_t)(words[i] + dice_below(&dice, 5) - 2);
        }
        uint64_t count = round == 0 ? 1 : 1 + dice_below(&dice, COUNT);
        there_and_back(NULL, count);
        there_and_back(base, count);
    }
}

/* Weights of deviation .02 that moved by 2e-5: most words are what they were, or one beside it. */
static void small_steps_make_small_chunks(void **state)
{
    float *weights = mem_array(COUNT, 4), *moves = mem_array(COUNT, 4);
    (void)state;
    numbers_noise(weights, COUNT, 1, 0.02);
    numbers_noise(moves, COUNT, 2, 2e-5);
    for (int i = 0; i < COUNT; i++) {
        base[i] = half_from_float(weights[i]);
        words[i] = half_from_float(weights[i] + moves[i]);
    }
    double share = (double)there_and_back(base, COUNT) / (2.0 * COUNT),
           whole = (double)there_and_back(NULL, COUNT) / (2.0 * COUNT);
    assert_true(share < 0.15 && whole > 0.6);
    mem_free(weights);
    mem_free(moves);
}

static void nothing_wrong_is_taken(void **state)
{
    struct dice dice = {9};
    struct why why = {0};
    (void)state;
    for (int i = 0; i < 1000; i++)
        base[i] = words[i] = (uint16_t)dice_below(&dice, 65536);
    words[500]++;
    uint64_t hash = hash_block(words, 2000);
    size_t bytes = delta_encode(words, base, 1000, scratch, coded);
    assert_int_equal(delta_decode(coded, bytes, base, 1000, hash ^ 1, scratch, got, &why), ERR_INVALID);
    base[3]++; /* another base than the sender's */
    assert_int_equal(delta_decode(coded, bytes, base, 1000, hash, scratch, got, &why), ERR_INVALID);
    base[3]--;
    assert_int_equal(delta_decode(coded, bytes, base, 999, hash, scratch, got, &why), ERR_INVALID);
    assert_int_equal(delta_decode(coded, bytes - 1, base, 1000, hash, scratch, got, &why), ERR_INVALID);
    for (size_t i = 0; i < bytes; i++) { /* a flipped bit is seen, or the frame is the same words */
        coded[i] ^= 4;
        int err = delta_decode(coded, bytes, base, 1000, hash, scratch, got, &why);
        assert_true(err == ERR_INVALID || memcmp(got, words, 2000) == 0);
        coded[i] ^= 4;
    }
}

static void chunks_cover_the_words(void **state)
{
    (void)state;
    assert_int_equal(delta_chunks(1), 1);
    assert_int_equal(delta_chunks(WIRE_CHUNK_WORDS), 1);
    assert_int_equal(delta_chunks(WIRE_CHUNK_WORDS + 1), 2);
    assert_int_equal(delta_count(WIRE_CHUNK_WORDS + 1, 0), WIRE_CHUNK_WORDS);
    assert_int_equal(delta_count(WIRE_CHUNK_WORDS + 1, 1), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_words_come_back),
        cmocka_unit_test(small_steps_make_small_chunks),
        cmocka_unit_test(nothing_wrong_is_taken),
        cmocka_unit_test(chunks_cover_the_words),
    };
    coded = mem_large(delta_bound());
    cmocka_set_message_output(CM_OUTPUT_STDOUT);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    mem_large_free(coded);
    return failed;
}

/* The floor: failures and their reasons, bounded buffers, memory, the clock that tests own, hashes. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "ssh/base/buf.h"
#include "ssh/base/clock.h"
#include "ssh/base/hash.h"
#include "ssh/base/mem.h"
#include "ssh/base/why.h"
#include "tests/helpers/bug.h"
#include "tests/helpers/dice.h"

static void first_reason_stays(void **state)
{
    (void)state;
    struct why why = {0};
    assert_int_equal(why_set(&why, ERR_FULL, "the %s is full", "disk"), ERR_FULL);
    assert_int_equal(why_set(&why, ERR_GONE, "somebody is gone"), ERR_GONE);
    assert_int_equal(why.err, ERR_FULL);
    assert_string_equal(why.text, "the disk is full");
    assert_int_equal(why_set(NULL, ERR_GONE, "nobody asks"), ERR_GONE);
}

static void errno_becomes_a_kind(void **state)
{
    (void)state;
    static const struct { int number, err; } rows[] = {
        {ENOSPC, ERR_FULL}, {EDQUOT, ERR_FULL}, {ENOENT, ERR_ABSENT}, {EACCES, ERR_REFUSED}, {EPERM, ERR_REFUSED},
        {EAGAIN, ERR_AGAIN}, {ENOMEM, ERR_MEMORY}, {EIO, ERR_SYSTEM},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct why why = {0};
        char expected[200];
        errno = rows[i].number;
        assert_int_equal(why_errno(&why, "cannot do %d", 1), rows[i].err);
        snprintf(expected, sizeof expected, "cannot do 1: %s", strerror(rows[i].number));
        assert_string_equal(why.text, expected);
        assert_int_equal(why.err, rows[i].err);
    }
}

static void long_reasons_are_cut(void **state)
{
    (void)state;
    struct why why = {0};
    char text[2000];
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = 0;
    errno = EIO;
    assert_int_equal(why_errno(&why, "%s", text), ERR_SYSTEM);
    assert_int_equal(strlen(why.text), sizeof why.text - 1);
}

static void every_kind_has_a_name(void **state)
{
    (void)state;
    assert_string_equal(why_name(0), "ok");
    for (int err = ERR_ABSENT; err <= ERR_AGAIN; err++)
        assert_string_not_equal(why_name(err), "unknown");
    assert_string_equal(why_name(ERR_ABSENT - 1), "unknown");
    assert_string_equal(why_name(1), "unknown");
}

static void restore_terminal(void)
{
    fputs("terminal restored\n", stderr);
}

static void make_bug(void *arg)
{
    why_on_bug(restore_terminal);
    BUG("the %s came loose", (const char *)arg);
}

static void a_bug_restores_the_terminal_says_where_and_aborts(void **state)
{
    (void)state;
    char what[] = "rudder";
    const char *text = bug_text(make_bug, what);
    assert_non_null(text);
    assert_ptr_equal(strstr(text, "terminal restored\n"), text);
    assert_non_null(strstr(text, "tests/unit/base.c:"));
    assert_non_null(strstr(text, "the rudder came loose"));
}

/* ---- buf ---- */

static void buffers_keep_order_and_their_maximum(void **state)
{
    (void)state;
    struct dice dice = {1};
    struct buf buf;
    uint8_t written = 0, expected = 0, bytes[64];
    buf_init(&buf, 1000);
    for (int round = 0; round < 20000; round++) {
        size_t count = dice_below(&dice, sizeof bytes + 1), used = buf_used(&buf);
        if (dice_below(&dice, 2)) {
            for (size_t i = 0; i < count; i++)
                bytes[i] = (uint8_t)(written + i);
            int err = buf_put(&buf, bytes, count);
            assert_int_equal(err, used + count > 1000 ? ERR_FULL : 0);
            if (!err)
                written = (uint8_t)(written + count);
            assert_int_equal(buf_used(&buf), err ? used : used + count);
        } else {
            count = count < used ? count : used;
            for (size_t i = 0; i < count; i++)
                assert_int_equal(buf_peek(&buf)[i], (uint8_t)(expected + i));
            buf_consume(&buf, count);
            expected = (uint8_t)(expected + count);
        }
        assert_true(buf.capacity <= 1000);
    }
    buf_clear(&buf);
    assert_int_equal(buf_put(&buf, "again", 5), 0);
    assert_memory_equal(buf_peek(&buf), "again", 5);
    buf_clear(&buf);
}

static void buffers_reserve_and_format(void **state)
{
    (void)state;
    struct buf buf;
    buf_init(&buf, 16);
    uint8_t *room = buf_reserve(&buf, 16);
    assert_non_null(room);
    memset(room, 'r', 16);
    buf_commit(&buf, 4);
    assert_null(buf_reserve(&buf, 13));
    assert_int_equal(buf_format(&buf, "-%d-", 1234), 0);
    assert_int_equal(buf_used(&buf), 10);
    assert_memory_equal(buf_peek(&buf), "rrrr-1234-", 10);
    assert_int_equal(buf_format(&buf, "%s", "too long for it"), ERR_FULL);
    assert_int_equal(buf_used(&buf), 10);
    assert_null(buf_reserve(&buf, SIZE_MAX));
    buf_clear(&buf);
}

static void consume_too_much(void *arg)
{
    buf_consume(arg, 1);
}

static void commit_too_much(void *arg)
{
    buf_commit(arg, 1);
}

static void buffer_misuse_is_a_bug(void **state)
{
    (void)state;
    struct buf buf;
    buf_init(&buf, 16);
    assert_non_null(bug_text(consume_too_much, &buf));
    assert_non_null(bug_text(commit_too_much, &buf));
}

/* ---- mem ---- */

static void memory_is_zeroed_and_aligned(void **state)
{
    (void)state;
    static const uint8_t zeros[1000];
    uint8_t *small = mem_new(1000), *array = mem_array(10, 100), *large = mem_large(1000);
    assert_memory_equal(small, zeros, 1000);
    assert_memory_equal(array, zeros, 1000);
    assert_non_null(large);
    assert_memory_equal(large, zeros, 1000);
    assert_int_equal((uintptr_t)large % 64, 0);
    mem_large_free(large);
    mem_free(array);
    mem_free(small);
    assert_null(mem_large(SIZE_MAX));
    assert_null(mem_large(0));
    mem_free(NULL);
    mem_large_free(NULL);
}

static void memory_copies(void **state)
{
    (void)state;
    char *text = mem_text("one"), *formatted = mem_format("%s %d", text, 2), *empty = mem_copy("", 0);
    text = mem_grow(text, 1000, 2);
    assert_string_equal(text, "one");
    assert_string_equal(formatted, "one 2");
    assert_non_null(empty);
    mem_free(empty);
    mem_free(formatted);
    mem_free(text);
}

static void new_nothing(void *arg)
{
    (void)arg;
    mem_free(mem_new(0));
}

static void array_overflow(void *arg)
{
    mem_free(mem_array(*(size_t *)arg, 16));
}

static void grow_overflow(void *arg)
{
    mem_free(mem_grow(NULL, *(size_t *)arg, 16));
}

static void memory_misuse_is_a_bug(void **state)
{
    (void)state;
    size_t huge = SIZE_MAX / 8;
    assert_non_null(bug_text(new_nothing, NULL));
    assert_non_null(bug_text(array_overflow, &huge));
    assert_non_null(bug_text(grow_overflow, &huge));
}

/* ---- clock and hash ---- */

static void tests_own_the_clock(void **state)
{
    (void)state;
    uint64_t before = clock_now_ns();
    assert_true(clock_now_ns() >= before);
    assert_false(clock_is_owned());
    clock_own(5 * CLOCK_SECOND);
    assert_true(clock_is_owned());
    assert_int_equal(clock_now_ns(), 5 * CLOCK_SECOND);
    clock_advance_ns(3 * CLOCK_MS);
    assert_int_equal(clock_now_ns(), 5003 * CLOCK_MS);
    clock_disown();
    assert_true(clock_now_ns() >= before);
    assert_true(clock_wall_ms() > UINT64_C(1577836800000)); /* after 2020 */
}

/* One bit anywhere, two top bits at once, the length and the order all count; it is the same wherever the bytes lie. */
static void hashes_of_blocks_see_every_bit(void **state)
{
    (void)state;
    unsigned char bytes[200] = {0}, elsewhere[201];
    for (size_t count = 0; count < sizeof bytes; count++) {
        uint64_t hash = hash_block(bytes, count);
        assert_int_not_equal(hash, hash_block(bytes, count + 1));
        for (size_t bit = 0; bit < 8 * count; bit++) {
            bytes[bit / 8] ^= 1u << bit % 8;
            assert_int_not_equal(hash, hash_block(bytes, count));
            bytes[count - 1] ^= 0x80; /* sums that only carry upwards lose two of these */
            assert_true(bit == 8 * count - 1 || hash != hash_block(bytes, count));
            bytes[count - 1] ^= 0x80;
            bytes[bit / 8] ^= 1u << bit % 8;
        }
    }
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(i * 37);
    memcpy(elsewhere + 1, bytes, sizeof bytes);
    assert_int_equal(hash_block(bytes, sizeof bytes), hash_block(elsewhere + 1, sizeof bytes));
    memcpy(elsewhere, bytes + 8, 8);
    memcpy(elsewhere + 8, bytes, 8);
    memcpy(elsewhere + 16, bytes + 16, sizeof bytes - 16);
    assert_int_not_equal(hash_block(bytes, sizeof bytes), hash_block(elsewhere, sizeof bytes));
}

static void hashes_are_fixed_and_spread(void **state)
{
    (void)state;
    /* FNV-1a's published value, then our finish on top of it. */
    assert_int_equal(hash_add(HASH_START, "foobar", 6), UINT64_C(0x85944171f73967e8));
    assert_int_equal(hash_bytes("foobar", 6), hash_finish(hash_add(hash_add(HASH_START, "foo", 3), "bar", 3)));
    assert_int_not_equal(hash_bytes("a", 1), hash_bytes("b", 1));
    assert_int_not_equal(hash_random(), hash_random());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_reason_stays),
        cmocka_unit_test(errno_becomes_a_kind),
        cmocka_unit_test(long_reasons_are_cut),
        cmocka_unit_test(every_kind_has_a_name),
        cmocka_unit_test(a_bug_restores_the_terminal_says_where_and_aborts),
        cmocka_unit_test(buffers_keep_order_and_their_maximum),
        cmocka_unit_test(buffers_reserve_and_format),
        cmocka_unit_test(buffer_misuse_is_a_bug),
        cmocka_unit_test(memory_is_zeroed_and_aligned),
        cmocka_unit_test(memory_copies),
        cmocka_unit_test(memory_misuse_is_a_bug),
        cmocka_unit_test(tests_own_the_clock),
        cmocka_unit_test(hashes_are_fixed_and_spread),
        cmocka_unit_test(hashes_of_blocks_see_every_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Frames are what the programs of a host undo, and compressing is chosen only where it is quicker. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ssh/base/clock.h"
#include "ssh/base/mem.h"
#include "ssh/session/compress.h"
#include "tests/helpers/place.h"

#define BYTES ((size_t)300000)

/* Half of it says little, half of it cannot be made smaller. */
static void fill(uint8_t *bytes)
{
    uint64_t state = 1;
    for (size_t i = 0; i < BYTES; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        bytes[i] = i < BYTES / 2 ? (uint8_t)"the anchor holds"[state >> 60] : (uint8_t)(state >> 56);
    }
}

static void frames_are_undone(void **unused)
{
    static const char *const programs[] = {"kedge-worker", "zstd", "gzip"};
    const char *build = getenv("O");
    (void)unused;
    for (size_t i = 0; i < 3; i++) {
        struct place place;
        char command[1400], undo[600];
        if (i == 0)
            snprintf(undo, sizeof undo, "%s/kedge-worker receive", build ? build : "build");
        else
            snprintf(undo, sizeof undo, "%s -dc", programs[i]);
        snprintf(command, sizeof command, "command -v %.*s >/dev/null", (int)strcspn(undo, " "), undo);
        if (system(command) != 0)
            continue; /* not here; the other one is judged */
        assert_int_equal(place_init(&place), 0);
        struct compress *compress = compress_new(programs[i]);
        assert_non_null(compress);
        uint8_t *plain = mem_new(BYTES), *packed = mem_new(compress_bound(compress, BYTES));
        FILE *as_is = fopen(place_file(&place, "plain"), "w"), *frames = fopen(place_file(&place, "packed"), "w");
        fill(plain);
        for (size_t part = 0, at = 0; at < BYTES; at += part) { /* one of them of a single byte */
            part = at ? BYTES - at < 170000 ? BYTES - at : 170000 : 1;
            size_t used = compress_frame(compress, plain + at, part, packed);
            assert_true(used <= compress_bound(compress, part));
            assert_int_equal(fwrite(packed, 1, used, frames), used);
        }
        assert_int_equal(fwrite(plain, 1, BYTES, as_is), BYTES);
        assert_true(ftell(frames) < (long)BYTES * 9 / 10);
        long packed_bytes = ftell(frames);
        fclose(as_is);
        fclose(frames);
        if (i == 0)
            snprintf(command, sizeof command, "P='%s'; : >$P/part; : >$P/part.list; { echo 0 %zu %ld; cat $P/packed; echo end; } | %s $P/part >$P/said && "
                     "cmp $P/part $P/plain && echo 'done %ld 0 %zu' | cmp - $P/said && echo '0 %zu' | cmp - $P/part.list", place.folder, BYTES,
                     packed_bytes, undo, packed_bytes, BYTES, BYTES);
        else
            snprintf(command, sizeof command, "%s <'%s/packed' | cmp - '%s/plain'", undo, place.folder, place.folder);
        assert_int_equal(system(command), 0);
        mem_free(plain);
        mem_free(packed);
        compress_free(compress);
        place_clear(&place);
    }
    assert_null(compress_new("bzip2"));
    assert_null(compress_new(""));
}

/* What came before a bad order stays noted, and no more is; nothing of it is answered. */
static void what_is_no_order_is_refused(void **unused)
{
    static const struct {
        const char *input, *words;
    } bad[] = {
        {"x 1\\n", "is no order"},
        {"0\\n", "is no order"},
        {"0 0\\nend\\n", "is no order"},
        {"0 1 2 3\\n", "is no order"},
        {"9223372036854775807 1\\nxend\\n", "is no order"},
        {"0 9\\nshort", "ends within an order"},
        {"0 2\\nlongend\\n", "longer than it said"},
        {"0 4 4\\nnoneend\\n", "a frame is cut off"},
        {"0 4 13\\nnone of ours.end\\n", "no frame of kedge"},
        {"0 4 13\\nKDP\\001\\004\\000\\000\\000\\002\\000\\000\\000xend\\n", "a frame is cut off"},
        {"0 4 14\\nKDP\\001\\004\\000\\000\\000\\002\\000\\000\\000xxend\\n", "a frame is damaged"},
    };
    const char *build = getenv("O");
    struct place place;
    char command[1400];
    (void)unused;
    assert_int_equal(place_init(&place), 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(command, sizeof command, "P='%s'; : >$P/part; : >$P/part.list; printf '0 5\\nwholeend\\n%s' | %s/kedge-worker receive $P/part >$P/said 2>$P/words; "
                 "[ $? -ne 0 ] && echo 'done 5 0 5' | cmp - $P/said && echo 0 5 | cmp - $P/part.list && grep -q '%s' $P/words || "
                 "{ cat $P/said $P/words; exit 1; }", place.folder, bad[i].input, build ? build : "build", bad[i].words);
        if (system(command) != 0)
            fail_msg("%s", bad[i].input);
    }
    place_clear(&place);
}

/* Weights are noise in half of their bytes; those that are alike are found by themselves. */
static void numbers_are_taken_apart(void **unused)
{
    static const unsigned widths[] = {2, 4};
    struct compress *compress = compress_new("kedge-worker"), *plain = compress_new("zstd");
    uint8_t *bytes = mem_new(BYTES), *packed = mem_new(compress_bound(compress, BYTES));
    (void)unused;
    for (size_t w = 0; w < 2; w++) {
        uint64_t state = 1;
        for (size_t i = 0; i < BYTES; i++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            bytes[i] = i % widths[w] == widths[w] - 1 ? (uint8_t)(0x3c + (state >> 62)) : (uint8_t)(state >> 56);
        }
        size_t apart = compress_frame(compress, bytes, BYTES, packed), as_is = compress_frame(plain, bytes, BYTES, packed);
        if (apart > as_is - BYTES / 20)
            fail_msg("width %u: %zu bytes apart, %zu as they are", widths[w], apart, as_is);
        assert_true(apart < BYTES - BYTES * 6 / 10 / widths[w]);
    }
    mem_free(bytes);
    mem_free(packed);
    compress_free(compress);
    compress_free(plain);
}

static void only_where_it_is_quicker(void **unused)
{
    static const struct {
        size_t plain, packed;
        uint64_t took_ns;
        double wire_rate;
        bool pays;
    } cases[] = {
        {1000000, 300000, 10 * CLOCK_MS, 0, true},       /* nothing is known: text goes compressed, */
        {1000000, 970000, 10 * CLOCK_MS, 0, false},      /* noise does not */
        {1000000, 1000100, 10 * CLOCK_MS, 0, false},
        {1000000, 300000, 10 * CLOCK_MS, 25e6, true},    /* 28 ms less on the road for 10 */
        {1000000, 300000, 10 * CLOCK_MS, 69e6, true},
        {1000000, 300000, 10 * CLOCK_MS, 71e6, false},
        {1000000, 800000, 4 * CLOCK_MS, 25e6, true},     /* weights over 200 Mbit/s, */
        {1000000, 800000, 4 * CLOCK_MS, 125e6, false},   /* and on a local network */
    };
    (void)unused;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(compress_pays(cases[i].plain, cases[i].packed, cases[i].took_ns, cases[i].wire_rate), cases[i].pays);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_are_undone),
        cmocka_unit_test(what_is_no_order_is_refused),
        cmocka_unit_test(numbers_are_taken_apart),
        cmocka_unit_test(only_where_it_is_quicker),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

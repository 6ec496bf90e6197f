/* The letters of a step: what took most of each cell, in the order in which it was told, for steps of any length. */
#include "gpu/train/timeline.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/helpers/dice.h"

#define CELL TIMELINE_CELL_NS

static void nothing_is_nothing(void **state)
{
    struct timeline line = {0};
    char text[WIRE_NAME] = "x";
    (void)state;
    timeline_write(&line, text);
    assert_string_equal(text, "");
}

static void pieces_follow_each_other(void **state)
{
    struct timeline line = {0};
    uint64_t parts[PART_COUNT] = {0};
    char text[WIRE_NAME];
    (void)state;
    parts[PART_STAMP] = 2 * CELL;
    timeline_note(&line, parts, 2 * CELL);
    parts[PART_COMPUTE] = 3 * CELL, parts[PART_PACK] = CELL;
    timeline_note(&line, parts, 7 * CELL); /* one cell of it is neither */
    parts[PART_GRAD] = 4 * CELL;
    timeline_note(&line, parts, 11 * CELL);
    parts[PART_COMPUTE] += CELL;
    timeline_note(&line, parts, 12 * CELL);
    timeline_write(&line, text);
    const char letters[] = {wire_part_letter(PART_STAMP), wire_part_letter(PART_STAMP), wire_part_letter(PART_COMPUTE),
                            wire_part_letter(PART_COMPUTE), wire_part_letter(PART_COMPUTE), wire_part_letter(PART_PACK),
                            wire_part_letter(PART_REST), wire_part_letter(PART_GRAD), wire_part_letter(PART_GRAD),
                            wire_part_letter(PART_GRAD), wire_part_letter(PART_GRAD), wire_part_letter(PART_COMPUTE), '\0'};
    assert_string_equal(text, letters);
}

/* An hour: half of it computing, half of it waiting for data. */
static void a_long_step_has_long_cells(void **state)
{
    struct timeline line = {0};
    uint64_t parts[PART_COUNT] = {0}, half = UINT64_C(1800) * 1000000000, sum = 0;
    char text[WIRE_NAME];
    (void)state;
    parts[PART_COMPUTE] = half;
    timeline_note(&line, parts, half);
    parts[PART_DATA] = half;
    timeline_note(&line, parts, 2 * half);
    timeline_write(&line, text);
    size_t length = strlen(text);
    assert_true(length > TIMELINE_CELLS / 2 - 1 && length <= TIMELINE_CELLS);
    assert_true(text[0] == wire_part_letter(PART_COMPUTE) && text[length / 2 - 1] == text[0]);
    assert_true(text[length - 1] == wire_part_letter(PART_DATA) && text[length / 2 + 1] == text[length - 1]);
    for (int i = 0; i < TIMELINE_CELLS; i++)
        for (int part = 0; part < PART_COUNT; part++)
            sum += line.cells[i][part];
    assert_true(sum == 2 * half);
}

/* Also counters that make no sense: nothing is lost of the time, nothing is written outside. */
static void any_notes(void **state)
{
    struct dice dice = {3};
    (void)state;
    for (int round = 0; round < 300; round++) {
        struct timeline line = {0};
        uint64_t parts[PART_COUNT] = {0}, at = 0, sum = 0;
        char text[WIRE_NAME];
        for (int i = 0; i < 40; i++) {
            at += dice_below(&dice, (uint64_t)1 << dice_below(&dice, 34));
            parts[dice_below(&dice, PART_COUNT)] = dice_below(&dice, (uint64_t)1 << dice_below(&dice, 36));
            timeline_note(&line, parts, at);
        }
        for (int i = 0; i < TIMELINE_CELLS; i++)
            for (int part = 0; part < PART_COUNT; part++)
                sum += line.cells[i][part];
        assert_true(sum == at && line.at_ns == at);
        timeline_write(&line, text);
        assert_true(strlen(text) <= TIMELINE_CELLS);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_nothing),
        cmocka_unit_test(pieces_follow_each_other),
        cmocka_unit_test(a_long_step_has_long_cells),
        cmocka_unit_test(any_notes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

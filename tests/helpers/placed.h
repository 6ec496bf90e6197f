/* Tests that have a private folder each: placed_test(NAME) is a test with `place` made before it and cleared behind it. Needs cmocka.h. */
#ifndef KEDGE_TESTS_PLACED_H
#define KEDGE_TESTS_PLACED_H

#include "tests/helpers/place.h"

extern struct place place;

int placed_up(void **state);
int placed_down(void **state);
#define placed_test(name) cmocka_unit_test_setup_teardown(name, placed_up, placed_down)

#endif

/* Tests that have a world each: worlds_test(NAME) is a test with `world` made before it and cleared behind it. Needs cmocka.h. */
#ifndef KEDGE_TESTS_WORLDS_H
#define KEDGE_TESTS_WORLDS_H

#include "tests/helpers/world.h"

extern struct world world;

int worlds_up(void **state);
int worlds_down(void **state);
#define worlds_test(name) cmocka_unit_test_setup_teardown(name, worlds_up, worlds_down)

const struct wire_process_row *worlds_row(int process); /* what the record has of it; until the next change */
void worlds_assert_says(const char *text, const char *words);
/* That hello is refused with `words`, and the event says so. */
void worlds_refuse(int process, struct wire_hello hello, uint32_t incarnation, const char *words);
/* Both stages say that all steps are through, and the run is finished. */
void worlds_finish(void);
/* Stages leave, then agents are told to stop, and the run is over. */
void worlds_end_processes(void);

#endif

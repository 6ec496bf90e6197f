/* A made-up run of any number of processes for tests of the screen: rows as a scheduler would send them, repeatable. */
#ifndef KEDGE_TESTS_FLEET_H
#define KEDGE_TESTS_FLEET_H

#include <stdint.h>

#include "console/view.h"

#define FLEET_NOW (UINT64_C(1000) * 1000000000)
#define FLEET_WALL UINT64_C(1796000000000)

/* A view of a run whose `processes` stages stand in pipelines of `stages`; two roads between neighbours, `seconds` of history. */
void fleet_view(struct view *view, int processes, int stages, int seconds);
/* The rows of a second at `now_ns`, for anybody. */
struct fleet_sink {
    void (*take)(enum wire_type type, const void *row, void *arg);
    void *arg;
};
void fleet_send(int processes, int stages, uint64_t now_ns, const struct fleet_sink *to);
/* One more second: all rows anew, each a little different. */
void fleet_second(struct view *view, int processes, int stages, uint64_t now_ns);
/* Draw into a new surface of this size; the text of it, mem_free it. */
char *fleet_text(struct view *view, int rows, int columns, bool ascii);
/* As keys: "2", "Down", "Enter", separated by blanks. */
void fleet_press(struct view *view, const char *keys);

#endif

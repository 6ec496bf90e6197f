/* Matrices that another program made: text files of "NAME ROWS COLUMNS" and then the rows. A name that is not there fails
 * the test. */
#ifndef KEDGE_TESTS_GOLDEN_H
#define KEDGE_TESTS_GOLDEN_H

#include <stdint.h>

struct golden {
    int64_t rows, columns;
    double *values;
};

void golden_read(const char *path, const char *name, struct golden *golden);
float *golden_floats(const struct golden *golden); /* mem_free */
void golden_free(struct golden *golden);

#endif

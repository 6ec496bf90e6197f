#include "tests/helpers/golden.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "ssh/base/mem.h"

void golden_read(const char *path, const char *name, struct golden *golden)
{
    FILE *file = fopen(path, "re");
    char word[64];
    long long rows, columns;
    if (!file)
        fail_msg("%s is not there: tests run in the root of the tree", path);
    while (fscanf(file, "%63s %lld %lld", word, &rows, &columns) == 3) {
        *golden = (struct golden){rows, columns, mem_array((size_t)(rows * columns), sizeof(double))};
        for (long long i = 0; i < rows * columns; i++)
            if (fscanf(file, "%lf", &golden->values[i]) != 1)
                fail_msg("%s ends within %s", path, word);
        if (strcmp(word, name) == 0) {
            fclose(file);
            return;
        }
        golden_free(golden);
    }
    fclose(file);
    fail_msg("%s has no %s", path, name);
}

float *golden_floats(const struct golden *golden)
{
    float *values = mem_array((size_t)(golden->rows * golden->columns), sizeof *values);
    for (int64_t i = 0; i < golden->rows * golden->columns; i++)
        values[i] = (float)golden->values[i];
    return values;
}

void golden_free(struct golden *golden)
{
    mem_free(golden->values);
    golden->values = NULL;
}

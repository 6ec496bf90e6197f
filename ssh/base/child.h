/*
 * What a program prints: run it, read all of its standard output, wait for its end. Nothing waits without a deadline; after it
 * the program is killed.
 */
#ifndef KEDGE_BASE_CHILD_H
#define KEDGE_BASE_CHILD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ssh/base/why.h"

/* argv[0] is looked for in PATH when it has no '/'; NULL ends. Standard input is /dev/null; `errors_too` puts standard error
 * into the output, else it stays ours. `out` is NUL-terminated; more than fits ends the program. *status: as from an exit, 127
 * when it cannot be run, 128 + number for a signal. ERR_TIMEOUT when the deadline passed. */
int child_output(const char *const *argv, bool errors_too, char *out, size_t size, uint64_t deadline_ns, int *status,
                 struct why *why);

#endif

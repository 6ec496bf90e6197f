/*
 * `kedged dump FILE`: a journal as text, one line a row, for people and for comparing runs. Numbers are whole: reals have the 17 digits
 * that read back to the same bits, what is not known is null.
 */
#ifndef KEDGE_SCHEDULER_DUMP_H
#define KEDGE_SCHEDULER_DUMP_H

#include <stdio.h>

#include "ssh/base/why.h"

int dump_journal(const char *path, FILE *out, struct why *why);

#endif

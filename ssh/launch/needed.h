/*
 * Which C library the programs need: the newest version of a symbol that any of them asks for. A bundle that is built on a new system may run
 * on an older one, down to this.
 */
#ifndef KEDGE_LAUNCH_NEEDED_H
#define KEDGE_LAUNCH_NEEDED_H

#include <stdbool.h>
#include <stddef.h>

#include "ssh/launch/parcel.h"

/* 2035 = glibc 2.35; 0 = it cannot be seen. Reads the files (some tens of MB). */
unsigned needed_glibc(const struct parcel *programs);
unsigned needed_version(const char *text); /* "glibc 2.35" or "2.35" as 2035; 0 = cannot be seen */
/* A host that has `has` is too old: why, with both versions and the remedy. */
bool needed_is_more(unsigned needed, const char *has, char *out, size_t size);

#endif

/*
 * Profiles as files, for the screen: which there are, one as a form, the changes of a form back into the file.
 */
#ifndef KEDGE_CONSOLE_SHELF_H
#define KEDGE_CONSOLE_SHELF_H

#include <stddef.h>

#include "console/form.h"
#include "ssh/base/why.h"

/* Paths of all that are found by name: here, in $XDG_CONFIG_HOME/kedge, beside the program, in profiles/. mem_free each, and the list. */
char **shelf_list(size_t *count);
/* ERR_INVALID: *complaints has what is wrong with the file (owned); it is opened all the same when it could be read. */
int shelf_open(struct form *form, const char *path, char **complaints, struct why *why);
/* Each changed value into the file, which keeps its comments; stops at the first that fails. */
int shelf_write(struct form *form, struct why *why);

#endif

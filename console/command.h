/*
 * The commands: one row each. Dispatch, `kedge help`, usage errors, bash completion and the command list of man/kedge.1 all
 * read these rows (a test compares the page with them), so there is nothing to keep in step by hand.
 */
#ifndef KEDGE_CONSOLE_COMMAND_H
#define KEDGE_CONSOLE_COMMAND_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "console/args.h"
#include "console/style.h"

enum exit_code { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_NETWORK = 3, EXIT_REFUSED = 4,
                EXIT_INTERRUPTED = 130 };

struct command {
    const char *name;
    const char *arguments;     /* "RUN KEY=VALUE…" as people read it */
    int least, most;           /* how many words; most −1 = any number */
    uint64_t options;          /* enum option bits besides the global ones */
    const char *help;          /* one line */
    const char *details;       /* paragraphs for `kedge help COMMAND` and the manual, separated by an empty line */
    int (*function)(const struct args *args, const struct style *style); /* exit code */
};

const struct command *command_all(size_t *count);
const struct command *command_find(const char *name);    /* NULL when there is none */
const char *command_nearest(const char *name);           /* NULL when nothing is near */

void command_print_help(FILE *out);
void command_print_usage(const struct command *command, FILE *out); /* "usage: kedge set RUN KEY=VALUE… [--no-wait]" */
void command_print_details(const struct command *command, FILE *out);
void command_print_completion(FILE *out);                /* a bash script */
void command_print_mdoc(FILE *out);                      /* the command list of man/kedge.1 */

/* The exit code that an error kind means. */
int command_exit_code(int err);

#endif

/*
 * The command line, taken apart. Pure: argv and the tables in, `struct args` or one line of complaint out; nothing is
 * printed.
 *
 * Options may stand anywhere, "--" ends them, "--from=X" and "--from X" are the same, short flags may be joined ("-vf").
 */
#ifndef KEDGE_CONSOLE_ARGS_H
#define KEDGE_CONSOLE_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ssh/base/why.h"

#define ARGS_MOST 64 /* words behind a command */

enum option {
    OPTION_COLOR = 1 << 0,
    OPTION_PLAIN = 1 << 1,
    OPTION_ASCII = 1 << 2,
    OPTION_VERBOSE = 1 << 3,
    OPTION_VERSION = 1 << 4,
    OPTION_HELP = 1 << 5,
    OPTION_JSON = 1 << 6,
    OPTION_WATCH = 1 << 7,
    OPTION_FOLLOW = 1 << 8,
    OPTION_FROM = 1 << 9,
    OPTION_DETACH = 1 << 10,
    OPTION_HEADLESS = 1 << 11,
    OPTION_NOW = 1 << 12,
    OPTION_NO_WAIT = 1 << 13,
    OPTION_DTYPE = 1 << 14,
    OPTION_TOKENS = 1 << 15,
    OPTION_TEMPERATURE = 1 << 16,
    OPTION_TOP_P = 1 << 17,
    OPTION_SEED = 1 << 18,
    OPTION_SEQUENCE = 1 << 19,
    OPTION_WINDOWS = 1 << 20,
    OPTION_ANSWERS = 1 << 21,
    OPTION_TEMPLATE = 1 << 22,
    OPTION_SKIP_BAD_LINES = 1 << 23,
    OPTION_OUT = 1 << 24,
    OPTION_TOKENIZER = 1 << 25,
    OPTION_THREADS = 1 << 26,
    OPTION_TOKENS_EACH = 1 << 27,
    OPTION_ACCEPT_NEW = 1 << 28,
    OPTION_ONCE = 1 << 29,
    OPTION_READ_ONLY = 1 << 30,
    OPTION_MERGE = 1L << 31,
    OPTION_ADAPTER = 1L << 32,
    OPTION_FORGET = 1L << 33,
    OPTION_RESUME = 1L << 34,
};
#define OPTIONS_GLOBAL (OPTION_COLOR | OPTION_PLAIN | OPTION_ASCII | OPTION_VERBOSE | OPTION_VERSION | OPTION_HELP)

struct args_option {
    uint64_t bit;
    const char *name;  /* "json", written "--json" */
    char letter;       /* 'f', or 0 */
    const char *value; /* "WHEN" when it takes one, else NULL */
    const char *help;
    bool may_be_bare;  /* the value may be left out; then it is not the next word either, and NULL */
};
const struct args_option *args_options(size_t *count);

enum args_color { COLOR_AUTO, COLOR_ALWAYS, COLOR_NEVER };

struct args {
    const struct command *command; /* NULL: bare `kedge` */
    uint64_t options;              /* enum option bits that were given */
    enum args_color color;
    int verbose;                   /* how often -v */
    const char *from;              /* --from TEMPLATE */
    const char *values[64];        /* what was given to each option that takes a value, by the number of its bit */
    const char *words[ARGS_MOST];  /* what stands behind the command; points into argv */
    int word_count;
};

/* 0, or ERR_INVALID with a line that names the word and, where there is one, the nearest right name. */
int args_parse(int argc, char *const *argv, struct args *args, struct why *why);

#endif

#include "console/args.h"

#include <stdbool.h>
#include <string.h>

#include "console/command.h"
#include "ssh/base/text.h"

static const struct args_option options[] = {
    {OPTION_COLOR, "color", 0, "WHEN", "colour: auto, always or never (NO_COLOR is obeyed)", false},
    {OPTION_PLAIN, "plain", 0, NULL, "line mode: no screen, no cursor motion", false},
    {OPTION_ASCII, "ascii", 0, NULL, "no character outside ASCII", false},
    {OPTION_VERBOSE, "verbose", 'v', NULL, "say more on standard error; twice: much more", false},
    {OPTION_VERSION, "version", 0, NULL, "print the version", false},
    {OPTION_HELP, "help", 'h', NULL, "explain the command", false},
    {OPTION_JSON, "json", 0, NULL, "JSON instead of text; null = unknown", false},
    {OPTION_WATCH, "watch", 0, NULL, "print again every second, until interrupted", false},
    {OPTION_FOLLOW, "follow", 'f', NULL, "keep printing what is added, until interrupted", false},
    {OPTION_FROM, "from", 0, "TEMPLATE", "the profile to begin with (default laptop)", false},
    {OPTION_DETACH, "detach", 0, NULL, "return as soon as the programs run", false},
    {OPTION_HEADLESS, "headless", 0, NULL, "watch with one line a second instead of a screen", false},
    {OPTION_RESUME, "resume", 0, "STEP", "go on from a checkpoint set of the run: the newest, or that of STEP", true},
    {OPTION_NOW, "now", 0, NULL, "do not wait for the step to end: kill after a short grace", false},
    {OPTION_FORGET, "forget", 0, NULL, "leave out hosts that cannot be looked at, for good", false},
    {OPTION_NO_WAIT, "no-wait", 0, NULL, "return when the order is accepted, not when it is in use", false},
    {OPTION_ACCEPT_NEW, "accept-new", 0, NULL, "trust and note the keys of hosts that are not known yet (never a changed one)", false},
    {OPTION_ONCE, "once", 0, NULL, "print a view of the screen as text, once", false},
    {OPTION_READ_ONLY, "read-only", 0, NULL, "only look: keys that change a run do nothing", false},
    {OPTION_DTYPE, "dtype", 0, "FORMAT", "of the weights: f32, bf16 or f16 (default: as the model came, else f32)", false},
    {OPTION_MERGE, "merge", 0, NULL, "of a run with LoRA: the whole model instead of its adapters", false},
    {OPTION_ADAPTER, "adapter", 0, "FOLDER", "a PEFT adapter that belongs to the model", false},
    {OPTION_TOKENS, "tokens", 0, "N", "how many to write at most (default 128; 256 for an answer)", false},
    {OPTION_TEMPERATURE, "temperature", 0, "T", "0 always takes the most likely token (default), 1 as the model says", false},
    {OPTION_TOP_P, "top-p", 0, "P", "choose among the likeliest tokens that have this share together", false},
    {OPTION_SEED, "seed", 0, "N", "the same number gives the same text (default 1)", false},
    {OPTION_SEQUENCE, "sequence", 0, "N", "tokens of a window (default 512)", false},
    {OPTION_WINDOWS, "windows", 0, "N", "so many, spread evenly (default: all, side by side)", false},
    {OPTION_ANSWERS, "answers", 0, "N", "let the model answer N questions too, and count right ones", false},
    {OPTION_TEMPLATE, "template", 0, "NAME", "of chats: plain (default), chatml, llama3 or mistral", false},
    {OPTION_SKIP_BAD_LINES, "skip-bad-lines", 0, NULL, "tell them by number and go on (default: the first one ends it)", false},
    {OPTION_OUT, "out", 0, "FOLDER", "where the tokens go; empty or not there", false},
    {OPTION_TOKENIZER, "tokenizer", 0, "MODEL_DIR", "the model whose tokenizer.json to use (default: bytes)", false},
    {OPTION_THREADS, "threads", 0, "N", "to work with (default: all cores)", false},
    {OPTION_TOKENS_EACH, "tokens-each", 0, "N", "of a file at most (default 100 million)", false},
};

const struct args_option *args_options(size_t *count)
{
    *count = sizeof options / sizeof *options;
    return options;
}

static const struct args_option *find_long(const char *name, size_t length)
{
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (strlen(options[i].name) == length && memcmp(options[i].name, name, length) == 0)
            return &options[i];
    return NULL;
}

static const struct args_option *find_letter(char letter)
{
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (options[i].letter == letter)
            return &options[i];
    return NULL;
}

static int unknown_option(const char *word, uint64_t allowed, struct why *why)
{
    const char *names[sizeof options / sizeof *options];
    size_t count = 0;
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (options[i].bit & allowed)
            names[count++] = options[i].name;
    const char *near = word[1] == '-' ? text_nearest(word + 2, names, count) : NULL;
    if (near)
        return why_set(why, ERR_INVALID, "there is no option %s here; did you mean --%s?", word, near);
    return why_set(why, ERR_INVALID, "there is no option %s here", word);
}

static int take_color(const char *value, struct args *args, struct why *why)
{
    static const char *const names[] = {[COLOR_AUTO] = "auto", [COLOR_ALWAYS] = "always", [COLOR_NEVER] = "never"};
    for (int i = COLOR_AUTO; i <= COLOR_NEVER; i++) {
        if (strcmp(value, names[i]) == 0) {
            args->color = (enum args_color)i;
            return 0;
        }
    }
    return why_set(why, ERR_INVALID, "--color=%s: say auto, always or never", value);
}

static int take_option(const struct args_option *option, const char *value, struct args *args, struct why *why)
{
    args->options |= option->bit;
    args->values[__builtin_ctzll(option->bit)] = value;
    switch (option->bit) {
    case OPTION_COLOR:
        return take_color(value, args, why);
    case OPTION_FROM:
        args->from = value;
        return 0;
    case OPTION_VERBOSE:
        args->verbose++;
        return 0;
    default:
        return 0;
    }
}

/* One "--name", "--name=value" or "--name value"; *index moves over a value that is a word of its own. */
static int take_long(int argc, char *const *argv, int *index, struct args *args, struct why *why)
{
    const char *word = argv[*index], *equals = strchr(word, '=');
    size_t length = equals ? (size_t)(equals - word) - 2 : strlen(word) - 2;
    const struct args_option *option = find_long(word + 2, length);
    if (!option)
        return unknown_option(word, ~0u, why);
    const char *value = equals ? equals + 1 : NULL;
    if (!option->value && value)
        return why_set(why, ERR_INVALID, "--%s takes no value", option->name);
    if (option->value && !value && !option->may_be_bare) {
        if (*index + 1 >= argc)
            return why_set(why, ERR_INVALID, "--%s needs a value: --%s=%s", option->name, option->name, option->value);
        value = argv[++*index];
    }
    return take_option(option, value, args, why);
}

static int take_letters(const char *word, struct args *args, struct why *why)
{
    for (const char *letter = word + 1; *letter; letter++) {
        const struct args_option *option = find_letter(*letter);
        if (!option)
            return unknown_option(word, ~0u, why);
        args->options |= option->bit; /* no option with a letter takes a value */
        args->verbose += option->bit == OPTION_VERBOSE;
    }
    return 0;
}

static int take_word(const char *word, struct args *args, struct why *why)
{
    if (!args->command) {
        args->command = command_find(word);
        if (args->command)
            return 0;
        const char *near = command_nearest(word);
        if (near)
            return why_set(why, ERR_INVALID, "there is no command '%s'; did you mean '%s'?", word, near);
        return why_set(why, ERR_INVALID, "there is no command '%s'; 'kedge help' lists them", word);
    }
    if (args->word_count == ARGS_MOST)
        return why_set(why, ERR_INVALID, "more than %d words behind '%s'", ARGS_MOST, args->command->name);
    args->words[args->word_count++] = word;
    return 0;
}

/* What only the whole line can tell: options that belong to other commands, and the number of words. */
static int check(const struct args *args, struct why *why)
{
    uint64_t allowed = OPTIONS_GLOBAL | (args->command ? args->command->options : 0);
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        if (!(args->options & options[i].bit & ~allowed))
            continue;
        if (!args->command)
            return why_set(why, ERR_INVALID, "--%s needs a command in front; 'kedge help' lists them", options[i].name);
        return why_set(why, ERR_INVALID, "'kedge %s' has no option --%s; 'kedge help %s' lists its options",
                       args->command->name, options[i].name, args->command->name);
    }
    if ((args->options & (OPTION_HELP | OPTION_VERSION)) || !args->command)
        return 0;
    if (args->word_count < args->command->least)
        return why_set(why, ERR_INVALID, "'kedge %s' needs %s", args->command->name, args->command->arguments);
    if (args->command->most >= 0 && args->word_count > args->command->most)
        return why_set(why, ERR_INVALID, "'%s' is one word too many for 'kedge %s'", args->words[args->command->most],
                       args->command->name);
    return 0;
}

int args_parse(int argc, char *const *argv, struct args *args, struct why *why)
{
    struct args found = {0};
    bool options_end = false;
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        int err;
        if (!options_end && strcmp(word, "--") == 0) {
            options_end = true;
            continue;
        }
        if (!options_end && strncmp(word, "--", 2) == 0)
            err = take_long(argc, argv, &i, &found, why);
        else if (!options_end && word[0] == '-' && word[1])
            err = take_letters(word, &found, why);
        else
            err = take_word(word, &found, why);
        if (err)
            return err;
    }
    int err = check(&found, why);
    if (err)
        return err;
    *args = found;
    return 0;
}

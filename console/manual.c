/*
 * The command table in its written forms (command.h): help, usage, bash completion, and the list in man/kedge.1.
 */
#include <stdbool.h>
#include <string.h>

#include "console/command.h"

static int next_option(const struct command *command, size_t *at, const struct args_option **option)
{
    size_t count;
    const struct args_option *options = args_options(&count);
    for (; *at < count; (*at)++) {
        if (options[*at].bit & command->options) {
            *option = &options[(*at)++];
            return 1;
        }
    }
    return 0;
}

/* "=N", "[=STEP]" where it may be left out, "" where there is none; until the next call. */
static const char *value_words(const struct args_option *option)
{
    static char words[40];
    snprintf(words, sizeof words, option->may_be_bare ? "[=%s]" : "=%s", option->value ? option->value : "");
    return option->value ? words : "";
}

static void print_option_name(const struct args_option *option, FILE *out)
{
    if (option->letter)
        fprintf(out, "-%c, ", option->letter);
    fprintf(out, "--%s%s", option->name, value_words(option));
}

static void print_option_row(const struct args_option *option, FILE *out)
{
    char name[64] = "";
    FILE *text = fmemopen(name, sizeof name, "w");
    if (text) {
        print_option_name(option, text);
        fclose(text);
    }
    fprintf(out, "  %-16s %s\n", name, option->help);
}

void command_print_help(FILE *out)
{
    size_t count, option_count;
    const struct command *commands = command_all(&count);
    const struct args_option *options = args_options(&option_count);
    fputs("kedge: train a model over slow links, from a terminal\n\nusage: kedge [COMMAND] [OPTION...]\n\n", out);
    for (size_t i = 0; i < count; i++)
        fprintf(out, "  %-10s %-17s %s\n", commands[i].name, commands[i].arguments, commands[i].help);
    fputs("\nglobal options:\n", out);
    for (size_t i = 0; i < option_count; i++)
        if (options[i].bit & OPTIONS_GLOBAL)
            print_option_row(&options[i], out);
    fputs("\n'kedge help COMMAND' explains one, 'man kedge' is the manual.\nWithout a command the screen opens with the list of runs.\n", out);
}

void command_print_usage(const struct command *command, FILE *out)
{
    const struct args_option *option;
    fprintf(out, "usage: kedge %s%s%s", command->name, command->arguments[0] ? " " : "", command->arguments);
    for (size_t at = 0; next_option(command, &at, &option);)
        fprintf(out, " [--%s%s]", option->name, value_words(option));
    fputc('\n', out);
}

/* One paragraph, filled to 78 columns; what follows it, or NULL. In mdoc a sentence begins a line, and a line must
 * not begin with a full stop or an apostrophe unless it is a request. */
static const char *print_paragraph(const char *text, bool mdoc, FILE *out)
{
    const char *end = strstr(text, "\n\n");
    size_t length = end ? (size_t)(end - text) : strlen(text), column = 0;
    for (size_t at = 0; at < length;) {
        size_t word = strcspn(text + at, " \n");
        word = at + word > length ? length - at : word;
        bool sentence = mdoc && at > 1 && text[at - 2] == '.';
        if (column && (sentence || column + 1 + word > 78)) {
            fputc('\n', out);
            column = 0;
        }
        bool request = mdoc && !column && (text[at] == '.' || text[at] == '\'');
        fprintf(out, "%s%.*s", column ? " " : request ? "\\&" : "", (int)word, text + at);
        column += word + (column ? 1 : 0);
        at += word + 1;
    }
    fputc('\n', out);
    return end ? end + 2 : NULL;
}

void command_print_details(const struct command *command, FILE *out)
{
    const struct args_option *option;
    command_print_usage(command, out);
    fprintf(out, "\n%s\n", command->help);
    for (const char *text = command->details[0] ? command->details : NULL; text;) {
        fputc('\n', out);
        text = print_paragraph(text, false, out);
    }
    if (command->options)
        fputs("\noptions:\n", out);
    for (size_t at = 0; next_option(command, &at, &option);)
        print_option_row(option, out);
}

/* ---- bash ---- */

static void print_words_of(const struct command *command, FILE *out)
{
    const struct args_option *option;
    for (size_t at = 0; next_option(command, &at, &option);)
        fprintf(out, " --%s%s", option->name, option->value && !option->may_be_bare ? "=" : "");
}

static const char *first_argument_kind(const struct command *command)
{
    static const char *const kinds[] = {"RUN", "PROFILE", "FILE", "[COMMAND]", "bash"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strncmp(command->arguments, kinds[i], strlen(kinds[i])) == 0)
            return kinds[i];
    return "";
}

void command_print_completion(FILE *out)
{
    size_t count, option_count;
    const struct command *commands = command_all(&count);
    const struct args_option *options = args_options(&option_count);
    fputs("# bash completion of kedge: source <(kedge completion bash)\n"
          "_kedge()\n{\n"
          "    local word=${COMP_WORDS[COMP_CWORD]} command= place=0 i options kind runs\n"
          "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
          "        [[ ${COMP_WORDS[i]} == -* ]] && continue\n"
          "        if [[ -z $command ]]; then command=${COMP_WORDS[i]}; else place=$((place + 1)); fi\n"
          "    done\n"
          "    options='", out);
    for (size_t i = 0; i < option_count; i++)
        if (options[i].bit & OPTIONS_GLOBAL)
            fprintf(out, "%s--%s%s", i ? " " : "", options[i].name, options[i].value && !options[i].may_be_bare ? "=" : "");
    fputs("'\n    case $command in\n", out);
    for (size_t i = 0; i < count; i++) {
        fprintf(out, "    %s) kind='%s' options=\"$options", commands[i].name, first_argument_kind(&commands[i]));
        print_words_of(&commands[i], out);
        fputs("\" ;;\n", out);
    }
    fputs("    esac\n"
          "    runs=${XDG_STATE_HOME:-$HOME/.local/state}/kedge\n"
          "    case $command:$place:$kind:$word in\n"
          "    *:-*) COMPREPLY=($(compgen -W \"$options\" -- \"$word\")) ;;\n"
          "    :*) COMPREPLY=($(compgen -W '", out);
    for (size_t i = 0; i < count; i++)
        fprintf(out, "%s%s", i ? " " : "", commands[i].name);
    fputs("' -- \"$word\")) ;;\n"
          "    *:0:RUN:*) COMPREPLY=($(compgen -W \"$(command ls \"$runs\" 2>/dev/null)\" -- \"$word\")) ;;\n"
          "    *:0:PROFILE:*) COMPREPLY=($(compgen -f -X '!*.ini' -- \"$word\") $(compgen -d -- \"$word\")) ;;\n"
          "    *:0:FILE:*) COMPREPLY=($(compgen -f -- \"$word\")) ;;\n"
          "    *:0:bash:*) COMPREPLY=($(compgen -W bash -- \"$word\")) ;;\n"
          "    *:0:\\[COMMAND\\]:*) COMPREPLY=($(compgen -W '", out);
    for (size_t i = 0; i < count; i++)
        fprintf(out, "%s%s", i ? " " : "", commands[i].name);
    fputs("' -- \"$word\")) ;;\n"
          "    esac\n"
          "}\n"
          "complete -F _kedge kedge\n", out);
}

/* ---- the manual page ---- */

static void print_mdoc_details(const char *text, FILE *out)
{
    while (text && *text) {
        fputs(".Pp\n", out);
        text = print_paragraph(text, true, out);
    }
}

void command_print_mdoc(FILE *out)
{
    size_t count;
    const struct command *commands = command_all(&count);
    fputs(".Bl -tag -width Ds\n", out);
    for (size_t i = 0; i < count; i++) {
        const struct args_option *option;
        fprintf(out, ".It Cm %s", commands[i].name);
        if (commands[i].arguments[0])
            fprintf(out, " Ar %s", commands[i].arguments);
        for (size_t at = 0; next_option(&commands[i], &at, &option);)
            fprintf(out, " Oo Fl -%s%s Oc", option->name, value_words(option));
        fprintf(out, "\n%c%s.\n", commands[i].help[0] - 'a' + 'A', commands[i].help + 1);
        print_mdoc_details(commands[i].details, out);
    }
    fputs(".El\n", out);
}

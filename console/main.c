/*
 * kedge: the console. Takes the command line apart, finds the command's row, runs it; only here the program exits.
 */
#include <stdio.h>
#include <string.h>

#include "console/command.h"
#include "console/screen.h"
#include "console/show.h"
#include "console/visit.h"
#include "ssh/base/log.h"

/* A failure is one line, ours; what led to it is for those who ask. */
static void choose_log(int verbose)
{
    static const enum log_level levels[] = {LOG_ERROR, LOG_INFO, LOG_DEBUG, LOG_TRACE};
    log_set_level(levels[verbose > 3 ? 3 : verbose]);
    if (verbose)
        log_open(NULL, "kedge", 0, NULL);
}

static int run(const struct args *args, const struct style *style)
{
    if (args->options & OPTION_VERSION)
        return command_find("version")->function(args, style);
    if (args->options & OPTION_HELP) {
        if (args->command)
            command_print_details(args->command, stdout);
        else
            command_print_help(stdout);
        return EXIT_DONE;
    }
    if (!args->command)
        return screen_is_wanted(args, style) ? screen_browse(args, style) : show_list(args, style);
    return args->command->function(args, style);
}

int main(int argc, char **argv)
{
    struct args args;
    struct style style;
    struct why why = {0};
    if (args_parse(argc, argv, &args, &why) != 0)
        return visit_fail(&why);
    choose_log(args.verbose);
    style_init(&style, &args, stdout);
    int code = run(&args, &style);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fprintf(stderr, "kedge: standard output cannot be written\n");
        code = code ? code : EXIT_FAILED;
    }
    return code;
}

/* kedge-worker: one table of sub-commands. */
#include <stdio.h>
#include <string.h>

#include "gpu/train/command.h"
#include "ssh/base/version.h"

static int help_main(int count, char **words);
static int version_main(int count, char **words);

static const struct command {
    const char *name, *arguments, *help;
    int (*main)(int count, char **words);
} commands[] = {
    {"agent", "--folder RUN --host NAME --head HOST:PORT [--timeout 10s] [--fuse 2h] [--disk-budget BYTES] [--lease] [--plain]",
     "supervise the worker processes of one run on this host", agent_main},
    {"stage",
     "--folder RUN --name NAME --host NAME --head HOST:PORT --incarnation N --listen HOST:PORT [--announce HOST:PORT] "
     "[--timeout 10s] [--plain]",
     "be one pipeline stage; started by the agent", stage_main},
    {"anchor", "(the options of stage)", "be the anchor of a run; started by the agent", anchor_main},
    {"probe", "FOLDER", "print the shape of a Hugging Face checkpoint as settings", probe_main},
    {"export", "--folder RUN DIR [--dtype f32|bf16|f16]", "write the newest weights of a run as a Hugging Face folder", export_main},
    {"resume", "--folder RUN [--elsewhere] [STEP]", "print the set that a run would go on from, when all of it is whole", resume_main},
    {"data", "prepare --out FOLDER [--tokenizer MODEL] [--template NAME] [--skip-bad-lines] [--threads N] [--tokens-each N] FILE...",
     "tokenise text and JSON lines into a folder that data.path may name", prepare_main},
    {"sample", "FOLDER PROMPT [--template NAME] [--tokens N] [--temperature T] [--top-p P] [--seed N]",
     "write text with a Hugging Face checkpoint", sample_main},
    {"eval",
     "FOLDER FILE... [--sequence N] [--windows N] [--answers N] [--tokens N] [--template NAME] [--skip-bad-lines] [--json]",
     "the mean loss of a Hugging Face checkpoint on some data, and its right answers", eval_main},
    {"receive", "PART", "write what an upload sends into a part of a file; the console starts it", receive_main},
    {"digest", "[PART]", "print the XXH3 sum of what has arrived of it, or of the input; the console starts it", digest_main},
    {"--version", "", "print the version", version_main},
    {"--help", "", "print this", help_main},
};

static int help_main(int count, char **words)
{
    (void)count, (void)words;
    printf("usage:\n");
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        printf("  kedge-worker %s%s%s\n      %s\n", commands[i].name, commands[i].arguments[0] ? " " : "",
               commands[i].arguments, commands[i].help);
    return EXIT_DONE;
}

static int version_main(int count, char **words)
{
    (void)count, (void)words;
    printf("kedge-worker %s\n", KEDGE_VERSION);
    return EXIT_DONE;
}

int main(int argc, char **argv)
{
    for (size_t i = 0; argc > 1 && i < sizeof commands / sizeof *commands; i++)
        if (strcmp(commands[i].name, argv[1]) == 0)
            return commands[i].main(argc - 2, argv + 2);
    if (argc > 1)
        fprintf(stderr, "kedge-worker: %s: no such command; see kedge-worker --help\n", argv[1]);
    else
        fprintf(stderr, "kedge-worker: a command is missing; see kedge-worker --help\n");
    return EXIT_USAGE;
}

#include "console/command.h"

#include <string.h>
#include <unistd.h>

#include "console/begin.h"
#include "console/check.h"
#include "console/draft.h"
#include "console/logs.h"
#include "console/order.h"
#include "console/show.h"
#include "console/visit.h"
#include "console/words.h"
#include "console/worker.h"
#include "ssh/base/text.h"
#include "ssh/base/version.h"
#include "ssh/launch/prepare.h"
#include "ssh/wire/decode.h"
#include "ssh/wire/wire.h"

static int run_help(const struct args *args, const struct style *style);
static int run_completion(const struct args *args, const struct style *style);
static int run_version(const struct args *args, const struct style *style);
static int run_decode(const struct args *args, const struct style *style);

static const struct command commands[] = {
    {
        .name = "new", .arguments = "NAME", .least = 1, .most = 1, .options = OPTION_FROM, .function = draft_new,
        .help = "write a commented profile, NAME.ini",
        .details = "The profile is a copy of a template (by default the one named laptop) with every comment kept and "
                   "run.name set. An existing file is never overwritten.",
    },
    {
        .name = "check", .arguments = "PROFILE", .least = 1, .most = 1, .options = OPTION_JSON | OPTION_ACCEPT_NEW, .function = check_profile,
        .help = "say what is wrong with a profile and its hosts",
        .details = "All complaints are printed at once, each with its file and line; then the exit code is 2 and no network is "
                   "used. With model.path the checkpoint's config.json is read too.\n\n"
                   "Hosts over SSH are then looked at, all at once and side by side: login and a second new login, round trip and "
                   "clock, system, C library, processors, memory, GPU, room on the disk, open files, the interface to the others, "
                   "and whether another host reaches the port where its stages will listen. With a disk_budget, what kedge has "
                   "there, what would be sent and what the run would write are held against it. A host that refuses connections is tried "
                   "three times more, since it may boot; one that does not accept a key says which were offered.\n\n"
                   "Then each pair of hosts that the plan joins is measured once: round trip and rate both ways, at most 16 MiB and "
                   "about two seconds each, and what that makes of the bytes of a step. What is wrong is said with its remedy. The exit code is 1 when a "
                   "host is wrong, 3 when it cannot be reached, 4 when it is not trusted or does not let us in. Nothing is started "
                   "or left there.",
    },
    {
        .name = "plan", .arguments = "PROFILE", .least = 1, .most = 1, .options = OPTION_JSON, .function = draft_plan,
        .help = "what will run where, and what it costs",
        .details = "Layers, memory, roads and bytes, printed by the same code that will decide when the run starts.",
    },
    {
        .name = "run", .arguments = "PROFILE", .least = 1, .most = 1,
        .options = OPTION_DETACH | OPTION_HEADLESS | OPTION_JSON | OPTION_ACCEPT_NEW | OPTION_RESUME,
        .function = begin_run, .help = "start a run and watch it",
        .details = "The profile is checked, a run folder with fresh credentials is made, then the scheduler and the "
                   "agents are started in sessions of their own. On a terminal the screen opens then (see KEYS in kedge(1)); "
                   "with --headless, --plain or elsewhere one line a second says how the training goes, and events "
                   "are lines of their own.\n\n"
                   "Hosts over SSH are logged in to all at once. Programs, text and checkpoints are sent where they are "
                   "not there yet, over a road of more than 1.2 Gbit/s with a second login beside the first. "
                   "A host whose key is not known is asked about on a terminal; elsewhere it is refused "
                   "unless its key is pinned (host_key) or --accept-new is given. A key that has changed is always refused.\n\n"
                   "Leaving the screen, Ctrl-C, closing the terminal or killing this program leaves the run as it is; only 'kedge stop' "
                   "ends it. While the programs are still starting, Ctrl-C ends them again.\n\n"
                   "With --resume the run goes on from the newest checkpoint set in its folder, or from that of STEP, at the step behind it: "
                   "weights, moments, the order of the text and the learning rate are as they would have been. The profile "
                   "must be the one that the set is of, but for what says how the run is carried out (hosts, roads, run.steps, …) and for "
                   "live settings; those that were changed while it ran hold on, unless the profile has been edited since. A set that is torn "
                   "or was changed is refused, and the newest whole one is named. What the anchor knew is not in a set.\n\n"
                   "The exit code is 0 when all steps were trained or you left the screen with q, 1 when the run was stopped or "
                   "failed, 130 after Ctrl-C or a signal. With --json every line is one JSON object of type state or event.",
    },
    {
        .name = "attach", .arguments = "RUN [VIEW]", .least = 1, .most = 2,
        .options = OPTION_HEADLESS | OPTION_JSON | OPTION_READ_ONLY | OPTION_ONCE,
        .function = begin_attach, .help = "watch a run that is going",
        .details = "As 'kedge run' watches. Any number of consoles may watch, and none is special. When the scheduler "
                   "of the run has died and its processes live, a new scheduler is started that takes them back.\n\n"
                   "With HOST: the run whose scheduler is on that host, from any machine that may log in there with ssh: "
                   "HOST is anything that ssh understands. The other commands take HOST:RUN, too. A lost road is said, "
                   "with its age, and dialled again until you leave.\n\n"
                   "The screen begins with VIEW (runs, run, links, anchor, hosts, knobs, events or profiles; default run). It shows the record of a "
                   "run that is over, too. --once prints one view of it as text, "
                   "80 columns wide and 24 lines high unless COLUMNS and LINES say otherwise.",
    },
    {
        .name = "ls", .arguments = "", .least = 0, .most = 0, .options = OPTION_JSON, .function = show_list,
        .help = "list the runs of this machine, going or over",
        .details = "The newest first.",
    },
    {
        .name = "status", .arguments = "RUN", .least = 1, .most = 1, .options = OPTION_JSON | OPTION_WATCH,
        .function = show_status,
        .help = "all that is known of a run",
        .details = "For a run that is over, what its journal recorded last.",
    },
    {
        .name = "links", .arguments = "RUN", .least = 1, .most = 1, .options = OPTION_JSON | OPTION_WATCH,
        .function = show_links,
        .help = "what travels on every road, what holds it up",
        .details = "'of dense' compares the bytes that training sent with what an exchange of whole bf16 activations "
                   "would have sent; the un-masked evaluations, the same with every codec, are left out of it. "
                   "'held by' names why a lane does not move at the moment.",
    },
    {
        .name = "anchor", .arguments = "RUN", .least = 1, .most = 1, .options = OPTION_JSON | OPTION_WATCH,
        .function = show_anchor,
        .help = "what the anchor has, costs and changes",
        .details = "Staleness is counted from the step that a snapshot was taken at to the first step that used what came of it. "
                   "'inside' is the share of the gradient's energy in the anchor's directions, 'norm' the norm of the corrected gradient "
                   "beside the plain one, 'changed' the share of the update that comes from the correction, 'noise' what two halves of "
                   "the batch do not agree on, where the filter needs to know it.",
    },
    {
        .name = "hosts", .arguments = "RUN", .least = 1, .most = 1, .options = OPTION_JSON | OPTION_WATCH,
        .function = show_hosts,
        .help = "the hosts and processes of a run",
        .details = "Of each host the share of its processors that is busy, the load, the memory that is free, the room on the disk of the "
                   "run's folder (what is left of host.disk_budget, if there is one), what nvidia-smi says of its GPUs, how far its clock is ahead of the scheduler's, "
                   "when it was heard of last, and whether it takes new sessions (login: a console that watches where the run was started tries "
                   "every few minutes); of each process what it waits for. A dash stands where nothing is known.",
    },
    {
        .name = "events", .arguments = "RUN", .least = 1, .most = 1, .options = OPTION_JSON | OPTION_FOLLOW,
        .function = show_events,
        .help = "what happened in a run",
        .details = "With --json and -f one object a line.",
    },
    {
        .name = "get", .arguments = "RUN [KEY]", .least = 1, .most = 2, .options = OPTION_JSON, .function = show_get,
        .help = "the live settings and their ledger, or one value",
        .details = "With KEY only its value is printed; any setting of the profile may be asked for.",
    },
    {
        .name = "set", .arguments = "RUN KEY=VALUE...", .least = 2, .most = -1, .options = OPTION_NO_WAIT,
        .function = order_set,
        .help = "change settings of a run that is going",
        .details = "Returns when a training step has used the value, and says which one was the first. The change, "
                   "who made it and that step stand in the ledger ('kedge get RUN'). With revert.steps a change that the run "
                   "does not bear goes back by itself.",
    },
    {
        .name = "pause", .arguments = "RUN", .least = 1, .most = 1, .function = order_pause,
        .help = "hold a run at the next step, keep all in memory", .details = "",
    },
    {
        .name = "resume", .arguments = "RUN", .least = 1, .most = 1, .function = order_resume,
        .help = "go on with a run that was paused", .details = "",
    },
    {
        .name = "checkpoint", .arguments = "RUN", .least = 1, .most = 1, .function = order_checkpoint,
        .help = "write all that a run could go on from",
        .details = "Every stage writes its weights, moments and the rest of its state at the next step boundary, into checkpoint/STEP of the run's folder, and training "
                   "goes on; a run that was paused does it too. Returns when the set is whole. checkpoint.keep says how many sets stay. When all "
                   "steps are trained a set is written without being asked for.\n\n"
                   "With replicas it is the lowest one's weights, to take home and not to go on from: as they are then, without what the others "
                   "have learned since the last round, and at the end the mean of all. checkpoint.every writes sets of all replicas.",
    },
    {
        .name = "snapshot", .arguments = "RUN", .least = 1, .most = 1, .function = order_snapshot,
        .help = "have the anchor get the weights now",
        .details = "A snapshot is taken at the next step boundary, or when the one on its way is whole. Returns when the anchor has all of it.",
    },
    {
        .name = "drain", .arguments = "RUN HOST", .least = 2, .most = 2, .options = OPTION_NO_WAIT, .function = order_drain,
        .help = "take the work of a run away from a host",
        .details = "The replicas that have a stage there leave when a round has ended, with all their stages; the others go on. The anchor "
                   "ends when it is there. Returns when nothing of the run is on the host but its agent: it may be switched off then. "
                   "'kedge restart RUN HOST' brings the work back, while its agent lives.\n\n"
                   "Refused when nobody would be left: a run of one replica is written with 'kedge checkpoint', ended with 'kedge stop' and "
                   "goes on with 'kedge run PROFILE --resume', on other hosts if the profile names others.",
    },
    {
        .name = "restart", .arguments = "RUN HOST", .least = 2, .most = 2, .options = OPTION_NO_WAIT, .function = order_restart,
        .help = "start again what runs on a host",
        .details = "As drain, and then the processes begin again: they copy what the other replicas have in common and take part from a round on. "
                   "Returns when they do. Refused as drain is.",
    },
    {
        .name = "replace", .arguments = "RUN HOST BY", .least = 3, .most = 3, .options = OPTION_NO_WAIT, .function = order_replace,
        .help = "let another host take the place of one",
        .details = "As restart, but the processes begin again on host BY, which the profile names and which has none: spare = yes, or drained. "
                   "HOST is drained then.",
    },
    {
        .name = "export", .arguments = "RUN DIR", .least = 2, .most = 2, .options = OPTION_DTYPE | OPTION_MERGE,
        .function = worker_export, .help = "the newest weights as a Hugging Face folder",
        .details = "Joins the newest whole set of weights, of a run that is going or over, with config.json, the generation config and "
                   "the tokenizer's files of the model that the run began with, so that transformers loads DIR as it is. DIR must not be "
                   "there, or be empty; it appears when all of it is written.\n\n"
                   "Of a run with LoRA DIR gets the adapter as PEFT keeps it, or with --merge the whole model that it makes.\n\n"
                   "What stands on hosts over SSH is brought into the run's folder first; what is here already is not sent again.",
    },
    {
        .name = "sample", .arguments = "MODEL_DIR PROMPT", .least = 2, .most = 2,
        .options = OPTION_ADAPTER | OPTION_TEMPLATE | OPTION_TOKENS | OPTION_TEMPERATURE | OPTION_TOP_P | OPTION_SEED,
        .function = worker_sample,
        .help = "text from a checkpoint, to see that it works",
        .details = "The prompt and what the model writes behind it, computed on the processor of this machine. The tokenizer is "
                   "MODEL_DIR/tokenizer.json; without one every byte is a token. Writing ends with the token that ends a text.\n\n"
                   "With --template the prompt is what a user says to a model that was trained on chats: it is written as that template "
                   "of data.template writes it, only the answer is shown, and it ends where the template ends one.",
    },
    {
        .name = "eval", .arguments = "MODEL_DIR DATA...", .least = 2, .most = -1,
        .options = OPTION_ADAPTER | OPTION_SEQUENCE | OPTION_WINDOWS | OPTION_ANSWERS | OPTION_TOKENS | OPTION_TEMPLATE |
                   OPTION_SKIP_BAD_LINES | OPTION_JSON,
        .function = worker_eval, .help = "how good a checkpoint is on some data",
        .details = "Mean loss and perplexity over the tokens of DATA that would be learned, in windows of a fixed length; DATA is what "
                   "data.path of a profile may be. With --answers the model also reads questions of a .jsonl file and writes: an answer is "
                   "right when the number behind its #### is.",
    },
    {
        .name = "data", .arguments = "prepare FILE...", .least = 2, .most = -1,
        .options = OPTION_OUT | OPTION_TOKENIZER | OPTION_TEMPLATE | OPTION_SKIP_BAD_LINES | OPTION_THREADS | OPTION_TOKENS_EACH,
        .function = worker_data, .help = "turn text into tokens once, for many runs",
        .details = "Files of text and .jsonl become a folder of tokens that data.path of a profile may name. What is too large to be "
                   "tokenised whenever a run starts must be prepared.",
    },
    {
        .name = "stop", .arguments = "RUN", .least = 1, .most = 1, .options = OPTION_NOW | OPTION_FORGET, .function = order_stop,
        .help = "end a run; returns when nothing of it is left",
        .details = "Says meanwhile what is awaited. Works also when the scheduler is dead: the processes of the run "
                   "are found by their lock files and by the run's mark, never by name. The journal, the logs and the "
                   "profile stay. Hosts over SSH are looked at, too; one that cannot be reached is named, and stop "
                   "may be said again. A machine that lacks what the start left there is another one that was given the address: nothing is "
                   "ended on it. With --forget such hosts are left out, for good.",
    },
    {
        .name = "logs", .arguments = "RUN [PROCESS]", .least = 1, .most = 2, .options = OPTION_FOLLOW, .function = logs_show,
        .help = "the log of one process, or all by time", .details = "",
    },
    {
        .name = "decode", .arguments = "FILE", .least = 1, .most = 1, .function = run_decode,
        .help = "print a capture of a road, or a journal, as text",
        .details = "With link.record = yes every data road is captured into the run folder's capture/. The journal of a run "
                   "is run.db in its folder: every loss of every step, with all its digits.",
    },
    {
        .name = "completion", .arguments = "bash", .least = 1, .most = 1, .function = run_completion,
        .help = "print a completion script for the shell",
        .details = "Put this into ~/.bashrc: source <(kedge completion bash)",
    },
    {
        .name = "help", .arguments = "[COMMAND]", .least = 0, .most = 1, .function = run_help,
        .help = "explain kedge, or one command", .details = "",
    },
    {
        .name = "version", .arguments = "", .least = 0, .most = 0, .function = run_version,
        .help = "print the version", .details = "",
    },
};
#define COMMANDS (sizeof commands / sizeof *commands)

const struct command *command_all(size_t *count)
{
    *count = COMMANDS;
    return commands;
}

const struct command *command_find(const char *name)
{
    for (size_t i = 0; i < COMMANDS; i++)
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    return NULL;
}

const char *command_nearest(const char *name)
{
    const char *names[COMMANDS];
    for (size_t i = 0; i < COMMANDS; i++)
        names[i] = commands[i].name;
    return text_nearest(name, names, COMMANDS);
}

int command_exit_code(int err)
{
    switch (err) {
    case 0:
        return EXIT_DONE;
    case ERR_INVALID:
    case ERR_ABSENT:
        return EXIT_USAGE;
    case ERR_GONE:
    case ERR_TIMEOUT:
        return EXIT_NETWORK;
    case ERR_REFUSED:
        return EXIT_REFUSED;
    default:
        return EXIT_FAILED;
    }
}

static int run_help(const struct args *args, const struct style *style)
{
    (void)style;
    if (args->word_count == 0) {
        command_print_help(stdout);
        return EXIT_DONE;
    }
    const struct command *command = command_find(args->words[0]);
    if (command) {
        command_print_details(command, stdout);
        return EXIT_DONE;
    }
    const char *near = command_nearest(args->words[0]);
    char suggestion[100];
    struct why why = {0};
    why_set(&why, ERR_INVALID, "there is no command '%s'%s", args->words[0],
            words_suggest(near, "; 'kedge help' lists them", suggestion, sizeof suggestion));
    return visit_fail(&why);
}

static int run_completion(const struct args *args, const struct style *style)
{
    struct why why = {0};
    (void)style;
    if (strcmp(args->words[0], "bash") != 0) {
        why_set(&why, ERR_INVALID, "no completion is known for '%s': say bash", args->words[0]);
        return visit_fail(&why);
    }
    command_print_completion(stdout);
    return EXIT_DONE;
}

static int run_version(const struct args *args, const struct style *style)
{
    (void)args, (void)style;
    printf("kedge %s (wire version %d)\n", KEDGE_VERSION, WIRE_VERSION);
    return EXIT_DONE;
}

static bool is_journal(const char *path)
{
    static const char magic[] = "SQLite format 3";
    char head[sizeof magic] = "";
    FILE *file = fopen(path, "re");
    bool journal = file && fread(head, 1, sizeof head, file) == sizeof head && memcmp(head, magic, sizeof magic) == 0;
    if (file)
        fclose(file);
    return journal;
}

/* The journal is kedged's: this is only the door to it. */
static int dump_journal(const char *path, struct why *why)
{
    char program[RUNS_PATH];
    int err = prepare_sibling("kedged", program, sizeof program, why);
    if (err)
        return err;
    const char *const argv[] = {program, "dump", path, NULL};
    execv(program, (char *const *)(uintptr_t)argv);
    return why_errno(why, "cannot run %s", program);
}

static int run_decode(const struct args *args, const struct style *style)
{
    struct why why = {0};
    int err = 0;
    (void)style;
    if (is_journal(args->words[0]))
        err = dump_journal(args->words[0], &why); /* comes back only when it cannot */
    else
        err = decode_file(args->words[0], stdout, &why);
    return err == 0 ? EXIT_DONE : visit_fail(&why);
}

/* What no single row of the table can see: how settings fit together, and how they fit to this machine's files. */
#include "profiles/profile.h"

#include <ctype.h>
#include <glob.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ssh/base/file.h"

struct checking {
    const struct profile *profile;
    const char *file;
    struct complaints *complaints;
};

/* Points to the line where `name` was given, or to the file when it was not. */
static void complain(struct checking *checking, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void complain(struct checking *checking, const char *name, const char *format, ...)
{
    char text[700];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    complaints_add(checking->complaints, checking->file, profile_line(checking->profile, name), "%s", text);
}

static bool is_given(const struct checking *checking, const char *name)
{
    return profile_line(checking->profile, name) != 0;
}

static void check_name(struct checking *checking)
{
    const char *name = checking->profile->name;
    if (!profile_name_usable(name))
        complain(checking, "run.name", "run.name = %s cannot be a folder's name: " PROFILE_NAME_RULE, name);
}

static void check_shape(struct checking *checking)
{
    const struct profile *p = checking->profile;
    int64_t width = profile_head_width(p);
    if (!p->head_width && p->hidden % p->heads)
        complain(checking, "model.heads", "model.heads = %" PRId64 " does not divide model.hidden = %" PRId64, p->heads,
                 p->hidden);
    else if (width % 2)
        complain(checking, p->head_width ? "model.head_width" : "model.heads",
                 "a head is %" PRId64 " channels wide%s; rotary positions need an even number", width,
                 p->head_width ? "" : " (model.hidden / model.heads)");
    if (p->heads % p->kv_heads)
        complain(checking, "model.kv_heads", "model.kv_heads = %" PRId64 " does not divide model.heads = %" PRId64,
                 p->kv_heads, p->heads);
    if (p->stages > p->layers)
        complain(checking, "pipeline.stages",
                 "pipeline.stages = %" PRId64 " is more than the %" PRId64 " layers of the model", p->stages, p->layers);
    if (p->frozen > p->layers)
        complain(checking, "train.frozen", "train.frozen = %" PRId64 " is more than the %" PRId64 " layers of the model",
                 p->frozen, p->layers);
    if (p->frozen && p->head_tie == HEAD_TIED)
        complain(checking, "train.frozen", "train.frozen keeps the embedding as it is, but model.head = tied trains it with the "
                 "head; set model.head = untied");
    int64_t layers[PROFILE_MAX_STAGES];
    struct why why = {0};
    if (p->stages <= p->layers && profile_stage_layers(p, layers, &why) < 0)
        complain(checking, "pipeline.layers", "%s", why.text);
    if (p->qkv_bias && p->qk_norm)
        complain(checking, "model.qk_norm", "model.qkv_bias and model.qk_norm: no known model has both; set one of them to no");
    if (p->rope_scaling == ROPE_LLAMA3 && p->rope_low >= p->rope_high)
        complain(checking, "model.rope_low", "model.rope_low = %g must be below model.rope_high = %g", p->rope_low, p->rope_high);
    if (p->window && p->sequence > p->window)
        complain(checking, "train.sequence",
                 "train.sequence = %" PRId64 ", but attention of this model sees only %" PRId64
                 " tokens (sliding_window); sliding is not supported, make train.sequence at most that", p->sequence, p->window);
    if (p->tokenizer == TOKENIZER_BYTES && p->vocabulary < 256)
        complain(checking, "model.vocabulary",
                 "model.vocabulary = %" PRId64 " is too small: data.tokenizer = bytes needs 256", p->vocabulary);
}

/* A micro-batch in full precision is one message, with its token ids. */
static void check_message(struct checking *checking)
{
    const struct profile *p = checking->profile;
    uint64_t rows = (uint64_t)p->micro_batch * (uint64_t)p->sequence;
    uint64_t bytes = rows * (uint64_t)p->hidden * 4 + (rows + (uint64_t)p->micro_batch) * 4;
    if (bytes > PROFILE_MESSAGE_BYTES)
        complain(checking, "train.micro_batch",
                 "a micro-batch of %" PRId64 " windows of %" PRId64 " tokens is %" PRIu64
                 " MiB at a boundary, more than %d; make train.micro_batch or train.sequence smaller",
                 p->micro_batch, p->sequence, bytes >> 20, PROFILE_MESSAGE_BYTES >> 20);
}

static void check_model_path(struct checking *checking)
{
    const char *path = checking->profile->model_path;
    char config[PROFILE_TEXT + 16];
    struct stat status;
    snprintf(config, sizeof config, "%s/config.json", path);
    if (stat(path, &status) || !S_ISDIR(status.st_mode))
        complain(checking, "model.path",
                 "model.path = %s: no such folder; give a Hugging Face folder, or remove it to train "
                 "fresh weights", path);
    else if (stat(config, &status) || !S_ISREG(status.st_mode))
        complain(checking, "model.path",
                 "model.path = %s: the folder has no config.json; give a Hugging Face folder, or remove "
                 "it to train fresh weights", path);
}

/* A file, or a folder of prepared data. */
static bool is_data(const char *path)
{
    struct stat status;
    if (stat(path, &status) != 0)
        return false;
    char list[PATH_MAX];
    snprintf(list, sizeof list, "%s/tokens.json", path);
    return S_ISREG(status.st_mode) || (S_ISDIR(status.st_mode) && access(list, F_OK) == 0);
}

/* Before anything is sent anywhere: the workers would say the same, of gigabytes that have arrived. */
static void check_matches(struct checking *checking, const char *pattern)
{
    glob_t found = {0};
    const char *wrong = NULL;
    bool matches = false;
    if (glob(pattern, GLOB_NOSORT, NULL, &found) != 0)
        found.gl_pathc = 0;
    for (size_t i = 0; i < found.gl_pathc && !wrong; i++) {
        const char *path = found.gl_pathv[i];
        bool data = is_data(path);
        matches |= data;
        wrong = data ? file_no_text(path) : NULL;
        if (wrong)
            complain(checking, "data.path", "data.path: %s %s", path, wrong);
    }
    if (!matches)
        complain(checking, "data.path", "data.path: no file is named %s", pattern);
    globfree(&found);
}

static void check_data(struct checking *checking)
{
    if (checking->profile->tokenizer == TOKENIZER_MODEL && !checking->profile->model_path[0])
        complain(checking, "data.tokenizer", "data.tokenizer = model: model.path must name the folder that has it");
    char paths[PROFILE_PATHS], *rest = NULL;
    snprintf(paths, sizeof paths, "%s", checking->profile->data_paths);
    for (char *word = strtok_r(paths, " \t", &rest); word; word = strtok_r(NULL, " \t", &rest))
        check_matches(checking, word);
}

/* What an announced address may be: HOST:PORT, or a bare HOST whose port will be known when it is bound. */
static bool is_address(const char *text, bool port_zero);
static bool is_announcement(const char *text)
{
    bool bracketed = text[0] == '[' && text[strlen(text) - 1] == ']' && strlen(text) > 2;
    return is_address(text, false) || bracketed || text[strcspn(text, ":[] /")] == '\0';
}

/* HOST:PORT or [V6]:PORT */
static bool is_address(const char *text, bool port_zero)
{
    const char *colon = strrchr(text, ':');
    if (!colon || colon == text)
        return false;
    size_t host = (size_t)(colon - text), digits = strlen(colon + 1);
    bool bracketed = text[0] == '[' && text[host - 1] == ']' && host > 2;
    if (!bracketed && strcspn(text, ":[] /") < host)
        return false;
    if (digits == 0 || digits > 5 || strspn(colon + 1, "0123456789") != digits)
        return false;
    long port = strtol(colon + 1, NULL, 10);
    return port <= 65535 && (port > 0 || port_zero);
}

static void check_addresses(struct checking *checking)
{
    const struct profile *p = checking->profile;
    char name[PROFILE_NAME + 32];
    if (!is_address(p->listen, true))
        complain(checking, "run.listen", "run.listen = %s is not HOST:PORT; write 127.0.0.1:0 for any free port here",
                 p->listen);
    for (int64_t i = 0; i < p->host_count; i++) {
        const struct profile_host *host = &p->hosts[i];
        snprintf(name, sizeof name, "host.%s.listen", host->name);
        if (!is_address(host->listen, true))
            complain(checking, name, "host.listen = %s is not HOST:PORT; write 127.0.0.1:0 for any free port here",
                     host->listen);
        snprintf(name, sizeof name, "host.%s.announce", host->name);
        if (host->announce[0] && !is_announcement(host->announce))
            complain(checking, name, "host.announce = %s is not HOST:PORT with the port that others dial, nor a HOST",
                     host->announce);
    }
    if (p->announce[0] && !is_announcement(p->announce))
        complain(checking, "run.announce", "run.announce = %s is not HOST:PORT with the port that hosts dial, nor a HOST",
                 p->announce);
}

/* A pin: "sha256:" and 43 letters of base64. */
static bool is_pin(const char *text)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t length = strncasecmp(text, "sha256:", 7) == 0 ? strspn(text + 7, letters) : 0;
    return length == 43 && (text[50] == '\0' || strcmp(text + 50, "=") == 0);
}

/* [USER@]HOST[:PORT]. What begins with '-' would be an option of the ssh program. */
static bool is_login(const char *text)
{
    const char *at = strrchr(text, '@'), *host = at ? at + 1 : text;
    if (text[0] == '-' || at == text || !*host || *host == '-' || text[strcspn(text, " \t'\"\\$`;|&<>()")] != '\0')
        return false;
    const char *colon = host[0] == '[' ? strstr(host, "]:") : strchr(host, ':');
    if (!colon || (host[0] != '[' && strchr(colon + 1, ':'))) /* a bare IPv6 address has no port */
        return true;
    char whole[140];
    snprintf(whole, sizeof whole, "%s", host);
    return is_address(whole, false);
}

static void check_logins(struct checking *checking)
{
    const struct profile *p = checking->profile;
    char name[PROFILE_NAME + 32];
    bool head = !p->head[0], priced = false;
    for (int64_t i = 0; i < p->host_count; i++) {
        const struct profile_host *host = &p->hosts[i];
        head |= strcmp(p->head, host->name) == 0;
        priced |= host->price_per_hour > 0 || host->price_per_gb_up > 0;
        snprintf(name, sizeof name, "host.%s.ssh", host->name);
        if (host->ssh[0] && host->kind == HOST_LOCAL)
            complain(checking, name, "host %s is said to be local and to be reached by ssh = %s: remove one of them", host->name,
                     host->ssh);
        else if (host->ssh[0] && !is_login(host->ssh))
            complain(checking, name, "host.ssh = %s is not [USER@]HOST[:PORT] or an alias of ~/.ssh/config", host->ssh);
        snprintf(name, sizeof name, "host.%s.host_key", host->name);
        if (host->host_key[0] && !is_pin(host->host_key))
            complain(checking, name, "host.host_key = %s is no fingerprint: write sha256: and the 43 letters that "
                     "ssh-keygen -lf shows", host->host_key);
        snprintf(name, sizeof name, "host.%s.identity", host->name);
        if (host->identity[0] && access(host->identity, R_OK) != 0)
            complain(checking, name, "host.identity: the key file %s cannot be read", host->identity);
    }
    if (p->budget > 0 && !priced)
        complain(checking, "run.budget", "run.budget = %g means nothing while no host has a price_per_hour or price_per_gb_up", p->budget);
    if (!head)
        complain(checking, "run.head", "run.head = %s is no host of this profile", p->head);
}

static void check_hosts(struct checking *checking)
{
    const struct profile *p = checking->profile;
    bool apart = p->host_count > 1 && p->anchor_host[0]; /* the anchor's host is its own */
    int64_t left = p->stages * p->replicas, used = 0;
    for (int64_t i = 0; i < p->host_count; i++) {
        bool anchors = apart && strcmp(p->hosts[i].name, p->anchor_host) == 0;
        if (p->hosts[i].spare && anchors)
            complaints_add(checking->complaints, checking->file, p->hosts[i].line, "host %s is spare and has the anchor (anchor.host); "
                           "remove one of them", p->hosts[i].name);
        if (p->hosts[i].spare || anchors)
            continue;
        used++;
        if (left-- > 0)
            continue;
        if (p->replicas == 1)
            complaints_add(checking->complaints, checking->file, p->hosts[i].line,
                           "host %s would have nothing to do: pipeline.stages = %" PRId64 "; one that is to wait is spare = yes", p->hosts[i].name, p->stages);
        else
            complaints_add(checking->complaints, checking->file, p->hosts[i].line,
                           "host %s would have nothing to do: pipeline.stages = %" PRId64 ", replicas.count = %" PRId64
                           "; one that is to wait is spare = yes",
                           p->hosts[i].name, p->stages, p->replicas);
    }
    if (p->host_count && !used)
        complaints_add(checking->complaints, checking->file, p->hosts[0].line, "all hosts are spare or the anchor's: nobody is left for the stages");
}

static void check_replicas(struct checking *checking)
{
    const struct profile *p = checking->profile;
    if (p->replicas == 1)
        return;
    if (p->replicas * p->stages > PROFILE_MAX_STAGES)
        complain(checking, "replicas.count", "%" PRId64 " replicas of %" PRId64 " stages are %" PRId64 " processes; at most %d are possible",
                 p->replicas, p->stages, p->replicas * p->stages, PROFILE_MAX_STAGES);
    if (p->sync_fragments > p->sync_every)
        complain(checking, "sync.fragments", "sync.fragments = %" PRId64 " do not fit into sync.every = %" PRId64
                 " steps: at most one moves in a step", p->sync_fragments, p->sync_every);
    if (p->sync_overlap >= p->sync_every)
        complain(checking, "sync.overlap", "sync.overlap = %" PRId64 " must be less than sync.every = %" PRId64
                 ": the next exchange of a part begins after the last one has ended", p->sync_overlap, p->sync_every);
    bool averages = p->sync_every == 1 && p->sync_outer == OUTER_NONE;
    if (p->checkpoint_every && !averages && (p->sync_every + p->sync_fragments - 1) / p->sync_fragments <= p->sync_overlap)
        complain(checking, "sync.overlap", "with sync.overlap = %" PRId64 " an exchange is under way after every step, and sets are written where "
                 "none is (checkpoint.every): fewer fragments or a shorter overlap leave room", p->sync_overlap);
    if (averages && p->sync_payload > SEND_BF16)
        complain(checking, "sync.payload", "with sync.every = 1 and sync.outer = none gradients are averaged in every step; they "
                 "travel as fp32 or bf16 (sync.payload)");
}

/* A measurement that is not used before the next one is old in vain, and a state must fit one message. */
static void check_boundary(struct checking *checking)
{
    const struct profile *p = checking->profile;
    bool bases = profile_has_directions(p);
    if (p->codec == CODEC_DENSE && is_given(checking, "mask.rate"))
        complain(checking, "mask.rate", "mask.rate has no effect with boundary.codec = dense; remove one of them");
    if (p->codec != CODEC_MASK && is_given(checking, "boundary.gain") && p->gain != GAIN_ONE)
        complain(checking, "boundary.gain", "boundary.gain is for boundary.codec = mask; remove one of them");
    if (p->codec != CODEC_MASK && p->decoding == DECODING_MMSE)
        complain(checking, "boundary.decoding", "boundary.decoding = mmse is for boundary.codec = mask; remove one of them");
    else if (p->decoding == DECODING_MMSE && p->gain != GAIN_ONE)
        complain(checking, "boundary.gain", "boundary.gain has no place in boundary.decoding = mmse, which says itself what to expect; "
                 "remove one of them");
    int64_t rank = p->rank && p->rank < p->hidden ? p->rank : p->hidden;
    int64_t features = p->reference == REFERENCE_TOKENS ? p->context * rank + 1 : p->reference == REFERENCE_MEAN;
    int64_t bytes = 2 * p->hidden * (features + (p->codec == CODEC_ENTROPY ? 2 * rank : bases ? rank + 1 : 0)) + 4 * rank;
    if (p->codec != CODEC_DENSE && bytes > PROFILE_STATE_BYTES)
        complain(checking, "boundary.rank",
                 "the statistics of a boundary are %" PRId64 " MiB, more than %d; make boundary.rank smaller", bytes >> 20,
                 PROFILE_STATE_BYTES >> 20);
    if (p->statistics == STATISTICS_ANCHOR && !p->anchor_host[0])
        complain(checking, "boundary.statistics",
                 "boundary.statistics = anchor: there is no anchor; name its host by anchor.host");
    if (p->statistics == STATISTICS_ANCHOR && p->codec == CODEC_DENSE)
        complain(checking, "boundary.statistics",
                 "boundary.statistics has no effect with boundary.codec = dense; remove one of them");
    if (p->statistics == STATISTICS_ANCHOR && !bases && p->reference == REFERENCE_NONE)
        complain(checking, "boundary.statistics",
                 "boundary.statistics has no effect: this codec with boundary.reference = none has none; remove it");
    for (int i = 0; i < 2 && p->statistics == STATISTICS_ANCHOR; i++) {
        const char *name = i ? "boundary.late" : "boundary.refresh";
        if (is_given(checking, name))
            complain(checking, name, "%s has no effect with boundary.statistics = anchor: %s says when; remove one of them", name,
                     i ? "anchor.staleness" : "anchor.every");
    }
    if (p->late / p->refresh > 60)
        complain(checking, "boundary.late", "boundary.late = %" PRId64 " with boundary.refresh = %" PRId64
                 ": at most 60 measurements can wait; measure less often", p->late, p->refresh);
}

static void check_anchor(struct checking *checking)
{
    const struct profile *p = checking->profile;
    bool found = p->anchor_host[0] == '\0', halves = p->anchor_filter == ANCHOR_WIENER || p->anchor_filter == ANCHOR_SHRINK ||
                                                    ((p->anchor_filter == ANCHOR_TIKHONOV || p->anchor_filter == ANCHOR_ALIGN) && p->anchor_scale == TAU_NOISE) ||
                                                    p->anchor_norm == NORM_SIGNAL;
    for (int64_t i = 0; i < p->host_count; i++)
        found |= strcmp(p->hosts[i].name, p->anchor_host) == 0;
    if (!found && strchr(p->anchor_host, ','))
        complain(checking, "anchor.host", "anchor.host = %s: the anchor is one process; name one host, that with the most memory", p->anchor_host);
    else if (!found)
        complain(checking, "anchor.host", "anchor.host = %s: there is no section [host %s]", p->anchor_host, p->anchor_host);
    if (p->anchor_host[0] && p->anchor_limit < p->anchor_staleness + p->anchor_every)
        complain(checking, "anchor.limit", "anchor.limit = %" PRId64 " is below anchor.staleness + anchor.every = %" PRId64
                 ": directions would fade before the next ones come", p->anchor_limit, p->anchor_staleness + p->anchor_every);
    bool rounds = p->replicas > 1 && (p->sync_every > 1 || p->sync_outer != OUTER_NONE);
    if (p->anchor_follow && !p->anchor_host[0])
        complain(checking, "anchor.follow", "anchor.follow = yes: there is no anchor; name its host by anchor.host, or remove it");
    else if (p->anchor_follow && !rounds)
        complain(checking, "anchor.follow", "anchor.follow = yes: there are no rounds to follow %s; remove it, and snapshots travel as "
                 "differences", p->replicas > 1 ? "where gradients are averaged in every step" : "with replicas.count = 1");
    if (p->anchor_host[0] && p->anchor_returns == RETURNS_GRADIENT && p->anchor_filter != ANCHOR_GRADIENT)
        complain(checking, "anchor.returns", "anchor.returns = gradient brings no directions, by which anchor.filter could correct; use "
                 "anchor.filter = gradient");
    if (p->anchor_host[0] && p->anchor_returns == RETURNS_GRADIENT && 2 * p->hidden * p->ffn > PROFILE_GRADIENT_BYTES)
        complain(checking, "anchor.returns", "anchor.returns = gradient: a matrix of %" PRId64 " × %" PRId64 " is more than one message "
                 "can carry; use directions with a higher anchor.rank", p->ffn, p->hidden);
    if (p->moments != MOMENTS_FP32 && profile_corrects(p))
        complain(checking, "train.moments", "train.moments = %s and corrections by anchor.filter do not go together; use fp32",
                 p->moments == MOMENTS_BF16 ? "bf16" : "fp8");
    if (halves && p->micro_batches < 2 && (p->anchor_host[0] || p->anchor_filter == ANCHOR_SHRINK))
        complain(checking, "train.micro_batches", "train.micro_batches = 1 has no two halves, by which anchor.filter and "
                 "anchor.norm tell signal from noise");
}

/* Rank, alpha and targets of lora.path are known when it has been read. */
static void check_lora(struct checking *checking)
{
    static const char *const others[] = {"lora.alpha", "lora.targets", "lora.dropout"};
    const struct profile *p = checking->profile;
    char config[PROFILE_TEXT + 32];
    bool on = p->lora_rank || p->lora_path[0];
    for (size_t i = 0; i < sizeof others / sizeof *others && !on; i++)
        if (is_given(checking, others[i]))
            complain(checking, others[i], "%s has no effect without lora.rank or lora.path: give one of them, or remove it",
                     others[i]);
    if (on && !p->model_path[0])
        complain(checking, p->lora_path[0] ? "lora.path" : "lora.rank",
                 "adapters of fresh weights would fit nothing: give the model that they are for in model.path, or remove section lora");
    if (p->lora_dropout > 0)
        complain(checking, "lora.dropout", "lora.dropout = %g is not supported: remove it, or set 0", p->lora_dropout);
    if (!profile_lora_targets(p->lora_targets))
        complain(checking, "lora.targets", "lora.targets = %s: write some of q, k, v, o, gate, up and down, with commas",
                 p->lora_targets);
    snprintf(config, sizeof config, "%s/adapter_config.json", p->lora_path);
    if (p->lora_path[0] && access(config, R_OK) != 0)
        complain(checking, "lora.path", "lora.path = %s: no PEFT adapter: there is no adapter_config.json", p->lora_path);
}

int profile_check(const struct profile *profile, const char *file, struct complaints *complaints)
{
    struct checking checking = {profile, file, complaints};
    int before = complaints->count;
    bool from_checkpoint = profile->model_path[0] != '\0';
    check_name(&checking);
    if (from_checkpoint)
        check_model_path(&checking);
    if (!from_checkpoint || is_given(&checking, "model.layers")) {
        check_shape(&checking);
        check_message(&checking);
    }
    check_lora(&checking);
    check_data(&checking);
    check_addresses(&checking);
    check_logins(&checking);
    check_hosts(&checking);
    check_replicas(&checking);
    check_boundary(&checking);
    check_anchor(&checking);
    return complaints->count == before ? 0 : ERR_INVALID;
}

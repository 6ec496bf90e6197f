#include "profiles/fields.h"

#include <stdio.h>
#include <string.h>

#include "profiles/profile.h"
#include "ssh/base/text.h"

#define IN_RUN(member) .offset = offsetof(struct profile, member), .size = sizeof(((struct profile *)0)->member)
#define IN_HOST(member) .offset = offsetof(struct profile_host, member), .size = sizeof(((struct profile_host *)0)->member)

#define SECOND 1e9
#define RATE_MOST 1e12
#define TIME_MOST 4102444800.0 /* the year 2100 */
#define BYTES_MOST 1125899906842624.0 /* 1 PiB */

static const char *const log_levels[] = {"error", "warn", "info", "debug", "trace", NULL}; /* enum log_level */
static const char *const ropes[] = {[ROPE_NONE] = "none", [ROPE_LINEAR] = "linear", [ROPE_LLAMA3] = "llama3", NULL};
static const char *const heads[] = {[HEAD_UNTIED] = "untied", [HEAD_TIED] = "tied", NULL};
static const char *const tokenizers[] = {[TOKENIZER_BYTES] = "bytes", [TOKENIZER_MODEL] = "model", NULL};
static const char *const templates[] = {[TEMPLATE_PLAIN] = "plain", [TEMPLATE_CHATML] = "chatml",
                                        [TEMPLATE_LLAMA3] = "llama3", [TEMPLATE_MISTRAL] = "mistral", NULL};
static const char *const bad_lines[] = {[BAD_LINES_STOP] = "stop", [BAD_LINES_SKIP] = "skip", NULL};
static const char *const windows[] = {[WINDOWS_RANDOM] = "random", [WINDOWS_EPOCHS] = "epochs", NULL};
static const char *const documents[] = {[DOCUMENTS_JOINED] = "joined", [DOCUMENTS_APART] = "apart", NULL};
static const char *const precisions[] = {[PRECISION_FP32] = "fp32", [PRECISION_BF16] = "bf16", NULL};
static const char *const moment_values[] = {[MOMENTS_FP32] = "fp32", [MOMENTS_BF16] = "bf16",
                                           [MOMENTS_FP8] = "fp8", NULL};
static const char *const schedules[] = {[SCHEDULE_COSINE] = "cosine", [SCHEDULE_CONSTANT] = "constant", NULL};
static const char *const codecs[] = {[CODEC_DENSE] = "dense", [CODEC_MASK] = "mask", [CODEC_SUBSPACE] = "subspace",
                                     [CODEC_PRINCIPAL] = "principal", [CODEC_TOPK] = "topk", [CODEC_HYBRID] = "hybrid",
                                     [CODEC_ENTROPY] = "entropy", NULL};
static const char *const values[] = {[VALUES_FP32] = "fp32", [VALUES_BF16] = "bf16", [VALUES_INT8] = "int8",
                                     [VALUES_INT4] = "int4", NULL};
static const char *const gains[] = {[GAIN_ONE] = "one", [GAIN_UNBIASED] = "unbiased", [GAIN_RMS] = "rms", NULL};
static const char *const decodings[] = {[DECODING_PLAIN] = "plain", [DECODING_MMSE] = "mmse", NULL};
static const char *const references[] = {[REFERENCE_NONE] = "none", [REFERENCE_MEAN] = "mean",
                                         [REFERENCE_TOKENS] = "tokens", NULL};
static const char *const statistics[] = {[STATISTICS_LIVE] = "live", [STATISTICS_ANCHOR] = "anchor", NULL};
static const char *const patterns[] = {[PATTERN_STRIDED] = "strided", [PATTERN_SEQUENTIAL] = "sequential", NULL};
static const char *const outers[] = {[OUTER_NESTEROV] = "nesterov", [OUTER_NONE] = "none", NULL};
static const char *const payloads[] = {[SEND_FP32] = "fp32", [SEND_BF16] = "bf16", [SEND_INT8] = "int8", [SEND_INT4] = "int4",
                                       [SEND_E3M0] = "e3m0", [SEND_POWERSGD] = "powersgd", NULL};
static const char *const powers[] = {[POWER_ALTERNATING] = "alternating", [POWER_TWO_SIDED] = "two-sided", NULL};
static const char *const tables[] = {[TABLE_PAYLOAD] = "payload", [TABLE_BF16] = "bf16", [TABLE_INT8] = "int8",
                                     [TABLE_TOUCHED] = "rows", [TABLE_LOW_RANK] = "powersgd", NULL};
static const char *const filters[] = {
    [ANCHOR_NONE] = "none", [ANCHOR_TIKHONOV] = "tikhonov", [ANCHOR_WIENER] = "wiener", [ANCHOR_SHRINK] = "shrink",
    [ANCHOR_ALIGN] = "align", [ANCHOR_GRADIENT] = "gradient", NULL};
static const char *const scales[] = {[TAU_ABSOLUTE] = "absolute", [TAU_SPECTRUM] = "spectrum", [TAU_NOISE] = "noise", NULL};
static const char *const norms[] = {[NORM_FREE] = "free", [NORM_GRADIENT] = "gradient", [NORM_SIGNAL] = "signal", NULL};
static const char *const moments[] = {[MOMENT_RAW] = "raw", [MOMENT_CORRECTED] = "corrected", NULL};
static const char *const returns[] = {[RETURNS_DIRECTIONS] = "directions", [RETURNS_GRADIENT] = "gradient", NULL};
static const char *const anchor_orders[] = {[ANCHOR_OWN] = "own", [ANCHOR_PAIRED] = "paired", NULL};
static const char *const securities[] = {[SECURITY_TLS] = "tls", [SECURITY_PLAIN] = "plain", NULL};
static const char *const without_heads[] = {[WITHOUT_TRAIN_ON] = "train-on", [WITHOUT_STOP] = "stop", NULL};
static const char *const host_kinds[] = {[HOST_LOCAL] = "local", [HOST_SSH] = "ssh", NULL};

static const struct field rows[] = {
    {.section = "run", .key = "name", .type = FIELD_TEXT, .unit = "", .initial = "", .applier = APPLIES_CONSOLE,
     IN_RUN(name),
     .help = "What the run is called: its folder, its logs and every command use this name. Without it, the name "
             "of the profile's file without .ini."},
    {.section = "run", .key = "seed", .type = FIELD_INTEGER, .unit = "", .minimum = 0, .maximum = 9007199254740991.0,
     .initial = "1", .applier = APPLIES_ALL_STAGES, IN_RUN(seed),
     .help = "Decides fresh weights, the order of the text and which channels the mask keeps. The same seed gives "
             "the same run."},
    {.section = "run", .key = "steps", .type = FIELD_INTEGER, .unit = "steps", .minimum = 1, .maximum = 1e9,
     .initial = "1000", .applier = APPLIES_SCHEDULER, IN_RUN(steps),
     .help = "Optimiser steps until the run is finished."},
    {.section = "run", .key = "timeout", .type = FIELD_DURATION, .unit = "", .minimum = SECOND / 10,
     .maximum = 86400 * SECOND, .initial = "10s", .applier = APPLIES_ALL_STAGES, IN_RUN(timeout_ns),
     .help = "How long a greeting over the network may take. Heartbeats, silence, redialling and every other "
             "deadline are derived from this one number."},
    {.section = "run", .key = "deadline", .type = FIELD_DURATION, .unit = "", .minimum = 0, .maximum = 90 * 86400 * SECOND,
     .initial = "0", .applier = APPLIES_AGENT, IN_RUN(deadline_ns),
     .help = "The run ends after so long, whatever happens: every host keeps this by itself, without the scheduler and "
             "without this machine. 0 sets none."},
    {.section = "run", .key = "budget", .type = FIELD_REAL, .unit = "", .minimum = 0, .maximum = 1e9, .initial = "0",
     .applier = APPLIES_AGENT, IN_RUN(budget),
     .help = "The run ends when it has cost so much by host.price_per_hour and host.price_per_gb_up. The hosts keep the hours like "
             "run.deadline, by themselves; the scheduler counts the bytes, too. 0 sets none."},
    {.section = "run", .key = "without_scheduler", .type = FIELD_CHOICE, .unit = "", .choices = without_heads,
     .initial = "train-on", .applier = APPLIES_AGENT, IN_RUN(without_head),
     .help = "What a host does when the scheduler is silent for 60 times run.timeout: train on, or stop its processes."},
    {.section = "run", .key = "listen", .type = FIELD_TEXT, .unit = "HOST:PORT", .initial = "127.0.0.1:0",
     .applier = APPLIES_SCHEDULER, IN_RUN(listen),
     .help = "Where the scheduler waits for its hosts. Port 0 takes any free port."},
    {.section = "run", .key = "announce", .type = FIELD_TEXT, .unit = "HOST[:PORT]", .initial = "",
     .applier = APPLIES_CONSOLE, IN_RUN(announce),
     .help = "How the hosts reach the scheduler from outside, when that is not where it listens: a public name, the "
             "port that a router or a container maps. Without a port, the one that it listens on."},
    {.section = "run", .key = "head", .type = FIELD_TEXT, .unit = "HOST", .initial = "", .applier = APPLIES_CONSOLE,
     IN_RUN(head),
     .help = "The host of this profile where the scheduler runs, so that the run does not need this machine. Without it, "
             "the scheduler runs on the machine where kedge run was said."},
    {.section = "run", .key = "log", .type = FIELD_CHOICE, .unit = "", .choices = log_levels, .initial = "info",
     .applier = APPLIES_ALL_STAGES, IN_RUN(log_level),
     .help = "How much the log files say."},

    {.section = "model", .key = "path", .type = FIELD_TEXT, .unit = "", .initial = "", .applier = APPLIES_ALL_STAGES,
     IN_RUN(model_path),
     .help = "A Hugging Face folder to start from; the shape below is then read from its config.json. Without it, "
             "training begins with fresh weights of the shape below."},
    {.section = "model", .key = "hidden", .type = FIELD_INTEGER, .unit = "channels", .minimum = 2, .maximum = 32768,
     .initial = "256", .applier = APPLIES_ALL_STAGES, IN_RUN(hidden),
     .help = "Width of the model: channels of a token."},
    {.section = "model", .key = "layers", .type = FIELD_INTEGER, .unit = "layers", .minimum = 1, .maximum = 1024,
     .initial = "6", .applier = APPLIES_ALL_STAGES, IN_RUN(layers),
     .help = "Transformer layers of the whole model."},
    {.section = "model", .key = "heads", .type = FIELD_INTEGER, .unit = "heads", .minimum = 1, .maximum = 1024,
     .initial = "8", .applier = APPLIES_ALL_STAGES, IN_RUN(heads),
     .help = "Attention heads; they divide model.hidden, unless model.head_width is given."},
    {.section = "model", .key = "kv_heads", .type = FIELD_INTEGER, .unit = "heads", .minimum = 1, .maximum = 1024,
     .initial = "4", .applier = APPLIES_ALL_STAGES, IN_RUN(kv_heads),
     .help = "Key and value heads; they divide model.heads."},
    {.section = "model", .key = "head_width", .type = FIELD_INTEGER, .unit = "channels", .minimum = 0, .maximum = 1024,
     .initial = "0", .applier = APPLIES_ALL_STAGES, IN_RUN(head_width),
     .help = "Channels of an attention head, an even number. 0 is model.hidden / model.heads."},
    {.section = "model", .key = "ffn", .type = FIELD_INTEGER, .unit = "channels", .minimum = 1, .maximum = 262144,
     .initial = "512", .applier = APPLIES_ALL_STAGES, IN_RUN(ffn),
     .help = "Inner width of the feed-forward part of a layer."},
    {.section = "model", .key = "vocabulary", .type = FIELD_INTEGER, .unit = "tokens", .minimum = 2,
     .maximum = 1048576, .initial = "256", .applier = APPLIES_ALL_STAGES, IN_RUN(vocabulary),
     .help = "How many different tokens there are."},
    {.section = "model", .key = "head", .type = FIELD_CHOICE, .unit = "", .choices = heads, .initial = "untied",
     .applier = APPLIES_ALL_STAGES, IN_RUN(head_tie),
     .help = "Whether the output head has its own weights or shares those of the embedding. Sharing them between several "
             "stages sends their gradient over every road, dense; untied, the head of a tied checkpoint starts as a copy of "
             "the embedding and is trained on its own."},
    {.section = "model", .key = "qkv_bias", .type = FIELD_BOOL, .unit = "", .initial = "no",
     .applier = APPLIES_ALL_STAGES, IN_RUN(qkv_bias),
     .help = "Whether queries, keys and values have a bias, as in Qwen2."},
    {.section = "model", .key = "qk_norm", .type = FIELD_BOOL, .unit = "", .initial = "no",
     .applier = APPLIES_ALL_STAGES, IN_RUN(qk_norm),
     .help = "Whether every head of queries and keys is normed, as in Qwen3."},
    {.section = "model", .key = "window", .type = FIELD_INTEGER, .unit = "tokens", .minimum = 0, .maximum = 1e9,
     .initial = "0", .applier = APPLIES_ALL_STAGES, IN_RUN(window),
     .help = "How far back attention of this model sees; train.sequence must not be longer. 0 is no limit."},
    {.section = "model", .key = "rope_theta", .type = FIELD_REAL, .unit = "", .minimum = 1, .maximum = 1e9,
     .initial = "10000", .applier = APPLIES_ALL_STAGES, IN_RUN(rope_theta),
     .help = "Base of the rotary position angles."},
    {.section = "model", .key = "rope_scaling", .type = FIELD_CHOICE, .unit = "", .choices = ropes, .initial = "none",
     .applier = APPLIES_ALL_STAGES, IN_RUN(rope_scaling),
     .help = "How rotary positions were stretched for a longer context: all alike, or slow turns only as in Llama 3.1."},
    {.section = "model", .key = "rope_factor", .type = FIELD_REAL, .unit = "", .minimum = 1, .maximum = 1e6,
     .initial = "1", .applier = APPLIES_ALL_STAGES, IN_RUN(rope_factor),
     .help = "By how much they were stretched."},
    {.section = "model", .key = "rope_low", .type = FIELD_REAL, .unit = "turns", .minimum = 1e-6, .maximum = 1e6,
     .initial = "1", .applier = APPLIES_ALL_STAGES, IN_RUN(rope_low),
     .help = "llama3: what turns less often than this within model.rope_context is stretched whole (low_freq_factor)."},
    {.section = "model", .key = "rope_high", .type = FIELD_REAL, .unit = "turns", .minimum = 1e-6, .maximum = 1e6,
     .initial = "4", .applier = APPLIES_ALL_STAGES, IN_RUN(rope_high),
     .help = "llama3: what turns more often than this is not stretched (high_freq_factor)."},
    {.section = "model", .key = "rope_context", .type = FIELD_INTEGER, .unit = "tokens", .minimum = 1, .maximum = 1e9,
     .initial = "8192", .applier = APPLIES_ALL_STAGES, IN_RUN(rope_context),
     .help = "llama3: the context that the model was first trained with."},
    {.section = "model", .key = "norm_epsilon", .type = FIELD_REAL, .unit = "", .minimum = 1e-12, .maximum = 0.1,
     .initial = "1e-05", .applier = APPLIES_ALL_STAGES, IN_RUN(norm_epsilon),
     .help = "Added to the mean square in every norm, against division by zero."},

    {.section = "lora", .key = "rank", .type = FIELD_INTEGER, .unit = "", .minimum = 0, .maximum = 1024, .initial = "0",
     .applier = APPLIES_ALL_STAGES, IN_RUN(lora_rank),
     .help = "Rank of the adapters. With them model.path stays as it is: only they are trained, synchronised, sent to the anchor "
             "and saved. 0 trains all weights."},
    {.section = "lora", .key = "alpha", .type = FIELD_REAL, .unit = "", .minimum = 1e-06, .maximum = 1e6, .initial = "16",
     .applier = APPLIES_ALL_STAGES, IN_RUN(lora_alpha),
     .help = "What an adapter adds is multiplied by lora.alpha / lora.rank."},
    {.section = "lora", .key = "targets", .type = FIELD_TEXT, .unit = "", .initial = "q,k,v,o,gate,up,down",
     .applier = APPLIES_ALL_STAGES, IN_RUN(lora_targets),
     .help = "Which matrices of every layer have an adapter: some of q, k, v, o, gate, up and down."},
    {.section = "lora", .key = "dropout", .type = FIELD_REAL, .unit = "", .minimum = 0, .maximum = 1, .initial = "0",
     .applier = APPLIES_ALL_STAGES, IN_RUN(lora_dropout),
     .help = "Only 0 is supported: nothing is dropped out of the adapters' input."},
    {.section = "lora", .key = "path", .type = FIELD_TEXT, .unit = "", .initial = "", .applier = APPLIES_ALL_STAGES,
     IN_RUN(lora_path),
     .help = "A PEFT adapter to go on from, a folder with adapter_config.json; its rank, alpha and targets then count instead of "
             "those above. Without it, adapters begin so that they add nothing."},

    {.section = "data", .key = "path", .type = FIELD_TEXT, .unit = "", .initial = NULL, .applier = APPLIES_STAGE,
     IN_RUN(data_paths),
     .help = "What to learn from: files and shell patterns, separated by blanks; further lines may follow, indented. "
             "Text; .jsonl with text, question and answer, or messages; .bin with token ids as nanoGPT and llm.c write "
             "them; folders that kedge-worker data prepare made."},
    {.section = "data", .key = "tokenizer", .type = FIELD_CHOICE, .unit = "", .choices = tokenizers,
     .initial = "bytes", .applier = APPLIES_STAGE, IN_RUN(tokenizer),
     .help = "How text becomes tokens: every byte is one, or as the tokenizer.json in the folder of model.path says."},
    {.section = "data", .key = "template", .type = FIELD_CHOICE, .unit = "", .choices = templates, .initial = "plain",
     .applier = APPLIES_STAGE, IN_RUN(data_template),
     .help = "How the questions, answers and messages of JSON lines are written. Only answers are learned."},
    {.section = "data", .key = "bad_lines", .type = FIELD_CHOICE, .unit = "", .choices = bad_lines, .initial = "stop",
     .applier = APPLIES_STAGE, IN_RUN(bad_lines),
     .help = "What a line of JSON that cannot be used does: end the run before it begins, or be told by number and left "
             "out."},
    {.section = "data", .key = "order", .type = FIELD_CHOICE, .unit = "", .choices = windows, .initial = "random",
     .applier = APPLIES_STAGE, IN_RUN(data_windows),
     .help = "Where windows begin: anywhere, drawn anew for each; or side by side, so that an epoch has every token once, "
             "shuffled anew for each epoch."},
    {.section = "data", .key = "documents", .type = FIELD_CHOICE, .unit = "", .choices = documents, .initial = "joined",
     .applier = APPLIES_ALL_STAGES, IN_RUN(data_documents),
     .help = "Windows hold pieces of several documents. joined: attention looks across their borders; apart: a token sees its "
             "own document only, and the first token of a document is not learned from the one before it."},
    {.section = "data", .key = "validation", .type = FIELD_REAL, .unit = "", .minimum = 0.001, .maximum = 0.5,
     .initial = "0.05", .applier = APPLIES_STAGE, IN_RUN(validation_share),
     .help = "Share of the text, from its end, that is never trained on and judges the model."},
    {.section = "data", .key = "validation_windows", .type = FIELD_INTEGER, .unit = "windows", .minimum = 1,
     .maximum = 65536, .initial = "64", .applier = APPLIES_STAGE, IN_RUN(validation_windows),
     .help = "How many windows of that share one evaluation reads."},

    {.section = "train", .key = "sequence", .type = FIELD_INTEGER, .unit = "tokens", .minimum = 2, .maximum = 65535,
     .initial = "256", .applier = APPLIES_ALL_STAGES, IN_RUN(sequence),
     .help = "Tokens of one training window."},
    {.section = "train", .key = "micro_batch", .type = FIELD_INTEGER, .unit = "windows", .minimum = 1,
     .maximum = 65535, .initial = "4", .applier = APPLIES_ALL_STAGES, IN_RUN(micro_batch),
     .help = "Windows that go through the pipeline together."},
    {.section = "train", .key = "micro_batches", .type = FIELD_INTEGER, .unit = "micro-batches", .minimum = 1,
     .maximum = 65535, .initial = "8", .applier = APPLIES_ALL_STAGES, IN_RUN(micro_batches),
     .help = "Micro-batches of one optimiser step. More of them keep a long pipeline busy."},
    {.section = "train", .key = "learning_rate", .type = FIELD_REAL, .unit = "", .minimum = 0, .maximum = 1,
     .initial = "0.0003", .live = true, .applier = APPLIES_STAGE, IN_RUN(learning_rate),
     .help = "Highest learning rate of AdamW, after warm-up."},
    {.section = "train", .key = "schedule", .type = FIELD_CHOICE, .unit = "", .choices = schedules,
     .initial = "cosine", .applier = APPLIES_STAGE, IN_RUN(schedule),
     .help = "How the learning rate goes on after warm-up."},
    {.section = "train", .key = "warmup", .type = FIELD_INTEGER, .unit = "steps", .minimum = 0, .maximum = 1e9,
     .initial = "20", .applier = APPLIES_STAGE, IN_RUN(warmup),
     .help = "Steps in which the learning rate rises from zero."},
    {.section = "train", .key = "final_lr_share", .type = FIELD_REAL, .unit = "", .minimum = 0, .maximum = 1,
     .initial = "0.1", .applier = APPLIES_STAGE, IN_RUN(final_share),
     .help = "The cosine ends at this share of the learning rate."},
    {.section = "train", .key = "weight_decay", .type = FIELD_REAL, .unit = "", .minimum = 0, .maximum = 1,
     .initial = "0.01", .applier = APPLIES_ALL_STAGES, IN_RUN(weight_decay),
     .help = "Decoupled weight decay of AdamW, on matrices only."},
    {.section = "train", .key = "beta1", .type = FIELD_REAL, .unit = "", .minimum = 0, .maximum = 0.9999,
     .initial = "0.9", .applier = APPLIES_ALL_STAGES, IN_RUN(beta1),
     .help = "Memory of AdamW for the gradient."},
    {.section = "train", .key = "beta2", .type = FIELD_REAL, .unit = "", .minimum = 0, .maximum = 0.99999,
     .initial = "0.95", .applier = APPLIES_ALL_STAGES, IN_RUN(beta2),
     .help = "Memory of AdamW for the squared gradient."},
    {.section = "train", .key = "precision", .type = FIELD_CHOICE, .unit = "", .choices = precisions, .initial = "fp32",
     .applier = APPLIES_ALL_STAGES, IN_RUN(precision),
     .help = "What matrix products are made of. bf16 is several times faster on processors that have it (AMX, AVX-512 BF16), adds up in "
             "fp32 and keeps all weights in fp32; a copy of them in bf16 takes 2 bytes more a parameter."},
    {.section = "train", .key = "moments", .type = FIELD_CHOICE, .unit = "", .choices = moment_values, .initial = "fp32",
     .applier = APPLIES_ALL_STAGES, IN_RUN(moments),
     .help = "How AdamW keeps its two memories of every parameter: fp32 takes 8 bytes of the 16 that training takes of one, bf16 4, "
             "fp8 (8 bits, 64 values with one exponent) 2."},
    {.section = "train", .key = "frozen", .type = FIELD_INTEGER, .unit = "layers", .minimum = 0, .maximum = 1024,
     .initial = "0", .applier = APPLIES_ALL_STAGES, IN_RUN(frozen),
     .help = "So many layers at the beginning stay as they are, with the embedding. No gradient is computed for them, and none "
             "travels over a cut that has nothing to be trained before it."},
    {.section = "train", .key = "epsilon", .type = FIELD_REAL, .unit = "", .minimum = 1e-16, .maximum = 0.1,
     .initial = "1e-08", .applier = APPLIES_ALL_STAGES, IN_RUN(epsilon),
     .help = "Added to the denominator of AdamW."},
    {.section = "train", .key = "clip", .type = FIELD_REAL, .unit = "", .minimum = 0, .maximum = 1e6, .initial = "1",
     .applier = APPLIES_STAGE, IN_RUN(clip),
     .help = "Largest norm of the gradient of the whole model; a longer one is scaled down. 0 never scales."},
    {.section = "train", .key = "evaluate_every", .type = FIELD_INTEGER, .unit = "steps", .minimum = 0,
     .maximum = 1e9, .initial = "0", .applier = APPLIES_STAGE, IN_RUN(evaluate_every),
     .help = "Steps between un-masked evaluations. 0 evaluates only before the first and after the last step."},

    {.section = "checkpoint", .key = "every", .type = FIELD_INTEGER, .unit = "steps", .minimum = 0, .maximum = 1e9, .initial = "0",
     .applier = APPLIES_ALL_STAGES, IN_RUN(checkpoint_every),
     .help = "Steps between two sets that are written while the run trains; 'kedge run --resume' goes on from the newest. Training stands "
             "still for a copy in memory, which is taken at the start and is as large as a set. With replicas it is written after the first "
             "step from there on when no exchange is under way. 0 writes one at the end, and by 'kedge checkpoint'."},
    {.section = "checkpoint", .key = "keep", .type = FIELD_INTEGER, .unit = "sets", .minimum = 1, .maximum = 1000, .initial = "2",
     .applier = APPLIES_SCHEDULER, IN_RUN(checkpoint_keep),
     .help = "So many of the newest sets stay on the disks; older ones are removed when a newer one is whole."},

    {.section = "pipeline", .key = "stages", .type = FIELD_INTEGER, .unit = "stages", .minimum = 1,
     .maximum = PROFILE_MAX_STAGES, .initial = "2", .applier = APPLIES_SCHEDULER, IN_RUN(stages),
     .help = "Parts that the model is cut into, each a process. They are dealt to the hosts in the order of the "
             "file."},
    {.section = "pipeline", .key = "layers", .type = FIELD_TEXT, .unit = "COUNT,COUNT,...", .initial = "",
     .applier = APPLIES_SCHEDULER, IN_RUN(stage_layers),
     .help = "How many layers each stage has, as in 2,1,1,2. Without it they are dealt so that the slowest stage is as fast as "
             "can be; the head counts as the work that it is."},
    {.section = "pipeline", .key = "in_flight", .type = FIELD_INTEGER, .unit = "micro-batches", .minimum = 0,
     .maximum = 65535, .initial = "0", .applier = APPLIES_ALL_STAGES, IN_RUN(in_flight),
     .help = "Most micro-batches that a stage holds at a time; memory is taken for them. 0 derives it from the "
             "length of the pipeline."},
    {.section = "pipeline", .key = "recompute", .type = FIELD_BOOL, .unit = "", .initial = "no",
     .applier = APPLIES_ALL_STAGES, IN_RUN(recompute),
     .help = "Keep only the input of a stage and compute its forward pass again before the backward pass: less "
             "memory, a third more work."},

    {.section = "boundary", .key = "codec", .type = FIELD_CHOICE, .unit = "", .choices = codecs, .initial = "mask",
     .applier = APPLIES_ALL_STAGES, IN_RUN(codec),
     .help = "What crosses a cut between stages. dense: all channels of a token. mask: those that a shared mask keeps. subspace: "
             "coefficients of its principal directions, each with as many bits as it is worth; principal: the same number of bits "
             "for each; entropy: directions of what the loss feels most, all in steps of one size, entropy-coded: the least error for "
             "the bytes. hybrid: half of the bytes so, the rest for channels that a mask keeps of what is left. topk: its largest "
             "channels with their indices."},
    {.section = "boundary", .key = "values", .type = FIELD_CHOICE, .unit = "", .choices = values, .initial = "bf16",
     .applier = APPLIES_ALL_STAGES, IN_RUN(values),
     .help = "Number format of the values that travel: of the dense codec, and of the channels that a mask or topk keeps. Coefficients have "
             "few-bit codes."},
    {.section = "boundary", .key = "gain", .type = FIELD_CHOICE, .unit = "", .choices = gains, .initial = "one",
     .applier = APPLIES_ALL_STAGES, IN_RUN(gain),
     .help = "Factor on the channels that a mask keeps: none, 1/(1-rate), or the one that restores a token's root mean square."},
    {.section = "boundary", .key = "decoding", .type = FIELD_CHOICE, .unit = "", .choices = decodings, .initial = "plain",
     .applier = APPLIES_ALL_STAGES, IN_RUN(decoding),
     .help = "What the channels are taken for that a mask leaves out. plain: their reference. mmse: what is expected of them, given "
             "those that came and the covariance of all, of boundary.rank principal directions, which is measured and sent now and then."},
    {.section = "boundary", .key = "reference", .type = FIELD_CHOICE, .unit = "", .choices = references,
     .initial = "mean", .applier = APPLIES_ALL_STAGES, IN_RUN(reference),
     .help = "What an activation is coded against: zero; the means of its channels; or what a ridge regression says of the "
             "tokens at and before the position, whose ids travel anyway. Measured and sent again now and then."},
    {.section = "boundary", .key = "context", .type = FIELD_INTEGER, .unit = "tokens", .minimum = 1, .maximum = 8,
     .initial = "2", .applier = APPLIES_ALL_STAGES, IN_RUN(context),
     .help = "How many tokens that regression looks at: the position's own and those before it."},
    {.section = "boundary", .key = "rank", .type = FIELD_INTEGER, .unit = "directions", .minimum = 0, .maximum = 32768,
     .initial = "256", .applier = APPLIES_ALL_STAGES, IN_RUN(rank),
     .help = "Most principal directions, and features of a token for the reference. They are sent whenever they are measured anew. "
             "0 is all of model.hidden."},
    {.section = "boundary", .key = "forward_share", .type = FIELD_REAL, .unit = "", .minimum = 0.05, .maximum = 0.999,
     .initial = "0.6", .applier = APPLIES_ALL_STAGES, IN_RUN(forward_share),
     .help = "Share of the bytes of entropy, subspace, principal and hybrid that activations get; gradients get the rest."},
    {.section = "boundary", .key = "bits", .type = FIELD_INTEGER, .unit = "bits", .minimum = 1, .maximum = 8,
     .initial = "2", .applier = APPLIES_ALL_STAGES, IN_RUN(bits),
     .help = "Bits of a coefficient of the principal codec; subspace deals them itself."},
    {.section = "boundary", .key = "statistics", .type = FIELD_CHOICE, .unit = "", .choices = statistics, .initial = "live",
     .applier = APPLIES_ALL_STAGES, IN_RUN(statistics),
     .help = "Who measures reference and directions. live: the stage that makes a tensor, while it trains. anchor: the anchor, of "
             "every snapshot, on its own passes where nothing is compressed; in use after anchor.staleness steps."},
    {.section = "boundary", .key = "refresh", .type = FIELD_INTEGER, .unit = "steps", .minimum = 1, .maximum = 1e9,
     .initial = "20", .applier = APPLIES_ALL_STAGES, IN_RUN(refresh),
     .help = "Steps between two measurements of reference and directions."},
    {.section = "boundary", .key = "decay", .type = FIELD_REAL, .unit = "", .minimum = 0, .maximum = 0.99,
     .initial = "0.5", .applier = APPLIES_ALL_STAGES, IN_RUN(decay),
     .help = "What statistics keep of the older ones when they are measured anew. Channel means keep nothing."},
    {.section = "boundary", .key = "late", .type = FIELD_INTEGER, .unit = "steps", .minimum = 2, .maximum = 1000,
     .initial = "2", .applier = APPLIES_ALL_STAGES, IN_RUN(late),
     .help = "Steps from a measurement to its first use: time to work it out and to send it. Channel means take one."},
    {.section = "boundary", .key = "calibrate", .type = FIELD_INTEGER, .unit = "micro-batches", .minimum = 1, .maximum = 1024,
     .initial = "4", .applier = APPLIES_ALL_STAGES, IN_RUN(calibrate),
     .help = "Dense micro-batches, forward and backward, that are measured before the first step."},
    {.section = "boundary", .key = "stale", .type = FIELD_INTEGER, .unit = "steps", .minimum = 0, .maximum = 1e9,
     .initial = "200", .applier = APPLIES_STAGE, IN_RUN(stale),
     .help = "Directions that were measured longer ago are not used: cuts are dense until there are new ones. 0 is no limit."},
    {.section = "boundary", .key = "checksum", .type = FIELD_BOOL, .unit = "", .initial = "no",
     .applier = APPLIES_ALL_STAGES, IN_RUN(debug_checksum),
     .help = "Send a checksum of the mask along, so that two ends that disagree are noticed."},

    {.section = "mask", .key = "rate", .type = FIELD_REAL, .unit = "", .minimum = 0, .maximum = 0.999,
     .initial = "0.95", .live = true, .applier = APPLIES_STAGE, IN_RUN(mask_rate),
     .help = "Share of a dense bf16 exchange that does not travel: of a token's channels for the mask, of its bits for other codecs."},

    {.section = "replicas", .key = "count", .type = FIELD_INTEGER, .unit = "replicas", .minimum = 1,
     .maximum = PROFILE_MAX_REPLICAS, .initial = "1", .applier = APPLIES_SCHEDULER, IN_RUN(replicas),
     .help = "Copies of the whole pipeline that train on different windows and exchange what they learnt now and then."},
    {.section = "replicas", .key = "rejoin", .type = FIELD_BOOL, .unit = "", .initial = "yes", .applier = APPLIES_SCHEDULER,
     IN_RUN(rejoin),
     .help = "Start a replica again that has left, at most three times in ten minutes: it copies what the others have in "
             "common and takes part from the next rounds on."},

    {.section = "sync", .key = "every", .type = FIELD_INTEGER, .unit = "steps", .minimum = 1, .maximum = 1e6,
     .initial = "15", .live = true, .applier = APPLIES_ALL_STAGES, IN_RUN(sync_every),
     .help = "Steps after which the same part of the weights is exchanged between replicas again."},
    {.section = "sync", .key = "fragments", .type = FIELD_INTEGER, .unit = "fragments", .minimum = 1, .maximum = 1024,
     .initial = "3", .applier = APPLIES_ALL_STAGES, IN_RUN(sync_fragments),
     .help = "Parts that the layers of a stage are exchanged in, one after the other, spread evenly over those steps."},
    {.section = "sync", .key = "pattern", .type = FIELD_CHOICE, .unit = "", .choices = patterns, .initial = "strided",
     .applier = APPLIES_ALL_STAGES, IN_RUN(sync_pattern),
     .help = "Which layers make a part: every so many-th, or neighbours."},
    {.section = "sync", .key = "overlap", .type = FIELD_INTEGER, .unit = "steps", .minimum = 0, .maximum = 1e6,
     .initial = "2", .applier = APPLIES_ALL_STAGES, IN_RUN(sync_overlap),
     .help = "Steps that are trained while an exchange is under way. What is not there then is waited for."},
    {.section = "sync", .key = "merge", .type = FIELD_REAL, .unit = "", .minimum = 0, .maximum = 1, .initial = "0",
     .live = true, .applier = APPLIES_ALL_STAGES, IN_RUN(sync_merge),
     .help = "Share of a replica's own weights that stays when the common ones come in."},
    {.section = "sync", .key = "outer", .type = FIELD_CHOICE, .unit = "", .choices = outers, .initial = "nesterov",
     .applier = APPLIES_ALL_STAGES, IN_RUN(sync_outer),
     .help = "Optimiser of the common weights. Without one they become the mean of the replicas, and with sync.every = 1 "
             "gradients are averaged instead in every step: synchronous data parallelism."},
    {.section = "sync", .key = "outer_rate", .type = FIELD_REAL, .unit = "", .minimum = 0, .maximum = 10, .initial = "1",
     .live = true, .applier = APPLIES_ALL_STAGES, IN_RUN(outer_rate),
     .help = "Learning rate of the outer optimiser."},
    {.section = "sync", .key = "outer_momentum", .type = FIELD_REAL, .unit = "", .minimum = 0, .maximum = 0.999,
     .initial = "0.5", .applier = APPLIES_ALL_STAGES, IN_RUN(outer_momentum),
     .help = "Momentum of the outer optimiser. Published runs of many thousands of steps have 0.9 with a rate of 0.7; in a few "
             "hundred steps that goes too far."},
    {.section = "sync", .key = "payload", .type = FIELD_CHOICE, .unit = "", .choices = payloads, .initial = "int4",
     .applier = APPLIES_ALL_STAGES, IN_RUN(sync_payload),
     .help = "How the change of a matrix travels. Vectors always travel as bf16, or as fp32 with it."},
    {.section = "sync", .key = "rank", .type = FIELD_INTEGER, .unit = "directions", .minimum = 1, .maximum = 512,
     .initial = "16", .live = true, .applier = APPLIES_ALL_STAGES, IN_RUN(sync_rank),
     .help = "Rank of PowerSGD: how many directions of a matrix's change travel in a round. While a run goes on at most what it "
             "began with: memory was taken for that."},
    {.section = "sync", .key = "power", .type = FIELD_CHOICE, .unit = "", .choices = powers, .initial = "two-sided",
     .applier = APPLIES_ALL_STAGES, IN_RUN(sync_power),
     .help = "PowerSGD sends one factor a round, left and right in turn, or both in two exchanges: twice the bytes, and better than "
             "twice the rank."},
    {.section = "sync", .key = "table", .type = FIELD_CHOICE, .unit = "", .choices = tables, .initial = "int8",
     .applier = APPLIES_ALL_STAGES, IN_RUN(sync_table),
     .help = "How the change of the embedding and of the head travels: as sync.payload says, as bf16, as int8, as int8 of the "
             "rows that changed most, or by PowerSGD."},
    {.section = "sync", .key = "table_rank", .type = FIELD_INTEGER, .unit = "directions", .minimum = 1, .maximum = 512,
     .initial = "64", .applier = APPLIES_ALL_STAGES, IN_RUN(sync_table_rank),
     .help = "Rank of PowerSGD for the embedding and the head."},

    {.section = "anchor", .key = "host", .type = FIELD_TEXT, .unit = "", .initial = "", .applier = APPLIES_SCHEDULER,
     IN_RUN(anchor_host),
     .help = "Host on which the anchor runs: a process that gets the weights now and then, computes clean gradients and "
             "tells which directions are real. Without a name there is none."},
    {.section = "anchor", .key = "threads", .type = FIELD_INTEGER, .unit = "threads", .minimum = 0, .maximum = 1024,
     .initial = "0", .applier = APPLIES_SCHEDULER, IN_RUN(anchor_threads),
     .help = "Compute threads of the anchor. 0 takes a share of the machine's cores."},
    {.section = "anchor", .key = "every", .type = FIELD_INTEGER, .unit = "steps", .minimum = 1, .maximum = 1e6,
     .initial = "20", .applier = APPLIES_SCHEDULER, IN_RUN(anchor_every),
     .help = "Steps between two snapshots for the anchor."},
    {.section = "anchor", .key = "follow", .type = FIELD_BOOL, .unit = "", .initial = "no", .applier = APPLIES_ALL_STAGES,
     IN_RUN(anchor_follow),
     .help = "Let the anchor hear every round of the replicas and take the same outer steps, in place of snapshots: exact, for what replicas "
             "send each other. All of it travels, with its momentum in fp32, when the anchor begins or has missed a round."},
    {.section = "anchor", .key = "staleness", .type = FIELD_INTEGER, .unit = "steps", .minimum = 2, .maximum = 1e6,
     .initial = "20", .applier = APPLIES_ALL_STAGES, IN_RUN(anchor_staleness),
     .help = "Steps from a snapshot to the first use of what came of it. Snapshots are sent just fast enough for it."},
    {.section = "anchor", .key = "limit", .type = FIELD_INTEGER, .unit = "steps", .minimum = 1, .maximum = 1e6,
     .initial = "50", .applier = APPLIES_ALL_STAGES, IN_RUN(anchor_limit),
     .help = "Directions older than this are not taken into use any more; those in use fade out until twice that age."},
    {.section = "anchor", .key = "filter", .type = FIELD_CHOICE, .unit = "", .choices = filters, .initial = "tikhonov",
     .applier = APPLIES_ALL_STAGES, IN_RUN(anchor_filter),
     .help = "How gradients are corrected: not at all; by the anchor's singular values; by what two halves of a batch agree on in the "
             "anchor's directions; without an anchor, by shrinking their own singular values; by what each of the anchor's directions "
             "and they agree on; or with the anchor's own gradient in their place, of which anchor.mix should be small."},
    {.section = "anchor", .key = "mix", .type = FIELD_REAL, .unit = "", .minimum = 0, .maximum = 1, .initial = "0.7",
     .live = true, .applier = APPLIES_STAGE, IN_RUN(anchor_mix),
     .help = "Share of the corrected gradient in what the optimiser gets; 0 is the plain gradient."},
    {.section = "anchor", .key = "tau", .type = FIELD_REAL, .unit = "", .minimum = 0, .maximum = 1e9, .initial = "5",
     .applier = APPLIES_ALL_STAGES, IN_RUN(anchor_tau),
     .help = "tikhonov and align: singular values below it are damped, in the unit of anchor.tau_scale. For align 0.55 is a good one."},
    {.section = "anchor", .key = "tau_scale", .type = FIELD_CHOICE, .unit = "", .choices = scales, .initial = "spectrum",
     .applier = APPLIES_ALL_STAGES, IN_RUN(anchor_scale),
     .help = "Unit of anchor.tau: 1 (as published, with tau = 0.001); the root mean square of the anchor's singular values; "
             "or the gradient's own noise, from two halves of the batch."},
    {.section = "anchor", .key = "norm", .type = FIELD_CHOICE, .unit = "", .choices = norms, .initial = "gradient",
     .applier = APPLIES_ALL_STAGES, IN_RUN(anchor_norm),
     .help = "Norm of a matrix's gradient after its correction: what it is, what it was, or what it was without its noise. A filter that only "
             "damps makes steps shorter where it is left free."},
    {.section = "anchor", .key = "rank", .type = FIELD_INTEGER, .unit = "directions", .minimum = 1, .maximum = 504,
     .initial = "64", .applier = APPLIES_ALL_STAGES, IN_RUN(anchor_rank),
     .help = "Directions of a matrix that the anchor tells."},
    {.section = "anchor", .key = "returns", .type = FIELD_CHOICE, .unit = "", .choices = returns, .initial = "directions",
     .applier = APPLIES_ALL_STAGES, IN_RUN(anchor_returns),
     .help = "What comes back of a matrix: the strongest anchor.rank directions of the anchor's mean gradient, or all of that gradient, "
             "in bf16, with which only anchor.filter = gradient can do anything."},
    {.section = "anchor", .key = "beta", .type = FIELD_REAL, .unit = "", .minimum = 0, .maximum = 0.999, .initial = "0.5",
     .applier = APPLIES_STAGE, IN_RUN(anchor_beta),
     .help = "Memory of the anchor for its gradients, from snapshot to snapshot."},
    {.section = "anchor", .key = "second_moment", .type = FIELD_CHOICE, .unit = "", .choices = moments, .initial = "raw",
     .applier = APPLIES_ALL_STAGES, IN_RUN(anchor_moment),
     .help = "Gradient of AdamW's second moment: the plain one, or the corrected one, which undoes much of the correction."},
    {.section = "anchor", .key = "data", .type = FIELD_CHOICE, .unit = "", .choices = anchor_orders, .initial = "own",
     .applier = APPLIES_STAGE, IN_RUN(anchor_data),
     .help = "Windows that the anchor learns from: drawn for itself, or those of the step that began with the snapshot."},
    {.section = "anchor", .key = "micro_batches", .type = FIELD_INTEGER, .unit = "micro-batches", .minimum = 0,
     .maximum = 65535, .initial = "0", .applier = APPLIES_STAGE, IN_RUN(anchor_micro_batches),
     .help = "Micro-batches of one gradient of the anchor. 0 takes train.micro_batches."},
    {.section = "anchor", .key = "evaluate", .type = FIELD_BOOL, .unit = "", .initial = "yes", .applier = APPLIES_STAGE,
     IN_RUN(anchor_evaluate),
     .help = "Let the anchor measure the un-masked validation loss of every snapshot."},
    {.section = "anchor", .key = "lifeboat", .type = FIELD_BOOL, .unit = "", .initial = "yes", .applier = APPLIES_STAGE,
     IN_RUN(anchor_lifeboat),
     .help = "Keep the newest whole snapshot on the disk of the anchor's host, as lifeboat/model.safetensors in the run's folder."},

    {.section = "revert", .key = "steps", .type = FIELD_INTEGER, .unit = "steps", .minimum = 0, .maximum = 1e6, .initial = "0",
     .live = true, .applier = APPLIES_SCHEDULER, IN_RUN(revert_steps),
     .help = "After a live setting was changed, so many steps are watched: when loss or gradient norm leave their band, the setting "
             "goes back to what it was. 0 never does that."},
    {.section = "revert", .key = "loss", .type = FIELD_REAL, .unit = "", .minimum = 0, .maximum = 1000, .initial = "0.1",
     .live = true, .applier = APPLIES_SCHEDULER, IN_RUN(revert_loss),
     .help = "The band of the loss: by which share the mean of the last steps may be above the mean before the change."},
    {.section = "revert", .key = "norm", .type = FIELD_REAL, .unit = "times", .minimum = 1, .maximum = 1e6, .initial = "4",
     .live = true, .applier = APPLIES_SCHEDULER, IN_RUN(revert_norm),
     .help = "The band of the gradient norm: how many times its mean before the change it may be."},

    {.section = "link", .key = "security", .type = FIELD_CHOICE, .unit = "", .choices = securities, .initial = "tls",
     .applier = APPLIES_ALL_STAGES, IN_RUN(security),
     .help = "TLS 1.3 with certificates of this run on both sides; or plain TCP, for a network that you trust."},
    {.section = "link", .key = "pace", .type = FIELD_RATE, .unit = "", .minimum = 0, .maximum = RATE_MOST,
     .initial = "0", .applier = APPLIES_ALL_STAGES, IN_RUN(link_rate_bps),
     .help = "Limit of every road between stages. 0 sets none."},
    {.section = "link", .key = "slow_rate", .type = FIELD_RATE, .unit = "", .minimum = 0, .maximum = RATE_MOST,
     .initial = "0", .applier = APPLIES_ALL_STAGES, IN_RUN(slow_rate_bps),
     .help = "Rehearse a slow network: the rate of every road between stages. 0 leaves it as it is."},
    {.section = "link", .key = "slow_delay", .type = FIELD_DURATION, .unit = "", .minimum = 0,
     .maximum = 60 * SECOND, .initial = "0", .applier = APPLIES_ALL_STAGES, IN_RUN(slow_delay_ns),
     .help = "Rehearse a far network: the delay of every road between stages, one way."},
    {.section = "link", .key = "slow_jitter", .type = FIELD_DURATION, .unit = "", .minimum = 0,
     .maximum = 60 * SECOND, .initial = "0", .applier = APPLIES_ALL_STAGES, IN_RUN(slow_jitter_ns),
     .help = "Rehearse an uneven network: up to so much is added to the delay at random."},
    {.section = "link", .key = "record", .type = FIELD_BOOL, .unit = "", .initial = "no",
     .applier = APPLIES_ALL_STAGES, IN_RUN(record),
     .help = "Keep all that the roads between stages carry in the run's folder, for kedge decode."},

    {.section = "host", .key = "kind", .type = FIELD_CHOICE, .unit = "", .choices = host_kinds, .initial = "local",
     .applier = APPLIES_CONSOLE, IN_HOST(kind),
     .help = "How the host is reached: local is this machine; ssh is the one that host.ssh says, or, without that, the "
             "one that ssh finds under the section's name. With host.ssh given, ssh is meant."},
    {.section = "host", .key = "ssh", .type = FIELD_TEXT, .unit = "[USER@]HOST[:PORT]", .initial = "",
     .applier = APPLIES_CONSOLE, IN_HOST(ssh),
     .help = "Where to log in, or an alias of ~/.ssh/config: name, port, user, keys, jump hosts and known hosts of an alias "
             "are those that the ssh program would use."},
    {.section = "host", .key = "identity", .type = FIELD_TEXT, .unit = "FILE", .initial = "", .applier = APPLIES_CONSOLE,
     IN_HOST(identity),
     .help = "The private key to log in with. Without it, the keys of the ssh-agent and those that ssh would try."},
    {.section = "host", .key = "host_key", .type = FIELD_TEXT, .unit = "sha256:...", .initial = "",
     .applier = APPLIES_CONSOLE, IN_HOST(host_key),
     .help = "The fingerprint of the host's key, as ssh-keygen -l prints it. Then only this key is trusted and no file of "
             "known hosts is asked."},
    {.section = "host", .key = "listen", .type = FIELD_TEXT, .unit = "HOST:PORT", .initial = "127.0.0.1:0",
     .applier = APPLIES_AGENT, IN_HOST(listen),
     .help = "Where the stages of the host wait for their neighbours. Port 0 takes any free port."},
    {.section = "host", .key = "announce", .type = FIELD_TEXT, .unit = "HOST[:PORT]", .initial = "",
     .applier = APPLIES_AGENT, IN_HOST(announce),
     .help = "How the neighbours reach that place from outside. Without a port, the one that was bound. Without it, as it "
             "was bound; for a host over SSH that listens on all its addresses, the name that SSH reached it by."},
    {.section = "host", .key = "uplink", .type = FIELD_RATE, .unit = "", .minimum = 0, .maximum = RATE_MOST,
     .initial = "0", .applier = APPLIES_SCHEDULER, IN_HOST(uplink_bps),
     .help = "What the host may send altogether; its stages share it. 0 sets no limit."},
    {.section = "host", .key = "threads", .type = FIELD_INTEGER, .unit = "threads", .minimum = 0, .maximum = 1024,
     .initial = "0", .applier = APPLIES_SCHEDULER, IN_HOST(threads),
     .help = "Compute threads of each stage. 0 shares the cores of the machine among the stages on it."},
    {.section = "host", .key = "spare", .type = FIELD_BOOL, .unit = "", .initial = "no", .applier = APPLIES_SCHEDULER, IN_HOST(spare),
     .help = "Nothing is planned for this host; 'kedge replace' lets it take the place of another one."},
    {.section = "host", .key = "lease_until", .type = FIELD_TIME, .unit = "", .minimum = 0, .maximum = TIME_MOST,
     .initial = "0", .applier = APPLIES_SCHEDULER, IN_HOST(lease_until_s),
     .help = "When whoever rents the host out takes it back, in UTC: 2026-12-01T08:00Z. Early enough before that the weights are "
             "saved; then the host is drained, if other replicas can go on without it, or the run is stopped. 0 is never."},
    {.section = "host", .key = "disk_budget", .type = FIELD_BYTES, .unit = "", .minimum = 0, .maximum = BYTES_MOST,
     .initial = "0", .applier = APPLIES_ALL_STAGES, IN_HOST(disk_budget),
     .help = "What kedge may have on the host's disk altogether: programs, text, checkpoints, logs, weights, of all its runs. "
             "'kedge check' and a start refuse what would not fit, weights that would not fit are not written, and what is above it "
             "is an event. 0 sets no limit."},
    {.section = "host", .key = "price_per_hour", .type = FIELD_REAL, .unit = "", .minimum = 0, .maximum = 1e6,
     .initial = "0", .applier = APPLIES_AGENT, IN_HOST(price_per_hour),
     .help = "What the host costs in an hour, in the money of run.budget."},
    {.section = "host", .key = "price_per_gb_up", .type = FIELD_REAL, .unit = "", .minimum = 0, .maximum = 1e6,
     .initial = "0", .applier = APPLIES_SCHEDULER, IN_HOST(price_per_gb_up),
     .help = "What 10^9 bytes that leave the host cost, in the money of run.budget."},
};

#define ROW_COUNT (sizeof rows / sizeof *rows)
_Static_assert(ROW_COUNT <= PROFILE_ROWS, "struct profile has no place for the lines of all rows");

/* ---- find ---- */

const struct field *field_all(size_t *count)
{
    *count = ROW_COUNT;
    return rows;
}

int field_index(const struct field *field)
{
    return (int)(field - rows);
}

bool field_is_host(const struct field *field)
{
    return strcmp(field->section, "host") == 0;
}

int field_host_index(const struct field *field)
{
    int index = 0;
    BUG_IF(!field_is_host(field));
    for (const struct field *row = rows; row < field; row++)
        index += field_is_host(row);
    BUG_IF(index >= PROFILE_HOST_ROWS);
    return index;
}

const char *field_name(const struct field *field, char *out, size_t size)
{
    snprintf(out, size, "%s.%s", field->section, field->key);
    return out;
}

const struct field *field_find(const char *name)
{
    for (size_t i = 0; i < ROW_COUNT; i++) {
        size_t section = strlen(rows[i].section);
        if (strncmp(name, rows[i].section, section) == 0 && name[section] == '.' &&
            strcmp(name + section + 1, rows[i].key) == 0)
            return &rows[i];
    }
    return NULL;
}

const char *field_nearest(const char *name)
{
    static char names[ROW_COUNT][48];
    const char *pointers[ROW_COUNT];
    for (size_t i = 0; i < ROW_COUNT; i++)
        pointers[i] = field_name(&rows[i], names[i], sizeof names[i]);

    const char *near = text_nearest(name, pointers, ROW_COUNT);
    if (near)
        return near;
    /* The right key in the wrong section. */
    const char *dot = strrchr(name, '.'), *key = dot ? dot + 1 : name, *same = NULL;
    int found = 0;
    for (size_t i = 0; i < ROW_COUNT; i++) {
        if (strcmp(key, rows[i].key) == 0) {
            same = pointers[i];
            found++;
        }
    }
    return found == 1 ? same : NULL;
}

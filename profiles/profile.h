/*
 * A profile: all that a run is told. Open data; the members are the rows of fields.c, in the same order and grouped by
 * section.
 *
 * profile_read: INI file → profile, with all complaints at once, each `file:line: …`. profile_check: what no single row can
 * see. profile_to_settings / profile_from_settings: the same as NAME=VALUE lines, for kedged → worker (a worker has no INI
 * reader).
 */
#ifndef KEDGE_PROFILES_PROFILE_H
#define KEDGE_PROFILES_PROFILE_H

#include <stdbool.h>
#include <stdint.h>

#include "ssh/base/buf.h"
#include "ssh/base/why.h"

#define PROFILE_TEXT 256
#define PROFILE_PATHS 1024
#define PROFILE_HOSTS 64
#define PROFILE_MAX_STAGES 64 /* processes: stages of all replicas together */
#define PROFILE_MAX_REPLICAS 16
#define PROFILE_ROWS 160
#define PROFILE_HOST_ROWS 16
#define PROFILE_SET (-1)
#define PROFILE_NAME 40 /* longest name of a run or host: they become file names */
#define PROFILE_NAME_LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."
#define PROFILE_NAME_RULE "1 to 40 letters, digits, '-', '_' or '.', not beginning with '.' or '-'"
#define PROFILE_SETTINGS_BYTES (128 * 1024) /* of a profile with all its hosts */
#define PROFILE_GRADIENT_BYTES (64 << 20)   /* of a gradient that the anchor returns whole: WIRE_BASIS_BYTES */
#define PROFILE_STATE_BYTES (15 << 20)     /* of a boundary's statistics */
#define PROFILE_MESSAGE_BYTES (255 << 20)  /* of a micro-batch at a boundary; the wire carries a little more */

enum host_kind { HOST_LOCAL, HOST_SSH };
enum model_rope { ROPE_NONE, ROPE_LINEAR, ROPE_LLAMA3 }; /* as enum model_scaling */
enum model_head { HEAD_UNTIED, HEAD_TIED };
enum profile_lora { /* = enum lora_target */
    PROFILE_LORA_Q, PROFILE_LORA_K, PROFILE_LORA_V, PROFILE_LORA_O, PROFILE_LORA_GATE, PROFILE_LORA_UP, PROFILE_LORA_DOWN,
    PROFILE_LORA_TARGETS
};
enum data_tokenizer { TOKENIZER_BYTES, TOKENIZER_MODEL };
enum data_template { TEMPLATE_PLAIN, TEMPLATE_CHATML, TEMPLATE_LLAMA3, TEMPLATE_MISTRAL };
enum data_bad_lines { BAD_LINES_STOP, BAD_LINES_SKIP };
enum data_windows { WINDOWS_RANDOM, WINDOWS_EPOCHS };
enum data_documents { DOCUMENTS_JOINED, DOCUMENTS_APART };
enum train_precision { PRECISION_FP32, PRECISION_BF16 };
enum train_moments { MOMENTS_FP32, MOMENTS_BF16, MOMENTS_FP8 };
enum train_schedule { SCHEDULE_COSINE, SCHEDULE_CONSTANT };
enum boundary_codec { CODEC_DENSE, CODEC_MASK, CODEC_SUBSPACE, CODEC_PRINCIPAL, CODEC_TOPK, CODEC_HYBRID, CODEC_ENTROPY }; /* = enum codec_kind */
enum boundary_values { VALUES_FP32, VALUES_BF16, VALUES_INT8, VALUES_INT4 };
enum boundary_gain { GAIN_ONE, GAIN_UNBIASED, GAIN_RMS };
enum boundary_decoding { DECODING_PLAIN, DECODING_MMSE };                                        /* = enum codec_decoding */
enum boundary_reference { REFERENCE_NONE, REFERENCE_MEAN, REFERENCE_TOKENS };
enum boundary_statistics { STATISTICS_LIVE, STATISTICS_ANCHOR };
enum sync_pattern { PATTERN_STRIDED, PATTERN_SEQUENTIAL };                                  /* = enum fragment_pattern */
enum sync_outer_kind { OUTER_NESTEROV, OUTER_NONE };
enum sync_payload { SEND_FP32, SEND_BF16, SEND_INT8, SEND_INT4, SEND_E3M0, SEND_POWERSGD }; /* = enum sync_kind */
enum sync_table { TABLE_PAYLOAD, TABLE_BF16, TABLE_INT8, TABLE_TOUCHED, TABLE_LOW_RANK };
enum sync_power { POWER_ALTERNATING, POWER_TWO_SIDED };
enum anchor_filter { ANCHOR_NONE, ANCHOR_TIKHONOV, ANCHOR_WIENER, ANCHOR_SHRINK, ANCHOR_ALIGN, ANCHOR_GRADIENT }; /* = enum filter_kind */
enum anchor_scale { TAU_ABSOLUTE, TAU_SPECTRUM, TAU_NOISE };                                /* = enum filter_scale */
enum anchor_norm { NORM_FREE, NORM_GRADIENT, NORM_SIGNAL };                                 /* = enum filter_norm */
enum anchor_moment { MOMENT_RAW, MOMENT_CORRECTED };
enum anchor_returns { RETURNS_DIRECTIONS, RETURNS_GRADIENT };
enum anchor_data { ANCHOR_OWN, ANCHOR_PAIRED };
enum run_without_head { WITHOUT_TRAIN_ON, WITHOUT_STOP };
enum road_security { SECURITY_TLS, SECURITY_PLAIN };

struct profile_host {
    char name[64];              /* from the section's name, not a row */
    int kind;                   /* host.kind; HOST_SSH also when host.ssh is given alone */
    char ssh[128];              /* host.ssh: [USER@]HOST[:PORT] or an alias; "" with kind ssh = the section's name */
    char identity[PROFILE_TEXT]; /* host.identity: a key file, "" = those that ssh would try */
    char host_key[96];          /* host.host_key: sha256:…, "" = known_hosts decide */
    char listen[128];           /* host.listen: address to bind data roads, default 127.0.0.1:0 */
    char announce[128];         /* host.announce: how others reach it, "" = as bound */
    uint64_t uplink_bps;        /* host.uplink: 0 = unlimited */
    int64_t threads;            /* host.threads of each process: 0 = its share of the cores */
    bool spare;                 /* host.spare: no process is planned for it; `kedge replace` may put some there */
    uint64_t lease_until_s;     /* host.lease_until: seconds since 1970; 0 = never */
    uint64_t disk_budget;       /* host.disk_budget: bytes that kedge may have there, 0 = unlimited */
    double price_per_hour;      /* host.price_per_hour */
    double price_per_gb_up;     /* host.price_per_gb_up: of 10⁹ bytes that leave it */
    int line;                   /* of the section in the file, 0 = not from a file */
    int lines[PROFILE_HOST_ROWS]; /* of each row, as profile.lines */
};

struct profile {
    /* [run] */
    char name[64];              /* run.name; default: the file's base name */
    int64_t seed;               /* run.seed */
    int64_t steps;              /* run.steps */
    uint64_t timeout_ns;        /* run.timeout: the one base number; see profiles/timeouts.h */
    uint64_t deadline_ns;       /* run.deadline: 0 = none; see profile_fuse_ns */
    double budget;              /* run.budget, in the money of host.price_per_hour; 0 = none */
    int without_head;           /* run.without_scheduler */
    char listen[128];           /* run.listen: control address of kedged, 127.0.0.1:0 */
    char announce[128];         /* run.announce: how hosts reach it, HOST[:PORT]; "" = as bound */
    char head[64];              /* run.head: the host where kedged runs; "" = the operator's machine */
    int log_level;              /* run.log: enum log_level */

    /* [model] */
    char model_path[PROFILE_TEXT]; /* model.path: HF folder; "" = fresh weights of the shape below */
    int64_t hidden, layers, heads, kv_heads, ffn, vocabulary;
    int64_t head_width;         /* model.head_width: 0 = hidden / heads; see profile_head_width */
    int head_tie;               /* model.head: untied|tied */
    bool qkv_bias, qk_norm;     /* model.qkv_bias, model.qk_norm */
    int64_t window;             /* model.window: attention sees no further; 0 = no limit */
    double rope_theta, norm_epsilon;
    int rope_scaling;           /* model.rope_scaling: enum model_rope */
    double rope_factor, rope_low, rope_high;
    int64_t rope_context;

    /* [lora] */
    int64_t lora_rank;          /* 0: no adapters, all weights are trained */
    double lora_alpha;
    char lora_targets[64];      /* profile_lora_targets */
    double lora_dropout;        /* only 0 */
    char lora_path[PROFILE_TEXT]; /* PEFT folder to go on from; then its rank, alpha and targets count */

    /* [data] */
    char data_paths[PROFILE_PATHS]; /* data.path: files and globs, separated by spaces */
    int tokenizer;              /* data.tokenizer: enum data_tokenizer */
    int data_template;          /* data.template */
    int bad_lines;              /* data.bad_lines */
    int data_windows;           /* data.order */
    int data_documents;         /* data.documents */
    double validation_share;    /* data.validation: share of the text kept for validation */
    int64_t validation_windows; /* data.validation_windows: how many windows are evaluated */

    /* [train] */
    int64_t sequence;           /* train.sequence: tokens of a window */
    int64_t micro_batch;        /* train.micro_batch: sequences of a micro-batch */
    int64_t micro_batches;      /* train.micro_batches: per step */
    double learning_rate;       /* live */
    int schedule;
    int64_t warmup;             /* steps */
    double final_share;         /* train.final_lr_share: cosine ends at this share of lr */
    double weight_decay, beta1, beta2, epsilon, clip;
    int precision, moments;     /* train.precision, train.moments */
    int64_t frozen;             /* train.frozen: layers at the beginning that are not trained */
    int64_t checkpoint_every;   /* checkpoint.every: steps between sets; 0 = by order and at the end */
    int64_t checkpoint_keep;    /* checkpoint.keep: so many sets stay */
    int64_t evaluate_every;     /* train.evaluate_every: steps between un-masked validations; 0 = only first and last */

    /* [pipeline] */
    int64_t stages;
    char stage_layers[PROFILE_TEXT]; /* pipeline.layers: "2,1,1,2"; "" = as their cost asks; see profile_stage_layers */
    int64_t in_flight;          /* 0 = from the latency formula */
    bool recompute;

    /* [boundary] and [mask] */
    int codec;                  /* boundary.codec */
    int values;                 /* boundary.values: number format of the values that travel */
    int gain;                   /* boundary.gain */
    int decoding;               /* boundary.decoding */
    int reference;              /* boundary.reference */
    int64_t context;            /* boundary.context: tokens that the reference looks at */
    int64_t rank;               /* boundary.rank: directions, and features of a token; 0 = all */
    double forward_share;       /* boundary.forward_share: of the bytes that travel */
    int64_t bits;               /* boundary.bits: of a coefficient of the principal codec */
    int statistics;             /* boundary.statistics: who measures */
    int64_t refresh;            /* boundary.refresh: steps between measurements */
    double decay;               /* boundary.decay: what statistics keep of the old */
    int64_t late;               /* boundary.late: steps from a measurement to its use */
    int64_t calibrate;          /* boundary.calibrate: dense micro-batches before the first step */
    int64_t stale;              /* boundary.stale: steps after which statistics are not used any more; 0 = never */
    bool debug_checksum;        /* boundary.checksum */
    double mask_rate;           /* mask.rate, live */

    /* [replicas] and [sync] */
    int64_t replicas;           /* replicas.count */
    bool rejoin;                /* replicas.rejoin: one that has left is started again */
    int64_t sync_every;         /* H */
    int64_t sync_fragments;     /* P */
    int sync_pattern;
    int64_t sync_overlap;       /* τ */
    double sync_merge;          /* α */
    int sync_outer;             /* enum sync_outer_kind */
    double outer_rate, outer_momentum;
    int sync_payload;           /* enum sync_payload */
    int64_t sync_rank;          /* of PowerSGD */
    int sync_power;             /* enum sync_power */
    int sync_table;             /* enum sync_table */
    int64_t sync_table_rank;

    /* [anchor] */
    char anchor_host[64];       /* "" = there is none */
    int64_t anchor_threads;
    int64_t anchor_every, anchor_staleness, anchor_limit; /* steps */
    int anchor_filter;          /* enum anchor_filter */
    double anchor_mix;          /* live */
    double anchor_tau;
    int anchor_scale, anchor_norm, anchor_moment, anchor_returns;
    int64_t anchor_rank;
    double anchor_beta;
    int anchor_data;
    int64_t anchor_micro_batches; /* 0 = as train.micro_batches */
    bool anchor_evaluate, anchor_lifeboat, anchor_follow;

    /* [revert], live: kedged takes a change back that the run does not bear */
    int64_t revert_steps;       /* 0 = never */
    double revert_loss, revert_norm;

    /* [link] */
    int security;               /* link.security: tls|plain */
    uint64_t link_rate_bps;     /* link.pace: own limit of every data road, 0 = none */
    uint64_t slow_rate_bps, slow_delay_ns, slow_jitter_ns; /* link.slow_*: rehearse a slow road */
    bool record;                /* link.record: capture every data road into the run's folder */

    /* [host NAME] sections */
    struct profile_host hosts[PROFILE_HOSTS];
    int64_t host_count;

    /* Where each row of fields.c was given: a line of the file, PROFILE_SET by profile_set, 0 = it is the default. */
    int lines[PROFILE_ROWS];
};

struct complaints { /* one line each, "file:line: text" */
    struct buf lines; /* newline separated */
    int count;
};

void complaints_init(struct complaints *complaints);
void complaints_clear(struct complaints *complaints);
void complaints_add(struct complaints *complaints, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* The defaults of the table; no host. */
void profile_defaults(struct profile *profile);
/* The file that NAME means: NAME as it is when it has a '/' or exists; else NAME or NAME.ini in $XDG_CONFIG_HOME/kedge/, in
 * ../share/kedge/profiles/ beside the program, and in profiles/ here. ERR_ABSENT names the places that were searched. */
int profile_find(const char *name, char *out, size_t size, struct why *why);
/* Reads the file that `name` means. All complaints are added; 0 only when there is none. run.name is the file's base name
 * when it is not given, relative and ~/ paths are made absolute, and a profile without hosts gets one local host named
 * "local". `found` (may be NULL) gets the path that was read. */
int profile_read(const char *name, struct profile *profile, struct complaints *complaints, char *found, size_t found_size);
/* What no single row can see: heads divide hidden, kv_heads divide heads, stages ≤ layers, run.name usable as a file name,
 * model path exists, every data path matches a file, addresses … `file` is for the complaints. With model.path the shape is
 * checked only when it has been set (profile_set from config.json): check once before, once after. 0 when nothing was added.
 */
int profile_check(const struct profile *profile, const char *file, struct complaints *complaints);
/* Bits 1 << enum profile_lora of "q,v,up"; 0: no such list. And the other way. */
uint32_t profile_lora_targets(const char *text);
void profile_lora_letters(uint32_t targets, char *out, size_t size);
int64_t profile_head_width(const struct profile *profile); /* channels of an attention head */
/* The line where a row was given ("mask.rate", "host.NAME.listen"), as in profile.lines. */
int profile_line(const struct profile *profile, const char *name);

/* "mask.rate" ← "0.9". Host rows by "host.NAME.listen". */
int profile_set(struct profile *profile, const char *name, const char *value, struct why *why);
int profile_get(const struct profile *profile, const char *name, char *out, size_t size, struct why *why);

bool profile_name_usable(const char *name); /* of a run or host: PROFILE_NAME_RULE */
struct profile_host *profile_find_host(struct profile *profile, const char *name); /* NULL when there is none */
const struct profile_host *profile_head(const struct profile *profile); /* of run.head; NULL = the operator's machine */
/* With the defaults of the host rows; NULL when the name is no good, taken, or there is no room. */
struct profile_host *profile_add_host(struct profile *profile, const char *name, struct why *why);

/* NAME=VALUE lines of all rows; ERR_FULL when `out` is too small. */
int profile_to_settings(const struct profile *profile, struct buf *out, struct why *why);
/* Hostile input: every line must be a row in range. Rows that are missing keep their defaults. */
int profile_from_settings(const uint8_t *text, size_t bytes, struct profile *profile, struct why *why);
/* May `name` have the value that it has in `changed`, in a run that began with `begun`? 0, or ERR_REFUSED with the reason: what the
 * table's range does not say (profile_live.c). */
int profile_check_live(const struct profile *begun, const struct profile *changed, const char *name, struct why *why);
/* May a run that began with `begun` go on with `now`? 0, or ERR_REFUSED with the first setting that must not be another (profile_resume.c). */
int profile_check_resume(const struct profile *begun, const struct profile *now, struct why *why);
/* Live settings that a run was given after it began, `live` having them, hold on in `now`, unless `now` says something else than `begun`
 * did. kept_cb hears of each. */
int profile_resume_live(const struct profile *begun, const struct profile *live, struct profile *now,
                        void (*kept_cb)(const char *name, const char *value, void *arg), void *arg, struct why *why);
/* Layers of each stage, as pipeline.layers says; 1, ERR_INVALID (why not), or 0: it says nothing. */
int profile_stage_layers(const struct profile *profile, int64_t layers[PROFILE_MAX_STAGES], struct why *why);
/* Are gradients corrected: by an anchor's directions, or shrunk by themselves? */
bool profile_corrects(const struct profile *profile);
int64_t profile_anchor_rank(const struct profile *profile); /* of the directions that come back; 0: gradients come whole */
/* Does what crosses the cuts need principal directions? */
bool profile_has_directions(const struct profile *profile);
/* Are reference and directions of the cuts measured by the anchor, after the first ones? */
bool profile_anchor_measures(const struct profile *profile);
/* 0, or ERR_REFUSED with why this live setting changes nothing in a run that began so. */
int profile_check_effect(const struct profile *begun, const char *name, struct why *why);
int profile_rounds_under_way(const struct profile *profile); /* most exchanges of a stage at a time: gpu/train/fragments.c */
uint64_t profile_hash(const struct profile *profile); /* of the settings text without live rows */

/* After so long the run ends, by its deadline or because the hours of its hosts have cost the budget, whichever is first; 0 = never.
 * Armed on every host before the first worker starts; the scheduler counts the bytes as well (scheduler/money.h). */
uint64_t profile_fuse_ns(const struct profile *profile);
/* ERR_INVALID when the lease of a host (host.lease_until) is over at this time: nothing is to begin there. */
int profile_check_leases(const struct profile *profile, uint64_t wall_ms, struct why *why);

/* Change one value in an INI text and keep every other byte (comments, order, spacing, line ends). A key that is
 * not there is added at the end of its section, a section at the end of the file. The value is checked by the table. */
int profile_write_value(const char *path, const char *name, const char *value, struct why *why);
/* The text of `from` as `to` (0600), with what profile_read and profile_set decided written into it: the run's name,
 * absolute paths, the shape of a checkpoint. So that reading `to` elsewhere gives the same profile. */
int profile_copy(const char *from, const struct profile *profile, const char *to, struct why *why);

#endif

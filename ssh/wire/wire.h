/*
 * The whole language of kedge, in one header.
 *
 * Who speaks: C console, S scheduler (kedged), A agent, W worker (stage or anchor). Everything is little-endian.
 * A message is one `struct frame_header` (ssh/wire/frame.h) and a payload whose fields are the rows of the table in
 * wire.c, in struct order: integers and floats at their width, text as u16 length + bytes, and at most one tail of raw
 * bytes at the end (u32 length + bytes). Numbers are never reused. An unknown type, a payload over its maximum,
 * a missing or left-over byte closes the road with a reason: nothing is ever re-synchronised.
 *
 * WIRE_VERSION changes whenever a byte on the wire does; both ends must have the same one.
 */
#ifndef KEDGE_WIRE_WIRE_H
#define KEDGE_WIRE_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ssh/base/buf.h"
#include "ssh/base/why.h"

#define WIRE_VERSION 8
#define WIRE_RECORD " (record)" /* ends hello.program of a bridge that serves a journal: no scheduler lives */
#define WIRE_NAME 64     /* longest name of a host, process, road or setting, with its NUL */
#define WIRE_ADDRESS 128 /* longest HOST:PORT */
#define WIRE_TEXT 400    /* longest reason or event text */

enum wire_lane { LANE_CONTROL, LANE_ACT, LANE_SYNC, LANE_BULK, LANE_TELEM, LANE_COUNT };

enum wire_role { ROLE_CONSOLE = 1, ROLE_SCHEDULER, ROLE_AGENT, ROLE_STAGE, ROLE_ANCHOR };

enum wire_type {
    /* 1–19 hello and health */
    WIRE_HELLO = 1,     /* both ways, first frame of every road; nothing else may precede it */
    WIRE_HEARTBEAT = 2, /* both ways, every heartbeat period; carries the round-trip measurement */
    WIRE_BYE = 3,       /* both ways, last frame: the reason in words */

    /* 20–39 run control */
    WIRE_SPAWN = 20,    /* S→A start a worker process */
    WIRE_SIGNAL = 21,   /* S→A signal a worker process */
    WIRE_PROCESS = 22,  /* A→S a worker process started or ended, and how */
    WIRE_ASSIGN = 23,   /* S→W what you are: stage, layers, settings */
    WIRE_ROAD = 24,     /* S→W one road you must have: whom, and whether you dial */
    WIRE_READY = 25,    /* W→S loaded / roads stand */
    WIRE_START = 26,    /* S→W train from this step (also ends a hold) */
    WIRE_HOLD = 27,     /* S→W stop at the next step boundary and keep everything */
    WIRE_STOP = 28,     /* S→W, S→A end; deadline inside */
    WIRE_EVENT = 29,    /* W→S, A→S something happened, for people */
    WIRE_DONE = 30,     /* W→S all steps are trained */
    WIRE_SAVE = 31,     /* S→W (stage 0) have all stages write their weights at a step boundary */
    WIRE_SAVED = 32,    /* W→S this stage's part of a set is on its disk, or why not */
    WIRE_KEPT = 33,     /* S→W sets below this step may go: newer ones are whole */

    /* 40–59 knobs */
    WIRE_KNOB = 40,      /* S→W (stage 0) use this value from the next step that you stamp, not before from_step */
    WIRE_KNOB_USED = 41, /* W→S the step that really used it first */

    /* 60–79 activations, W→W */
    WIRE_STAMP = 60,       /* downstream, lane ACT, before the first ACT of every step: what must agree */
    WIRE_ACT = 61,         /* downstream: one micro-batch of boundary activations, coded, with its token ids */
    WIRE_GRAD = 62,        /* upstream: the gradient of the same, coded, and sums that ride back */
    WIRE_CODEC_STATE = 63, /* either way: versioned state of a boundary codec (channel means, bases) */
    WIRE_TIED = 64,        /* a piece of the gradient of a tied embedding: upstream the last stage's, downstream the sum */

    /* 80–99 the anchor */
    WIRE_CAPTURE = 80,  /* S→W (stage 0) have all stages of the replica keep the weights that a step begins with */
    WIRE_GRANT = 81,    /* S→W so much of the snapshot may be sent, and how fast; to the anchor: how fast */
    WIRE_USE = 82,      /* S→W (stage 0) correct by this version of the anchor's directions from a step on */
    WIRE_MARK = 83,     /* W→S how far a snapshot or what came of it has got */
    WIRE_SNAPSHOT = 84, /* stage→anchor, ahead of its chunks: what they will make */
    WIRE_CHUNK = 85,    /* stage→anchor: some words of it, whole or as a difference */
    WIRE_HELD = 86,     /* anchor→stage: what is held, and what has come of the next */
    WIRE_WANT = 87,     /* anchor→stage: this chunk again, whole; with anchor.follow: what is held of a fragment */
    WIRE_BASIS = 88,    /* anchor→stage: the directions of one matrix */
    WIRE_METER = 89,    /* W→S what the correction of a class of matrices did in a step */
    WIRE_STATISTICS = 90, /* anchor→stage: statistics of a cut, as the anchor measured them */
    WIRE_FOLLOW = 91,   /* stage→anchor: a piece of what changes the common copy of a fragment, or what it is */

    /* 100–119 telemetry, lane TELEM, latest wins per (type, key) */
    WIRE_SAMPLE = 100,      /* W→S one training step of one stage */
    WIRE_ROAD_SAMPLE = 101, /* W→S counters of one data road, one lane a row */
    WIRE_HOST = 102,        /* A→S how its host is */
    WIRE_SPECTRUM = 103,    /* W→S anchor: how strong the directions of a matrix are */

    /* 120–139 console */
    WIRE_WATCH = 120,       /* C→S send me the state, and then changes if `follow` */
    WIRE_RUN_STATE = 121,   /* S→C */
    WIRE_PROCESS_ROW = 122, /* S→C */
    WIRE_ROAD_ROW = 123,    /* S→C */
    WIRE_EVENT_ROW = 124,   /* S→C */
    WIRE_LEDGER_ROW = 125,  /* S→C one knob change and where it stands */
    WIRE_KNOB_ROW = 126,    /* S→C current value of one live setting */
    WIRE_STATE_END = 127,   /* S→C everything current has been sent once */
    WIRE_ORDER = 128,       /* C→S set a knob, stop, pause, resume, write the weights */
    WIRE_REPLY = 129,       /* S→C to an order */
    WIRE_ANCHOR_ROW = 130,  /* S→C the anchor: versions, ages, what it costs */
    WIRE_METER_ROW = 131,   /* S→C newest sums of a class of matrices over all stages of replica 0 */
    WIRE_HOST_ROW = 132,    /* S→C how a host is */
    WIRE_SPECTRUM_ROW = 133,/* S→C newest of a matrix */

    /* 140–159 what the replicas exchange */
    WIRE_SYNC = 140,  /* W→W between siblings, lane SYNC: a piece of a contribution to a round */
    WIRE_OUTER = 141, /* W→S a round is over: what the common copy of the fragment is now */
    WIRE_AGREE = 142, /* W→W first stage, from the lowest replica to all siblings, ahead of its contribution to a round: what changes after it */
    WIRE_PART = 143,   /* W→S the road to this replica's stage is lost; S→W give it up, and say how many of its contributions are here */
    WIRE_PARTED = 144, /* W→S so many */
    WIRE_LEAVE = 145,  /* S→W this replica is out: so many of its contributions count */
    WIRE_HAVE = 146,   /* W→W all contributions to this exchange are here (more than two replicas) */
    WIRE_JOIN = 147,   /* S→W to the stages of a replica that was started again: copy what the others have in common;
                          to the first stage of the lowest replica: let it in */
    WIRE_ENTER = 148,  /* W→W to one that joins: from this step on you are counted, and this is what replicas exchange */
    WIRE_ENTERED = 149, /* W→S first stage: from this step on it is counted */
    WIRE_PULL = 150,   /* W→W from one that joins: what the common copy of a fragment is now, from this byte on */
    WIRE_STATE = 151,  /* W→W the answer, lane BULK: a piece of it */
};

struct wire_bytes { /* a tail; points into the decoded payload */
    const uint8_t *data;
    uint32_t bytes;
};

struct wire_hello {
    uint16_t version;         /* WIRE_VERSION */
    uint8_t role;             /* enum wire_role of the sender */
    char program[WIRE_NAME];  /* "kedge-worker 0.1.0" */
    char name[WIRE_NAME];     /* process name, unique in the run: "kedged", "agent@HOST", "r0s1", "console" */
    char host[WIRE_NAME];     /* host name in the profile; must equal the certificate's common name */
    uint32_t pid;
    uint64_t profile_hash;    /* 0 from consoles */
    uint64_t host_nonce;      /* identity of the machine beyond its address; 0 when not known */
    char announce[WIRE_ADDRESS]; /* where this process accepts data roads; "" = nowhere */
};

struct wire_heartbeat {
    uint64_t sent_ns; /* sender's monotonic clock */
    uint64_t echo_ns; /* newest sent_ns heard from the peer; 0 = none yet */
    uint64_t held_ns; /* how long ago it was heard; RTT = now − echo − held */
    uint64_t wall_ns; /* sender's wall clock; compared with the receiver's and half the RTT it tells how far it is off */
};

struct wire_bye {
    int32_t err; /* enum err, 0 = a planned goodbye */
    char text[WIRE_TEXT];
};

struct wire_spawn {
    char process[WIRE_NAME]; /* "r0s1" */
    uint8_t role;            /* ROLE_STAGE, ROLE_ANCHOR */
    uint32_t incarnation;    /* 1, 2, … grows with every restart */
    char listen[WIRE_ADDRESS];   /* where it binds its data listener, "127.0.0.1:0" */
    char announce[WIRE_ADDRESS]; /* how others reach that; "" = as bound */
};

struct wire_signal {
    char process[WIRE_NAME];
    uint32_t incarnation;
    int32_t signal;
};

enum process_state { PROCESS_WANTED, PROCESS_STARTED, PROCESS_READY, PROCESS_EXITED };

struct wire_process {
    char process[WIRE_NAME];
    uint32_t incarnation;
    uint8_t state; /* PROCESS_STARTED or PROCESS_EXITED */
    uint32_t pid;
    int32_t exit_code; /* of an exit; −1 when ended by a signal */
    int32_t signal;    /* 0 when it exited */
    char reason[WIRE_TEXT]; /* "killed by signal 9 (Killed)", last line of its log */
};

struct wire_assign {
    uint16_t replica, replicas, stage, stages;
    uint16_t first_layer, layers;
    uint16_t in_flight;     /* micro-batches this stage may hold: memory for that many is taken at once */
    uint16_t threads;       /* compute threads of this process */
    uint64_t uplink_bps;    /* this process's share of its host's uplink, bits a second; 0 = no limit */
    uint64_t first_step;    /* the next step to train */
    uint64_t resume_bytes;  /* of this process's file in checkpoint/FIRST_STEP − 1, from which it goes on; 0 = from none */
    uint64_t resume_hash;   /* … and its hash (ssh/base/hash.h) */
    uint32_t members;       /* a bit per replica that trains; a replica whose own is missing joins them */
    struct wire_bytes settings; /* profile_to_settings: NAME=VALUE lines */
};

enum road_side { ROAD_UPSTREAM, ROAD_DOWNSTREAM, ROAD_SIBLING, ROAD_ANCHOR, ROAD_STAGE };

struct wire_road {
    char peer[WIRE_NAME];       /* process name */
    uint8_t dial;               /* 1: dial `address`; 0: the peer will dial us */
    uint8_t side;               /* enum road_side: peer is the previous stage, the next one, the same one of another replica,
                                   the anchor; of the anchor: a stage */
    uint16_t replica;           /* of the peer */
    uint16_t index;             /* of a ROAD_STAGE: replica · stages + stage of the peer */
    uint32_t life;              /* incarnation of the peer */
    char address[WIRE_ADDRESS];
};

/* COPIED, JOINED: of one that joins: it has what the others had in common; it has what they have, and may be started */
enum ready_state { READY_LOADED = 1, READY_ROADS, READY_COPIED, READY_JOINED };

struct wire_ready {
    uint8_t state; /* enum ready_state */
    uint64_t parameters;
    uint64_t memory_bytes; /* taken for weights, gradients, optimiser, activations, buffers */
};

struct wire_start {
    uint64_t first_step, last_step; /* trains first..last−1 */
};

struct wire_hold {
    char reason[WIRE_TEXT];
};

struct wire_stop {
    uint32_t grace_ms; /* then the agent kills */
    char reason[WIRE_TEXT];
};

enum event_level { EVENT_INFO, EVENT_WARN, EVENT_ALERT };

struct wire_event {
    uint8_t level;
    uint64_t step;
    char code[WIRE_NAME]; /* a stable word: "peer-lost", "process-exit", "non-finite", "drift" */
    char text[WIRE_TEXT];
};

struct wire_done {
    uint64_t step;
};

struct wire_save {
    uint64_t from_step; /* when so many steps are trained, or at the next boundary when that is past */
};

struct wire_saved {
    uint64_t step;          /* trained before */
    uint64_t bytes, hash;   /* of the file (ssh/base/hash.h) */
    uint8_t all;            /* 1: all replicas write one after this step; 0: this one alone */
    uint64_t held_ns, elapsed_ns; /* how long training stood still for it; until it was durable */
    char file[WIRE_NAME];   /* its name in checkpoint/STEP/ of the run's folder */
    char reason[WIRE_TEXT]; /* why there is none; "" = it is there, whole and durable */
};

struct wire_kept {
    uint64_t from_step;
};

struct wire_knob {
    uint64_t ledger; /* row id */
    uint64_t from_step;
    char name[WIRE_NAME]; /* "mask.rate" */
    char value[WIRE_NAME];
};

struct wire_knob_used {
    uint64_t ledger;
    uint64_t step;
    char name[WIRE_NAME];
    char value[WIRE_NAME];
};

enum stamp_kind { STAMP_TRAIN, STAMP_EVALUATE, STAMP_FINISH, STAMP_SAVE, STAMP_CALIBRATE };

/* What must agree rides with the data (design §6.1). The frame's step is the step that is stamped. */
struct wire_stamp {
    uint8_t kind;          /* TRAIN: forward and backward; EVALUATE: un-masked forward of validation windows;
                              FINISH: only apply the optimiser step that is still owed; SAVE: that, then write the weights;
                              CALIBRATE: dense bf16 forward and backward for the statistics of boundaries, no optimiser step */
    uint16_t micro_batches;
    uint16_t keep;         /* what may travel of a token: channels of the mask codec, bytes (the mean of both directions) of
                              others; 0 = the dense codec */
    float learning_rate;   /* for the optimiser step that ends this step */
    float clip_scale;      /* for the optimiser step of the previous training step; 1 = not clipped */
    uint8_t apply;         /* 1: apply the previous training step's optimiser step with clip_scale first;
                              0: there is none, or its gradient was not finite and is dropped */
    float mask_rate;       /* as the operator set it, for telemetry */
    uint32_t codec_version;/* version of the codec state to use at the first boundary and every later one */
    uint32_t sync_every;   /* what replicas exchange from here on; 0 = there is one replica, or gradients are averaged */
    uint16_t sync_rank;
    float sync_rate, sync_merge;
    uint64_t sync_since, sync_number; /* steps and rounds of the schedule count from here */
    uint16_t join_replica; /* the newest one that was let in: what is sent after steps >= join_step needs it, too */
    uint32_t join_life;    /* its incarnation; 0 = nobody was */
    uint64_t join_step;
    uint8_t capture;       /* TRAIN: keep the weights that this step begins with, as the snapshot of this number;
                              SAVE: all replicas write a set after this step */
    uint64_t basis;        /* version of the anchor's directions that correct this step's gradient; 0 = none */
    float mix;             /* how much of the corrected gradient is taken; 0 = none of it */
};

struct wire_act {
    uint16_t sequences, tokens; /* micro-batch is sequences × tokens positions */
    uint8_t id_bytes;           /* bytes a token id: 1, 2 or 4 */
    uint8_t marks;              /* bit planes behind the ids: 0 = every token is learned; 1 = a bit for each that is;
                                   2 = and a bit for each that begins a document */
    uint32_t mask_checksum;     /* hash of the channels used; 0 = not in debug mode */
    struct wire_bytes body;     /* ids[sequences][tokens+1] (the last is the target of the last position); each plane: a bit
                                   for every id, lowest first, padded to whole bytes; then the coded activations
                                   [sequences·tokens] */
};

struct wire_grad {
    uint32_t mask_checksum;
    double squares;         /* sum of squared gradient entries of this stage and all later ones; only the last
                               micro-batch's frame has it, −1 elsewhere */
    double loss;            /* summed loss over the micro-batches so far, last stage's word; −1 when unknown */
    uint64_t targets;       /* number of targets in that sum */
    struct wire_bytes body; /* coded gradient [sequences·tokens]; empty for STAMP_EVALUATE, where the frame is only an
                               acknowledgement (it is the credit that bounds what is under way) and carries the loss */
};

struct wire_codec_state {
    uint16_t boundary;
    uint32_t version;
    struct wire_bytes body;
};

#define WIRE_TIED_FLOATS (1 << 20) /* in a piece; the last may be shorter */

struct wire_tied { /* first and last stage hold the same table; stages between pass it on, ahead of the last GRAD or the next STAMP */
    uint64_t first;         /* element of the table, counted row by row */
    struct wire_bytes body; /* fp32, little-endian */
};

/* ---- the anchor; a version is the number of the step that began with those weights ---- */

#define WIRE_CHUNK_WORDS (1 << 19) /* bf16 words of a chunk; the last may be shorter */
#define WIRE_BASIS_BYTES (64 << 20)

struct wire_capture {
    uint64_t from_step;
};

struct wire_grant {
    uint64_t version;
    uint64_t bytes;    /* of all of it so far; of no meaning for the anchor */
    uint64_t rate_bps; /* pace of the road to the anchor, and for the anchor of each of its roads; 0 = none */
};

struct wire_use {
    uint64_t version, from_step;
};

enum snapshot_mark {
    MARK_CAPTURED = 1, /* stage: kept; total = bytes of it in full, elapsed = of the copy; bytes that will travel, 0 = not known */
    MARK_SHIPPED,      /* stage: bytes of it were sent, in chunks; total in full */
    MARK_FLIPPED,      /* anchor: all stages' parts are here and are what their hashes say; bytes travelled of total in full */
    MARK_COMPUTED,     /* anchor: its directions are on their way; elapsed = from the flip, value = the norm of its gradient */
    MARK_DIRECTIONS,   /* stage: it holds the directions of this version */
    MARK_USED,         /* stage 0: `step` was the first that used them */
    MARK_AWAY,         /* stage: there is no road to the anchor */
    MARK_DAMAGED,      /* anchor, of rounds: it has all of it, and a fragment is missing or not what its hash says; it is wanted whole */
};

struct wire_mark {
    uint8_t mark;
    uint64_t version, step;
    uint64_t bytes, total;
    uint64_t elapsed_ns;
    double value;
};

struct wire_snapshot {
    uint64_t version, base; /* base 0: all chunks are whole */
    uint16_t first_layer, layers;
    uint32_t chunks;
    uint64_t words;         /* of this stage */
};

enum chunk_coding { CHUNK_WHOLE, CHUNK_DELTA }; /* gpu/train/delta.h */

struct wire_chunk {
    uint64_t version;
    uint32_t chunk;
    uint8_t coding;
    uint64_t hash;          /* of the words that it makes */
    struct wire_bytes body; /* zstd */
};

struct wire_held {
    uint64_t version, hash;       /* 0 = nothing yet; hash of the hashes of the stage's chunks (ssh/base/hash.h) */
    uint64_t next;                /* version that is coming; 0 = none */
    uint32_t chunks;              /* of that: so many are here, from the first on */
};

struct wire_want {
    uint64_t version; /* with anchor.follow: one more than the round that the fragment is held of; 0 = it is wanted whole */
    uint32_t chunk;   /* with anchor.follow: the fragment */
};

enum follow_kind {
    FOLLOW_ROUND,   /* an exchange of a round: its contributions, a part each */
    FOLLOW_STATE,   /* common copy, momentum and bases after a round: gpu/train/sync.h */
    FOLLOW_VERSION, /* all before makes this version; body: u64 [fragments], hashes of the common copies */
};

/* Pieces of a part follow each other, and so do parts; what is not finished is begun anew on the next road. */
struct wire_follow {
    uint64_t number, before; /* of the round, or the version; before: of the round of this fragment before it */
    uint8_t kind;            /* enum follow_kind */
    uint8_t exchange;        /* of the round, as in SYNC */
    uint16_t fragment;
    uint16_t first_layer, layers; /* of the stage */
    uint16_t rank;           /* of PowerSGD in this round */
    uint16_t part, parts;
    uint16_t replica;        /* whose contribution this part is */
    float share;             /* of the mean */
    float rate, momentum;    /* of the outer step */
    uint64_t hash;           /* of a state: of the common copy in it */
    uint64_t offset, total;  /* bytes of the part */
    struct wire_bytes body;
};

struct wire_basis {
    uint64_t version;
    uint16_t matrix, matrices;  /* of the stage's decoder matrices, in the order of its tensors */
    uint32_t rows, columns;
    uint16_t rank;
    double energy;              /* Σ of squares of the anchor's mean gradient of this matrix */
    uint64_t tokens;            /* that its gradient was computed from */
    struct wire_bytes body;     /* fp32 singular[rank], bf16 left[rows, rank], bf16 right[columns, rank]; rank 0: the gradient itself,
                                 * bf16 [rows, columns] */
};

struct wire_statistics { /* of the same passes as the directions of this version */
    uint64_t version;
    uint16_t boundary;
    uint8_t backward;       /* of the gradients; 0: of the activations */
    struct wire_bytes body; /* as wire_codec_state.body */
};

enum matrix_class { MATRIX_Q, MATRIX_K, MATRIX_V, MATRIX_O, MATRIX_GATE, MATRIX_UP, MATRIX_DOWN, MATRIX_CLASSES };

struct wire_meter { /* sums over the matrices of a class; gpu/math/filter.h says of what */
    uint64_t step, version;
    uint8_t matrix_class;
    uint16_t matrices;
    float mix;
    double gradient, corrected, changed, anchor, aligned, inside, signal, noise;
};

#define WIRE_SPECTRUM_VALUES 32

struct wire_spectrum { /* of the anchor's mean gradient of one matrix */
    uint64_t version;
    uint16_t layer;
    uint8_t matrix_class;
    uint16_t rank;           /* directions that the anchor tells */
    uint32_t rows, columns;
    double energy;           /* Σ of squares of all of it */
    char values[WIRE_TEXT];  /* the strongest of its singular values, falling, with blanks between */
};

enum wait_cause { WAIT_NONE, WAIT_ACT, WAIT_GRAD, WAIT_STAMP, WAIT_SEND, WAIT_DATA, WAIT_SYNC, WAIT_CAUSES };

/* What a stage does at a time, in the order in which it does that for a micro-batch. */
enum step_part {
    PART_REST, PART_DATA, PART_COMPUTE, PART_PACK, PART_SEND, PART_ACT, PART_GRAD, PART_STAMP, PART_SYNC, PART_COUNT
};

struct wire_sample {
    uint64_t step;
    uint8_t kind;              /* enum stamp_kind; EVALUATE samples carry only the loss */
    double loss;               /* mean over this step's targets; NaN = not known here */
    double gradient_norm;      /* global, before clipping; NaN = not known here */
    float learning_rate, clip_scale, mask_rate;
    uint64_t tokens;           /* of this replica in this step */
    uint64_t step_ns;          /* wall time of the step */
    uint64_t compute_ns;       /* of it computing, */
    uint64_t pack_ns;          /* coding and decoding what crosses a boundary */
    uint64_t wait_act_ns, wait_grad_ns, wait_stamp_ns, wait_send_ns, wait_data_ns, wait_sync_ns;
    uint64_t sync_round;       /* the newest round that was waited for in this step, and */
    uint16_t sync_replica;     /* the replica whose contribution came last */
    uint64_t sent_act_bytes, received_act_bytes; /* lane ACT with frame headers, in this step */
    uint64_t skipped;          /* optimiser steps dropped because not finite, since the start */
    uint64_t memory_bytes;     /* resident set */
    uint64_t began_wall_ns;    /* the step, by this host's clock */
    char timeline[WIRE_NAME];  /* of it, in order: equal parts of time as letters (wire_part_letter) */
};

struct wire_road_sample {
    char peer[WIRE_NAME];
    uint8_t lane;
    uint64_t sent_bytes, received_bytes;   /* since the road stands, with frame headers */
    uint64_t sent_frames, received_frames;
    uint64_t queued_bytes;
    uint32_t hold_reasons;                 /* bits of enum link_hold (ssh/link/link.h) */
    uint64_t rtt_ns;                       /* 0 = not measured yet */
    uint64_t capacity_bps;                 /* pace or measured; 0 = unknown */
    uint64_t evaluation_bytes;             /* of sent_bytes: un-masked evaluation passes, the same for every codec */
    uint64_t dense_bytes;                  /* what a dense bf16 exchange would have sent instead of the rest; 0 = n/a */
};

/* A host as its agent sees it; of a number, 0 or NaN = unknown. What stands behind `gpu_watts` only kedged knows. */
/* SPARE: nothing is planned for it; DRAINED: people took its processes away. */
enum host_use { HOST_USED, HOST_SPARE, HOST_MOVES, HOST_DRAINED };

struct wire_host {
    float cpu_share;                   /* busy, of all cores, since the last look */
    float load;                        /* processes that want to compute, mean of a minute */
    uint16_t cores;
    uint64_t memory_bytes, memory_free_bytes; /* free: what a process could still get */
    uint64_t disk_bytes, disk_free_bytes;     /* of the file system of the run's folder */
    uint16_t gpus;
    char gpu[WIRE_NAME];               /* the first one's name */
    float gpu_share;                   /* mean of all */
    uint64_t gpu_memory_bytes, gpu_used_bytes; /* of all together */
    float gpu_celsius;                 /* the hottest */
    float gpu_watts;                   /* of all together */
    char host[WIRE_NAME];
    double clock_offset;               /* seconds that its wall clock is ahead of kedged's, from round trips */
    uint64_t rtt_ns;                   /* of the agent's road to kedged */
    uint64_t heard_ns_ago;             /* UINT64_MAX = never */
    uint16_t processes;                /* of the run, that live there, without the agent */
    double price_per_hour;             /* of the host itself, by the profile */
    uint8_t use;                       /* enum host_use */
    uint8_t login;                     /* enum wire_login: does it take new sessions? */
    uint64_t login_ns_ago;             /* when a console tried last; UINT64_MAX = never */
};
enum wire_login { LOGIN_UNKNOWN, LOGIN_OPEN, LOGIN_SHUT };

#define WIRE_SYNC_BYTES (1 << 20) /* of a contribution in a piece; the last may be shorter */

enum sync_purpose { SYNC_ROUND, SYNC_GRADIENT, SYNC_FINAL };

/* Every sibling gets the same contribution; its pieces follow each other on the lane. */
struct wire_sync {
    uint64_t round;       /* the same number on all replicas: gpu/train/fragments.h; a gradient: its step */
    uint8_t purpose;      /* enum sync_purpose */
    uint8_t exchange;     /* 0, 1: PowerSGD in its two-sided form has two in a round */
    uint16_t fragment;    /* of a round; FINAL: which tensor of the stage */
    uint64_t tokens;      /* trained for this contribution: its weight in the mean */
    uint64_t offset, total; /* bytes */
    struct wire_bytes body;
};

struct wire_agree {
    uint64_t round;  /* holds from the step after the one that this round is applied at */
    uint64_t ledger; /* of the KNOB that asked for it */
    char name[WIRE_NAME], value[WIRE_NAME];
};

struct wire_part {
    uint16_t replica;
    uint32_t life; /* S→W: its incarnation that leaves */
};

struct wire_parted {
    uint16_t replica;
    uint32_t life;
    uint64_t received; /* whole contributions, since the road stood */
    uint8_t decided;   /* 1: a LEAVE has come, and this was its count */
};

struct wire_leave {
    uint16_t replica;
    uint32_t life;
    uint64_t count; /* the first so many of its contributions count, on all siblings; what is later is as if it had never been sent */
};

struct wire_have {
    uint64_t round;
    uint8_t purpose, exchange;
    uint16_t fragment;
};

struct wire_join {
    uint16_t replica;
    uint32_t life; /* its incarnation */
};

struct wire_enter {
    uint16_t replica;
    uint32_t life;
    uint64_t step;              /* the first that it trains */
    uint64_t round;             /* the first that needs it; older ones end without it */
    uint32_t sync_every;        /* as in a stamp */
    uint16_t sync_rank;
    float sync_rate, sync_merge;
    uint64_t sync_since, sync_number;
};

struct wire_entered {
    uint16_t replica;
    uint32_t life;
    uint64_t step, round; /* as in ENTER */
};

struct wire_pull {
    uint16_t fragment;
    uint64_t offset; /* all bytes: only the word of which round it is */
};

struct wire_state {
    uint16_t fragment;
    uint64_t round, hash;           /* the newest one that has ended, 0 = none, and the common copy's hash since then */
    uint64_t pending, pending_step; /* the one that is under way, 0 = none, and the step after which it is applied */
    uint64_t offset, total;
    struct wire_bytes body;         /* gpu/train/sync.h */
};

struct wire_outer {
    uint64_t round, step;
    uint16_t fragment;
    uint8_t skipped;        /* 1: the round was refused and changed nothing */
    uint16_t contributors;
    uint64_t hash;          /* of the common copy of the fragment: must be the same on all replicas */
    uint64_t sent_bytes;    /* our contribution, to each sibling */
};

struct wire_watch {
    uint8_t follow;      /* 1: keep sending changes */
    uint64_t from_event; /* only events with a greater id */
};

enum run_phase { PHASE_FORMING = 1, PHASE_TRAINING, PHASE_HOLDING, PHASE_FINISHED, PHASE_STOPPING, PHASE_STOPPED };

struct wire_run_state {
    char run[WIRE_NAME];
    uint64_t run_id;
    uint8_t phase;
    char reason[WIRE_TEXT];        /* why holding, what is awaited: one sentence */
    uint64_t step, steps;          /* steps trained, steps in all */
    double loss;                   /* masked training loss of `step`, NaN = unknown */
    double first_validation_loss;  /* un-masked, before training; NaN = unknown */
    double validation_loss;        /* un-masked, newest; NaN = unknown */
    uint64_t validation_step;
    double gradient_norm;
    double tokens_per_second;      /* over the last ~10 steps; NaN = unknown */
    double step_seconds;           /* mean of the last ~10 steps; NaN = unknown */
    uint64_t started_wall_ms;
    uint64_t trained_ns;           /* time in phase training */
    double mask_rate;
    uint64_t tokens;               /* trained so far */
    uint64_t newest_event;         /* id */
    uint32_t viewers;
    double spent;                  /* so far, in the money of the profile's prices; NaN = it has none, as below */
    double spend_per_hour;         /* now, hosts and bytes; NaN when the run is over */
    double spend_forecast;         /* spent when the last step is trained; NaN = unknown */
};

struct wire_process_row {
    char process[WIRE_NAME];
    char host[WIRE_NAME];
    uint8_t role, state;
    uint16_t replica, stage, first_layer, layers;
    uint32_t incarnation, pid;
    uint64_t heard_ns_ago;  /* age of the last sign of life; UINT64_MAX = never */
    uint64_t step;
    uint64_t memory_bytes;
    double compute_share;   /* of the newest step's wall time; NaN = unknown */
    char waiting[WIRE_TEXT];/* "waits for gradient from r0s1, 31 % of the step" */
};

struct wire_road_row {
    char from[WIRE_NAME], to[WIRE_NAME];
    uint8_t lane;
    uint64_t sent_bytes;       /* from → to */
    uint64_t evaluation_bytes; /* of sent_bytes: un-masked evaluation passes */
    uint64_t dense_bytes;      /* the rest with dense bf16 exchange; 0 = n/a */
    double bytes_per_second;   /* over the last sampling periods; NaN = unknown */
    uint64_t queued_bytes;
    uint32_t hold_reasons;
    uint64_t rtt_ns, capacity_bps;
    double price_per_hour;     /* of bytes_per_second; NaN = unknown, or they cost nothing */
};

struct wire_event_row {
    uint64_t id, wall_ms, step;
    uint8_t level;
    char source[WIRE_NAME]; /* process */
    uint32_t incarnation;
    char code[WIRE_NAME];
    char text[WIRE_TEXT];
};

enum ledger_state { LEDGER_PROPOSED, LEDGER_ACTIVE, LEDGER_REFUSED };

struct wire_ledger_row {
    uint64_t id, wall_ms;
    char name[WIRE_NAME], old_value[WIRE_NAME], new_value[WIRE_NAME];
    char who[WIRE_NAME];
    uint8_t state;
    uint64_t step; /* first step that used it, when active */
    uint64_t watched_until; /* step; 0 = not watched. Until then it is taken back when one of these is exceeded: */
    double loss_most, norm_most; /* NaN = not known, not watched */
};

struct wire_knob_row {
    char name[WIRE_NAME], value[WIRE_NAME];
    uint8_t pending; /* 1: a newer value is proposed and not yet used */
    char pending_value[WIRE_NAME];
};

struct wire_anchor_row {
    char host[WIRE_NAME];
    char saying[WIRE_TEXT];     /* what it does or lacks, in words */
    uint64_t flipped, used, pending; /* versions: newest whole one at the anchor, the one in use, one on its way; 0 = none */
    uint64_t versions;          /* whole ones so far */
    double staleness;           /* steps from the snapshot to the first use of what came of it; NaN = unknown, as all below */
    double age;                 /* of what is in use, in steps */
    double target;
    double mix;                 /* what is taken of the corrected gradient now */
    double eta_seconds;         /* until the snapshot on its way is whole */
    double delta_share;         /* of the newest whole snapshot: bytes that travelled / bytes in full */
    uint64_t sent_bytes, full_bytes; /* of all of them */
    double cosine;              /* of the gradient and the anchor's, over all matrices */
    double inside;              /* share of the gradient's energy in the anchor's directions */
    double norm_ratio;          /* of the corrected gradient to the gradient */
    double changed;             /* share of the update that comes from the filter: ⟨Ĝ, what it put in⟩ / ‖Ĝ‖² */
    double noise;               /* share of the gradient's energy, from two halves of the batch */
    double compute_seconds;     /* of the anchor for one version */
    double validation_loss;     /* un-masked, of version validation_version */
    uint64_t validation_version;
    double price_per_hour;      /* of its host, unless stages share it, and of its roads */
    /* How far: what is on its way is captured by so many of the stages and sent; `flipped` is whole; `computed` has been computed with
     * and is back on so many of them. */
    double captured, sent, returned;
    uint64_t computed;
    uint8_t follows; /* 1: snapshots are made of the replicas' rounds (anchor.follow), which are what travels */
};

struct wire_state_end {
    uint64_t newest_event;
};

enum order_kind { ORDER_SET = 1, ORDER_STOP, ORDER_STOP_NOW, ORDER_PAUSE, ORDER_RESUME, ORDER_CHECKPOINT, ORDER_SNAPSHOT,
                  ORDER_RESTART, ORDER_DRAIN, ORDER_REPLACE, ORDER_LOGIN };

struct wire_order {
    uint8_t kind;
    uint32_t request; /* echoed in the reply; 0 = nobody waits for it */
    char who[WIRE_NAME]; /* user@host, for the ledger */
    char name[WIRE_NAME], value[WIRE_NAME]; /* of ORDER_SET; RESTART, DRAIN: name = HOST; REPLACE: and value = the other one; LOGIN: "open" or "shut" */
    char text[WIRE_TEXT]; /* of ORDER_LOGIN "shut": why */
};

struct wire_reply {
    uint32_t request;
    int32_t err; /* 0 = done or accepted */
    uint64_t ledger; /* row of an accepted ORDER_SET, RESTART, DRAIN, REPLACE; of ORDER_CHECKPOINT 1: the weights are there already */
    char text[WIRE_TEXT];
};

/* ---- the table (wire.c) and what reads it ---- */

enum wire_kind { WIRE_U8, WIRE_U16, WIRE_U32, WIRE_U64, WIRE_I32, WIRE_F32, WIRE_F64, WIRE_STRING, WIRE_TAIL };

struct wire_field {
    const char *name;
    enum wire_kind kind;
    size_t offset;  /* in the struct */
    size_t size;    /* of a string with its NUL */
    uint32_t least, most; /* of a whole number: what is outside is refused; both 0 = any */
};

struct wire_message {
    enum wire_type type;
    const char *name;      /* "HELLO" */
    const char *direction; /* "S→W" */
    enum wire_lane lane;   /* the lane it belongs on */
    uint32_t max_bytes;    /* largest payload, tail included */
    size_t struct_bytes;
    const struct wire_field *fields;
    size_t field_count;
};

/* The row of a type, or NULL. */
const struct wire_message *wire_find(uint16_t type);
/* All rows, for tests, `kedge decode` and the manual. */
const struct wire_message *wire_all(size_t *count);

/* Append the encoded payload of `type` from its struct. Text that does not fit its field is cut by the caller, never
 * here: an unterminated string is a bug, and so is a number out of its range. A byte of a text that wire_decode would
 * refuse goes out as '?'. ERR_FULL when `out` has no room or the payload passes its maximum: nothing is appended. */
int wire_encode(uint16_t type, const void *payload, struct buf *out, struct why *why);
/* Strict: every byte is used, strings are valid UTF-8 without control characters and fit, numbers are in their range.
 * A tail points into `bytes`. ERR_INVALID with a reason otherwise; then `payload` (struct_bytes of room) means nothing. */
int wire_decode(uint16_t type, const uint8_t *bytes, size_t count, void *payload, struct why *why);

const char *wire_lane_name(int lane);
const char *wire_role_name(int role);
const char *wire_phase_name(int phase);
const char *wire_wait_name(int cause);
char wire_part_letter(int part);    /* of enum step_part: '.', 'd' data, 'c' computes, 'p' packs, 's' room to send, 'a' activations, … */
int wire_part_of_letter(char letter); /* PART_REST when it is none */

#endif

/*
 * What will run where, before anything runs: pure, printable. Layers are dealt to stages as evenly as their cost allows (the
 * head counts as the matrix product that it is), stages to hosts in file order, cores of a host to its processes, a host's
 * uplink to its processes. Replicas follow each other, so that each has its own hosts where there are enough. Bytes,
 * memory and roads are those of the codec and the model, by the same formulas (a test
 * compares them).
 */
#ifndef KEDGE_SCHEDULER_PLAN_H
#define KEDGE_SCHEDULER_PLAN_H

#include <stdint.h>
#include <stdio.h>

#include "profiles/profile.h"

struct plan_stage {
    char process[64]; /* "r0s1" */
    int host;         /* index into profile->hosts */
    int replica, stage, first_layer, layers, threads, in_flight;
    uint64_t uplink_bps;
    uint64_t parameters, trained; /* all; those that have gradients: with LoRA the adapters' */
    uint64_t weights_bytes, gradients_bytes, optimizer_bytes, activations_bytes, buffers_bytes, total_bytes;
    uint64_t anchor_bytes; /* memory for snapshots on their way, directions and corrected gradients; sizes of gpu/train */
    uint64_t process_bytes;  /* memory of the process itself: programs, libraries, stacks; messages on their way */
    uint64_t device_bytes;   /* memory that matrix products and attention need beside buffers, at most, on a CPU */
    uint64_t boundary_bytes; /* memory of the codecs of its cuts, statistics included */
    uint64_t set_bytes;  /* of its file of a checkpoint set, at most */
    uint64_t copy_bytes; /* memory for a copy of that, while it is written; 0 without checkpoint.every */
    uint64_t sync_bytes; /* memory for what siblings keep in common and send each other, and a copy of a part when it joins */
};

#define PLAN_ROADS 528 /* 16 replicas of 4 stages have the most */

struct plan_road {
    int from, to;                     /* stages (indices into plan->stages): from upstream, to downstream; or siblings */
    bool sibling;                     /* both directions carry the same; dense: gradients in every step */
    uint64_t forward_bytes_per_step;  /* with frame headers and token ids */
    uint64_t backward_bytes_per_step;
    uint64_t dense_forward_bytes_per_step, dense_backward_bytes_per_step; /* bf16 */
};

struct plan_anchor {
    bool there;
    int host, threads;
    uint64_t uplink_bps;
    uint64_t memory_bytes;   /* weights, gradients, means, snapshots, activations */
    uint64_t snapshot_bytes; /* of the whole model, in full */
    uint64_t state_bytes, rounds_bytes; /* with anchor.follow, of all stages: at first, and in sync.every steps; else 0 */
    uint64_t step_bytes;     /* that go out a step in the mean, at most */
    uint64_t basis_bytes;    /* that come back to one replica */
    uint64_t statistics_bytes; /* of all cuts of one replica, to both ends; 0: the stages measure */
    uint64_t road_bytes;     /* of all that comes back: to the stage that gets most */
};

struct plan {
    int replicas, stages_per_replica, stage_count, road_count;
    int64_t keep;                     /* of a token: channels of the mask, bytes (the mean of both directions) of others; 0 = dense */
    uint64_t tokens_per_step;
    struct plan_stage stages[PROFILE_MAX_STAGES];
    struct plan_road roads[PLAN_ROADS];
    struct plan_anchor anchor;
};

/* The profile's model section has been filled from the checkpoint's config.json when model.path is given. `cores` are those
 * of this machine; plan_make asks for them (what this process may use). */
int plan_make_for(const struct profile *profile, int cores, struct plan *plan, struct why *why);
int plan_make(const struct profile *profile, struct plan *plan, struct why *why);
int plan_cores(void);
/* One process is on another host; threads and uplinks are shared anew. */
void plan_move_stage(const struct profile *profile, int cores, struct plan *plan, int stage, int host);
void plan_move_anchor(const struct profile *profile, struct plan *plan, int host);

/* What the run writes on a host itself, at most: logs, the journal, weights; bytes. */
uint64_t plan_disk_bytes(const struct profile *profile, const struct plan *plan, int host);

/* At most 80 columns wide. */
void plan_print(const struct plan *plan, const struct profile *profile, FILE *out);
void plan_print_json(const struct plan *plan, const struct profile *profile, FILE *out);

/* The formulas that belong to others; tests compare them with their owners. */
/* Are the model's own weights beside adapters in bf16 alone, where products round them anyway? */
bool plan_words_only(const struct profile *profile);
uint64_t plan_still_parameters(const struct profile *profile, const struct plan_stage *stage); /* of what train.frozen leaves */
uint64_t plan_word_bytes(const struct profile *profile, const struct plan_stage *stage); /* of weights in bf16 beside fp32 */
uint64_t plan_activation_bytes(const struct profile *profile, const struct plan_stage *stage); /* of all slots: gpu/model */
uint64_t plan_buffer_bytes(const struct profile *profile, const struct plan_stage *stage);
uint64_t plan_program_bytes(const struct profile *profile); /* pages of a worker's program and libraries, stacks */
uint64_t plan_device_bytes(const struct profile *profile, const struct plan_stage *stage); /* gpu/cpu; of the stage's threads */
uint64_t plan_adapter_parameters(const struct profile *profile, int64_t layers);
bool plan_exchanges_head(const struct profile *profile); /* the gradient of a tied table goes over every cut */
/* The matrices of a layer that are trained: seven, or A and B of every target; returns how many, at most PLAN_MATRICES. */
#define PLAN_MATRICES 14
struct plan_matrix {
    uint64_t rows, columns;
};
int plan_matrices(const struct profile *profile, struct plan_matrix matrices[PLAN_MATRICES]);
uint64_t plan_row_bytes(int values, int64_t columns); /* of one token: gpu/math */
/* Of a whole period of sync.every steps to each sibling; of averaged gradients: of a step. gpu/train/sync.c */
uint64_t plan_sync_bytes(const struct profile *profile, const struct plan_stage *stage);
uint64_t plan_sync_messages(const struct profile *profile, const struct plan_stage *stage); /* in memory, on their way */
uint64_t plan_sync_memory(const struct profile *profile, const struct plan_stage *stage);
/* With anchor.follow: what waits at a stage for the anchor at most (follow_bound); `state`: all that it may have to copy.
 * At the anchor, of that stage. */
uint64_t plan_follow_memory(const struct profile *profile, const struct plan_stage *stage, uint64_t *state);
uint64_t plan_replay_memory(const struct profile *profile, const struct plan_stage *stage);
uint64_t plan_anchor_memory(const struct profile *profile, const struct plan_stage *stage);
void plan_make_anchor(const struct profile *profile, int cores, struct plan *plan);
void plan_print_anchor(const struct plan *plan, const struct profile *profile, FILE *out);
bool plan_is_for_anchor(const struct profile *profile, int host); /* and has no stages */
bool plan_averages_gradients(const struct profile *profile); /* in every step, instead of weights now and then */
int64_t plan_keep(const struct profile *profile);     /* codec_keep */
uint64_t plan_token_bytes(const struct profile *profile, bool backward); /* that cross a cut: codec_bytes of one row */
uint64_t plan_state_bytes(const struct profile *profile, bool backward); /* of a version of a boundary's statistics: codec_state_bytes */
bool plan_is_one_way(const struct profile *profile, int before); /* a cut behind so many layers: do no gradients cross it? */
uint64_t plan_boundary_memory(const struct profile *profile, const struct plan_stage *stage); /* of both sides */
uint64_t plan_cut_memory(const struct profile *profile, int slots, bool one_way); /* codec_memory_bytes of one side of a cut */
uint64_t plan_made_bytes(const struct profile *profile, bool backward); /* codec_made_bytes */
uint64_t plan_measured_memory(const struct profile *profile, bool backward); /* codec_measured_bytes */
uint64_t plan_solving_memory(const struct profile *profile, bool backward);  /* codec_export_bytes */
uint64_t plan_table_memory(const struct profile *profile); /* features of tokens */
/* In a file of a set: of one way of a cut (codec_save_bytes), and of all that waits for its step at most (gpu/train/measures.h). */
uint64_t plan_saved_boundary(const struct profile *profile, bool backward);
uint64_t plan_saved_waiting(const struct profile *profile);
uint64_t plan_set_bytes(const struct profile *profile, const struct plan_stage *stage); /* but for its header */
bool plan_calibrates(const struct profile *profile);

#endif

/*
 * Statistics of boundaries: who owns a tensor measures it, the sender activations, the receiver gradients; what is made of
 * that is shipped
 * as a version and used by both ends from a stamped step on. Compute thread.
 *
 *   step v       its micro-batches are measured, every boundary.refresh steps
 *   next stamp   its verdict on step v: settled, and solved on a thread of its own meanwhile; or forgotten
 *   step v+late  stage 0 names version v in its stamp. Activations' part went downstream ahead of that stamp, on the same
 *   lane; the
 *                gradients' part went upstream ahead of the last gradient of the step before. So everybody has it.
 *
 * With boundary.statistics = anchor the anchor measures on its own passes, where nothing is compressed; what it found comes to
 * both ends of a cut with its directions of gradients (bases.h), and is used from the same stamped step on. Only the first version
 * is a calibration's.
 *
 * Calibration is a pass of its own before the first step: dense micro-batches forward and backward, all measured, no
 * optimiser step; its
 * version is used at once. Nobody decides but stage 0; versions are numbers of steps, the same at all boundaries.
 */
#ifndef KEDGE_TRAIN_MEASURES_H
#define KEDGE_TRAIN_MEASURES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct compute;
struct letter;
struct micro_batch;
struct profile;
struct why;

#define MEASURES_MOST 64 /* versions that wait: boundary.late / boundary.refresh + 1 of them */

struct measures_work;

struct measures_entry {
    uint32_t version;
    uint64_t due; /* first step that uses it */
    struct measures_work *work; /* its state is made on a thread of its own */
};

struct measures {
    struct measures_entry waiting[2][MEASURES_MOST]; /* by enum codec_way, rising */
    int count[2];
    uint32_t pending;     /* measured, without verdict; 0 = nothing */
    bool calibration;     /* the pending one */
    uint32_t calibrated;  /* version of the newest calibration; 0 = none yet */
    uint32_t named;       /* newest version that a stamp has named */
    bool dense;           /* stage 0: the newest training step has no usable statistics and is dense */
    bool slow_told;       /* that training waited for statistics: once is enough */
    bool calibration_bad; /* stage 0: the newest calibration was not finite */
};

/* Does this profile's boundary begin with a calibration? */
bool measures_calibrates(const struct profile *profile);
int measures_check(const struct profile *profile, struct why *why);
size_t measures_letter_bytes(const struct profile *profile); /* of the largest state */
void measures_free(struct measures *measures);

/* In the order of a pass. */
int measures_settle(struct compute *compute);       /* its stamp has come: the verdict on what is pending */
int measures_ship_forward(struct compute *compute); /* ahead of the stamp: the version that it names */
void measures_activations(struct compute *compute, const struct micro_batch *micro_batch, const float *x);
void measures_arrived(struct compute *compute, const struct micro_batch *micro_batch, const float *x);   /* decoded */
void measures_returned(struct compute *compute, const struct micro_batch *micro_batch, const float *dx);
void measures_gradients(struct compute *compute, const struct micro_batch *micro_batch, const float *dx);
int measures_ship_backward(struct compute *compute); /* ahead of the last gradient: the version that the next stamp will name */
void measures_end(struct compute *compute);          /* all micro-batches are done: what was measured waits for its verdict */
/* What waits, for a run that goes on from disk. Saved when nothing is pending. */
size_t measures_save_bytes(struct compute *compute);
size_t measures_save_most(const struct compute *compute);
void measures_save(struct compute *compute, uint8_t *out);
int measures_restore(struct compute *compute, const uint8_t *bytes, size_t count, struct why *why);
struct bases_set;
void measures_adopt(struct compute *compute, const struct bases_set *set); /* the anchor's, from this step on */
int measures_receive(struct compute *compute, const struct letter *letter);

/* Stage 0: the version for this training step, 0 = none. `apply`: the verdict that goes with the stamp. */
uint32_t measures_name(const struct compute *compute, uint64_t step, bool apply);

#endif

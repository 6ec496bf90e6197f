/*
 * The CPU backend under test: a device for each instruction set that this machine runs and for one and two threads, and
 * memory that is given back in one sweep. Without kedge-cpu.so (no oneDNN here) the test program skips.
 */
#ifndef KEDGE_TESTS_RIG_H
#define KEDGE_TESTS_RIG_H

#include "gpu/math/ops.h"

enum { RIG_ISAS = 5 };

struct rig {
    const struct ops *ops;
    struct device *device;
    const char *label; /* "cpu: avx2, 2 threads, oneDNN 2.6.3" */
    void **kept;       /* what rig_take gave */
    int kept_count;
};

/* Exits with 77 and a reason when there is no backend. */
const struct ops *rig_ops(void);
/* Folder that has kedge-cpu.so: $O, or found beside the test program. */
const char *rig_folder(void);
/* Names of the instruction sets that run here; returns their number. */
int rig_isas(const char *names[RIG_ISAS]);
/* The best of them whose matrix products are oneDNN's alone, for benches that compare with it. */
const char *rig_onednn(void);

/* Bytes of the device's own scratch: of the largest op until now. */
size_t rig_scratch(const struct rig *rig);

void rig_open(struct rig *rig, const char *isa, int threads);
void rig_close(struct rig *rig);
/* Runs `test` on every device. */
void rig_each(void (*test)(struct rig *rig));

/* Memory of exactly this size (so that a sanitizer sees the first byte beyond), filled with 0xA5: not zero, not finite when
 * read as a sum of many, and the same every time. Freed by rig_close. */
void *rig_take(struct rig *rig, int64_t bytes);
float *rig_floats(struct rig *rig, int64_t count);
float *rig_zeros(struct rig *rig, int64_t count);
float *rig_noise(struct rig *rig, int64_t count, uint64_t seed, double deviation);
float *rig_copy(struct rig *rig, const float *x, int64_t count);
double *rig_wide(struct rig *rig, const float *x, int64_t count); /* the same values in fp64 */
double *rig_doubles(struct rig *rig, int64_t count);              /* zeros */

#endif

/* The CPU backend for tests: from $O, or from the build folder that the test lies in. Where it is not built, the test is
 * skipped. */
#ifndef KEDGE_TESTS_BACKEND_H
#define KEDGE_TESTS_BACKEND_H

#include "gpu/math/ops.h"

struct backend {
    const struct ops *ops;
    struct device *device;
};

/* Exits with 77 when there is no backend here. */
void backend_open(struct backend *backend, int threads);
void backend_close(struct backend *backend);
/* A device tensor of `count` floats, filled from host memory (NULL: zeros). Free with backend->ops->free. */
float *backend_tensor(const struct backend *backend, const float *values, int64_t count);
void backend_get(const struct backend *backend, float *out, const float *tensor, int64_t count);

/* The same table, whose alloc and free are counted here (one count for all), and whose n-th alloc from now fails (0 = none).
 * */
struct backend_count {
    uint64_t bytes, blocks; /* taken and not given back */
    uint64_t calls;         /* of alloc */
    uint64_t fail_at;
};
const struct ops *backend_counted(const struct backend *backend, struct backend_count **count);

/* ‖a − b‖ / ‖b‖, the measure of all tolerances; b is the reference. */
double backend_difference(const float *a, const double *b, int64_t count);

#endif

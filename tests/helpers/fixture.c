#include "tests/helpers/fixture.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "gpu/model/safetensors.h"
#include "ssh/base/mem.h"
#include "tests/helpers/backend.h"

int fixture_batch(uint32_t ids[FIXTURE_ROWS], uint32_t targets[FIXTURE_ROWS])
{
    int count = 0;
    for (int64_t i = 0; i < FIXTURE_ROWS; i++) {
        ids[i] = (uint32_t)((i * i * 5 + i * 3 + 1) % FIXTURE_VOCABULARY);
        targets[i] = i % 7 == 6 ? UINT32_MAX : (uint32_t)((i * i * 3 + i * 11 + 2) % FIXTURE_VOCABULARY);
        count += targets[i] != UINT32_MAX;
    }
    return count;
}

static void check_near(const char *path, const char *what, const float *got, int dims, const int64_t *shape, int64_t count,
                       double tolerance)
{
    struct why why = {0};
    struct safetensors *file;
    float *narrow = mem_array((size_t)count, sizeof *narrow);
    double *wide = mem_array((size_t)count, sizeof *wide);
    if (safetensors_open(path, &file, &why) != 0 || safetensors_get(file, what, dims, shape, 0, count, narrow, &why) != 0)
        fail_msg("%s", why.text);
    for (int64_t i = 0; i < count; i++)
        wide[i] = (double)narrow[i];
    double difference = backend_difference(got, wide, count);
    if (!(difference <= tolerance))
        fail_msg("%s: %s differs by %.3g", path, what, difference);
    safetensors_close(file);
    mem_free(narrow);
    mem_free(wide);
}

void fixture_logits(const char *path, struct stage *last)
{
    static float logits[FIXTURE_ROWS * FIXTURE_VOCABULARY];
    const int64_t shape[2] = {FIXTURE_ROWS, FIXTURE_VOCABULARY};
    stage_logits(last, logits);
    check_near(path, "logits", logits, 2, shape, FIXTURE_ROWS * FIXTURE_VOCABULARY, 1e-5);
}

void fixture_loss(const char *path, double loss)
{
    const float narrow = (float)loss;
    check_near(path, "loss", &narrow, 1, &(int64_t){1}, 1, 1e-5);
}

void fixture_gradients(const char *path, struct stage *stage, double tolerance)
{
    for (int i = 0; i < stage_tensor_count(stage); i++) {
        struct tensor_info info;
        char what[128];
        stage_tensor(stage, i, &info);
        int64_t count = info.shape[0] * info.shape[1];
        float *gradient = mem_array((size_t)count, sizeof *gradient);
        snprintf(what, sizeof what, "grad.%s", info.name);
        stage_tensor_get(stage, i, gradient, true);
        check_near(path, what, gradient, info.dims, info.shape, count, tolerance);
        mem_free(gradient);
    }
}

/*
 * Every gradient of the backend against central differences of the judge's forward functions in fp64. The loss is Σ w·y with
 * fixed noise w, so that the gradient of y is w. Differences with step h = 1e-4 are good to about 1e-8 of the norm, fp32 to
 * 1e-6; each gradient must agree to 1e-5, and a wrong term is far above that.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/helpers/numbers.h"
#include "tests/helpers/reference.h"
#include "tests/helpers/rig.h"

static const double step = 1e-4, tolerance = 1e-5;

/* One op under differences: `loss` reads what it needs from `with`. */
struct subject {
    double (*loss)(struct rig *rig, void *with);
    void *with;
};

/* Compares gradient[count] with the differences over x[count], one of the arrays that subject->loss reads. */
static void check(struct rig *rig, const struct subject *subject, double *x, int64_t count, const float *gradient,
                  const char *what)
{
    double *differences = rig_doubles(rig, count);
    for (int64_t i = 0; i < count; i++) {
        double before = x[i];
        x[i] = before + step;
        double above = subject->loss(rig, subject->with);
        x[i] = before - step;
        differences[i] = (above - subject->loss(rig, subject->with)) / (2 * step);
        x[i] = before;
    }
    numbers_near(gradient, differences, count, tolerance, "gradient of %s (%s)", what, rig->label);
}

static double weighted(const double *y, const double *w, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += w[i] * y[i];
    return sum;
}

struct matmul {
    int64_t m, n, k;
    double *a, *b, *c, *w;
};

static double matmul_loss(struct rig *rig, void *with)
{
    struct matmul *x = with;
    (void)rig;
    reference_matmul(x->c, NULL, x->a, x->b, x->m, x->n, x->k, x->k, x->n, x->n, false, false, false);
    return weighted(x->c, x->w, x->m * x->n);
}

/* da = dc·bᵀ and db = aᵀ·dc, as the model makes them. */
static void matmul_each(struct rig *rig)
{
    int64_t m = 5, n = 7, k = 6;
    float *a = rig_noise(rig, m * k, 1, 1), *x = rig_noise(rig, k * n, 2, 1), *w = rig_noise(rig, m * n, 3, 1);
    float *da = rig_floats(rig, m * k), *dx = rig_floats(rig, k * n);
    struct matmul with = {
        m, n, k, rig_wide(rig, a, m * k), rig_wide(rig, x, k * n), rig_doubles(rig, m * n), rig_wide(rig, w, m * n)};
    const struct subject subject = {matmul_loss, &with};
    rig->ops->matmul(rig->device, da, w, x, m, k, n, n, n, k, false, true, false);
    rig->ops->matmul(rig->device, dx, a, w, k, n, m, k, n, n, true, false, false);
    check(rig, &subject, with.a, m * k, da, "matmul a");
    check(rig, &subject, with.b, k * n, dx, "matmul b");
}

static void test_matmul(void **state)
{
    (void)state;
    rig_each(matmul_each);
}

struct rmsnorm {
    int64_t rows, width;
    double *x, *gain, *y, *inverse, *w;
};

static double rmsnorm_loss(struct rig *rig, void *with)
{
    struct rmsnorm *n = with;
    (void)rig;
    reference_rmsnorm_forward(n->y, n->inverse, n->x, n->gain, n->rows, n->width, (double)1e-5f);
    return weighted(n->y, n->w, n->rows * n->width);
}

static void rmsnorm_each(struct rig *rig)
{
    int64_t rows = 5, width = 19, count = rows * width;
    float *x = rig_noise(rig, count, 1, 1), *gain = rig_noise(rig, width, 2, 1), *w = rig_noise(rig, count, 3, 1);
    float *y = rig_floats(rig, count), *inverse = rig_floats(rig, rows), *dx = rig_zeros(rig, count);
    float *dgain = rig_zeros(rig, width);
    struct rmsnorm with = {rows,
                           width,
                           rig_wide(rig, x, count),
                           rig_wide(rig, gain, width),
                           rig_doubles(rig, count),
                           rig_doubles(rig, rows),
                           rig_wide(rig, w, count)};
    const struct subject subject = {rmsnorm_loss, &with};
    rig->ops->rmsnorm_forward(rig->device, y, inverse, x, gain, rows, width, 1e-5f);
    rig->ops->rmsnorm_backward(rig->device, dx, dgain, w, x, gain, inverse, rows, width);
    check(rig, &subject, with.x, count, dx, "rmsnorm x");
    check(rig, &subject, with.gain, width, dgain, "rmsnorm gain");
}

static void test_rmsnorm(void **state)
{
    (void)state;
    rig_each(rmsnorm_each);
}

enum { ROPE_SEQUENCES = 2, ROPE_TOKENS = 4, ROPE_HEADS = 2, ROPE_WIDTH = 6, ROPE_COUNT = 2 * 4 * 2 * 6 };
static const float rope_frequency[ROPE_WIDTH / 2] = {1, 0.3f, 0.05f};

struct rope {
    double *x, *w;
};

static double rope_loss(struct rig *rig, void *with)
{
    struct rope *r = with;
    double *y = rig_doubles(rig, ROPE_COUNT);
    for (int64_t i = 0; i < ROPE_COUNT; i++)
        y[i] = r->x[i];
    reference_rope(y, rope_frequency, ROPE_SEQUENCES, ROPE_TOKENS, ROPE_HEADS, ROPE_WIDTH, ROPE_HEADS * ROPE_WIDTH, false);
    return weighted(y, r->w, ROPE_COUNT);
}

static void rope_each(struct rig *rig)
{
    float *x = rig_noise(rig, ROPE_COUNT, 1, 1), *w = rig_noise(rig, ROPE_COUNT, 2, 1);
    struct rope with = {rig_wide(rig, x, ROPE_COUNT), rig_wide(rig, w, ROPE_COUNT)};
    const struct subject subject = {rope_loss, &with};
    rig->ops->rope(rig->device, w, rope_frequency, ROPE_SEQUENCES, ROPE_TOKENS, 0, ROPE_HEADS, ROPE_WIDTH,
                   ROPE_HEADS * ROPE_WIDTH, true);
    check(rig, &subject, with.x, ROPE_COUNT, w, "rope");
}

static void test_rope(void **state)
{
    (void)state;
    rig_each(rope_each);
}

struct attention_subject {
    struct reference_attention shape;
    double *q, *k, *v, *o, *log_sum, *w;
};

static double attention_loss(struct rig *rig, void *with)
{
    struct attention_subject *a = with;
    (void)rig;
    reference_attention_forward(a->o, a->log_sum, a->q, a->k, a->v, &a->shape);
    return weighted(a->o, a->w, a->shape.sequences * a->shape.tokens * a->shape.heads * a->shape.d);
}

static void attention_case(struct rig *rig, int64_t sequences, int64_t tokens, int64_t heads, int64_t kv_heads, int64_t d)
{
    int64_t rows = sequences * tokens, q_count = rows * heads * d, kv_count = rows * kv_heads * d;
    float *q = rig_noise(rig, q_count, 1, 1), *k = rig_noise(rig, kv_count, 2, 1), *v = rig_noise(rig, kv_count, 3, 1);
    float *w = rig_noise(rig, q_count, 4, 1), *o = rig_floats(rig, q_count), *log_sum = rig_floats(rig, rows * heads);
    float *dq = rig_floats(rig, q_count), *dk = rig_floats(rig, kv_count), *dv = rig_floats(rig, kv_count);
    struct attention_subject with = {{sequences, tokens, heads, kv_heads, d, heads * d, kv_heads * d},
                                     rig_wide(rig, q, q_count),
                                     rig_wide(rig, k, kv_count),
                                     rig_wide(rig, v, kv_count),
                                     rig_doubles(rig, q_count),
                                     rig_doubles(rig, rows * heads),
                                     rig_wide(rig, w, q_count)};
    const struct subject subject = {attention_loss, &with};
    rig->ops->attention_forward(rig->device, o, log_sum, q, k, v, sequences, tokens, heads, kv_heads, d, heads * d,
                                kv_heads * d, NULL, false);
    rig->ops->attention_backward(rig->device, dq, dk, dv, w, o, log_sum, q, k, v, sequences, tokens, heads, kv_heads, d,
                                 heads * d, kv_heads * d, NULL, false);
    check(rig, &subject, with.q, q_count, dq, "attention q");
    check(rig, &subject, with.k, kv_count, dk, "attention k");
    check(rig, &subject, with.v, kv_count, dv, "attention v");
}

static void attention_each(struct rig *rig)
{
    attention_case(rig, 2, 5, 4, 2, 3);
    attention_case(rig, 1, 7, 2, 2, 4);
    attention_case(rig, 1, 6, 4, 1, 2);
    attention_case(rig, 1, 67, 2, 1, 2); /* over the edge of a tile */
}

static void test_attention(void **state)
{
    (void)state;
    rig_each(attention_each);
}

struct swiglu {
    int64_t rows, width;
    double *gate_up, *y, *w;
};

static double swiglu_loss(struct rig *rig, void *with)
{
    struct swiglu *s = with;
    (void)rig;
    reference_swiglu_forward(s->y, s->gate_up, s->rows, s->width);
    return weighted(s->y, s->w, s->rows * s->width);
}

static void swiglu_each(struct rig *rig)
{
    int64_t rows = 3, width = 21, count = rows * width;
    float *gate_up = rig_noise(rig, 2 * count, 1, 2), *w = rig_noise(rig, count, 2, 1),
          *d_gate_up = rig_floats(rig, 2 * count);
    struct swiglu with = {rows, width, rig_wide(rig, gate_up, 2 * count), rig_doubles(rig, count), rig_wide(rig, w, count)};
    const struct subject subject = {swiglu_loss, &with};
    rig->ops->swiglu_backward(rig->device, d_gate_up, w, w, gate_up, rows, width);
    check(rig, &subject, with.gate_up, 2 * count, d_gate_up, "swiglu");
}

static void test_swiglu(void **state)
{
    (void)state;
    rig_each(swiglu_each);
}

enum { EMBEDDING_ENTRIES = 5, EMBEDDING_ROWS = 9, EMBEDDING_WIDTH = 3 };
static const uint32_t embedding_ids[EMBEDDING_ROWS] = {4, 0, 2, 2, 2, 1, 4, 0, 2}; /* 3 is never seen */

struct embedding {
    double *table, *w;
};

static double embedding_loss(struct rig *rig, void *with)
{
    struct embedding *e = with;
    double sum = 0;
    (void)rig;
    for (int64_t i = 0; i < EMBEDDING_ROWS * EMBEDDING_WIDTH; i++)
        sum += e->w[i] * e->table[embedding_ids[i / EMBEDDING_WIDTH] * EMBEDDING_WIDTH + i % EMBEDDING_WIDTH];
    return sum;
}

static void embedding_each(struct rig *rig)
{
    int64_t entries = EMBEDDING_ENTRIES * EMBEDDING_WIDTH, count = EMBEDDING_ROWS * EMBEDDING_WIDTH;
    float *table = rig_noise(rig, entries, 1, 1), *w = rig_noise(rig, count, 2, 1), *dtable = rig_zeros(rig, entries);
    struct embedding with = {rig_wide(rig, table, entries), rig_wide(rig, w, count)};
    const struct subject subject = {embedding_loss, &with};
    rig->ops->embedding_backward(rig->device, dtable, w, embedding_ids, EMBEDDING_ROWS, EMBEDDING_WIDTH);
    check(rig, &subject, with.table, entries, dtable, "embedding");
}

static void test_embedding(void **state)
{
    (void)state;
    rig_each(embedding_each);
}

struct softmax {
    int64_t rows, columns;
    double *logits;
    const uint32_t *targets;
};

static double softmax_loss(struct rig *rig, void *with)
{
    struct softmax *s = with;
    (void)rig;
    return 0.5 * reference_softmax(NULL, NULL, s->logits, s->targets, s->rows, s->columns);
}

static void softmax_each(struct rig *rig)
{
    static const uint32_t targets[] = {3, 16, UINT32_MAX, 0};
    int64_t rows = 4, columns = 17, count = rows * columns;
    float *logits = rig_noise(rig, count, 1, 2), maximum[4], sum[4] = {0}, target_logit[4];
    struct softmax with = {rows, columns, rig_wide(rig, logits, count), targets};
    const struct subject subject = {softmax_loss, &with};
    for (int i = 0; i < 4; i++)
        maximum[i] = -INFINITY;
    rig->ops->softmax_chunk(rig->device, maximum, sum, target_logit, logits, targets, rows, columns, 0);
    rig->ops->softmax_backward_chunk(rig->device, logits, maximum, sum, targets, rows, columns, 0, 0.5f);
    check(rig, &subject, with.logits, count, logits, "cross entropy");
}

static void test_softmax(void **state)
{
    (void)state;
    rig_each(softmax_each);
}

struct mask {
    int64_t rows, width, keep;
    const uint16_t *channels;
    double *x, *reference, *gain, *y, *w;
};

static double mask_loss(struct rig *rig, void *with)
{
    struct mask *m = with;
    (void)rig;
    reference_mask(m->y, m->x, m->reference, m->gain, m->channels, m->rows, m->width, m->keep);
    return weighted(m->y, m->w, m->rows * m->width);
}

/* The gain is a constant of the graph, for all rules. */
static void mask_each(struct rig *rig)
{
    int64_t rows = 4, width = 33, keep = 7, count = rows * width;
    const struct mask_key key = {.seed = 5, .step = 2};
    float *x = rig_noise(rig, count, 1, 1), *reference = rig_noise(rig, width, 2, 1), *w = rig_noise(rig, count, 3, 1);
    float *values = rig_floats(rig, rows * keep), *row_gain = rig_floats(rig, rows), *dx = rig_floats(rig, count);
    uint16_t *channels = rig_take(rig, rows * keep * 2);
    rig->ops->mask_channels(rig->device, channels, &key, rows, width, keep, 0);
    for (int rule = 0; rule < 3; rule++) {
        struct mask with = {rows,
                            width,
                            keep,
                            channels,
                            rig_wide(rig, x, count),
                            rig_wide(rig, reference, width),
                            rig_doubles(rig, rows * keep),
                            rig_doubles(rig, count),
                            rig_wide(rig, w, count)};
        const struct subject subject = {mask_loss, &with};
        reference_mask_gain(with.gain, with.x, with.reference, channels, rows, width, keep, rule);
        rig->ops->mask_gather(rig->device, values, row_gain, x, reference, channels, rows, width, keep, rule);
        rig->ops->mask_gather(rig->device, values, NULL, w, NULL, channels, rows, width, keep, 0);
        rig->ops->mask_scatter_gradient(rig->device, dx, values, rule == 2 ? row_gain : NULL, channels, rows, width, keep,
                                        rule);
        check(rig, &subject, with.x, count, dx, rule == 0 ? "mask, gain one" : rule == 1 ? "mask, unbiased" : "mask, rms");
    }
}

static void test_mask(void **state)
{
    (void)state;
    rig_each(mask_each);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matmul),    cmocka_unit_test(test_rmsnorm), cmocka_unit_test(test_rope),
        cmocka_unit_test(test_attention), cmocka_unit_test(test_swiglu),  cmocka_unit_test(test_embedding),
        cmocka_unit_test(test_softmax),   cmocka_unit_test(test_mask),
    };
    cmocka_set_message_output(CM_OUTPUT_STDOUT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

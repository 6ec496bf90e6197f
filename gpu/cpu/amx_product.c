/*
 * Matrix products on the matrix unit. Operands in fp32 are split in three bf16 words each (amx_pack.c); of the nine products of
 * words the six are made that an fp32 can see: a3·b1, a2·b1, a2·b2, a1·b2, a1·b3, a1·b1. All sums are fp32. So an fp32 product costs six times
 * one of bf16 and is still more than twice as fast as the vector units could ever be.
 *
 * A block of depth of the side with fewer rows is packed once by all threads and shared; each thread packs a few panels of the
 * other side, which stay in its second-level cache, and multiplies them by all shared ones. Every number of c is added up along the depth
 * in the same order, whatever the threads and the other rows are.
 */
#include <string.h>

#include "gpu/cpu/amx.h"
#include "gpu/cpu/cpu.h"
#include "gpu/cpu/threads.h"

enum {
    BLOCK_DEPTH = 512,      /* about that, in equal parts: each of them reads and writes c */
    ROUNDS = 4,             /* least number of shares of a thread: the last ones come out even */
    OWN_PANELS = 8,         /* these and their part of c stay in a second-level cache while the shared side passes */
    SHARED_WORDS = 4 << 20, /* 8 MiB */
};

/* ---- one tile of 32 × 32: sums in tiles 0–3, the first operand in 4 and 5, the second in 6 and 7 ---- */

static inline void load_first(const uint16_t *a)
{
    _tile_loadd(4, a, 64);
    _tile_loadd(5, a + AMX_TILE * AMX_DEPTH, 64);
}

static inline void load_second(const uint16_t *b)
{
    _tile_loadd(6, b, 64);
    _tile_loadd(7, b + AMX_TILE * AMX_DEPTH, 64);
}

static inline void multiply(void)
{
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
}

enum { FIRST = 0, SECOND = AMX_STEP, THIRD = 2 * AMX_STEP }; /* where the words lie */

/* Of three words and one. Small products come first. */
static inline void multiply_left(const uint16_t *a, const uint16_t *b)
{
    load_second(b);
    load_first(a + THIRD);
    multiply();
    load_first(a + SECOND);
    multiply();
    load_first(a + FIRST);
    multiply();
}

/* Of three words each; every step changes one side only. */
static inline void multiply_both(const uint16_t *a, const uint16_t *b)
{
    load_second(b + FIRST);
    load_first(a + THIRD);
    multiply();
    load_first(a + SECOND);
    multiply();
    load_second(b + SECOND);
    multiply();
    load_first(a + FIRST);
    multiply();
    load_second(b + THIRD);
    multiply();
    load_second(b + FIRST);
    multiply();
}

/* Lines of a tile of c that will soon be wanted, `part` of `parts`. */
static inline void fetch(const float *c, int64_t c_stride, int64_t part, int64_t parts)
{
    for (int64_t r = part * AMX_PANEL / parts; r < (part + 1) * AMX_PANEL / parts; r++) {
        __builtin_prefetch(c + r * c_stride, 1, 3);
        __builtin_prefetch(c + r * c_stride + AMX_TILE, 1, 3);
    }
}

static void multiply_panels(float *c, const float *next, int64_t c_stride, const uint16_t *a, const uint16_t *b, int64_t steps, int a_words,
                            int b_words, bool accumulate)
{
    float *low = c + AMX_TILE * c_stride;
    amx_written();
    if (accumulate) {
        _tile_loadd(0, c, c_stride * 4);
        _tile_loadd(1, c + AMX_TILE, c_stride * 4);
        _tile_loadd(2, low, c_stride * 4);
        _tile_loadd(3, low + AMX_TILE, c_stride * 4);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int64_t i = 0; i < steps; i++, a += a_words * AMX_STEP, b += b_words * AMX_STEP) {
        fetch(next, c_stride, i, steps);
        if (b_words == AMX_WORDS) {
            multiply_both(a, b);
        } else if (a_words == AMX_WORDS) {
            multiply_left(a, b);
        } else {
            load_first(a);
            load_second(b);
            multiply();
        }
    }
    _tile_stored(0, c, c_stride * 4);
    _tile_stored(1, c + AMX_TILE, c_stride * 4);
    _tile_stored(2, low, c_stride * 4);
    _tile_stored(3, low + AMX_TILE, c_stride * 4);
}

/* ---- the whole product ---- */

struct product {
    float *c;
    int64_t c_stride, depth;
    struct amx_operand a, b;
    bool accumulate;
};

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t parts_of(int64_t count, int64_t part)
{
    return (count + part - 1) / part;
}

static void copy_tile(float *to, int64_t to_stride, const float *from, int64_t from_stride, int64_t rows, int64_t columns)
{
    for (int64_t r = 0; r < rows; r++)
        memcpy(to + r * to_stride, from + r * from_stride, (size_t)columns * sizeof *to);
}

/* The tile of c at (row, column), which may hang over c's edges; the one that follows is `next` further on. */
static void make_tile(const struct product *p, int64_t row, int64_t column, int64_t next, const uint16_t *a, const uint16_t *b,
                      int64_t steps, bool accumulate)
{
    float edge[AMX_PANEL * AMX_PANEL], *c = p->c + row * p->c_stride + column;
    int64_t rows = smaller(AMX_PANEL, p->a.rows - row), columns = smaller(AMX_PANEL, p->b.rows - column);
    if (rows == AMX_PANEL && columns == AMX_PANEL) {
        multiply_panels(c, c + next, p->c_stride, a, b, steps, p->a.words, p->b.words, accumulate);
        return;
    }
    memset(edge, 0, sizeof edge);
    if (accumulate)
        copy_tile(edge, AMX_PANEL, c, p->c_stride, rows, columns);
    multiply_panels(edge, edge, AMX_PANEL, a, b, steps, p->a.words, p->b.words, accumulate);
    copy_tile(c, p->c_stride, edge, AMX_PANEL, rows, columns);
}

/* bf16 of a packed panel. */
static int64_t panel_words(const struct amx_operand *operand, int64_t depth)
{
    return parts_of(depth, AMX_DEPTH) * operand->words * AMX_STEP;
}

/* How the work is cut: thread by thread, and from time to time all together. */
struct plan {
    bool shares_a;
    const struct amx_operand *mine, *theirs;
    int64_t block;           /* depth that is added up in tiles before c is touched: part of how sums round */
    int64_t rows, depth;     /* most of the shared side that is packed at a time; depth is a multiple of block */
    int64_t panels;          /* most that a thread packs at a time */
    uint16_t *shared, *own;  /* scratch; own of each thread */
    int64_t own_size;
};

/* Shared panels that are packed: [block of depth][panel]. */
struct share {
    int64_t row, rows, first, depth;
};

static uint16_t *shared_panel(const struct plan *plan, const struct share *share, int64_t block, int64_t panel)
{
    int64_t panels = parts_of(share->rows, AMX_PANEL), depth = smaller(plan->block, share->depth - block * plan->block);
    return plan->shared + panels * panel_words(plan->theirs, block * plan->block) + panel * panel_words(plan->theirs, depth);
}

/* All tiles of a thread's own panels, from `row` on, and the shared ones. */
static void multiply_own(const struct product *p, const struct plan *plan, const struct share *share, uint16_t *own, int64_t row,
                         int64_t panels)
{
    struct amx_setting before;
    amx_begin(&before);
    for (int64_t block = 0; block * plan->block < share->depth; block++) {
        int64_t first = block * plan->block, depth = smaller(plan->block, share->depth - first), steps = parts_of(depth, AMX_DEPTH);
        int64_t size = panel_words(plan->mine, depth);
        bool accumulate = p->accumulate || share->first + first > 0;
        for (int64_t i = 0; i < panels; i++)
            amx_pack_panel(own + i * size, plan->mine, row + i * AMX_PANEL, share->first + first, depth);
        for (int64_t j = 0; j < parts_of(share->rows, AMX_PANEL); j++) {
            const uint16_t *theirs = shared_panel(plan, share, block, j);
            int64_t shared_row = share->row + j * AMX_PANEL;
            for (int64_t i = 0; i < panels; i++) {
                int64_t own_row = row + i * AMX_PANEL;
                if (plan->shares_a)
                    make_tile(p, shared_row, own_row, AMX_PANEL, theirs, own + i * size, steps, accumulate);
                else
                    make_tile(p, own_row, shared_row, AMX_PANEL * p->c_stride, own + i * size, theirs, steps, accumulate);
            }
        }
    }
    amx_end(&before);
}

static struct plan make_plan(struct device *device, const struct product *p)
{
    struct plan plan = {.shares_a = p->a.rows < p->b.rows};
    int64_t blocks = (p->depth + BLOCK_DEPTH / 2) / BLOCK_DEPTH;
    plan.block = parts_of(p->depth, AMX_DEPTH * (blocks ? blocks : 1)) * AMX_DEPTH;
    plan.mine = plan.shares_a ? &p->b : &p->a;
    plan.theirs = plan.shares_a ? &p->a : &p->b;
    int64_t theirs = panel_words(plan.theirs, plan.block), shared = parts_of(plan.theirs->rows, AMX_PANEL);
    int64_t all = parts_of(plan.mine->rows, AMX_PANEL), rounds = parts_of(all, OWN_PANELS * device->threads);
    rounds = rounds < ROUNDS ? ROUNDS : rounds;
    plan.panels = parts_of(all, rounds * device->threads); /* about the same for each thread */
    plan.rows = smaller(shared, SHARED_WORDS / theirs) * AMX_PANEL;
    plan.depth = smaller(SHARED_WORDS / (theirs * plan.rows / AMX_PANEL), parts_of(p->depth, plan.block)) * plan.block;
    plan.own_size = plan.panels * panel_words(plan.mine, smaller(plan.block, p->depth));
    int64_t shared_size = plan.rows / AMX_PANEL * panel_words(plan.theirs, smaller(plan.depth, p->depth));
    plan.shared = cpu_scratch(device, (size_t)(shared_size + device->threads * plan.own_size) * sizeof *plan.shared);
    plan.own = plan.shared + shared_size;
    return plan;
}

static void run(struct device *device, const struct product *p)
{
    const struct plan plan = make_plan(device, p);
    const int64_t panels = parts_of(plan.mine->rows, AMX_PANEL);
#pragma omp parallel num_threads(device->threads)
    for (int64_t row = 0; row < plan.theirs->rows; row += plan.rows)
        for (int64_t first = 0; first < p->depth; first += plan.depth) {
            const struct share share = {.row = row, .rows = smaller(plan.rows, plan.theirs->rows - row), .first = first,
                                        .depth = smaller(plan.depth, p->depth - first)};
            const int64_t together = parts_of(share.rows, AMX_PANEL);
#pragma omp for schedule(static)
            for (int64_t i = 0; i < parts_of(share.depth, plan.block) * together; i++) {
                int64_t from = i / together * plan.block;
                amx_pack_panel(shared_panel(&plan, &share, i / together, i % together), plan.theirs, row + i % together * AMX_PANEL,
                               first + from, smaller(plan.block, share.depth - from));
            }
#pragma omp for schedule(dynamic)
            for (int64_t i = 0; i < panels; i += plan.panels)
                multiply_own(p, &plan, &share, plan.own + threads_index() * plan.own_size, i * AMX_PANEL,
                             smaller(plan.panels, panels - i));
        }
}

void amx_product(struct device *device, float *c, const void *a, const void *b, const struct product_shape *shape, bool half_a,
                 bool half_b, bool accumulate)
{
    const struct product product = {
        .c = c, .c_stride = shape->ldc, .depth = shape->k, .accumulate = accumulate,
        .a = {.x = a, .stride = shape->lda, .rows = shape->m, .half = half_a, .depth_first = shape->transpose_a,
              .words = half_a ? 1 : AMX_WORDS},
        .b = {.x = b, .stride = shape->ldb, .rows = shape->n, .half = half_b, .depth_first = !shape->transpose_b, .pairs = true,
              .words = half_b ? 1 : AMX_WORDS}};
    run(device, &product);
}

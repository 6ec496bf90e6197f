/*
 * Matrix products in panels: 32 rows of an operand, laid out as the kernels that multiply them want them (struct panel_kernels:
 * amx_panels.c, avx512_panels.c).
 *
 * A block of depth of the side with fewer rows is packed once by all threads and shared; each thread packs a few panels of the
 * other side, which stay in its second-level cache, and multiplies them by all shared ones. Every number of c is added up along the
 * depth in the same order, whatever the threads and the other rows are.
 */
#include <string.h>

#include "gpu/cpu/cpu.h"
#include "gpu/cpu/threads.h"

enum {
    ROUNDS = 4,     /* least number of shares of a thread: the last ones come out even */
    OWN_PANELS = 8, /* these and their part of c stay in a second-level cache while the shared side passes */
};

struct product {
    const struct panel_kernels *kernels;
    float *c;
    int64_t c_stride, depth;
    struct panel_operand a, b;
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
static void make_tile(const struct product *p, int64_t row, int64_t column, int64_t next, const void *a, const void *b,
                      int64_t depth, bool accumulate)
{
    float edge[PANEL_ROWS * PANEL_ROWS], *c = p->c + row * p->c_stride + column;
    int64_t rows = smaller(PANEL_ROWS, p->a.rows - row), columns = smaller(PANEL_ROWS, p->b.rows - column);
    if (rows == PANEL_ROWS && columns == PANEL_ROWS) {
        p->kernels->multiply(c, c + next, p->c_stride, a, b, &p->a, &p->b, depth, accumulate);
        return;
    }
    memset(edge, 0, sizeof edge);
    if (accumulate)
        copy_tile(edge, PANEL_ROWS, c, p->c_stride, rows, columns);
    p->kernels->multiply(edge, edge, PANEL_ROWS, a, b, &p->a, &p->b, depth, accumulate);
    copy_tile(c, p->c_stride, edge, PANEL_ROWS, rows, columns);
}

/* Bytes of a packed panel. */
static int64_t panel_bytes(const struct product *p, const struct panel_operand *operand, int64_t depth)
{
    return parts_of(depth, PANEL_DEPTH) * p->kernels->step_bytes[operand->half];
}

/* How the work is cut: thread by thread, and from time to time all together. */
struct plan {
    bool shares_a;
    const struct panel_operand *mine, *theirs;
    int64_t block;          /* depth that is added up before c is touched: part of how sums round */
    int64_t rows, depth;    /* most of the shared side that is packed at a time; depth is a multiple of block */
    int64_t panels;         /* most that a thread packs at a time */
    uint8_t *shared, *own;  /* scratch; own of each thread */
    int64_t own_bytes;
};

/* Shared panels that are packed: [block of depth][panel]. */
struct share {
    int64_t row, rows, first, depth;
};

static uint8_t *shared_panel(const struct product *p, const struct plan *plan, const struct share *share, int64_t block,
                             int64_t panel)
{
    int64_t panels = parts_of(share->rows, PANEL_ROWS), depth = smaller(plan->block, share->depth - block * plan->block);
    return plan->shared + panels * panel_bytes(p, plan->theirs, block * plan->block) + panel * panel_bytes(p, plan->theirs, depth);
}

/* All tiles of a thread's own panels, from `row` on, and the shared ones. */
static void multiply_own(const struct product *p, const struct plan *plan, const struct share *share, uint8_t *own, int64_t row,
                         int64_t panels)
{
    uint8_t before[PANEL_SETTING];
    p->kernels->begin(before);
    for (int64_t block = 0; block * plan->block < share->depth; block++) {
        int64_t first = block * plan->block, depth = smaller(plan->block, share->depth - first);
        int64_t size = panel_bytes(p, plan->mine, depth);
        bool accumulate = p->accumulate || share->first + first > 0;
        for (int64_t i = 0; i < panels; i++)
            p->kernels->pack(own + i * size, plan->mine, row + i * PANEL_ROWS, share->first + first, depth);
        for (int64_t j = 0; j < parts_of(share->rows, PANEL_ROWS); j++) {
            const uint8_t *theirs = shared_panel(p, plan, share, block, j);
            int64_t shared_row = share->row + j * PANEL_ROWS;
            for (int64_t i = 0; i < panels; i++) {
                int64_t own_row = row + i * PANEL_ROWS;
                if (plan->shares_a)
                    make_tile(p, shared_row, own_row, PANEL_ROWS, theirs, own + i * size, depth, accumulate);
                else
                    make_tile(p, own_row, shared_row, PANEL_ROWS * p->c_stride, own + i * size, theirs, depth, accumulate);
            }
        }
    }
    p->kernels->end(before);
}

static struct plan make_plan(struct device *device, const struct product *p)
{
    struct plan plan = {.shares_a = p->a.rows < p->b.rows};
    int64_t most = p->kernels->depth, blocks = (p->depth + most / 2) / most;
    plan.block = parts_of(p->depth, PANEL_DEPTH * (blocks ? blocks : 1)) * PANEL_DEPTH;
    plan.mine = plan.shares_a ? &p->b : &p->a;
    plan.theirs = plan.shares_a ? &p->a : &p->b;
    int64_t theirs = panel_bytes(p, plan.theirs, plan.block), shared = parts_of(plan.theirs->rows, PANEL_ROWS);
    int64_t all = parts_of(plan.mine->rows, PANEL_ROWS), rounds = parts_of(all, OWN_PANELS * device->threads);
    rounds = rounds < ROUNDS ? ROUNDS : rounds;
    plan.panels = parts_of(all, rounds * device->threads); /* about the same for each thread */
    plan.rows = smaller(shared, p->kernels->shared_bytes / theirs) * PANEL_ROWS;
    plan.depth = smaller(p->kernels->shared_bytes / (theirs * plan.rows / PANEL_ROWS), parts_of(p->depth, plan.block)) * plan.block;
    plan.own_bytes = plan.panels * panel_bytes(p, plan.mine, smaller(plan.block, p->depth));
    int64_t shared_bytes = plan.rows / PANEL_ROWS * panel_bytes(p, plan.theirs, smaller(plan.depth, p->depth));
    plan.shared = cpu_scratch(device, (size_t)(shared_bytes + device->threads * plan.own_bytes));
    plan.own = plan.shared + shared_bytes;
    return plan;
}

static void run(struct device *device, const struct product *p)
{
    const struct plan plan = make_plan(device, p);
    const int64_t panels = parts_of(plan.mine->rows, PANEL_ROWS);
#pragma omp parallel num_threads(device->threads)
    for (int64_t row = 0; row < plan.theirs->rows; row += plan.rows)
        for (int64_t first = 0; first < p->depth; first += plan.depth) {
            const struct share share = {.row = row, .rows = smaller(plan.rows, plan.theirs->rows - row), .first = first,
                                        .depth = smaller(plan.depth, p->depth - first)};
            const int64_t together = parts_of(share.rows, PANEL_ROWS);
#pragma omp for schedule(static)
            for (int64_t i = 0; i < parts_of(share.depth, plan.block) * together; i++) {
                int64_t from = i / together * plan.block;
                p->kernels->pack(shared_panel(p, &plan, &share, i / together, i % together), plan.theirs,
                                 row + i % together * PANEL_ROWS, first + from, smaller(plan.block, share.depth - from));
            }
#pragma omp for schedule(dynamic)
            for (int64_t i = 0; i < panels; i += plan.panels)
                multiply_own(p, &plan, &share, plan.own + threads_index() * plan.own_bytes, i * PANEL_ROWS,
                             smaller(plan.panels, panels - i));
        }
}

void panels_product(struct device *device, float *c, const void *a, const void *b, const struct product_shape *shape, bool half_a,
                    bool half_b, bool accumulate)
{
    const struct product product = {
        .kernels = device->kernels->panels, .c = c, .c_stride = shape->ldc, .depth = shape->k, .accumulate = accumulate,
        .a = {.x = a, .stride = shape->lda, .rows = shape->m, .half = half_a, .depth_first = shape->transpose_a},
        .b = {.x = b, .stride = shape->ldb, .rows = shape->n, .half = half_b, .depth_first = !shape->transpose_b, .second = true}};
    run(device, &product);
}

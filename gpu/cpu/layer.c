/* The transformer's small parts, shared out by rows. */
#include <math.h>
#include <string.h>

#include "gpu/cpu/cpu.h"
#include "ssh/base/mem.h"

enum {
    GAIN_SUMS = 32, /* most partial sums of a gain's gradient: their number depends on the rows alone */
    COLUMNS = 16,   /* one cache line of a table row: what a thread of embedding_backward owns */
    ROWS = 16,      /* rows that one piece of a loop takes */
};

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

void layer_rmsnorm_forward(struct device *device, float *y, float *inverse, const float *x, const float *gain, int64_t rows,
                           int64_t width, float epsilon)
{
    const struct layer_kernels *kernels = device->kernels->layer;
#pragma omp parallel for num_threads(cpu_threads_for(device, rows *width)) schedule(static)
    for (int64_t r = 0; r < rows; r += ROWS)
        kernels->rmsnorm_forward(y + r * width, inverse + r, x + r * width, gain, smaller(ROWS, rows - r), width, epsilon);
}

void layer_rmsnorm_backward(struct device *device, float *dx, float *dgain, const float *dy, const float *x,
                            const float *gain, const float *inverse, int64_t rows, int64_t width)
{
    const struct layer_kernels *kernels = device->kernels->layer;
    const struct vector_kernels *vectors = device->kernels->vector;
    int64_t part = (rows + GAIN_SUMS - 1) / GAIN_SUMS;
    part = part < ROWS ? ROWS : part;
    int64_t parts = (rows + part - 1) / part;
    float *sums = cpu_scratch(device, (size_t)(GAIN_SUMS * width) * sizeof *sums);
#pragma omp parallel for num_threads(cpu_threads_for(device, rows *width)) schedule(static)
    for (int64_t i = 0; i < parts; i++) {
        int64_t r = i * part;
        memset(sums + i * width, 0, (size_t)width * sizeof *sums);
        kernels->rmsnorm_backward(dx + r * width, sums + i * width, dy + r * width, x + r * width, gain, inverse + r,
                                  smaller(part, rows - r), width);
    }
    for (int64_t i = 0; i < parts && dgain; i++)
        vectors->add(dgain, sums + i * width, width);
}

/* Angles in double and only then rounded: at position 10^5 a float product would be wrong in the third digit. The table is
 * kept until the frequencies change or more positions are asked for. */
static void layer_make_angles(struct device *device, const float *frequency, int64_t positions, int64_t half)
{
    size_t bytes = (size_t)half * sizeof *frequency;
    bool same = half == device->angle_half && memcmp(frequency, device->frequency, bytes) == 0;
    if (same && positions <= device->angle_positions)
        return;
    if (same && positions < 2 * device->angle_positions)
        positions = 2 * device->angle_positions; /* a text that grows token by token asks for one more each time */
    mem_free(device->angles);
    mem_free(device->frequency);
    device->frequency = mem_copy(frequency, bytes);
    device->angles = mem_array((size_t)(2 * positions), bytes);
    device->angle_positions = positions;
    device->angle_half = half;
    for (int64_t position = 0; position < positions; position++)
        for (int64_t i = 0; i < half; i++) {
            double angle = (double)position * (double)frequency[i];
            device->angles[position * half + i] = (float)cos(angle);
            device->angles[(positions + position) * half + i] = (float)sin(angle);
        }
}

void layer_rope(struct device *device, float *x, const float *frequency, int64_t sequences, int64_t tokens, int64_t first,
                int64_t heads, int64_t head_width, int64_t stride, bool backward)
{
    const struct layer_kernels *kernels = device->kernels->layer;
    int64_t half = head_width / 2;
    if (sequences * tokens == 0 || half == 0)
        return;
    layer_make_angles(device, frequency, first + tokens, half);
    const float *cosine = device->angles, *sine = cosine + device->angle_positions * half;
#pragma omp parallel for num_threads(cpu_threads_for(device, sequences *tokens *heads *head_width)) schedule(static)
    for (int64_t row = 0; row < sequences * tokens; row++) {
        int64_t position = first + row % tokens;
        kernels->rope(x + row * stride, cosine + position * half, sine + position * half, heads, head_width, backward);
    }
}

void layer_swiglu_forward(struct device *device, float *y, const float *gate_up, int64_t rows, int64_t width)
{
    const struct layer_kernels *kernels = device->kernels->layer;
#pragma omp parallel for num_threads(cpu_threads_for(device, rows *width)) schedule(static)
    for (int64_t r = 0; r < rows; r += ROWS)
        kernels->swiglu_forward(y + r * width, gate_up + 2 * r * width, smaller(ROWS, rows - r), width);
}

void layer_swiglu_backward(struct device *device, float *d_gate_up, float *y, const float *dy, const float *gate_up, int64_t rows,
                           int64_t width)
{
    const struct layer_kernels *kernels = device->kernels->layer;
#pragma omp parallel for num_threads(cpu_threads_for(device, rows *width)) schedule(static)
    for (int64_t r = 0; r < rows; r += ROWS)
        kernels->swiglu_backward(d_gate_up + 2 * r * width, y + r * width, dy + r * width, gate_up + 2 * r * width,
                                 smaller(ROWS, rows - r), width);
}

void layer_swiglu_forward_half(struct device *device, uint16_t *y, const uint16_t *gate_up, int64_t rows, int64_t width)
{
    const struct layer_kernels *kernels = device->kernels->layer;
#pragma omp parallel for num_threads(cpu_threads_for(device, rows *width)) schedule(static)
    for (int64_t r = 0; r < rows; r += ROWS)
        kernels->swiglu_forward_half(y + r * width, gate_up + 2 * r * width, smaller(ROWS, rows - r), width);
}

void layer_swiglu_backward_half(struct device *device, uint16_t *d_gate_up, uint16_t *y, const float *dy, const uint16_t *gate_up,
                                int64_t rows, int64_t width)
{
    const struct layer_kernels *kernels = device->kernels->layer;
#pragma omp parallel for num_threads(cpu_threads_for(device, rows *width)) schedule(static)
    for (int64_t r = 0; r < rows; r += ROWS)
        kernels->swiglu_backward_half(d_gate_up + 2 * r * width, y + r * width, dy + r * width, gate_up + 2 * r * width,
                                      smaller(ROWS, rows - r), width);
}

void layer_embedding_forward(struct device *device, float *y, const float *table, const uint32_t *ids, int64_t rows,
                             int64_t width)
{
    (void)device; /* where pragmas are ignored */
#pragma omp parallel for num_threads(cpu_threads_for(device, rows *width)) schedule(static)
    for (int64_t r = 0; r < rows; r++)
        memcpy(y + r * width, table + (int64_t)ids[r] * width, (size_t)width * sizeof *y);
}

/* The same id may come many times, so threads own columns and walk all rows in order. */
void layer_embedding_backward(struct device *device, float *dtable, const float *dy, const uint32_t *ids, int64_t rows,
                              int64_t width)
{
    const struct vector_kernels *vectors = device->kernels->vector;
    int threads = cpu_threads_for(device, rows * width);
    int64_t part = ((width + threads - 1) / threads + COLUMNS - 1) / COLUMNS * COLUMNS;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t begin = 0; begin < width; begin += part)
        for (int64_t r = 0; r < rows; r++)
            vectors->add(dtable + (int64_t)ids[r] * width + begin, dy + r * width + begin, smaller(part, width - begin));
}

void layer_softmax_chunk(struct device *device, float *maximum, float *sum, float *target_logit, const float *logits,
                         const uint32_t *targets, int64_t rows, int64_t columns, int64_t first)
{
    const struct layer_kernels *kernels = device->kernels->layer;
#pragma omp parallel for num_threads(cpu_threads_for(device, rows *columns)) schedule(static)
    for (int64_t r = 0; r < rows; r += ROWS)
        kernels->softmax_chunk(maximum + r, sum + r, target_logit + r, logits + r * columns, targets + r,
                               smaller(ROWS, rows - r), columns, first);
}

/* Whichever kernel it is: a row is a thread's. */
static void softmax_backward(struct device *device, void (*kernel)(float *, const float *, const float *, const uint32_t *, int64_t,
                                                                   int64_t, int64_t, float),
                             float *logits, const float *maximum, const float *sum, const uint32_t *targets, int64_t rows,
                             int64_t columns, int64_t first, float scale)
{
    (void)device; /* where pragmas are ignored */
#pragma omp parallel for num_threads(cpu_threads_for(device, rows *columns)) schedule(static)
    for (int64_t r = 0; r < rows; r += ROWS)
        kernel(logits + r * columns, maximum + r, sum + r, targets + r, smaller(ROWS, rows - r), columns, first, scale);
}

void layer_softmax_backward_chunk(struct device *device, float *logits, const float *maximum, const float *sum,
                                  const uint32_t *targets, int64_t rows, int64_t columns, int64_t first, float scale)
{
    softmax_backward(device, device->kernels->layer->softmax_backward_chunk, logits, maximum, sum, targets, rows, columns, first, scale);
}

void layer_softmax_backward_half(struct device *device, float *logits, const float *maximum, const float *sum,
                                 const uint32_t *targets, int64_t rows, int64_t columns, int64_t first, float scale)
{
    softmax_backward(device, device->kernels->layer->softmax_backward_half, logits, maximum, sum, targets, rows, columns, first, scale);
}

void layer_softmax_whole(struct device *device, float *maximum, float *sum, float *target_logit, float *logits,
                         const uint32_t *targets, int64_t rows, int64_t columns, float scale, bool half)
{
    const struct layer_kernels *kernels = device->kernels->layer;
#pragma omp parallel for num_threads(cpu_threads_for(device, rows *columns)) schedule(static)
    for (int64_t r = 0; r < rows; r += ROWS)
        kernels->softmax_whole(maximum + r, sum + r, target_logit + r, logits + r * columns, targets + r, smaller(ROWS, rows - r),
                               columns, scale, half);
}

double layer_softmax_loss(struct device *device, const float *maximum, const float *sum, const float *target_logit,
                          const uint32_t *targets, int64_t rows)
{
    (void)device;
    double loss = 0;
    for (int64_t r = 0; r < rows; r++)
        if (targets[r] != UINT32_MAX)
            loss += (double)maximum[r] + log((double)sum[r]) - (double)target_logit[r];
    return loss;
}

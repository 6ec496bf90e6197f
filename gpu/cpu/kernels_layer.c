/* Inner loops of the transformer's small parts: norm, rotation, gated unit, cross entropy. */
#include "gpu/cpu/kernels.h"

#include <math.h>
#include <string.h>

#include "gpu/cpu/kernels_math.h"

enum { PIECE = 256 }; /* elements between two passes, in the first-level cache */

static void rmsnorm_forward(float *restrict y, float *restrict inverse, const float *restrict x, const float *restrict gain,
                            int64_t rows, int64_t width, float epsilon)
{
    for (int64_t r = 0; r < rows; r++, x += width, y += width) {
        float squares = 0;
#pragma omp simd reduction(+ : squares)
        for (int64_t h = 0; h < width; h++)
            squares += x[h] * x[h];
        float factor = 1.0f / sqrtf(squares / (float)width + epsilon);
        inverse[r] = factor;
        for (int64_t h = 0; h < width; h++)
            y[h] = x[h] * factor * gain[h];
    }
}

/* y = x·i·g and i = (mean x² + ε)^-½, so dx = i·(g·dy) − x·i³/width·Σ g·dy·x. */
static void rmsnorm_backward(float *restrict dx, float *restrict dgain, const float *restrict dy, const float *restrict x,
                             const float *restrict gain, const float *restrict inverse, int64_t rows, int64_t width)
{
    for (int64_t r = 0; r < rows; r++, x += width, dy += width, dx += width) {
        float along = 0, factor = inverse[r];
#pragma omp simd reduction(+ : along)
        for (int64_t h = 0; h < width; h++)
            along += gain[h] * dy[h] * x[h];
        float back = along * factor * factor * factor / (float)width;
        for (int64_t h = 0; h < width; h++) {
            dx[h] += factor * gain[h] * dy[h] - back * x[h];
            dgain[h] += dy[h] * x[h] * factor;
        }
    }
}

static void rope(float *restrict x, const float *restrict cosine, const float *restrict sine, int64_t heads,
                 int64_t head_width, bool backward)
{
    const int64_t half = head_width / 2;
    const float sign = backward ? -1.0f : 1.0f;
    for (int64_t n = 0; n < heads; n++, x += head_width)
        for (int64_t i = 0; i < half; i++) {
            float low = x[i], high = x[half + i];
            x[i] = low * cosine[i] - high * (sign * sine[i]);
            x[half + i] = high * cosine[i] + low * (sign * sine[i]);
        }
}

static inline float swiglu(float gate, float up)
{
    return gate * (1.0f / (1.0f + math_exp(-gate))) * up;
}

/* y is as forward has it, to the bit. */
static inline void swiglu_gradient(float gate, float up, float dy, float *d_gate, float *d_up, float *y)
{
    float sigmoid = 1.0f / (1.0f + math_exp(-gate)), silu = gate * sigmoid;
    *d_gate = dy * up * sigmoid * (1.0f + gate * (1.0f - sigmoid));
    *d_up = dy * silu;
    *y = silu * up;
}

static void swiglu_forward(float *restrict y, const float *restrict gate_up, int64_t rows, int64_t width)
{
    for (int64_t r = 0; r < rows; r++, y += width, gate_up += 2 * width)
        for (int64_t f = 0; f < width; f++)
            y[f] = swiglu(gate_up[f], gate_up[width + f]);
}

static void swiglu_forward_half(uint16_t *restrict y, const uint16_t *restrict gate_up, int64_t rows, int64_t width)
{
    for (int64_t r = 0; r < rows; r++, y += width, gate_up += 2 * width)
        for (int64_t f = 0; f < width; f++)
            y[f] = math_to_half(swiglu(math_from_half(gate_up[f]), math_from_half(gate_up[width + f])));
}

/* d_gate_up may be gate_up itself, and y dy: each element is read before it is written. */
static void swiglu_backward(float *d_gate_up, float *y, const float *dy, const float *gate_up, int64_t rows, int64_t width)
{
    for (int64_t r = 0; r < rows; r++, y += width, dy += width, gate_up += 2 * width, d_gate_up += 2 * width) {
        const float *gate = gate_up, *up = gate_up + width;
        float *d_gate = d_gate_up, *d_up = d_gate_up + width;
#pragma omp simd
        for (int64_t f = 0; f < width; f++)
            swiglu_gradient(gate[f], up[f], dy[f], &d_gate[f], &d_up[f], &y[f]);
    }
}

static void swiglu_backward_half(uint16_t *d_gate_up, uint16_t *y, const float *dy, const uint16_t *gate_up, int64_t rows,
                                 int64_t width)
{
    for (int64_t r = 0; r < rows; r++, y += width, dy += width, gate_up += 2 * width, d_gate_up += 2 * width) {
        const uint16_t *gate = gate_up, *up = gate_up + width;
        uint16_t *d_gate = d_gate_up, *d_up = d_gate_up + width;
#pragma omp simd
        for (int64_t f = 0; f < width; f++) {
            float of_gate, of_up, again;
            swiglu_gradient(math_from_half(gate[f]), math_from_half(up[f]), dy[f], &of_gate, &of_up, &again);
            y[f] = math_to_half(again);
            d_gate[f] = math_to_half(of_gate);
            d_up[f] = math_to_half(of_up);
        }
    }
}

/* The largest of x and `largest`, in lanes, because a maximum of floats is not a reduction to every compiler. NaN is passed
 * over. */
static float largest_of(const float *x, int64_t count, float largest)
{
    enum { LANES = 32 };
    float lane[LANES];
    int64_t whole = count / LANES * LANES;
    for (int i = 0; i < LANES; i++)
        lane[i] = largest;
    for (int64_t c = 0; c < whole; c += LANES)
        for (int i = 0; i < LANES; i++)
            lane[i] = x[c + i] > lane[i] ? x[c + i] : lane[i];
    for (int64_t c = whole; c < count; c++)
        lane[0] = x[c] > lane[0] ? x[c] : lane[0];
    for (int i = 0; i < LANES; i++)
        largest = lane[i] > largest ? lane[i] : largest;
    return largest;
}

static float sum_of_exponentials(const float *logits, int64_t columns, float maximum)
{
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t c = 0; c < columns; c++)
        sum += math_exp(logits[c] - maximum);
    return sum;
}

static void softmax_chunk(float *maximum, float *sum, float *target_logit, const float *logits, const uint32_t *targets,
                          int64_t rows, int64_t columns, int64_t first)
{
    for (int64_t r = 0; r < rows; r++, logits += columns) {
        float largest = largest_of(logits, columns, maximum[r]);
        float before = sum[r] * math_exp(maximum[r] - largest);
        sum[r] = before + sum_of_exponentials(logits, columns, largest);
        maximum[r] = largest;
        int64_t target = (int64_t)targets[r] - first;
        if (targets[r] != UINT32_MAX && target >= 0 && target < columns)
            target_logit[r] = logits[target];
    }
}

static void softmax_backward_chunk(float *restrict logits, const float *maximum, const float *sum, const uint32_t *targets,
                                   int64_t rows, int64_t columns, int64_t first, float scale)
{
    for (int64_t r = 0; r < rows; r++, logits += columns) {
        if (targets[r] == UINT32_MAX) {
            for (int64_t c = 0; c < columns; c++)
                logits[c] = 0;
            continue;
        }
        float factor = scale / sum[r], largest = maximum[r];
        for (int64_t c = 0; c < columns; c++)
            logits[c] = math_exp(logits[c] - largest) * factor;
        int64_t target = (int64_t)targets[r] - first;
        if (target >= 0 && target < columns)
            logits[target] -= scale;
    }
}

typedef uint16_t written_half __attribute__((may_alias));

/* Words are written over logits of the same row that have been read. */
static void softmax_backward_half(float *logits, const float *maximum, const float *sum, const uint32_t *targets, int64_t rows,
                                  int64_t columns, int64_t first, float scale)
{
    float piece[PIECE];
    for (int64_t r = 0; r < rows; r++, logits += columns) {
        written_half *words = (written_half *)logits;
        int64_t target = targets[r] == UINT32_MAX ? -1 : (int64_t)targets[r] - first;
        float factor = targets[r] == UINT32_MAX ? 0 : scale / sum[r], largest = maximum[r];
        for (int64_t begin = 0; begin < columns; begin += PIECE) {
            int64_t count = columns - begin < PIECE ? columns - begin : PIECE;
            for (int64_t c = 0; c < count; c++)
                piece[c] = factor != 0 ? math_exp(logits[begin + c] - largest) * factor : 0;
            if (target >= begin && target < begin + count)
                piece[target - begin] -= scale;
            for (int64_t c = 0; c < count; c++)
                words[begin + c] = math_to_half(piece[c]);
        }
    }
}

/* The same in place. */
static float exponentials(float *logits, int64_t columns, float maximum)
{
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t c = 0; c < columns; c++) {
        logits[c] = math_exp(logits[c] - maximum);
        sum += logits[c];
    }
    return sum;
}

/* A row's exponentials, which are in the second-level cache, times `factor`: where they are, or rounded where they begin. */
static void scale_row(float *logits, int64_t columns, float factor, bool half)
{
    written_half *words = (written_half *)logits;
    float piece[PIECE];
    for (int64_t c = 0; c < columns && !half; c++)
        logits[c] *= factor;
    for (int64_t begin = 0; begin < columns && half; begin += PIECE) {
        int64_t count = columns - begin < PIECE ? columns - begin : PIECE;
        for (int64_t c = 0; c < count; c++)
            piece[c] = logits[begin + c] * factor;
        for (int64_t c = 0; c < count; c++)
            words[begin + c] = math_to_half(piece[c]);
    }
}

/* The target's own gradient is written last, from its exponential as it was. */
static void softmax_whole(float *maximum, float *sum, float *target_logit, float *logits, const uint32_t *targets, int64_t rows,
                          int64_t columns, float scale, bool half)
{
    for (int64_t r = 0; r < rows; r++, logits += columns) {
        if (targets[r] == UINT32_MAX) {
            memset(logits, 0, (size_t)columns * (half ? sizeof(uint16_t) : sizeof *logits));
            maximum[r] = sum[r] = target_logit[r] = 0;
            continue;
        }
        target_logit[r] = logits[targets[r]];
        maximum[r] = largest_of(logits, columns, -INFINITY);
        sum[r] = exponentials(logits, columns, maximum[r]);
        float factor = scale / sum[r], of_target = logits[targets[r]] * factor - scale;
        scale_row(logits, columns, factor, half);
        if (half)
            ((written_half *)logits)[targets[r]] = math_to_half(of_target);
        else
            logits[targets[r]] = of_target;
    }
}

const struct layer_kernels KERNEL_TABLE(layer_kernels) = {
    .rmsnorm_forward = rmsnorm_forward,
    .rmsnorm_backward = rmsnorm_backward,
    .rope = rope,
    .swiglu_forward = swiglu_forward,
    .swiglu_backward = swiglu_backward,
    .swiglu_forward_half = swiglu_forward_half,
    .swiglu_backward_half = swiglu_backward_half,
    .softmax_chunk = softmax_chunk,
    .softmax_backward_chunk = softmax_backward_chunk,
    .softmax_backward_half = softmax_backward_half,
    .softmax_whole = softmax_whole,
};

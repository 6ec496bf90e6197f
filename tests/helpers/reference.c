#include "tests/helpers/reference.h"

#include <math.h>
#include <stdlib.h>

#include "gpu/math/philox.h"
#include "ssh/base/mem.h"

void reference_matmul(double *c, double *sizes, const double *a, const double *b, int64_t m, int64_t n, int64_t k,
                      int64_t lda, int64_t ldb, int64_t ldc, bool transpose_a, bool transpose_b, bool accumulate)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = accumulate ? c[i * ldc + j] : 0, size = fabs(sum);
            for (int64_t l = 0; l < k; l++) {
                double x = transpose_a ? a[l * lda + i] : a[i * lda + l], y = transpose_b ? b[j * ldb + l] : b[l * ldb + j];
                sum += x * y;
                size += fabs(x * y);
            }
            c[i * ldc + j] = sum;
            if (sizes)
                sizes[i * ldc + j] = size;
        }
}

void reference_rmsnorm_forward(double *y, double *inverse, const double *x, const double *gain, int64_t rows, int64_t width,
                               double epsilon)
{
    for (int64_t r = 0; r < rows; r++) {
        double mean = 0;
        for (int64_t h = 0; h < width; h++)
            mean += x[r * width + h] * x[r * width + h] / (double)width;
        inverse[r] = 1 / sqrt(mean + epsilon);
        for (int64_t h = 0; h < width; h++)
            y[r * width + h] = x[r * width + h] * inverse[r] * gain[h];
    }
}

void reference_rmsnorm_backward(double *dx, double *dgain, const double *dy, const double *x, const double *gain,
                                int64_t rows, int64_t width, double epsilon)
{
    for (int64_t r = 0; r < rows; r++) {
        double mean = 0, d_inverse = 0;
        for (int64_t h = 0; h < width; h++)
            mean += x[r * width + h] * x[r * width + h] / (double)width;
        double inverse = pow(mean + epsilon, -0.5);
        for (int64_t h = 0; h < width; h++) {
            d_inverse += dy[r * width + h] * gain[h] * x[r * width + h];
            dgain[h] += dy[r * width + h] * x[r * width + h] * inverse;
        }
        double d_mean = d_inverse * -0.5 * pow(mean + epsilon, -1.5);
        for (int64_t h = 0; h < width; h++)
            dx[r * width + h] += dy[r * width + h] * gain[h] * inverse + d_mean * 2 * x[r * width + h] / (double)width;
    }
}

void reference_rope(double *x, const float *frequency, int64_t sequences, int64_t tokens, int64_t heads, int64_t head_width,
                    int64_t stride, bool backward)
{
    int64_t half = head_width / 2;
    for (int64_t row = 0; row < sequences * tokens; row++)
        for (int64_t head = 0; head < heads; head++)
            for (int64_t i = 0; i < half; i++) {
                double angle = (double)(row % tokens) * (double)frequency[i] * (backward ? -1 : 1);
                double *low = x + row * stride + head * head_width + i, *high = low + half, before = *low;
                *low = before * cos(angle) - *high * sin(angle);
                *high = *high * cos(angle) + before * sin(angle);
            }
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

void reference_swiglu_forward(double *y, const double *gate_up, int64_t rows, int64_t width)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t f = 0; f < width; f++) {
            double gate = gate_up[r * 2 * width + f], up = gate_up[r * 2 * width + width + f];
            y[r * width + f] = gate * sigmoid(gate) * up;
        }
}

void reference_swiglu_backward(double *d_gate_up, const double *dy, const double *gate_up, int64_t rows, int64_t width)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t f = 0; f < width; f++) {
            double gate = gate_up[r * 2 * width + f], up = gate_up[r * 2 * width + width + f], s = sigmoid(gate);
            d_gate_up[r * 2 * width + f] = dy[r * width + f] * up * (s + gate * s * (1 - s));
            d_gate_up[r * 2 * width + width + f] = dy[r * width + f] * gate * s;
        }
}

/* Offsets of one position of one head. */
static int64_t query_at(const struct reference_attention *a, int64_t sequence, int64_t token, int64_t head)
{
    return (sequence * a->tokens + token) * a->q_stride + head * a->d;
}

static int64_t key_at(const struct reference_attention *a, int64_t sequence, int64_t token, int64_t head)
{
    return (sequence * a->tokens + token) * a->kv_stride + head / (a->heads / a->kv_heads) * a->d;
}

static int64_t output_at(const struct reference_attention *a, int64_t sequence, int64_t token, int64_t head)
{
    return ((sequence * a->tokens + token) * a->heads + head) * a->d;
}

static double dot(const double *x, const double *y, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += x[i] * y[i];
    return sum;
}

/* p[0..token] of one query; returns its log sum of exponentials. */
static double probabilities(double *p, const double *q, const double *k, const struct reference_attention *a,
                            int64_t sequence, int64_t token, int64_t head)
{
    double largest = -INFINITY, sum = 0;
    for (int64_t j = 0; j <= token; j++) {
        p[j] = dot(q + query_at(a, sequence, token, head), k + key_at(a, sequence, j, head), a->d) / sqrt((double)a->d);
        largest = p[j] > largest ? p[j] : largest;
    }
    for (int64_t j = 0; j <= token; j++)
        sum += exp(p[j] - largest);
    for (int64_t j = 0; j <= token; j++)
        p[j] = exp(p[j] - largest) / sum;
    return largest + log(sum);
}

void reference_attention_forward(double *o, double *log_sum, const double *q, const double *k, const double *v,
                                 const struct reference_attention *a)
{
    double *p = mem_array((size_t)a->tokens, sizeof *p);
    for (int64_t s = 0; s < a->sequences; s++)
        for (int64_t head = 0; head < a->heads; head++)
            for (int64_t t = 0; t < a->tokens; t++) {
                log_sum[(s * a->heads + head) * a->tokens + t] = probabilities(p, q, k, a, s, t, head);
                for (int64_t c = 0; c < a->d; c++) {
                    double sum = 0;
                    for (int64_t j = 0; j <= t; j++)
                        sum += p[j] * v[key_at(a, s, j, head) + c];
                    o[output_at(a, s, t, head) + c] = sum;
                }
            }
    mem_free(p);
}

void reference_attention_backward(double *dq, double *dk, double *dv, const double *d_o, const double *q, const double *k,
                                  const double *v, const struct reference_attention *a)
{
    double *p = mem_array((size_t)a->tokens, sizeof *p), *dp = mem_array((size_t)a->tokens, sizeof *dp);
    for (int64_t s = 0; s < a->sequences; s++)
        for (int64_t head = 0; head < a->heads; head++)
            for (int64_t t = 0; t < a->tokens; t++) {
                const double *d_out = d_o + output_at(a, s, t, head);
                double mean = 0;
                probabilities(p, q, k, a, s, t, head);
                for (int64_t j = 0; j <= t; j++) {
                    dp[j] = dot(d_out, v + key_at(a, s, j, head), a->d);
                    mean += p[j] * dp[j];
                }
                for (int64_t j = 0; j <= t; j++) {
                    double d_score = p[j] * (dp[j] - mean) / sqrt((double)a->d);
                    int64_t at_q = query_at(a, s, t, head), at_k = key_at(a, s, j, head);
                    for (int64_t c = 0; c < a->d; c++) {
                        dq[at_q + c] += d_score * k[at_k + c];
                        dk[at_k + c] += d_score * q[at_q + c];
                        dv[at_k + c] += p[j] * d_out[c];
                    }
                }
            }
    mem_free(p);
    mem_free(dp);
}

double reference_softmax(double *maximum, double *sum, const double *logits, const uint32_t *targets, int64_t rows,
                         int64_t columns)
{
    double loss = 0;
    for (int64_t r = 0; r < rows; r++, logits += columns) {
        double largest = -INFINITY, total = 0;
        for (int64_t c = 0; c < columns; c++)
            largest = logits[c] > largest ? logits[c] : largest;
        for (int64_t c = 0; c < columns; c++)
            total += exp(logits[c] - largest);
        if (maximum)
            maximum[r] = largest;
        if (sum)
            sum[r] = total;
        if (targets[r] != UINT32_MAX)
            loss += largest + log(total) - logits[targets[r]];
    }
    return loss;
}

void reference_softmax_backward(double *d_logits, const double *logits, const uint32_t *targets, int64_t rows,
                                int64_t columns, double scale)
{
    for (int64_t r = 0; r < rows; r++, logits += columns, d_logits += columns) {
        double total = 0;
        for (int64_t c = 0; c < columns; c++)
            total += exp(logits[c]);
        for (int64_t c = 0; c < columns; c++)
            d_logits[c] = targets[r] == UINT32_MAX ? 0 : scale * (exp(logits[c]) / total - (c == (int64_t)targets[r]));
    }
}

void reference_adamw(double *parameter, const double *gradient, double *m, double *v, int64_t count,
                     const struct adamw *settings)
{
    double beta1 = (double)settings->beta1, beta2 = (double)settings->beta2;
    for (int64_t i = 0; i < count; i++) {
        double g = gradient[i] * (double)settings->gradient_scale;
        m[i] = beta1 * m[i] + (1 - beta1) * g;
        v[i] = beta2 * v[i] + (1 - beta2) * g * g;
        double m_corrected = m[i] / (double)settings->correction1, v_corrected = v[i] / (double)settings->correction2;
        parameter[i] -= (double)settings->learning_rate * ((double)settings->weight_decay * parameter[i] +
                                                           m_corrected / (sqrt(v_corrected) + (double)settings->epsilon));
    }
}

uint16_t reference_mask_channel(const struct mask_key *from, int64_t token, int64_t stratum, int64_t width, int64_t keep)
{
    uint64_t first = (uint64_t)(stratum * width / keep), after = (uint64_t)((stratum + 1) * width / keep);
    uint32_t key[2] = {(uint32_t)(from->seed & 0xFFFFFFFF), (uint32_t)(from->seed >> 32) ^ (uint32_t)(from->step >> 32)};
    uint32_t counter[4] = {(uint32_t)(stratum / 4), (uint32_t)token, from->boundary * 1048576 + from->micro_batch,
                           (uint32_t)(from->step & 0xFFFFFFFF)};
    uint32_t draw[4];
    philox4x32(counter, key, draw);
    return (uint16_t)(first + ((uint64_t)draw[stratum % 4] * (after - first) >> 32));
}

void reference_mask_gain(double *gain, const double *x, const double *reference, const uint16_t *channels, int64_t rows,
                         int64_t width, int64_t keep, int rule)
{
    for (int64_t r = 0; r < rows; r++) {
        double whole = 0, kept = 0;
        for (int64_t h = 0; h < width; h++) {
            double residual = x[r * width + h] - (reference ? reference[h] : 0);
            whole += residual * residual;
        }
        for (int64_t i = 0; i < keep; i++) {
            int64_t h = channels[r * keep + i];
            double residual = x[r * width + h] - (reference ? reference[h] : 0);
            kept += residual * residual;
        }
        for (int64_t i = 0; i < keep; i++) {
            double of_stratum = (double)((i + 1) * width / keep - i * width / keep);
            double of_row = kept > 0 ? sqrt(whole / kept) : 1;
            gain[r * keep + i] = rule == 0 ? 1 : rule == 1 ? of_stratum : of_row;
        }
    }
}

void reference_mask(double *out, const double *x, const double *reference, const double *gain, const uint16_t *channels,
                    int64_t rows, int64_t width, int64_t keep)
{
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t h = 0; h < width; h++)
            out[r * width + h] = reference ? reference[h] : 0;
        for (int64_t i = 0; i < keep; i++) {
            int64_t h = channels[r * keep + i];
            out[r * width + h] += gain[r * keep + i] * (x[r * width + h] - (reference ? reference[h] : 0));
        }
    }
}

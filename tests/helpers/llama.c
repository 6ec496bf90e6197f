#include "tests/helpers/llama.h"

#include <inttypes.h>
#include <math.h>

#include "ssh/base/mem.h"

int64_t llama_size(const struct llama *llama, int index)
{
    return llama->info[index].shape[0] * llama->info[index].shape[1];
}

void llama_init(struct llama *llama, const struct model_shape *shape, struct stage *stage, bool gradients)
{
    *llama = (struct llama){.shape = *shape, .count = stage_tensor_count(stage)};
    llama->info = mem_array((size_t)llama->count, sizeof *llama->info);
    llama->values = mem_array((size_t)llama->count, sizeof *llama->values);
    for (int i = 0; i < llama->count; i++) {
        stage_tensor(stage, i, &llama->info[i]);
        size_t size = (size_t)llama_size(llama, i);
        float *narrow = mem_array(size, sizeof *narrow);
        stage_tensor_get(stage, i, narrow, gradients);
        llama->values[i] = mem_array(size, sizeof(double));
        for (size_t j = 0; j < size; j++)
            llama->values[i][j] = (double)narrow[j];
        mem_free(narrow);
    }
}

void llama_clear(struct llama *llama)
{
    for (int i = 0; i < llama->count; i++)
        mem_free(llama->values[i]);
    mem_free(llama->values);
    mem_free(llama->info);
}

static const double *named(const struct llama *llama, const char *name)
{
    for (int i = 0; i < llama->count; i++)
        if (strcmp(llama->info[i].name, name) == 0)
            return llama->values[i];
    BUG("the model has no tensor %s", name);
}

static const double *of_layer(const struct llama *llama, int64_t layer, const char *name)
{
    char full[128];
    snprintf(full, sizeof full, "model.layers.%" PRId64 ".%s.weight", layer, name);
    return named(llama, full);
}

/* y[out] = W[out,in] · x[in] */
static void linear(double *y, const double *weight, const double *x, int64_t out, int64_t in)
{
    for (int64_t o = 0; o < out; o++) {
        y[o] = 0;
        for (int64_t i = 0; i < in; i++)
            y[o] += weight[o * in + i] * x[i];
    }
}

static void norm(double *y, const double *x, const double *gain, int64_t width, double epsilon)
{
    double square = 0;
    for (int64_t i = 0; i < width; i++)
        square += x[i] * x[i];
    for (int64_t i = 0; i < width; i++)
        y[i] = x[i] / sqrt(square / (double)width + epsilon) * gain[i];
}

static void rotate(double *head, int64_t width, int64_t position, double theta)
{
    for (int64_t i = 0; i < width / 2; i++) {
        double angle = (double)position * pow(theta, -2.0 * (double)i / (double)width);
        double a = head[i], b = head[i + width / 2];
        head[i] = a * cos(angle) - b * sin(angle);
        head[i + width / 2] = b * cos(angle) + a * sin(angle);
    }
}

/* o[d] of one head at position t: softmax over positions 0 … t; scores[tokens] is scratch. */
static void attend(double *o, const double *q, const double *k, const double *v, int64_t t, int64_t d, int64_t stride,
                   double *scores)
{
    double maximum = -INFINITY, sum = 0;
    for (int64_t s = 0; s <= t; s++) {
        scores[s] = 0;
        for (int64_t i = 0; i < d; i++)
            scores[s] += q[i] * k[s * stride + i] / sqrt((double)d);
        maximum = fmax(maximum, scores[s]);
    }
    memset(o, 0, (size_t)d * sizeof *o);
    for (int64_t s = 0; s <= t; s++) {
        double weight = exp(scores[s] - maximum);
        sum += weight;
        for (int64_t i = 0; i < d; i++)
            o[i] += weight * v[s * stride + i];
    }
    for (int64_t i = 0; i < d; i++)
        o[i] /= sum;
}

static void add_attention(const struct llama *llama, int64_t layer, double *x, int64_t tokens)
{
    const struct model_shape *m = &llama->shape;
    int64_t d = m->head_width, query = m->heads * d, key = m->kv_heads * d, group = m->heads / m->kv_heads;
    double *y = mem_array((size_t)m->hidden, sizeof *y), *q = mem_array((size_t)(tokens * query), sizeof *q);
    double *k = mem_array((size_t)(tokens * key), sizeof *k), *v = mem_array((size_t)(tokens * key), sizeof *v);
    double *o = mem_array((size_t)query, sizeof *o), *scores = mem_array((size_t)tokens, sizeof *scores);
    for (int64_t t = 0; t < tokens; t++) {
        norm(y, x + t * m->hidden, of_layer(llama, layer, "input_layernorm"), m->hidden, (double)m->norm_epsilon);
        linear(q + t * query, of_layer(llama, layer, "self_attn.q_proj"), y, query, m->hidden);
        linear(k + t * key, of_layer(llama, layer, "self_attn.k_proj"), y, key, m->hidden);
        linear(v + t * key, of_layer(llama, layer, "self_attn.v_proj"), y, key, m->hidden);
        for (int64_t h = 0; h < m->heads; h++)
            rotate(q + t * query + h * d, d, t, (double)m->rope_theta);
        for (int64_t h = 0; h < m->kv_heads; h++)
            rotate(k + t * key + h * d, d, t, (double)m->rope_theta);
    }
    for (int64_t t = 0; t < tokens; t++) {
        for (int64_t h = 0; h < m->heads; h++)
            attend(o + h * d, q + t * query + h * d, k + h / group * d, v + h / group * d, t, d, key, scores);
        linear(y, of_layer(llama, layer, "self_attn.o_proj"), o, m->hidden, query);
        for (int64_t i = 0; i < m->hidden; i++)
            x[t * m->hidden + i] += y[i];
    }
    double *all[] = {y, q, k, v, o, scores};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        mem_free(all[i]);
}

static void add_mlp(const struct llama *llama, int64_t layer, double *x)
{
    const struct model_shape *m = &llama->shape;
    double *y = mem_array((size_t)m->hidden, sizeof *y), *gate = mem_array((size_t)m->ffn, sizeof *gate);
    double *up = mem_array((size_t)m->ffn, sizeof *up);
    norm(y, x, of_layer(llama, layer, "post_attention_layernorm"), m->hidden, (double)m->norm_epsilon);
    linear(gate, of_layer(llama, layer, "mlp.gate_proj"), y, m->ffn, m->hidden);
    linear(up, of_layer(llama, layer, "mlp.up_proj"), y, m->ffn, m->hidden);
    for (int64_t i = 0; i < m->ffn; i++)
        gate[i] = gate[i] / (1 + exp(-gate[i])) * up[i];
    linear(y, of_layer(llama, layer, "mlp.down_proj"), gate, m->hidden, m->ffn);
    for (int64_t i = 0; i < m->hidden; i++)
        x[i] += y[i];
    mem_free(y);
    mem_free(gate);
    mem_free(up);
}

static double token_loss(const struct llama *llama, const double *x, uint32_t target)
{
    const struct model_shape *m = &llama->shape;
    double *y = mem_array((size_t)m->hidden, sizeof *y), *logits = mem_array((size_t)m->vocabulary, sizeof *logits);
    double maximum = -INFINITY, sum = 0;
    norm(y, x, named(llama, "model.norm.weight"), m->hidden, (double)m->norm_epsilon);
    linear(logits, named(llama, m->tied ? "model.embed_tokens.weight" : "lm_head.weight"), y, m->vocabulary, m->hidden);
    for (int64_t i = 0; i < m->vocabulary; i++)
        maximum = fmax(maximum, logits[i]);
    for (int64_t i = 0; i < m->vocabulary; i++)
        sum += exp(logits[i] - maximum);
    double loss = maximum + log(sum) - logits[target];
    mem_free(y);
    mem_free(logits);
    return loss;
}

double llama_loss(const struct llama *llama, const uint32_t *ids, const uint32_t *targets, int64_t sequences, int64_t tokens)
{
    const struct model_shape *m = &llama->shape;
    const double *embedding = named(llama, "model.embed_tokens.weight");
    double *x = mem_array((size_t)(tokens * m->hidden), sizeof *x), loss = 0;
    for (int64_t s = 0; s < sequences; s++, ids += tokens, targets += tokens) {
        for (int64_t t = 0; t < tokens; t++)
            memcpy(x + t * m->hidden, embedding + (int64_t)ids[t] * m->hidden, (size_t)m->hidden * sizeof *x);
        for (int64_t layer = 0; layer < m->layers; layer++) {
            add_attention(llama, layer, x, tokens);
            for (int64_t t = 0; t < tokens; t++)
                add_mlp(llama, layer, x + t * m->hidden);
        }
        for (int64_t t = 0; t < tokens; t++)
            if (targets[t] != UINT32_MAX)
                loss += token_loss(llama, x + t * m->hidden, targets[t]);
    }
    mem_free(x);
    return loss;
}

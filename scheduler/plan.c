/* See plan.h. Everything here is arithmetic on the profile; printing is in plan_print.c. */
#include "scheduler/plan.h"

#include <inttypes.h>
#include <sched.h>
#include <string.h>

#include "ssh/wire/frame.h"
#include "ssh/wire/wire.h"

#define HEAD_FLOATS ((int64_t)1 << 24) /* logits are held in pieces of so many, */
#define HEAD_ROWS_LEAST 128             /* but of whole rows, and not of too few or many */
#define HEAD_ROWS_MOST 2048

/* ---- layers to stages ---- */

static uint64_t query_width(const struct profile *p)
{
    return (uint64_t)(p->heads * profile_head_width(p));
}

static uint64_t key_width(const struct profile *p)
{
    return (uint64_t)(p->kv_heads * profile_head_width(p));
}

/* Multiply-adds of one token in one layer: four projections, attention over half the window on average, three of the
 * feed-forward. */
static double layer_cost(const struct profile *p)
{
    double hidden = (double)p->hidden, query = (double)query_width(p), key = (double)key_width(p);
    return 2 * hidden * query + 2 * hidden * key + (double)p->sequence * query + 3 * hidden * (double)p->ffn;
}

static double head_cost(const struct profile *p)
{
    return (double)p->hidden * (double)p->vocabulary;
}

/* The last stage also has the head: give it as many layers as keep the slowest stage fastest. */
static int64_t layers_of_last(const struct profile *p)
{
    int64_t others = p->stages - 1, best = 1;
    double best_cost = 0;
    if (others == 0)
        return p->layers;
    for (int64_t last = 1; last <= p->layers - others; last++) {
        double most = (double)((p->layers - last + others - 1) / others) * layer_cost(p);
        double own = (double)last * layer_cost(p) + head_cost(p);
        double cost = own > most ? own : most;
        if (last == 1 || cost <= best_cost) { /* of equals the more even one */
            best = last;
            best_cost = cost;
        }
    }
    return best;
}

static void deal_layers(const struct profile *p, struct plan *plan)
{
    int64_t last = layers_of_last(p), others = p->stages - 1, rest = p->layers - last, first = 0, given[PROFILE_MAX_STAGES];
    bool by_profile = profile_stage_layers(p, given, NULL) > 0;
    for (int64_t i = 0; i < p->stages; i++) {
        /* What does not divide goes to later stages: earlier ones hold more micro-batches. */
        int64_t layers = by_profile ? given[i] : i == others ? last : rest * (i + 1) / others - rest * i / others;
        for (int64_t r = 0; r < p->replicas; r++) {
            struct plan_stage *stage = &plan->stages[r * p->stages + i];
            stage->first_layer = (int)first;
            stage->layers = (int)layers;
        }
        first += layers;
    }
}

/* ---- processes to machines ---- */

static int64_t least(int64_t one, int64_t other)
{
    return one < other ? one : other;
}

static int64_t most(int64_t one, int64_t other)
{
    return one > other ? one : other;
}

/* What each stage gets of its host. */
static void share_hosts(const struct profile *p, int cores, struct plan *plan)
{
    int of_host[PROFILE_HOSTS] = {0}, processes = plan->stage_count + (p->anchor_host[0] != '\0');
    for (int i = 0; i < plan->stage_count; i++)
        of_host[plan->stages[i].host]++;
    for (int i = 0; i < plan->stage_count; i++) {
        struct plan_stage *stage = &plan->stages[i];
        const struct profile_host *host = &p->hosts[stage->host];
        /* All hosts of kind local are one machine: every process of the run shares its cores. */
        int share = cores / processes;
        stage->threads = host->threads ? (int)host->threads : share > 1 ? share : 1;
        stage->uplink_bps = host->uplink_bps / (uint64_t)of_host[stage->host];
        if (host->uplink_bps && !stage->uplink_bps)
            stage->uplink_bps = 1; /* 0 would be no limit */
    }
}

void plan_move_stage(const struct profile *p, int cores, struct plan *plan, int stage, int host)
{
    plan->stages[stage].host = host;
    share_hosts(p, cores, plan);
}

void plan_move_anchor(const struct profile *p, struct plan *plan, int host)
{
    plan->anchor.host = host;
    plan->anchor.uplink_bps = p->hosts[host].uplink_bps;
}

static void place_stages(const struct profile *p, int cores, struct plan *plan)
{
    int hosts[PROFILE_HOSTS];
    int64_t all = plan->stage_count, host_count = 0;
    for (int i = 0; i < p->host_count; i++)
        if (!plan_is_for_anchor(p, i) && !p->hosts[i].spare)
            hosts[host_count++] = i;
    for (int64_t i = 0; i < all; i++) {
        struct plan_stage *stage = &plan->stages[i];
        stage->replica = (int)(i / p->stages);
        stage->stage = (int)(i % p->stages);
        stage->host = hosts[host_count > all ? i : i * host_count / all];
        snprintf(stage->process, sizeof stage->process, "r%ds%d", stage->replica, stage->stage);
        int64_t slots = p->in_flight ? p->in_flight : 2 * (p->stages - stage->stage) + 2;
        stage->in_flight = (int)least(slots, p->micro_batches);
    }
    share_hosts(p, cores, plan);
}

/* ---- memory ---- */

static uint64_t layer_parameters(const struct profile *p)
{
    uint64_t hidden = (uint64_t)p->hidden, query = query_width(p), key = key_width(p);
    uint64_t layer = 2 * hidden * query + 2 * hidden * key + 3 * hidden * (uint64_t)p->ffn + 2 * hidden;
    if (p->qkv_bias)
        layer += query + 2 * key;
    if (p->qk_norm)
        layer += 2 * (uint64_t)profile_head_width(p);
    return layer;
}

static uint64_t stage_parameters(const struct profile *p, const struct plan_stage *stage)
{
    uint64_t hidden = (uint64_t)p->hidden, table = hidden * (uint64_t)p->vocabulary;
    bool first = stage->stage == 0, last = stage->stage == p->stages - 1;
    uint64_t sum = layer_parameters(p) * (uint64_t)stage->layers;
    if (first)
        sum += table;
    if (last)
        sum += hidden + (p->head_tie == HEAD_TIED && first ? 0 : table);
    return sum;
}

int plan_matrices(const struct profile *p, struct plan_matrix matrices[PLAN_MATRICES])
{
    uint64_t hidden = (uint64_t)p->hidden, ffn = (uint64_t)p->ffn, query = query_width(p), key = key_width(p);
    const struct plan_matrix all[PROFILE_LORA_TARGETS] = {
        [PROFILE_LORA_Q] = {query, hidden},  [PROFILE_LORA_K] = {key, hidden},  [PROFILE_LORA_V] = {key, hidden},
        [PROFILE_LORA_O] = {hidden, query},  [PROFILE_LORA_GATE] = {ffn, hidden}, [PROFILE_LORA_UP] = {ffn, hidden},
        [PROFILE_LORA_DOWN] = {hidden, ffn}};
    uint32_t targets = profile_lora_targets(p->lora_targets);
    uint64_t rank = (uint64_t)p->lora_rank;
    int count = 0;
    for (int target = 0; target < PROFILE_LORA_TARGETS; target++) {
        if (!rank)
            matrices[count++] = all[target];
        else if (targets & 1u << target) {
            matrices[count++] = (struct plan_matrix){rank, all[target].columns};
            matrices[count++] = (struct plan_matrix){all[target].rows, rank};
        }
    }
    return count;
}

/* Of so many layers; 0 without LoRA. */
uint64_t plan_adapter_parameters(const struct profile *p, int64_t layers)
{
    struct plan_matrix matrices[PLAN_MATRICES];
    uint64_t sum = 0;
    int count = p->lora_rank ? plan_matrices(p, matrices) : 0;
    for (int i = 0; i < count; i++)
        sum += matrices[i].rows * matrices[i].columns;
    return sum * (uint64_t)layers;
}

static int64_t still_layers(const struct profile *p, const struct plan_stage *stage)
{
    return least(most(p->frozen - stage->first_layer, 0), stage->layers);
}

uint64_t plan_still_parameters(const struct profile *p, const struct plan_stage *stage)
{
    int64_t still = still_layers(p, stage);
    if (!still || p->lora_rank)
        return plan_adapter_parameters(p, still);
    return (uint64_t)still * layer_parameters(p) + (stage->stage == 0 ? (uint64_t)(p->hidden * p->vocabulary) : 0);
}

bool plan_words_only(const struct profile *p)
{
    return p->lora_rank && p->precision == PRECISION_BF16;
}

bool plan_exchanges_head(const struct profile *p)
{
    return p->head_tie == HEAD_TIED && p->stages > 1 && !p->lora_rank;
}

/* Of the copy of the weights in bf16; an embedding of which only rows are looked up has none. */
uint64_t plan_word_bytes(const struct profile *p, const struct plan_stage *stage)
{
    bool looked_up = stage->stage == 0 && !p->lora_rank && (p->stages > 1 || p->head_tie != HEAD_TIED);
    uint64_t adapters = plan_adapter_parameters(p, stage->layers);
    return p->precision == PRECISION_BF16
               ? 2 * (stage->parameters - adapters - (looked_up ? (uint64_t)(p->hidden * p->vocabulary) : 0)) : 0;
}

/* Of all micro-batches in flight. A slot keeps, of each layer, its input and what backward needs, most of it in bf16 where products
 * are; with recomputation one set serves all slots, and only inputs wait (the first stage's are token ids). */
uint64_t plan_activation_bytes(const struct profile *p, const struct plan_stage *stage)
{
    uint64_t rows = (uint64_t)p->micro_batch * (uint64_t)p->sequence, hidden = (uint64_t)p->hidden;
    uint64_t query = query_width(p), key = key_width(p), slots = (uint64_t)stage->in_flight;
    uint64_t bytes = p->precision == PRECISION_BF16 ? 2 : 4, layers = (uint64_t)stage->layers;
    uint64_t layer = bytes * ((query + 2 * key) + query + hidden + 2 * (uint64_t)p->ffn) + 4 * (uint64_t)p->heads;
    if (p->qk_norm)
        layer += 4 * (query + key + (uint64_t)(p->heads + p->kv_heads));
    uint64_t still = (uint64_t)still_layers(p, stage), places = layers - still + (still > 0); /* layers that stay share one */
    uint64_t set = places * layer + 4 * hidden + (layers - 1) * bytes * hidden;
    if (!p->recompute)
        return rows * slots * set;
    return rows * (stage->stage == 0 ? set : set - 4 * hidden + slots * 4 * hidden);
}

/* What one call needs while it runs, logits in pieces included, and the token ids of the slots. */
uint64_t plan_buffer_bytes(const struct profile *p, const struct plan_stage *stage)
{
    int64_t rows = p->micro_batch * p->sequence, query = (int64_t)query_width(p), qkv = query + 2 * (int64_t)key_width(p);
    int64_t floats = rows * (4 * p->hidden + 1 + p->lora_rank);
    int64_t of_layers = rows * most(p->lora_rank ? 2 * p->ffn : p->ffn, qkv + query);
    if (p->precision == PRECISION_BF16) { /* both sides of a product, rounded */
        of_layers = rows * (most(2 * p->ffn, 2 * (qkv + query)) + most(p->hidden, qkv) / 2);
        floats += rows * most(p->hidden, most(p->ffn, query)) / 2;
    }
    int64_t logit_rows = least(rows, most(HEAD_ROWS_LEAST, least(HEAD_ROWS_MOST, HEAD_FLOATS / p->vocabulary)));
    bool last = stage->stage == p->stages - 1;
    floats += last ? most(of_layers, logit_rows * p->vocabulary) + 3 * logit_rows : of_layers; /* never both */
    if (stage->stage == 0)
        floats += stage->in_flight * rows;
    if (p->data_documents == DOCUMENTS_APART)
        floats += stage->in_flight * rows; /* where each token's document begins */
    return 4 * (uint64_t)floats;
}

/* Whole panels of a product of so many rows and so much depth, in numbers (gpu/cpu/panels.c). */
static int64_t panels_of(int64_t rows, int64_t depth)
{
    return (rows + 31) / 32 * 32 * ((depth + 31) / 32 * 32);
}

/* What products and attention lay out for themselves, one after the other in the same place: with a matrix unit, elsewhere less. Threads
 * share panels of the side of a product that has fewer rows, 8 MiB at the most, and each has eight of the other side. An fp32 is three
 * words there, a bf16 two at the most. (Processors that have no instruction for bf16 widen a side of a product: not counted.) */
uint64_t plan_device_bytes(const struct profile *p, const struct plan_stage *stage)
{
    const int64_t most_shared = 8 << 20, own_panels = 8, most_depth = 768, block = 64;
    int64_t rows = p->micro_batch * p->sequence, hidden = p->hidden, bytes = p->precision == PRECISION_BF16 ? 4 : 6;
    int64_t wide = most(2 * p->ffn, (int64_t)(query_width(p) + 2 * key_width(p)));
    if (stage->stage == p->stages - 1)
        wide = most(wide, p->vocabulary);
    int64_t shared = most(panels_of(least(rows, wide), hidden),
                          most(panels_of(least(rows, hidden), wide), panels_of(least(wide, hidden), rows)));
    int64_t own = bytes * panels_of(own_panels * 32, least(most_depth, most(rows, most(wide, hidden))));
    int64_t head = (int64_t)query_width(p) / p->heads, area = block * ((head + 31) / 32 * 32);
    int64_t attention = (p->sequence + block - 1) / block * area * 14 + area * 16 + block * block * 14 + 4096;
    return (uint64_t)most(least(most_shared, bytes * shared) + stage->threads * own, stage->threads * attention);
}

/* Measured: programs and libraries are 12 MiB with what they keep for themselves, oneDNN's products of fp32 4 more and what it
 * compiles of them. Products of bf16 are our own. */
uint64_t plan_program_bytes(const struct profile *p)
{
    return (uint64_t)(p->precision == PRECISION_FP32 || p->lora_rank ? 18 : 13) << 20;
}

/* Messages between stages that are in memory at one time, as large as they come: micro-batches in fp32, which an evaluation sends.
 * One that arrives is in the link's buffer, in a letter and in the hands of the compute thread, those after it wait in letters; one
 * that leaves is in a letter and in the link's queue. glibc keeps some of what was freed. A tied table goes through whole. */
static uint64_t message_bytes(const struct profile *p, const struct plan_stage *stage)
{
    uint64_t body = 4 * (uint64_t)(p->micro_batch * p->sequence * p->hidden), bodies = p->stages > 1;
    if (stage->stage > 0)
        bodies += (uint64_t)stage->in_flight + 5;
    if (stage->stage + 1 < p->stages)
        bodies += 4;
    return bodies * body + (plan_exchanges_head(p) ? 4 * (uint64_t)(p->vocabulary * p->hidden) : 0);
}

static void count_memory(const struct profile *p, struct plan_stage *stage)
{
    uint64_t adapters = plan_adapter_parameters(p, stage->layers);
    stage->parameters = stage_parameters(p, stage) + adapters;
    stage->trained = p->lora_rank ? adapters : stage->parameters;
    uint64_t learned = stage->trained - plan_still_parameters(p, stage);
    stage->weights_bytes = 4 * (plan_words_only(p) ? adapters : stage->parameters) + plan_word_bytes(p, stage);
    stage->gradients_bytes = 4 * learned;
    stage->optimizer_bytes = p->moments == MOMENTS_FP8 ? 2 * (learned + learned / 64)
                                                       : (p->moments == MOMENTS_BF16 ? 4 : 8) * learned;
    stage->activations_bytes = plan_activation_bytes(p, stage);
    stage->buffers_bytes = plan_buffer_bytes(p, stage);
    stage->device_bytes = plan_device_bytes(p, stage);
    stage->process_bytes = plan_program_bytes(p) + message_bytes(p, stage) + plan_sync_messages(p, stage);
    stage->sync_bytes = plan_sync_memory(p, stage);
    stage->anchor_bytes = plan_anchor_memory(p, stage);
    stage->boundary_bytes = plan_boundary_memory(p, stage);
    stage->set_bytes = plan_set_bytes(p, stage);
    stage->copy_bytes = p->checkpoint_every ? stage->set_bytes : 0;
    stage->total_bytes = stage->weights_bytes + stage->gradients_bytes + stage->optimizer_bytes + stage->activations_bytes +
                         stage->buffers_bytes + stage->sync_bytes + stage->anchor_bytes + stage->boundary_bytes + stage->copy_bytes +
                         stage->device_bytes + stage->process_bytes;
}

/* ---- roads ---- */

uint64_t plan_row_bytes(int values, int64_t columns)
{
    uint64_t count = (uint64_t)columns;
    switch (values) {
    case VALUES_FP32:
        return 4 * count;
    case VALUES_INT8: /* a 16-bit scale for each token */
        return count + 2;
    case VALUES_INT4:
        return (count + 1) / 2 + 2;
    default:
        return 2 * count;
    }
}

/* A message without its body, with its frame's header: measured on the wire's own encoder. */
static uint64_t empty_message(uint16_t type, const void *payload)
{
    struct buf buf;
    struct why why = {0};
    buf_init(&buf, 4096);
    if (wire_encode(type, payload, &buf, &why))
        BUG("%s", why.text);
    uint64_t bytes = FRAME_HEADER_BYTES + buf_used(&buf);
    buf_clear(&buf);
    return bytes;
}

/* The gradient of a tied embedding goes up from the last stage and, summed, down again, dense, over every cut. */
static void plan_tied(const struct profile *p, struct plan_road *road)
{
    static const struct wire_tied piece = {.first = 0};
    uint64_t floats = (uint64_t)p->vocabulary * (uint64_t)p->hidden;
    uint64_t bytes = 4 * floats + (floats + WIRE_TIED_FLOATS - 1) / WIRE_TIED_FLOATS * empty_message(WIRE_TIED, &piece);
    road->forward_bytes_per_step += bytes;
    road->backward_bytes_per_step += bytes;
    road->dense_forward_bytes_per_step += bytes;
    road->dense_backward_bytes_per_step += bytes;
}

/* Of a boundary's statistics, on average. */
static uint64_t count_state(const struct profile *p, bool backward)
{
    static const struct wire_codec_state state = {.version = 1};
    uint64_t bytes = profile_anchor_measures(p) ? 0 : plan_state_bytes(p, backward);
    return bytes ? (empty_message(WIRE_CODEC_STATE, &state) + bytes) / (uint64_t)p->refresh : 0;
}

static void count_road(const struct profile *p, bool one_way, struct plan_road *road)
{
    static const struct wire_stamp stamp = {.kind = STAMP_TRAIN, .micro_batches = 1};
    static const struct wire_act act = {.sequences = 1, .tokens = 1, .id_bytes = 1};
    static const struct wire_grad grad = {.squares = -1, .loss = -1};
    uint64_t batches = (uint64_t)p->micro_batches, sequences = (uint64_t)p->micro_batch,
             rows = sequences * (uint64_t)p->sequence;
    uint64_t id_bytes = p->vocabulary <= 256 ? 1 : p->vocabulary <= 65536 ? 2 : 4;
    uint64_t fixed =
        empty_message(WIRE_STAMP, &stamp) + batches * (empty_message(WIRE_ACT, &act) + id_bytes * (rows + sequences));
    uint64_t dense = batches * rows * plan_row_bytes(VALUES_BF16, p->hidden);

    road->forward_bytes_per_step = fixed + batches * rows * plan_token_bytes(p, false) + count_state(p, false);
    road->dense_forward_bytes_per_step = fixed + dense;
    road->backward_bytes_per_step = road->dense_backward_bytes_per_step = batches * empty_message(WIRE_GRAD, &grad);
    if (!one_way) {
        road->backward_bytes_per_step += batches * rows * plan_token_bytes(p, true) + count_state(p, true);
        road->dense_backward_bytes_per_step += dense;
    }
    if (plan_exchanges_head(p))
        plan_tied(p, road);
}

static void count_sibling_road(const struct profile *p, const struct plan_stage *stage, struct plan_road *road)
{
    static const struct wire_sync piece = {.total = 1};
    uint64_t bytes = plan_sync_bytes(p, stage), every = (uint64_t)p->sync_every;
    bytes += (bytes + WIRE_SYNC_BYTES - 1) / WIRE_SYNC_BYTES * empty_message(WIRE_SYNC, &piece);
    road->forward_bytes_per_step = road->backward_bytes_per_step = (bytes + every - 1) / every;
    road->dense_forward_bytes_per_step = road->dense_backward_bytes_per_step = 2 * stage->trained;
}

/* Cuts first, then every pair of siblings: what one contributes goes to each other one, in one hop. */
static void lay_roads(const struct profile *p, struct plan *plan)
{
    int stages = plan->stages_per_replica;
    for (int i = 0; i + 1 < plan->stage_count; i++) {
        if (plan->stages[i].stage + 1 == stages)
            continue;
        struct plan_road *road = &plan->roads[plan->road_count++];
        *road = (struct plan_road){.from = i, .to = i + 1};
        count_road(p, plan_is_one_way(p, plan->stages[i + 1].first_layer), road);
    }
    for (int from = 0; from < plan->stage_count; from++)
        for (int to = from + stages; to < plan->stage_count; to += stages) {
            BUG_IF(plan->road_count == PLAN_ROADS);
            struct plan_road *road = &plan->roads[plan->road_count++];
            *road = (struct plan_road){.from = from, .to = to, .sibling = true};
            count_sibling_road(p, &plan->stages[from], road);
        }
}

/* ---- all of it ---- */

static int check_profile(const struct profile *p, struct why *why)
{
    int usable = 0;
    for (int i = 0; i < p->host_count; i++)
        usable += !p->hosts[i].spare && !plan_is_for_anchor(p, i);
    if (usable < 1)
        return why_set(why, ERR_INVALID, "the profile has no host");
    if (p->stages < 1 || p->stages > PROFILE_MAX_STAGES)
        return why_set(why, ERR_INVALID, "pipeline.stages = %" PRId64 ": 1 … %d are possible", p->stages,
                       PROFILE_MAX_STAGES);
    if (p->replicas < 1 || p->replicas > PROFILE_MAX_REPLICAS || p->replicas * p->stages > PROFILE_MAX_STAGES)
        return why_set(why, ERR_INVALID, "%" PRId64 " replicas of %" PRId64 " stages: at most %d replicas and %d processes are possible",
                       p->replicas, p->stages, PROFILE_MAX_REPLICAS, PROFILE_MAX_STAGES);
    if (p->layers < p->stages)
        return why_set(why, ERR_INVALID, "pipeline.stages = %" PRId64 " is more than the %" PRId64 " layers of the model",
                       p->stages, p->layers);
    int64_t layers[PROFILE_MAX_STAGES];
    if (profile_stage_layers(p, layers, why) < 0)
        return ERR_INVALID;
    if (p->heads < 1 || p->kv_heads < 1 || (!p->head_width && p->hidden % p->heads) || p->heads % p->kv_heads)
        return why_set(why, ERR_INVALID,
                       "the model's heads (%" PRId64 ", %" PRId64 " for keys and values) do not divide its %" PRId64
                       " channels", p->heads, p->kv_heads, p->hidden);
    double rows = (double)p->micro_batch * (double)p->sequence, 
           width = (double)(4 * p->hidden + 2 * p->ffn + 2 * p->heads + p->lora_rank) + 8 * (double)query_width(p);
    if (rows * (double)p->hidden * 4 > PROFILE_MESSAGE_BYTES)
        return why_set(why, ERR_INVALID,
                       "a micro-batch of %" PRId64 " windows of %" PRId64 " tokens is too large to be sent; make "
                       "train.micro_batch or train.sequence smaller", p->micro_batch, p->sequence);
    if (rows * width * (double)p->layers * (double)p->micro_batches * 4 > 0x1p62) /* from here on 64 bits suffice */
        return why_set(why, ERR_INVALID, "the activations of %" PRId64 " micro-batches cannot be counted in 62 bits",
                       p->micro_batches);
    return 0;
}

int plan_make_for(const struct profile *profile, int cores, struct plan *plan, struct why *why)
{
    int err = check_profile(profile, why);
    if (err)
        return err;
    memset(plan, 0, sizeof *plan);
    plan->replicas = (int)profile->replicas;
    plan->stages_per_replica = (int)profile->stages;
    plan->stage_count = plan->replicas * plan->stages_per_replica;
    plan->keep = plan_keep(profile);
    plan->tokens_per_step = (uint64_t)profile->replicas * (uint64_t)profile->micro_batches * (uint64_t)profile->micro_batch * (uint64_t)profile->sequence;
    place_stages(profile, cores, plan);
    deal_layers(profile, plan);
    for (int i = 0; i < plan->stage_count; i++)
        count_memory(profile, &plan->stages[i]);
    lay_roads(profile, plan);
    plan_make_anchor(profile, cores, plan);
    return 0;
}

int plan_cores(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return 1;
    return CPU_COUNT(&set);
}

int plan_make(const struct profile *profile, struct plan *plan, struct why *why)
{
    return plan_make_for(profile, plan_cores(), plan, why);
}

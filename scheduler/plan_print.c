#include "scheduler/plan.h"

#include <inttypes.h>
#include <stdio.h>

#include <jansson.h>

#include "ssh/base/text.h"

#define PLAN_JSON_VERSION 1

/* ---- text ---- */

static const char *show_count(uint64_t count, char *out, size_t size)
{
    if (count >= 1000000)
        snprintf(out, size, "%.1f M", (double)count / 1e6);
    else
        snprintf(out, size, "%" PRIu64, count);
    return out;
}

static void print_stages(const struct plan *plan, const struct profile *profile, FILE *out)
{
    char layers[32], parameters[32];
    fprintf(out, "\n%-8s %-22s %9s %8s %10s %12s\n", "stage", "host", "layers", "threads", "in flight", "parameters");
    for (int i = 0; i < plan->stage_count; i++) {
        const struct plan_stage *stage = &plan->stages[i];
        int last = stage->first_layer + stage->layers - 1;
        if (stage->layers == 1)
            snprintf(layers, sizeof layers, "%d", last);
        else
            snprintf(layers, sizeof layers, "%d-%d", stage->first_layer, last);
        fprintf(out, "%-8.8s %-22.22s %9s %8d %10d %12s\n", stage->process, profile->hosts[stage->host].name, layers,
                stage->threads, stage->in_flight, show_count(stage->parameters, parameters, sizeof parameters));
    }
}

/* With adapters: what is trained of all that. */
static void print_adapters(const struct plan *plan, const struct profile *profile, FILE *out)
{
    uint64_t trained = 0, all = 0;
    char one[32], other[32];
    for (int i = 0; i < plan->stages_per_replica; i++) {
        trained += plan->stages[i].trained;
        all += plan->stages[i].parameters;
    }
    if (profile->lora_rank)
        fprintf(out, "Of %s parameters %s are trained: adapters of rank %" PRId64 " for %s.\n", show_count(all, other, sizeof other),
                show_count(trained, one, sizeof one), profile->lora_rank, profile->lora_targets);
}

static void print_memory(const struct plan *plan, FILE *out)
{
    fprintf(out, "\n%-8s %11s %11s %11s %11s %11s %11s\n", "memory", "weights", "gradients", "optimizer", "activations",
            "buffers", "total");
    for (int i = 0; i < plan->stage_count; i++) {
        const struct plan_stage *stage = &plan->stages[i];
        const uint64_t parts[] = {stage->weights_bytes, stage->gradients_bytes, stage->optimizer_bytes,
                                  stage->activations_bytes, stage->buffers_bytes, stage->total_bytes};
        fprintf(out, "%-8.8s", stage->process);
        for (size_t part = 0; part < sizeof parts / sizeof *parts; part++) {
            char bytes[32];
            fprintf(out, " %11s", text_from_bytes(parts[part], bytes, sizeof bytes));
        }
        fputc('\n', out);
    }
    char sync[32], boundary[32], device[32], process[32];
    uint64_t most = 0, products = 0, own = 0;
    for (int i = 0; i < plan->stage_count; i++) {
        most = plan->stages[i].boundary_bytes > most ? plan->stages[i].boundary_bytes : most;
        products = plan->stages[i].device_bytes > products ? plan->stages[i].device_bytes : products;
        own = plan->stages[i].process_bytes > own ? plan->stages[i].process_bytes : own;
    }
    fprintf(out, "In the totals: at most %s for a stage's matrix products.\n", text_from_bytes(products, device, sizeof device));
    fprintf(out, "In the totals: at most %s for a process and messages on their way.\n",
            text_from_bytes(own, process, sizeof process));
    if (most)
        fprintf(out, "In the totals: at most %s for the codecs of a stage's cuts.\n", text_from_bytes(most, boundary, sizeof boundary));
    if (plan->stages[0].sync_bytes)
        fprintf(out, "In the total of %s: %s for what it has in common with its siblings.\n", plan->stages[0].process,
                text_from_bytes(plan->stages[0].sync_bytes, sync, sizeof sync));
}

static void print_road(const char *from, const char *to, const char *what, uint64_t bytes, uint64_t dense, FILE *out)
{
    char road[64], one[32], other[32];
    snprintf(road, sizeof road, "%.8s to %.8s", from, to);
    fprintf(out, "%-20s %-12s %14s %14s %8.2f %%\n", road, what, text_from_bytes(bytes, one, sizeof one),
            text_from_bytes(dense, other, sizeof other), 100.0 * (double)bytes / (double)dense);
}

static void print_roads(const struct plan *plan, const struct profile *profile, FILE *out)
{
    char one[32], other[32];
    uint64_t bytes = 0, dense = 0;
    if (plan->road_count == 0) {
        fprintf(out, "\nOne stage: nothing travels between processes.\n");
        return;
    }
    fprintf(out, "\n%-20s %-12s %14s %14s %10s\n", "road", "carries", "bytes a step", "dense bf16", "share");
    for (int i = 0; i < plan->road_count; i++) {
        const struct plan_road *road = &plan->roads[i];
        const char *from = plan->stages[road->from].process, *to = plan->stages[road->to].process;
        if (road->sibling && road->from / plan->stages_per_replica == 0 && road->to / plan->stages_per_replica == 1)
            print_road(from, to, "changes", road->forward_bytes_per_step, road->dense_forward_bytes_per_step, out);
        if (road->sibling)
            continue; /* all others are like it, both ways */
        print_road(from, to, "activations", road->forward_bytes_per_step, road->dense_forward_bytes_per_step, out);
        print_road(to, from, "gradients", road->backward_bytes_per_step, road->dense_backward_bytes_per_step, out);
        bytes += road->forward_bytes_per_step + road->backward_bytes_per_step;
        dense += road->dense_forward_bytes_per_step + road->dense_backward_bytes_per_step;
    }
    if (plan->replicas > 1)
        fprintf(out, "\nChanges go from each stage to the %d like it in other replicas,\n"
                "in %" PRId64 " fragment%s every %" PRId64 " steps; the bytes are the mean of a step,\n"
                "dense is a gradient in every step.\n", plan->replicas - 1, profile->sync_fragments,
                profile->sync_fragments == 1 ? "" : "s", profile->sync_every);
    if (bytes == 0)
        return;
    fprintf(out, "\nEach step %s travel between stages instead of %s:\n%.2f %% of the bytes of a dense exchange.\n",
            text_from_bytes(bytes, one, sizeof one), text_from_bytes(dense, other, sizeof other),
            100.0 * (double)bytes / (double)dense);
}

static void print_statistics(const struct profile *profile, FILE *out)
{
    char forward[32], backward[32];
    uint64_t down = plan_state_bytes(profile, false), up = plan_state_bytes(profile, true);
    if (!plan_calibrates(profile))
        return;
    text_from_bytes(down, forward, sizeof forward);
    if (profile_anchor_measures(profile))
        fprintf(out, "Its statistics are measured by the anchor: %s of activations", forward);
    else
        fprintf(out, "Its statistics are measured every %" PRId64 " steps: %s downstream", profile->refresh, forward);
    if (up && profile_anchor_measures(profile))
        fprintf(out, ", %s of gradients", text_from_bytes(up, backward, sizeof backward));
    else if (up)
        fprintf(out, ", %s up", text_from_bytes(up, backward, sizeof backward));
    fprintf(out, ".\nBefore step 1, %" PRId64 " dense micro-batches are measured.\n", profile->calibrate);
}

/* What crosses a cut. */
static void print_codec(const struct plan *plan, const struct profile *profile, FILE *out)
{
    static const char *const names[] = {
        [CODEC_DENSE] = "dense", [CODEC_MASK] = "mask", [CODEC_SUBSPACE] = "subspace", [CODEC_PRINCIPAL] = "principal",
        [CODEC_TOPK] = "topk", [CODEC_HYBRID] = "hybrid",
        [CODEC_ENTROPY] = "entropy"};
    if (!plan->keep && profile->codec == CODEC_DENSE)
        fprintf(out, "All %" PRId64 " channels of a token cross a cut (boundary.codec = dense).\n", profile->hidden);
    else if (profile->codec == CODEC_MASK)
        fprintf(out, "Of the %" PRId64 " channels of a token, %" PRId64 " cross a cut (mask.rate = %g).\n", profile->hidden,
                plan->keep, profile->mask_rate);
    else
        fprintf(out, "Of %" PRIu64 " bytes of a token, %" PRIu64 " cross a cut and %" PRIu64 " come back (%s, mask.rate = %g).\n",
                2 * (uint64_t)profile->hidden, plan_token_bytes(profile, false), plan_token_bytes(profile, true),
                names[profile->codec], profile->mask_rate);
    print_statistics(profile, out);
}

/* Of one replica where there are several and no sets of all are asked for. */
static void print_sets(const struct plan *plan, const struct profile *profile, FILE *out)
{
    char set[32], copy[32];
    uint64_t bytes = 0, most = 0;
    int writers = profile->checkpoint_every ? plan->stage_count : plan->stages_per_replica;
    for (int i = 0; i < writers; i++) {
        bytes += plan->stages[i].set_bytes;
        most = plan->stages[i].copy_bytes > most ? plan->stages[i].copy_bytes : most;
    }
    fprintf(out, "\nA checkpoint set takes %s on the disks; the newest %" PRId64 " stay.\n", text_from_bytes(bytes, set, sizeof set),
            profile->checkpoint_keep);
    if (most)
        fprintf(out, "One is written every %" PRId64 " steps: at most %s in the total of a stage\nfor the copy that is written while it trains on.\n",
                profile->checkpoint_every, text_from_bytes(most, copy, sizeof copy));
}

/* Where a host has a budget for its disk. */
static void print_disks(const struct plan *plan, const struct profile *profile, FILE *out)
{
    char writes[32], may[32];
    for (int i = 0; i < (int)profile->host_count; i++)
        if (profile->hosts[i].disk_budget)
            fprintf(out, "\nHost %.20s: up to %s for logs and weights, of the %s that kedge\nmay have on its disk.\n", profile->hosts[i].name,
                    text_from_bytes(plan_disk_bytes(profile, plan, i), writes, sizeof writes),
                    text_from_bytes(profile->hosts[i].disk_budget, may, sizeof may));
}

void plan_print(const struct plan *plan, const struct profile *profile, FILE *out)
{
    char run[PROFILE_NAME + 64];
    int hosts = 0;
    for (int i = 0; i < (int)profile->host_count; i++)
        hosts += !profile->hosts[i].spare;
    int width = snprintf(run, sizeof run, "Run %.40s: %d stage%s on %d host%s,", profile->name, plan->stage_count,
                         plan->stage_count == 1 ? "" : "s", hosts, hosts == 1 ? "" : "s");
    fprintf(out, "%s%s%" PRIu64 " tokens a step.\n", run, width > 44 ? "\n" : " ", plan->tokens_per_step);
    if (plan->replicas > 1)
        fprintf(out, "%d replicas of %d stage%s each.\n", plan->replicas, plan->stages_per_replica,
                plan->stages_per_replica == 1 ? "" : "s");
    if (plan->stages_per_replica > 1)
        print_codec(plan, profile, out);
    print_stages(plan, profile, out);
    print_adapters(plan, profile, out);
    print_memory(plan, out);
    print_roads(plan, profile, out);
    plan_print_anchor(plan, profile, out);
    print_sets(plan, profile, out);
    print_disks(plan, profile, out);
}

/* ---- JSON ---- */

static json_t *stage_as_json(const struct plan_stage *stage, const struct profile *profile)
{
    json_t *memory = json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}",
                               "weights", (json_int_t)stage->weights_bytes,
                               "gradients", (json_int_t)stage->gradients_bytes,
                               "optimizer", (json_int_t)stage->optimizer_bytes,
                               "activations", (json_int_t)stage->activations_bytes,
                               "buffers", (json_int_t)stage->buffers_bytes,
                               "device", (json_int_t)stage->device_bytes,
                               "process", (json_int_t)stage->process_bytes,
                               "boundary", (json_int_t)stage->boundary_bytes,
                               "sync", (json_int_t)stage->sync_bytes,
                               "anchor", (json_int_t)stage->anchor_bytes,
                               "copy", (json_int_t)stage->copy_bytes,
                               "total", (json_int_t)stage->total_bytes);
    return json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:I, s:I, s:I, s:I, s:o}",
                     "process", stage->process,
                     "host", profile->hosts[stage->host].name,
                     "replica", stage->replica,
                     "stage", stage->stage,
                     "first_layer", stage->first_layer,
                     "layers", stage->layers,
                     "threads", stage->threads,
                     "in_flight", stage->in_flight,
                     "uplink_bps", (json_int_t)stage->uplink_bps,
                     "parameters", (json_int_t)stage->parameters,
                     "trained", (json_int_t)stage->trained,
                     "set_bytes", (json_int_t)stage->set_bytes,
                     "memory_bytes", memory);
}

/* Of siblings forward and backward are the two directions of the same road. */
static json_t *road_as_json(const struct plan *plan, const struct plan_road *road)
{
    return json_pack("{s:s, s:b, s:s, s:{s:I, s:I}, s:{s:I, s:I}}",
                     "from", plan->stages[road->from].process, "siblings", road->sibling, "to", plan->stages[road->to].process,
                     "bytes_per_step", "forward", (json_int_t)road->forward_bytes_per_step,
                     "backward", (json_int_t)road->backward_bytes_per_step,
                     "dense_bytes_per_step", "forward", (json_int_t)road->dense_forward_bytes_per_step,
                     "backward", (json_int_t)road->dense_backward_bytes_per_step);
}

void plan_print_json(const struct plan *plan, const struct profile *profile, FILE *out)
{
    json_t *stages = json_array(), *roads = json_array(), *hosts = json_array();
    for (int i = 0; i < (int)profile->host_count; i++)
        json_array_append_new(hosts, json_pack("{s:s, s:I, s:I}", "host", profile->hosts[i].name, "disk_bytes",
                                               (json_int_t)plan_disk_bytes(profile, plan, i), "disk_budget_bytes",
                                               (json_int_t)profile->hosts[i].disk_budget));
    for (int i = 0; i < plan->stage_count; i++)
        json_array_append_new(stages, stage_as_json(&plan->stages[i], profile));
    for (int i = 0; i < plan->road_count; i++)
        json_array_append_new(roads, road_as_json(plan, &plan->roads[i]));
    json_t *cut = json_pack("{s:I, s:I, s:I, s:I}", "token_bytes_forward", (json_int_t)plan_token_bytes(profile, false),
                            "token_bytes_backward", (json_int_t)plan_token_bytes(profile, true), "state_bytes_forward",
                            (json_int_t)plan_state_bytes(profile, false), "state_bytes_backward",
                            (json_int_t)plan_state_bytes(profile, true));
    json_t *all = json_pack("{s:i, s:s, s:i, s:I, s:I, s:I, s:o, s:o, s:o, s:o}", "version", PLAN_JSON_VERSION, "run", profile->name,
                            "replicas", plan->replicas, "channels", (json_int_t)profile->hidden, "channels_kept",
                            (json_int_t)(profile->codec == CODEC_MASK ? plan->keep : profile->hidden), "tokens_per_step",
                            (json_int_t)plan->tokens_per_step, "stages", stages, "roads", roads, "cut", cut, "hosts", hosts);
    const struct plan_anchor *anchor = &plan->anchor;
    if (all && anchor->there)
        json_object_set_new(all, "anchor", json_pack("{s:s, s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "host", profile->hosts[anchor->host].name, "threads",
                                                     anchor->threads, "memory_bytes", (json_int_t)anchor->memory_bytes, "snapshot_bytes",
                                                     (json_int_t)anchor->snapshot_bytes, "state_bytes",
                                                     (json_int_t)anchor->state_bytes, "step_bytes", (json_int_t)anchor->step_bytes,
                                                     "basis_bytes", (json_int_t)anchor->basis_bytes,
                                                     "statistics_bytes", (json_int_t)anchor->statistics_bytes,
                                                     "staleness_steps", (json_int_t)profile->anchor_staleness, "every_steps",
                                                     (json_int_t)profile->anchor_every));
    if (!all)
        BUG("the plan cannot be written as JSON");
    json_dumpf(all, out, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    fputc('\n', out);
    json_decref(all);
}

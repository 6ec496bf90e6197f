/*
 * Which values a live setting can take in a run that has begun, beyond the range of its row: memory was taken for the
 * values that it began with, and some settings change nothing.
 */
#include "profiles/profile.h"

#include <inttypes.h>
#include <string.h>

/* Where in the H steps fragment f begins, counted on over laps. */
static int64_t begins(const struct profile *profile, int64_t fragment)
{
    int64_t lap = fragment / profile->sync_fragments;
    return lap * profile->sync_every + fragment % profile->sync_fragments * profile->sync_every / profile->sync_fragments;
}

int profile_rounds_under_way(const struct profile *profile)
{
    int most = 1;
    for (int64_t f = 0; f < profile->sync_fragments; f++) {
        int under_way = 1;
        for (int64_t next = f + 1; next < f + profile->sync_fragments; next++)
            under_way += begins(profile, next) - begins(profile, f) < profile->sync_overlap;
        most = under_way > most ? under_way : most;
    }
    return most;
}

static int check_every(const struct profile *begun, const struct profile *changed, struct why *why)
{
    int64_t every = changed->sync_every;
    if (every < changed->sync_fragments)
        return why_set(why, ERR_REFUSED,
                       "sync.every = %" PRId64 " is too short for sync.fragments = %" PRId64 ": at most one moves in a step",
                       every, changed->sync_fragments);
    if (every <= changed->sync_overlap)
        return why_set(why, ERR_REFUSED, "sync.every = %" PRId64 " must be more than sync.overlap = %" PRId64
                       ": the next exchange of a part begins after the last one has ended", every, changed->sync_overlap);
    if (every == 1 && changed->sync_outer == OUTER_NONE)
        return why_set(why, ERR_REFUSED,
                       "sync.every = 1 with sync.outer = none would average gradients, which a run does from its first step "
                       "on or not at all");
    if (profile_rounds_under_way(changed) > profile_rounds_under_way(begun))
        return why_set(why, ERR_REFUSED,
                       "sync.every = %" PRId64 " with sync.overlap = %" PRId64 " would have %d exchanges under way at a time; "
                       "the run began with memory for %d", every, changed->sync_overlap, profile_rounds_under_way(changed),
                       profile_rounds_under_way(begun));
    return 0;
}

static int check_rank(const struct profile *begun, const struct profile *changed, struct why *why)
{
    if (changed->sync_rank > begun->sync_rank)
        return why_set(why, ERR_REFUSED,
                       "sync.rank = %" PRId64 " is more than the %" PRId64 " that the run began with and has memory for",
                       changed->sync_rank, begun->sync_rank);
    return 0;
}

bool profile_corrects(const struct profile *profile)
{
    return profile->anchor_filter == ANCHOR_SHRINK || (profile->anchor_host[0] && profile->anchor_filter != ANCHOR_NONE);
}

int64_t profile_anchor_rank(const struct profile *profile)
{
    return profile->anchor_returns == RETURNS_GRADIENT ? 0 : profile->anchor_rank;
}

bool profile_has_directions(const struct profile *profile)
{
    return profile->codec == CODEC_SUBSPACE || profile->codec == CODEC_PRINCIPAL || profile->codec == CODEC_HYBRID ||
           profile->codec == CODEC_ENTROPY || (profile->codec == CODEC_MASK && profile->decoding == DECODING_MMSE);
}

bool profile_anchor_measures(const struct profile *profile)
{
    return profile->anchor_host[0] && profile->codec != CODEC_DENSE && profile->statistics == STATISTICS_ANCHOR;
}

int profile_check_effect(const struct profile *begun, const char *name, struct why *why)
{
    bool averages = begun->sync_every == 1 && begun->sync_outer == OUTER_NONE;
    const struct {
        const char *name; /* a whole section when it ends with a dot */
        bool idle;
        const char *because;
    } rules[] = {
        {"mask.rate", begun->codec == CODEC_DENSE, "boundary.codec is dense"},
        {"anchor.mix", !profile_corrects(begun), "no gradient is corrected: there is no anchor.host, and anchor.filter is not shrink"},
        {"sync.", begun->replicas == 1, "there is one replica"},
        {"sync.", averages, "gradients are averaged in every step"},
        {"sync.outer_rate", begun->sync_outer == OUTER_NONE, "sync.outer is none"},
        {"sync.rank", begun->sync_payload != SEND_POWERSGD, "sync.payload is not powersgd"},
    };
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        size_t length = strlen(rules[i].name);
        bool matches = rules[i].name[length - 1] == '.' ? strncmp(name, rules[i].name, length) == 0
                                                        : strcmp(name, rules[i].name) == 0;
        if (matches && rules[i].idle)
            return why_set(why, ERR_REFUSED, "%s has no effect: %s", name, rules[i].because);
    }
    return 0;
}

int profile_check_live(const struct profile *begun, const struct profile *changed, const char *name, struct why *why)
{
    int err = profile_check_effect(begun, name, why);
    if (!err && strcmp(name, "sync.every") == 0)
        err = check_every(begun, changed, why);
    if (!err && strcmp(name, "sync.rank") == 0)
        err = check_rank(begun, changed, why);
    return err;
}

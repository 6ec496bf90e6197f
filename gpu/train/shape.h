/* The model that a profile describes, between the settings table and gpu/model, which does not know it. */
#ifndef KEDGE_TRAIN_SHAPE_H
#define KEDGE_TRAIN_SHAPE_H

#include "gpu/math/codec.h"
#include "gpu/model/model.h"
#include "profiles/profile.h"

struct model_shape shape_of_profile(const struct profile *profile);
/* Are the model's own weights kept in bf16 alone? Those that nobody trains, where products round them anyway. */
bool shape_words_only(const struct profile *profile);
struct lora_shape shape_lora(const struct profile *profile);
/* The other way: the rows of section model, but for model.path. */
void shape_to_profile(const struct model_shape *shape, struct profile *profile);
void shape_lora_to_profile(const struct lora_shape *lora, struct profile *profile);
/* Their names, NULL-terminated. */
const char *const *shape_rows(void);
const char *const *shape_lora_rows(void);
/* New weights of a stage as the profile begins: from model.path and lora.path, or fresh. */
int shape_begin(struct stage *stage, const struct profile *profile, struct why *why);
/* The codec of a cut, but for its slots (here 1) and the table of token features, which are the caller's. */
void shape_codec(const struct profile *profile, int boundary, struct codec_settings *settings);
bool shape_needs_table(const struct profile *profile); /* token_table_new, of boundary.rank */

/* Does this replica have room for snapshots on their way to the anchor? Replica 0 sends them, and the next one that is there when it has
 * left; where nobody can leave only replica 0. */
bool shape_sends_snapshots(const struct profile *profile, int replica);

#endif

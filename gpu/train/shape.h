/* The model that a profile describes, between the settings table and gpu/model, which does not know it. */
#ifndef KEDGE_TRAIN_SHAPE_H
#define KEDGE_TRAIN_SHAPE_H

#include "gpu/model/model.h"
#include "profiles/profile.h"

struct model_shape shape_of_profile(const struct profile *profile);
/* The other way: the rows of section model, but for model.path. */
void shape_to_profile(const struct model_shape *shape, struct profile *profile);
/* Their names, NULL-terminated. */
const char *const *shape_rows(void);

#endif

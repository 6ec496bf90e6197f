/*
 * Where this host keeps what the profile names: text and checkpoints were sent here by the launch, and lie elsewhere than on
 * the machine of the person. FOLDER/paths@HOST has lines NAME=VALUE for data.path, model.path and lora.path; no file, no change.
 */
#ifndef KEDGE_TRAIN_PLACES_H
#define KEDGE_TRAIN_PLACES_H

#include "profiles/profile.h"
#include "ssh/base/why.h"

int places_apply(const char *folder, const char *host, struct profile *profile, struct why *why);

#endif

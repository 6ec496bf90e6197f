/* JSON of Hugging Face folders, for the files of gpu/model that read or write it. */
#ifndef KEDGE_MODEL_CONFIG_H
#define KEDGE_MODEL_CONFIG_H

#include <stddef.h>

#include <jansson.h>

#include "gpu/model/model.h"

#define CONFIG_MAX ((size_t)1 << 20)

/* The JSON object in folder/name; duplicate keys are refused. json_decref it. */
int config_read_json(const char *folder, const char *name, size_t max_bytes, json_t **json, struct why *why);
/* config.json of a model that did not come from a folder: the plainest family that has this shape. json_decref it. */
json_t *config_make(const struct model_shape *shape, int64_t context);

#endif

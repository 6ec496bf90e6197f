/*
 * A row of tokens, wherever they lie: bytes of text or ids in memory, or token files on disk. Positions count from 0 over
 * all of them.
 */
#ifndef KEDGE_MODEL_CORPUS_H
#define KEDGE_MODEL_CORPUS_H

#include "gpu/model/data.h"
#include "gpu/model/sources.h"

struct corpus;

int corpus_open(const struct data_settings *settings, struct corpus **corpus, struct why *why);
void corpus_close(struct corpus *corpus);

uint64_t corpus_count(const struct corpus *corpus);
size_t corpus_files(const struct corpus *corpus);
bool corpus_masked(const struct corpus *corpus);
int corpus_read(const struct corpus *corpus, uint64_t first, size_t count, uint32_t *ids, uint8_t *marks, struct why *why);
/* The end of a document (or file) nearest to a place, if it is within `reach` and not the end of all; else the place itself.
 */
int corpus_nearest_end(const struct corpus *corpus, uint64_t place, uint64_t reach, uint64_t *end, struct why *why);

#endif

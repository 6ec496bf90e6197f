/*
 * Files that are never torn: whole reads with a limit, and writes by temp + fsync + rename + fsync of the folder.
 */
#ifndef KEDGE_BASE_FILE_H
#define KEDGE_BASE_FILE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "ssh/base/why.h"

/* The whole file, NUL-terminated behind its `*bytes`; mem_free it. Larger than max_bytes is ERR_FULL. */
int file_read(const char *path, size_t max_bytes, uint8_t **data, size_t *bytes, struct why *why);
/* Atomic replacement with the given mode; on any failure the old file is untouched and no temp file stays. */
int file_write(const char *path, const void *data, size_t bytes, mode_t mode, struct why *why);
/* Makes the entry of `path` in its folder durable: what a rename needs. */
int file_sync_folder(const char *path, struct why *why);
/* mkdir -p; an existing folder is fine. */
int file_make_folders(const char *path, mode_t mode, struct why *why);
/* Remove a folder and what is in it; absent is fine. Does not follow links. */
int file_remove_tree(const char *path, struct why *why);
/* What a folder and all in it take on their disk, as du counts it; 0 when it is not there. Does not follow links; what vanishes
 * meanwhile or cannot be looked into is not counted. */
uint64_t file_tree_bytes(const char *path);
/* By the name's ending: what a file is that nobody means as text, and the remedy ("is compressed: unpack it first"). NULL: it may be text. */
const char *file_no_text(const char *path);
/* The folder of the running program (for its siblings: kedged, kedge-worker, kedge-cpu.so). */
int file_program_folder(char *out, size_t size, struct why *why);

#endif

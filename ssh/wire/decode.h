/*
 * Captures as text: `kedge decode FILE`. The record filter (ssh/link/record.h) writes the file: an 16-byte head
 * "kedge-capture 1\n", then chunks of { u64 monotonic ns, u8 direction (0 = read, 1 = written), u32 bytes, the bytes }.
 */
#ifndef KEDGE_WIRE_DECODE_H
#define KEDGE_WIRE_DECODE_H

#include <stdint.h>
#include <stdio.h>

#include "ssh/base/why.h"
#include "ssh/wire/frame.h"

#define DECODE_MAGIC "kedge-capture 1\n"

/* One message as one line: time, direction, lane, step, micro-batch, type name, field=value …; tails as a byte count. */
void decode_print(FILE *out, uint64_t time_ns, int direction, const struct frame_header *header, const uint8_t *payload,
                  size_t bytes);
/* A whole capture, times since its first chunk. A torn last chunk is said and is not an error; a wrong head, a damaged chunk
 * head and frames that break (said in place; the other direction goes on) are. */
int decode_file(const char *path, FILE *out, struct why *why);

#endif

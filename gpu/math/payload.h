/*
 * How the values of a pseudo-gradient travel between replicas: host memory in, bytes out, and back. Pure and scalar, because every
 * replica must decode the very same numbers, whatever its backend, compiler or threads are. Everything is little-endian.
 *
 *   fp32, bf16   as they are, bf16 rounded to nearest even
 *   int8, int4   per row: scale (bf16, the smallest ≥ max|v|/127 or /7: nothing clips), codes rounded to nearest even; int4 packs two a
 *                byte, low nibble first, a row padded to a whole byte. The same bytes as `pack` of the op table
 *   e3m0         4 bits: sign and 3 exponent bits, no mantissa. Per block of 64 values of a row (the last one may be shorter): scale
 *                (bf16 ≥ max|v|), then codes, two a byte. Exponent field k > 0 is ±scale·2^(k−7), 0 is 0; a value goes to the nearest
 *                level, of two equally near ones to the larger
 *   rows         of a table of which only some rows were touched: a bit per row, then int8 rows of those whose largest value is at
 *                least 1/256 of the table's largest. The only kind whose length depends on the values
 *
 * A row or block with a value that is not finite gets the scale NaN and decodes to NaN. Who must not take such values looks first
 * (payload_check).
 */
#ifndef KEDGE_MATH_PAYLOAD_H
#define KEDGE_MATH_PAYLOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ssh/base/why.h"

enum payload_kind { PAYLOAD_FP32, PAYLOAD_BF16, PAYLOAD_INT8, PAYLOAD_INT4, PAYLOAD_E3M0, PAYLOAD_ROWS, PAYLOAD_KINDS };

#define PAYLOAD_BLOCK 64

const char *payload_name(enum payload_kind kind);
/* Exact; of rows: the most. */
size_t payload_bytes(enum payload_kind kind, int64_t rows, int64_t columns);
/* Bytes written. */
size_t payload_encode(enum payload_kind kind, const float *values, int64_t rows, int64_t columns, uint8_t *out);
/* Bytes read, at most `most`; ERR_INVALID: fewer are there than the kind needs, `values` is undefined then. Nothing is believed. */
int64_t payload_decode(enum payload_kind kind, const uint8_t *in, size_t most, int64_t rows, int64_t columns, float *values,
                       struct why *why);
bool payload_finite(const float *values, int64_t count);
/* As payload_decode, only to learn whether all values are finite: of int8 and int4 the scales tell. `scratch`: rows × columns. */
int64_t payload_check(enum payload_kind kind, const uint8_t *in, size_t most, int64_t rows, int64_t columns, float *scratch,
                      bool *finite, struct why *why);

#endif

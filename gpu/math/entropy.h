/*
 * Entropy-coded coefficients. Every coefficient of a row is divided by one step and rounded, and an adaptive binary range
 * coder writes the whole numbers in about as many bits as they are worth. This is reverse water-filling without whole
 * bits: what is far below the step costs nothing, what is near it a fraction of a bit, and one number, the step, fits the
 * whole message into the room it has.
 *
 *   t_r     root mean square of the row's whitened coefficients y/σ, to a quarter of an octave
 *   q       y / (Δ·t_r), rounded                          ŷ = q·Δ·t_r
 *
 * Neither a dead zone nor a shift of levels towards zero: both make the mean square error smaller and what is trained through the code
 * worse (man/kedge-design.7). What is expected of a value is not one of its kind: it is too small.
 *
 * Columns of like σ/Δ (to half an octave) share the chances of their magnitudes; these begin as those of a normal variable
 * and follow what comes (Malvar, Fast Adaptive Encoder for Bi-Level Images, on binary chances; Martin, Range encoding,
 * 1979).
 *
 *   message   step i16 (256ths of an octave), columns u16, then of every LANE of rows: largest scale i16, length u24; then
 *             the lanes' codes one behind the other; zeros to the end. A step of ENTROPY_NOTHING: every row is zero
 *   row       scale below the lane's largest in quarter octaves, 0 … 61; 62 = a row of zeros, 63 = a row that is not finite
 *
 * Both ends have the very same deviations (gpu/math/codec.h: what travelled), and classes are worked out of their bits, so
 * that no rounding of a library can part them. Any bytes decode to something finite or to NaN, and to nothing outside `y`.
 */
#ifndef KEDGE_MATH_ENTROPY_H
#define KEDGE_MATH_ENTROPY_H

#include <stddef.h>
#include <stdint.h>

enum { ENTROPY_NOTHING = INT16_MIN, ENTROPY_LANE = 1024 };

/* Columns that may be worth something where `bits` may be spent on a row: the first of `deviation`, which falls. */
int64_t entropy_columns(const float *deviation, int64_t count, double bits);
/* Mean square error of a row whose scale is 1, as expected of normal coefficients: those without a code count whole. */
double entropy_error(const float *deviation, int64_t count, double bits);
/* Columns that a message has. */
int64_t entropy_told(const uint8_t *message, size_t bytes);
/* y[rows, columns] → out[bytes], all of it written. bytes ≥ 2. */
void entropy_encode(const float *y, const float *deviation, int64_t rows, int64_t columns, uint8_t *out, size_t bytes);
/* Back to y[rows, columns]: columns that the message does not have become 0. */
void entropy_decode(const uint8_t *message, size_t bytes, const float *deviation, int64_t rows, int64_t columns, float *y);

#endif

/*
 * Few-bit codes of coefficients that are about normal: b bits are 2^b levels, evenly spaced around 0 (none is 0 itself),
 * with the
 * spacing that is best for a normal variable of deviation 1 (Max, Quantizing for Minimum Distortion, 1960).
 *
 *   level      (code − 2^(b−1) + ½) · spacing[b],   code = ⌊value / spacing[b]⌋ + 2^(b−1), clamped to 0 … 2^b − 1
 *   a row      scale t as bf16: root mean square of the row's whitened coefficients; then the codes of its columns,
 *   bits[i] each,
 *              one behind the other, low bit first; the last byte is filled up with zeros
 *   decoded    level · t · deviation[i]
 *
 * A row with a value that is not finite has the scale NaN and decodes to NaN; a row of zeros decodes to zeros.
 */
#ifndef KEDGE_MATH_LEVELS_H
#define KEDGE_MATH_LEVELS_H

enum { LEVELS_MOST_BITS = 8 };

static const float levels_spacing[LEVELS_MOST_BITS + 1] = {0,       1.596f,  0.9957f, 0.5860f, 0.3352f,
                                                           0.1881f, 0.1041f, 0.0569f, 0.0308f};
/* Mean square error of a normal variable of deviation 1. */
static const double levels_error[LEVELS_MOST_BITS + 1] = {1,        0.3634,   0.1188,   0.03744,  0.01154,
                                                          0.003495, 0.001041, 0.000304, 0.0000877};

#endif

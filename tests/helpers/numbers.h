/* Numbers for tests of numbers: reproducible noise, and a comparison that prints its error beside its tolerance. */
#ifndef KEDGE_TESTS_NUMBERS_H
#define KEDGE_TESTS_NUMBERS_H

#include <stdint.h>

#define NUMBERS_EPS 0x1p-24 /* largest relative error of one rounding to fp32 */

/* Normal noise of this standard deviation; a pure function of the seed. */
void numbers_noise(float *x, int64_t count, uint64_t seed, double deviation);

/* Fails the running test unless ‖got − want‖ ≤ tolerance · ‖want‖ (a NaN fails). The label is printf-like. */
void numbers_near(const float *got, const double *want, int64_t count, double tolerance, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* As numbers_near with a scale given by the caller in place of ‖want‖. */
void numbers_near_scaled(const float *got, const double *want, int64_t count, double tolerance, double scale,
                         const char *format, ...) __attribute__((format(printf, 6, 7)));
/* Fails unless all bytes are equal. */
void numbers_same(const void *got, const void *want, int64_t bytes, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
double numbers_norm(const double *x, int64_t count);

#endif

#include "tests/helpers/numbers.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/helpers/dice.h"

void numbers_noise(float *x, int64_t count, uint64_t seed, double deviation)
{
    struct dice dice = {seed};
    for (int64_t i = 0; i < count; i++) {
        double a = ((double)(dice_u64(&dice) >> 11) + 0.5) * 0x1p-53, b = (double)(dice_u64(&dice) >> 11) * 0x1p-53;
        x[i] = (float)(deviation * sqrt(-2 * log(a)) * cos(6.283185307179586 * b));
    }
}

double numbers_norm(const double *x, int64_t count)
{
    double squares = 0;
    for (int64_t i = 0; i < count; i++)
        squares += x[i] * x[i];
    return sqrt(squares);
}

static void numbers_judge(const float *got, const double *want, int64_t count, double tolerance, double scale,
                          const char *label)
{
    double squares = 0, worst = 0;
    int64_t at = 0;
    for (int64_t i = 0; i < count; i++) {
        double error = fabs((double)got[i] - want[i]);
        squares += error * error;
        if (!(error <= worst)) {
            worst = error;
            at = i;
        }
    }
    double error = sqrt(squares);
    if (!(error <= tolerance * scale)) /* written so that NaN fails */
        fail_msg("%s: error %.3g of the norm, tolerance %.3g; worst at %lld: got %.9g, want %.9g", label,
                 scale > 0 ? error / scale : error, tolerance, (long long)at, (double)got[at], want[at]);
}

void numbers_near(const float *got, const double *want, int64_t count, double tolerance, const char *format, ...)
{
    char label[200];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(label, sizeof label, format, arguments);
    va_end(arguments);
    numbers_judge(got, want, count, tolerance, numbers_norm(want, count), label);
}

void numbers_near_scaled(const float *got, const double *want, int64_t count, double tolerance, double scale,
                         const char *format, ...)
{
    char label[200];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(label, sizeof label, format, arguments);
    va_end(arguments);
    numbers_judge(got, want, count, tolerance, scale, label);
}

void numbers_same(const void *got, const void *want, int64_t bytes, const char *format, ...)
{
    if (bytes == 0 || memcmp(got, want, (size_t)bytes) == 0)
        return;
    char label[200];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(label, sizeof label, format, arguments);
    va_end(arguments);
    int64_t at = 0;
    while (((const char *)got)[at] == ((const char *)want)[at])
        at++;
    fail_msg("%s: bytes differ from byte %lld of %lld on", label, (long long)at, (long long)bytes);
}

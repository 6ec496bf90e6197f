/* Number formats, shared out by rows. */
#include "gpu/cpu/cpu.h"

enum { ROWS = 16 }; /* rows that one piece of a loop takes */

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

void pack_encode(struct device *device, uint8_t *packed, const float *values, int64_t rows, int64_t columns, int format)
{
    size_t bytes = ops_packed_row_bytes(format, columns); /* refuses an unknown format */
    const struct pack_kernels *kernels = device->kernels->pack;
#pragma omp parallel for num_threads(cpu_threads_for(device, rows *columns)) schedule(static)
    for (int64_t r = 0; r < rows; r += ROWS)
        kernels->pack[format](packed + (size_t)r * bytes, values + r * columns, smaller(ROWS, rows - r), columns);
}

void pack_decode(struct device *device, float *values, const uint8_t *packed, int64_t rows, int64_t columns, int format)
{
    size_t bytes = ops_packed_row_bytes(format, columns);
    const struct pack_kernels *kernels = device->kernels->pack;
#pragma omp parallel for num_threads(cpu_threads_for(device, rows *columns)) schedule(static)
    for (int64_t r = 0; r < rows; r += ROWS)
        kernels->unpack[format](values + r * columns, packed + (size_t)r * bytes, smaller(ROWS, rows - r), columns);
}

void pack_levels(struct device *device, uint8_t *packed, const float *z, const float *deviation, const uint8_t *bits,
                 int64_t rows, int64_t columns, size_t row_bytes)
{
    const struct levels_kernels *kernels = device->kernels->levels;
#pragma omp parallel for num_threads(cpu_threads_for(device, rows *columns)) schedule(static)
    for (int64_t r = 0; r < rows; r += ROWS)
        kernels->pack(packed + (size_t)r * row_bytes, z + r * columns, deviation, bits, smaller(ROWS, rows - r), columns,
                      row_bytes);
}

void pack_levels_back(struct device *device, float *z, const uint8_t *packed, const float *deviation, const uint8_t *bits,
                      int64_t rows, int64_t columns, size_t row_bytes)
{
    const struct levels_kernels *kernels = device->kernels->levels;
#pragma omp parallel for num_threads(cpu_threads_for(device, rows *columns)) schedule(static)
    for (int64_t r = 0; r < rows; r += ROWS)
        kernels->unpack(z + r * columns, packed + (size_t)r * row_bytes, deviation, bits, smaller(ROWS, rows - r), columns,
                        row_bytes);
}

/* Dense, int8 and int4 payloads are the bytes that the op table packs, so that a backend may make them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "gpu/math/payload.h"
#include "tests/helpers/numbers.h"
#include "tests/helpers/rig.h"

static void same_bytes(struct rig *rig)
{
    static const int formats[][2] = {{PAYLOAD_FP32, FORMAT_FP32}, {PAYLOAD_BF16, FORMAT_BF16}, {PAYLOAD_INT8, FORMAT_INT8},
                                     {PAYLOAD_INT4, FORMAT_INT4}};
    static const int64_t shapes[][2] = {{1, 1}, {3, 1}, {5, 13}, {16, 64}, {17, 65}, {40, 129}};
    for (int f = 0; f < 4; f++)
        for (int s = 0; s < 6; s++) {
            enum payload_kind kind = (enum payload_kind)formats[f][0];
            int64_t rows = shapes[s][0], columns = shapes[s][1];
            size_t bytes = payload_bytes(kind, rows, columns);
            float *x = rig_noise(rig, rows * columns, (uint64_t)(f * 6 + s), 1), *ours = rig_floats(rig, rows * columns),
                  *theirs = rig_floats(rig, rows * columns);
            uint8_t *a = rig_take(rig, (int64_t)bytes), *b = rig_take(rig, (int64_t)bytes);
            payload_encode(kind, x, rows, columns, a);
            rig->ops->pack(rig->device, b, x, rows, columns, formats[f][1]);
            numbers_same(a, b, (int64_t)bytes, "%s, %d x %d (%s)", payload_name(kind), (int)rows, (int)columns, rig->label);
            payload_decode(kind, a, bytes, rows, columns, ours, NULL);
            rig->ops->unpack(rig->device, theirs, b, rows, columns, formats[f][1]);
            numbers_same(ours, theirs, rows * columns * 4, "%s back (%s)", payload_name(kind), rig->label);
        }
}

static void test_same_bytes(void **state)
{
    (void)state;
    rig_each(same_bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_bytes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

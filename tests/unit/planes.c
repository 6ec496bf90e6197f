/* Bytes of one place in a number put together, and back; and headers that nobody may believe. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "ssh/wire/planes.h"

static void there_and_back(void **unused)
{
    uint8_t bytes[307], apart[307], again[307]; /* many times what an instruction takes, and some more */
    (void)unused;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i % 251);
    for (unsigned stride = 1; stride <= 4; stride *= 2)
        for (size_t count = 1; count <= sizeof bytes; count++) {
            memset(apart, 0xff, sizeof apart);
            planes_split(stride, bytes, count, apart);
            planes_join(stride, apart, count, again);
            assert_memory_equal(again, bytes, count);
        }
    planes_split(2, bytes, 7, apart);
    assert_memory_equal(apart, ((uint8_t[]){0, 2, 4, 1, 3, 5, 6}), 7);
    planes_split(4, bytes, 9, apart);
    assert_memory_equal(apart, ((uint8_t[]){0, 4, 1, 5, 2, 6, 3, 7, 8}), 9);
}

static void headers(void **unused)
{
    static const struct planes bad[] = {{0, 1, 1},  {3, 1, 1}, {8, 1, 1}, {2, 0, 1}, {2, 1, 0}, {2, PLANES_MOST + 1, 1},
                                        {2, 1, 2 * PLANES_MOST + 1}, {2, UINT32_MAX, 1}, {2, 1, UINT32_MAX}};
    struct planes good = {2, PLANES_MOST, 4711}, got;
    uint8_t header[PLANES_HEADER];
    struct why why = {0};
    (void)unused;
    planes_put(&good, header);
    assert_int_equal(planes_get(header, &got, &why), 0);
    assert_true(got.stride == 2 && got.plain == PLANES_MOST && got.packed == 4711);
    header[1] ^= 1;
    assert_int_equal(planes_get(header, &got, &why), ERR_INVALID);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        why = (struct why){0};
        planes_put(&bad[i], header);
        assert_int_equal(planes_get(header, &got, &why), ERR_INVALID);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_and_back),
        cmocka_unit_test(headers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* What is read of /proc and nvidia-smi: the numbers when they are there, unknown when they are not, whatever the text is. */
#include "gpu/train/health.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/helpers/dice.h"

static void processors(void **state)
{
    struct health_busy before, now;
    uint16_t cores;
    (void)state;
    assert_true(health_read_stat("cpu  100 0 100 700 100 0 0 0 0 0\ncpu0 1 2 3 4\ncpu1 1 2 3 4\nintr 5\n", &before, &cores));
    assert_true(cores == 2 && before.busy == 200 && before.all == 1000);
    assert_true(health_read_stat("cpu  190 0 100 710 100 0 0 0\n", &now, &cores));
    assert_true(cores == 0 && fabsf(health_share(&before, &now) - 0.9F) < 1e-6F);
    assert_true(isnan(health_share(&now, &before)) && isnan(health_share(&now, &now)));
    assert_true(isnan(health_share(&(struct health_busy){0}, &now)));
    assert_false(health_read_stat("", &now, &cores) || health_read_stat("cpu x", &now, &cores));
}

static void memory(void **state)
{
    struct wire_host host = {0};
    (void)state;
    health_read_memory("MemTotal:       32768 kB\nMemFree: 1 kB\nMemAvailable:   1024 kB\n", &host);
    assert_true(host.memory_bytes == 32 << 20 && host.memory_free_bytes == 1 << 20);
    health_read_memory("", &host);
    assert_true(host.memory_bytes == 0 && host.memory_free_bytes == 0);
}

static void gpus(void **state)
{
    struct wire_host host = {0};
    (void)state;
    health_read_gpus("NVIDIA GeForce RTX 4090, 97, 18000, 24564, 71, 312.41\n", &host);
    assert_true(host.gpus == 1 && fabsf(host.gpu_share - 0.97F) < 1e-6F && host.gpu_celsius == 71 && fabsf(host.gpu_watts - 312.41F) < 1e-3F);
    assert_string_equal(host.gpu, "NVIDIA GeForce RTX 4090");
    health_read_gpus("A, [N/A], [N/A], [N/A], [N/A], [N/A]", &host);
    assert_true(host.gpus == 1 && isnan(host.gpu_share) && isnan(host.gpu_watts) && !host.gpu_memory_bytes);
    health_read_gpus("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver, alas.\n", &host);
    assert_true(host.gpus == 0 && host.gpu[0] == '\0' && isnan(host.gpu_share));
    health_read_gpus("\x1b[2Jevil, 1, 1e99, -5, nan, inf\n", &host);
    assert_true(host.gpus == 1 && host.gpu[0] != 0x1b && !host.gpu_memory_bytes && isnan(host.gpu_celsius) && isnan(host.gpu_watts));
}

static void any_text(void **state)
{
    struct dice dice = {5};
    (void)state;
    for (int round = 0; round < 2000; round++) {
        static const char letters[] = "cpu 0123456789,.:\n-enaMT[]";
        struct wire_host host = {0};
        struct health_busy busy;
        uint16_t cores;
        char text[400];
        size_t length = dice_below(&dice, sizeof text);
        for (size_t i = 0; i < length; i++)
            text[i] = letters[dice_below(&dice, sizeof letters - 1)];
        text[length ? length - 1 : 0] = '\0';
        health_read_stat(text, &busy, &cores);
        health_read_memory(text, &host);
        health_read_gpus(text, &host);
        assert_non_null(memchr(host.gpu, 0, sizeof host.gpu));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processors),
        cmocka_unit_test(memory),
        cmocka_unit_test(gpus),
        cmocka_unit_test(any_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

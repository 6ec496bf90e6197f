/* How quick a road is, from what arrived over it: of late, and whatever else we did. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ssh/base/clock.h"
#include "ssh/session/throughput.h"

/* So much in each tenth of `seconds`; then it must be about `wanted`. */
static void arrives(struct throughput *throughput, uint64_t *now_ns, unsigned seconds, uint64_t bytes, uint64_t away_ns, double wanted)
{
    for (unsigned i = 0; i < 10 * seconds; i++) {
        *now_ns += CLOCK_SECOND / 10;
        throughput_away(throughput, away_ns);
        throughput_add(throughput, bytes, *now_ns);
    }
    double known = throughput_get(throughput, *now_ns);
    if (known < 0.95 * wanted || known > 1.05 * wanted)
        fail_msg("%.0f bytes a second, not %.0f", known, wanted);
}

static void it_follows_what_arrives(void **unused)
{
    struct throughput throughput;
    uint64_t now_ns = CLOCK_SECOND;
    (void)unused;
    throughput_begin(&throughput, now_ns);
    assert_true(throughput_get(&throughput, now_ns + 1) == 0);
    arrives(&throughput, &now_ns, 1, 1000000, 0, 1e7);
    arrives(&throughput, &now_ns, 60, 1000000, 0, 1e7);
    arrives(&throughput, &now_ns, 10, 100000, 0, 1e6);
}

/* A processor that compresses nine tenths of the time does not make the road slow. */
static void other_work_is_not_the_roads(void **unused)
{
    struct throughput throughput;
    uint64_t now_ns = CLOCK_SECOND;
    (void)unused;
    throughput_begin(&throughput, now_ns);
    arrives(&throughput, &now_ns, 1, 1000000, 90 * CLOCK_MS, 1e8);
    arrives(&throughput, &now_ns, 60, 1000000, 90 * CLOCK_MS, 1e8);
    throughput_begin(&throughput, now_ns);
    throughput_away(&throughput, CLOCK_SECOND);
    assert_true(throughput_get(&throughput, now_ns) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_follows_what_arrives),
        cmocka_unit_test(other_work_is_not_the_roads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

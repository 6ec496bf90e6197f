/*
 * From a key to its change on the terminal: the real console on a pseudo terminal, while 1,000 processes report once a second over a road of
 * 200 ms there and back, and while that road is dead. A line is: name value unit (what it is).
 *
 * With arguments STATE HOST:RUN CUT the road is what the caller has made (keys_ssh.sh): SSH.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "ssh/base/clock.h"
#include "tests/helpers/crowd.h"

#define KEYS 20
#define MOST 400

static void measure(struct crowd *crowd, const char *what)
{
    static uint64_t took[MOST];
    int count = crowd_measure(crowd, KEYS, took, MOST);
    printf("key_to_terminal_%s %.1f ms (median of %d keys; 30 ms is what a hand notices)\n", what, (double)took[count / 2] / 1e6, count);
    printf("key_to_terminal_%s_p99 %.1f ms\n", what, (double)took[count * 99 / 100] / 1e6);
    printf("key_to_terminal_%s_longest %.1f ms\n", what, (double)took[count - 1] / 1e6);
    fflush(stdout);
}

int main(int count, char **arguments)
{
    const struct crowd_far far = {.state = count > 3 ? arguments[1] : "", .attach = count > 3 ? arguments[2] : "",
                                  .cut = count > 3 ? arguments[3] : ""};
    bool ssh = count > 3;
    struct crowd *crowd = crowd_begin(1000, 10, CLOCK_SECOND, ssh ? 0 : 100 * CLOCK_MS, 50, 200, ssh ? &far : NULL);
    crowd_rest(crowd, 3 * CLOCK_SECOND);
    measure(crowd, ssh ? "1000_processes_ssh" : "1000_processes");
    crowd_fall_silent(crowd);
    crowd_rest(crowd, 4 * CLOCK_SECOND);
    measure(crowd, ssh ? "dead_ssh" : "dead_road");
    crowd_end(crowd);
    return 0;
}

/*
 * What a console that only watches costs: the real one on a terminal of its own, 20 processes that all report ten times a second, so that it
 * draws as often as it ever does. A minute over five views, and the memory then. A line is: name value unit (what it is).
 */
#include <stdint.h>
#include <stdio.h>

#include "ssh/base/clock.h"
#include "tests/helpers/crowd.h"

#define SECONDS 12

int main(void)
{
    static const char views[] = "12456";
    struct crowd *crowd = crowd_begin(20, 4, 100 * CLOCK_MS, 10 * CLOCK_MS, 24, 80, NULL);
    double before, most = 0, sum = 0;
    crowd_rest(crowd, 2 * CLOCK_SECOND);
    for (const char *view = views; *view; view++) {
        char key[] = {*view, '\0'};
        crowd_press(crowd, key, "\033", 5 * CLOCK_SECOND);
        before = crowd_cost(crowd).cpu_seconds;
        crowd_rest(crowd, SECONDS * CLOCK_SECOND);
        double share = 100 * (crowd_cost(crowd).cpu_seconds - before) / SECONDS;
        printf("console_cpu_view_%c %.2f %% of a core (20 processes, ten reports a second, 80 x 24)\n", *view, share);
        most = share > most ? share : most;
        sum += share;
    }
    printf("console_cpu_mean %.2f %% of a core (1 %% is the limit)\nconsole_cpu_most %.2f %%\n", sum / (double)(sizeof views - 1), most);
    printf("console_memory %.1f MB resident\n", (double)crowd_cost(crowd).resident_bytes / 1e6);
    crowd_end(crowd);
    return 0;
}

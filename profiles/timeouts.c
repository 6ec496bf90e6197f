#include "profiles/timeouts.h"

struct timeouts timeouts_derive(uint64_t base_ns)
{
    return (struct timeouts){
        .heartbeat_ns = base_ns / 10,
        .silent_ns = base_ns / 4, /* two and a half periods: one lost heartbeat is not news, two are */
        .redial_ns = base_ns / 2,
        .greet_ns = base_ns,
        .grace_ns = base_ns + base_ns / 2,
        .form_ns = base_ns * 12,
        .lease_ns = base_ns * 60,
    };
}

bool timeouts_in_order(const struct timeouts *timeouts)
{
    return timeouts->heartbeat_ns > 0 && timeouts->heartbeat_ns * 2 < timeouts->silent_ns &&
           timeouts->silent_ns < timeouts->redial_ns && timeouts->redial_ns < timeouts->greet_ns &&
           timeouts->greet_ns < timeouts->grace_ns && timeouts->grace_ns < timeouts->form_ns &&
           timeouts->form_ns < timeouts->lease_ns;
}

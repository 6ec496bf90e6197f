/*
 * How much a road takes in a second, of late: what arrived, by the time in which there was something on the way. Pure.
 */
#ifndef KEDGE_SESSION_THROUGHPUT_H
#define KEDGE_SESSION_THROUGHPUT_H

#include <stdint.h>

struct throughput {
    double bytes; /* since since_ns, about */
    uint64_t since_ns;
    uint64_t away_ns; /* of that time we did something else */
};

void throughput_begin(struct throughput *throughput, uint64_t now_ns);
/* So much has arrived. */
void throughput_add(struct throughput *throughput, uint64_t bytes, uint64_t now_ns);
/* For so long nothing was put onto the road. A road that is quicker than what we did meanwhile would look slow by it. */
void throughput_away(struct throughput *throughput, uint64_t ns);
/* Bytes a second; 0 = nothing has arrived. */
double throughput_get(const struct throughput *throughput, uint64_t now_ns);

#endif

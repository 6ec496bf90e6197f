/*
 * One way to ask the time: monotonic, in nanoseconds. Tests own the clock (clock_own), so that causes precede
 * effects and hours pass in a millisecond. Wall time is only for people (logs, ledgers) and never for deadlines.
 */
#ifndef KEDGE_BASE_CLOCK_H
#define KEDGE_BASE_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

#define CLOCK_MS ((uint64_t)1000000)
#define CLOCK_SECOND ((uint64_t)1000000000)

uint64_t clock_now_ns(void);
uint64_t clock_wall_ns(void); /* since 1970 */
uint64_t clock_wall_ms(void); /* milliseconds since 1970 */

/* From here on clock_now_ns returns what clock_set_ns/clock_advance_ns say. For tests only. */
void clock_own(uint64_t start_ns);
void clock_advance_ns(uint64_t by_ns);
void clock_disown(void);
bool clock_is_owned(void);

#endif

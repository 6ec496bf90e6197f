/* The scripts of inspect.c and what their answers mean. Pure. */
#ifndef KEDGE_LAUNCH_INSPECT_FACTS_H
#define KEDGE_LAUNCH_INSPECT_FACTS_H

#include "ssh/launch/inspect.h"

/* Behind script_of_run's variables. `peer`: a host name that it will have roads to, or "". mem_free it. */
char *inspect_facts_script(const char *peer);
void inspect_read_facts(const char *output, struct inspect_host *found);
/* Problems and notes from the facts. `our_glibc`: of the machine that the programs come from. */
void inspect_judge(struct inspect_host *found, const struct inspect_needs *needs, const char *our_glibc);
void inspect_judge_clock(struct inspect_host *found);

/* Says "port N" and waits for one caller; and the caller. Both in perl, which every Debian has. mem_free them. */
char *inspect_listen_script(const char *listen, unsigned seconds);
char *inspect_dial_script(const char *address);

/* A road between two hosts (measure.h): `way` "listen" says "port N", takes a caller and does what it says; "dial" says
 * "rtt SECONDS up BYTES down BYTES". Each is over within `seconds`. */
char *inspect_measure_script(const char *way, const char *address, unsigned seconds);

void inspect_problem(struct inspect_host *found, const char *format, ...) __attribute__((format(printf, 2, 3)));
void inspect_note(struct inspect_host *found, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif

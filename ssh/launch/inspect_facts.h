/* The scripts of inspect.c and what their answers mean. Pure. */
#ifndef KEDGE_LAUNCH_INSPECT_FACTS_H
#define KEDGE_LAUNCH_INSPECT_FACTS_H

#include "ssh/launch/inspect.h"

const char *inspect_facts_script(void); /* behind script_of_run's variables */
void inspect_read_facts(const char *output, struct inspect_host *found);
/* Problems and notes from the facts. `our_glibc`: of the machine that the programs come from. */
void inspect_judge(struct inspect_host *found, uint64_t needed_kib, const char *our_glibc);
void inspect_judge_clock(struct inspect_host *found);

/* Says "port N" and waits for one caller; and the caller. Both in perl, which every Debian has. mem_free them. */
char *inspect_listen_script(const char *listen, unsigned seconds);
char *inspect_dial_script(const char *address);

void inspect_problem(struct inspect_host *found, const char *format, ...) __attribute__((format(printf, 2, 3)));
void inspect_note(struct inspect_host *found, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif

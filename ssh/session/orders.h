/*
 * What the shells of an upload run on the host: one language of orders, whether our worker is there or only what every system has.
 *
 * An order is "BEGIN BYTES", or "BEGIN BYTES COMPRESSED" when so many bytes of frames come instead; then the bytes; then "end", which
 * proves that they were whole. They go into FILE.part, FILE.part.list notes the range, and the answer is "done SENT BEGIN BYTES".
 * Pure: each returns a command that the caller frees with mem_free.
 */
#ifndef KEDGE_SESSION_ORDERS_H
#define KEDGE_SESSION_ORDERS_H

#include <stdint.h>

/* In front of every command: where the file is, what it is (`identity`, the first line of the list), how it is hashed, how a part is begun,
 * and what undoes our frames. `programs`: the folder there that has kedge-worker; NULL = none. */
char *orders_prelude(const char *remote, const char *identity, const char *programs);
/* Is a file of so many bytes there, is a part of it there, and if neither, make room for one; then it takes orders. Says lines "undoes
 * PROGRAM", "have SUM", "part" or "new", what has arrived of it, and ".". After neither "part" nor "new" the first order is "anew 0", which
 * begins a part, and the answer "anew". The sums of a host that has ORDERS_WORKER are DIGEST_XXH3, of all others SHA-256. */
#define ORDERS_WORKER "kedge-worker"
char *orders_look(const char *prelude, uint64_t bytes);
/* Takes orders. */
char *orders_take(const char *prelude);
/* Takes ranges "BEGIN BYTES" of the part, in a row, that are to be hashed; then "end" and "SUM MODE"; when it is that, all goes into its
 * place, and it says "same". Ends with ORDERS_DIFFERS when it is another content; then the part is gone. */
char *orders_check(const char *prelude);
#define ORDERS_DIFFERS 9 /* exit status */

#endif

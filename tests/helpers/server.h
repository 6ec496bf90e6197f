/* One sshd (tests/helpers/sshd.h) and one loop for a group of tests: its setup and teardown. */
#ifndef KEDGE_TESTS_SERVER_H
#define KEDGE_TESTS_SERVER_H

#include "tests/helpers/sshd.h"

extern struct sshd server;
extern struct loop *loop;
int server_begin(void **unused);
int server_end(void **unused);
void server_connect(struct caller *caller); /* and it is up */

#endif

/* Calls that must end in BUG(): run in a child, which has to abort; what it said on stderr comes back. */
#ifndef KEDGE_TESTS_BUG_H
#define KEDGE_TESTS_BUG_H

/* The text, valid until the next call; NULL when the child did not abort. */
const char *bug_text(void (*call)(void *arg), void *arg);

#endif

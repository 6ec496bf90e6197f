/*
 * Addresses as people write them: HOST:PORT, [IPV6]:PORT, and paths of Unix sockets of any length.
 */
#ifndef KEDGE_LINK_ADDRESS_H
#define KEDGE_LINK_ADDRESS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "ssh/base/why.h"

#define ADDRESS_HOST 256 /* longest host name, with its NUL */
#define ADDRESS_LIST 8   /* so many addresses of one name are tried */

struct address {
    struct sockaddr_storage to;
    socklen_t bytes;
};

/* "HOST:PORT" → HOST without brackets, PORT. An empty HOST or "*" is not accepted: the user says what is meant. */
int address_split(const char *text, char host[ADDRESS_HOST], uint16_t *port, struct why *why);
/* A numeric host, or "localhost" (127.0.0.1, then ::1), without asking anybody: how many were written, 0 = it is a name. */
int address_numeric(const char *host, uint16_t port, struct address list[ADDRESS_LIST]);
/* "127.0.0.1:4711", "[::1]:4711". */
void address_text(const struct sockaddr *address, char *out, size_t size);
/* The program that listens on that TCP port here, as "pid 4711 (nginx)"; "another process" when /proc does not tell. */
void address_holder(const struct sockaddr *address, char *out, size_t size);

/* A Unix socket's address. A path longer than the kernel's 107 bytes goes through a descriptor of its folder, which stays in
 * *folder_fd until the address has been used (−1 when not needed): the caller closes it. */
int address_unix(const char *path, struct sockaddr_un *address, int *folder_fd, struct why *why);

#endif

#include "ssh/link/address.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define UNIX_PATH_MAX_BYTES sizeof(((struct sockaddr_un *)0)->sun_path)

static int address_port(const char *text, uint16_t *port)
{
    unsigned value = 0;
    size_t digits = strspn(text, "0123456789");
    if (digits == 0 || digits > 5 || text[digits])
        return ERR_INVALID;
    for (size_t i = 0; i < digits; i++)
        value = value * 10 + (unsigned)(text[i] - '0');
    if (value > 65535)
        return ERR_INVALID;
    *port = (uint16_t)value;
    return 0;
}

int address_split(const char *text, char host[ADDRESS_HOST], uint16_t *port, struct why *why)
{
    const char *colon = strrchr(text, ':');
    const char *from = text, *to = colon;
    uint16_t number;
    if (!colon || address_port(colon + 1, &number) != 0)
        return why_set(why, ERR_INVALID, "address '%.200s' is not HOST:PORT with a port from 0 to 65535", text);
    if (*from == '[') {
        if (to == from || to[-1] != ']')
            return why_set(why, ERR_INVALID, "address '%.200s' has a '[' without its ']'", text);
        from++, to--;
    } else if (memchr(from, ':', (size_t)(to - from))) {
        return why_set(why, ERR_INVALID, "address '%.200s': write an IPv6 address in brackets, [::1]:4711", text);
    }
    size_t length = (size_t)(to - from);
    if (length == 0)
        return why_set(why, ERR_INVALID, "address '%.200s' has no host; write 0.0.0.0:%u for all interfaces", text, number);
    if (length >= ADDRESS_HOST)
        return why_set(why, ERR_INVALID, "address '%.60s…' has a host name longer than %d bytes", text, ADDRESS_HOST - 1);
    for (const char *c = from; c < to; c++)
        if (!isgraph((unsigned char)*c))
            return why_set(why, ERR_INVALID, "address '%.200s' has a character that no host name has", text);
    memcpy(host, from, length);
    host[length] = '\0';
    *port = number;
    return 0;
}

static bool address_parse(const char *host, uint16_t port, struct address *out)
{
    char service[8];
    snprintf(service, sizeof service, "%u", port);
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM}, *found;
    if (getaddrinfo(host, service, &hints, &found) != 0)
        return false;
    memcpy(&out->to, found->ai_addr, found->ai_addrlen);
    out->bytes = found->ai_addrlen;
    freeaddrinfo(found);
    return true;
}

int address_numeric(const char *host, uint16_t port, struct address list[ADDRESS_LIST])
{
    if (strcmp(host, "localhost") == 0)
        return address_parse("127.0.0.1", port, &list[0]) + address_parse("::1", port, &list[1]);
    return address_parse(host, port, &list[0]);
}

static uint16_t address_port_of(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET)
        return ntohs(((const struct sockaddr_in *)(const void *)address)->sin_port);
    return ntohs(((const struct sockaddr_in6 *)(const void *)address)->sin6_port);
}

void address_text(const struct sockaddr *address, char *out, size_t size)
{
    char host[INET6_ADDRSTRLEN] = "?";
    if (address->sa_family == AF_INET) {
        inet_ntop(AF_INET, &((const struct sockaddr_in *)(const void *)address)->sin_addr, host, sizeof host);
        snprintf(out, size, "%s:%u", host, address_port_of(address));
    } else if (address->sa_family == AF_INET6) {
        inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr, host, sizeof host);
        snprintf(out, size, "[%s]:%u", host, address_port_of(address));
    } else {
        snprintf(out, size, "?");
    }
}

/* ---- who holds a port ---- */

/* The inode of the first socket in `table` that listens on `port`; 0 = none. The port, not the address, is compared: a
 * listener on 0.0.0.0 or :: is in the way of one on 127.0.0.1 too. */
static unsigned long holder_inode(const char *table, uint16_t port)
{
    FILE *file = fopen(table, "re");
    char line[512];
    unsigned long found = 0;
    while (file && !found && fgets(line, sizeof line, file)) {
        unsigned local_port, state;
        unsigned long inode;
        if (sscanf(line, "%*d: %*[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %x %*x:%*x %*x:%*x %*x %*u %*u %lu", &local_port, &state,
                   &inode) == 3 &&
            local_port == port && state == 0x0A)
            found = inode;
    }
    if (file)
        fclose(file);
    return found;
}

static bool holder_has(const char *pid, const char *wanted)
{
    char path[300], target[64];
    snprintf(path, sizeof path, "/proc/%.20s/fd", pid);
    DIR *folder = opendir(path);
    bool found = false;
    struct dirent *entry;
    while (folder && !found && (entry = readdir(folder))) {
        ssize_t length = readlinkat(dirfd(folder), entry->d_name, target, sizeof target - 1);
        if (length <= 0)
            continue;
        target[length] = '\0';
        found = strcmp(target, wanted) == 0;
    }
    if (folder)
        closedir(folder);
    return found;
}

static void holder_name(const char *pid, char *out, size_t size)
{
    char path[300], name[64] = "?";
    snprintf(path, sizeof path, "/proc/%.20s/comm", pid);
    FILE *file = fopen(path, "re");
    if (file && fgets(name, sizeof name, file))
        name[strcspn(name, "\n")] = '\0';
    if (file)
        fclose(file);
    snprintf(out, size, "pid %.20s (%s)", pid, name);
}

void address_holder(const struct sockaddr *address, char *out, size_t size)
{
    uint16_t port = address_port_of(address);
    unsigned long inode = holder_inode("/proc/net/tcp", port);
    if (!inode)
        inode = holder_inode("/proc/net/tcp6", port);
    snprintf(out, size, "another process");
    if (!inode)
        return;
    char wanted[64];
    snprintf(wanted, sizeof wanted, "socket:[%lu]", inode);
    DIR *proc = opendir("/proc");
    struct dirent *entry;
    while (proc && (entry = readdir(proc))) {
        if (!isdigit((unsigned char)entry->d_name[0]) || !holder_has(entry->d_name, wanted))
            continue;
        holder_name(entry->d_name, out, size);
        break;
    }
    if (proc)
        closedir(proc);
}

/* ---- Unix sockets ---- */

int address_unix(const char *path, struct sockaddr_un *address, int *folder_fd, struct why *why)
{
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    *folder_fd = -1;
    size_t length = strlen(path);
    if (length == 0)
        return why_set(why, ERR_INVALID, "a Unix socket needs a path");
    if (length < UNIX_PATH_MAX_BYTES) {
        memcpy(address->sun_path, path, length + 1);
        return 0;
    }
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    if (strlen(name) > 64 || !slash)
        return why_set(why, ERR_INVALID, "the name of socket %.300s is too long: at most 64 bytes", path);
    char *folder = strndup(path, (size_t)(slash - path) + 1);
    int fd = folder ? open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
    if (fd < 0) {
        int err = why_errno(why, "folder %.300s of a socket", folder ? folder : "?");
        free(folder);
        return err;
    }
    free(folder);
    snprintf(address->sun_path, sizeof address->sun_path, "/proc/self/fd/%d/%s", fd, name);
    *folder_fd = fd;
    return 0;
}

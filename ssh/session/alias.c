#include "ssh/session/alias.h"

#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ssh/base/child.h"
#include "ssh/base/clock.h"
#include "ssh/base/hash.h"
#include "ssh/base/mem.h"
#include "ssh/base/text.h"

#define SSH_WORDS_BYTES (128 * 1024)
#define SSH_DEADLINE_NS (15 * CLOCK_SECOND)

static const char *home_folder(void)
{
    const char *home = getenv("HOME");
    const struct passwd *user = home && home[0] == '/' ? NULL : getpwuid(getuid());
    return user ? user->pw_dir : home;
}

static void own_name(char out[64])
{
    const struct passwd *user = getpwuid(getuid());
    const char *name = user ? user->pw_name : getenv("USER");
    snprintf(out, 64, "%s", name ? name : "");
}

static int bad_destination(const char *text, struct why *why)
{
    char shown[200];
    return why_set(why, ERR_INVALID, "'%s' is no place to log in: write [USER@]HOST[:PORT], or an alias of ~/.ssh/config",
                   text_harmless(text, strlen(text), shown, sizeof shown));
}

int alias_split(const char *text, char user[64], char host[ADDRESS_HOST], uint16_t *port, struct why *why)
{
    const char *whole = text, *end;
    uint64_t number = 0;
    if (strncmp(text, "ssh://", 6) == 0)
        text += 6;
    const char *at = strrchr(text, '@'), *name = at ? at + 1 : text;
    size_t user_bytes = at ? (size_t)(at - text) : 0;
    if (name[0] == '[') {
        end = strchr(++name, ']');
        if (!end || (end[1] && end[1] != ':'))
            return bad_destination(whole, why);
    } else {
        end = name + strcspn(name, ":");
        if (*end == ':' && strchr(end + 1, ':'))
            end += strlen(end); /* an IPv6 address without brackets */
    }
    const char *digits = *end == ']' ? end + 1 : end;
    size_t host_bytes = (size_t)(end - name);
    bool numbered = *digits == ':';
    if (user_bytes >= 64 || host_bytes == 0 || host_bytes >= ADDRESS_HOST || name[0] == '-' || (at && !user_bytes) ||
        text[0] == '-' || (numbered && (text_to_u64(digits + 1, &number) || number == 0 || number > 65535)))
        return bad_destination(whole, why);
    snprintf(user, 64, "%.*s", (int)user_bytes, text);
    snprintf(host, ADDRESS_HOST, "%.*s", (int)host_bytes, name);
    *port = (uint16_t)number;
    return 0;
}

/* ---- what ssh -G prints: "key value…" ---- */

static void set_file(char out[KNOWN_PLACE], const char *value)
{
    const char *home = home_folder();
    if (value[0] == '~' && value[1] == '/' && home)
        snprintf(out, KNOWN_PLACE, "%s%s", home, value + 1);
    else
        snprintf(out, KNOWN_PLACE, "%s", value);
}

static void add_identity(struct alias *alias, const char *value)
{
    for (int i = 0; i < ALIAS_IDENTITIES; i++)
        if (!alias->identities[i][0]) {
            set_file(alias->identities[i], value);
            return;
        }
}

/* Files are separated by blanks; a name with blanks cannot be told from two files, ssh does not quote it either. */
static void add_known(struct alias *alias, const char *value)
{
    char words[2 * KNOWN_PLACE], *rest = words;
    snprintf(words, sizeof words, "%s", value);
    for (char *word; (word = strsep(&rest, " \t"));)
        for (int i = 0; i < HOSTKEY_FILES && *word; i++)
            if (!alias->known[i][0]) {
                set_file(alias->known[i], word);
                break;
            }
}

static int add_jumps(struct alias *alias, const char *value, struct why *why)
{
    char words[ALIAS_JUMPS * ALIAS_WORD * 2], *rest = words;
    if (strcasecmp(value, "none") == 0)
        return 0;
    snprintf(words, sizeof words, "%s", value);
    for (char *word; (word = strsep(&rest, ","));) {
        if (alias->jump_count == ALIAS_JUMPS)
            return why_set(why, ERR_FULL, "more than %d jump hosts in a row (%.100s)", ALIAS_JUMPS, value);
        if (strlen(word) >= ALIAS_WORD)
            return bad_destination(word, why);
        snprintf(alias->jumps[alias->jump_count++], ALIAS_WORD, "%s", word);
    }
    return 0;
}

static int take_line(struct alias *alias, const char *key, const char *value, struct why *why)
{
    uint64_t number;
    if (strcmp(key, "hostname") == 0)
        snprintf(alias->host, sizeof alias->host, "%s", value);
    else if (strcmp(key, "user") == 0)
        snprintf(alias->user, sizeof alias->user, "%s", value);
    else if (strcmp(key, "port") == 0 && text_to_u64(value, &number) == 0 && number > 0 && number <= 65535)
        alias->port = (uint16_t)number;
    else if (strcmp(key, "identityfile") == 0)
        add_identity(alias, value);
    else if (strcmp(key, "userknownhostsfile") == 0 || strcmp(key, "globalknownhostsfile") == 0)
        add_known(alias, value);
    else if (strcmp(key, "proxycommand") == 0)
        alias->has_command = strcasecmp(value, "none") != 0;
    else if (strcmp(key, "proxyjump") == 0)
        return add_jumps(alias, value, why);
    return 0;
}

int alias_parse(const char *text, struct alias *alias, struct why *why)
{
    memset(alias, 0, sizeof *alias);
    char *copy = mem_text(text), *rest = copy;
    int err = 0;
    for (char *line; !err && (line = strsep(&rest, "\n"));) {
        char *value = strchr(line, ' ');
        if (!value)
            continue;
        *value++ = '\0';
        err = take_line(alias, line, value, why);
    }
    mem_free(copy);
    if (!err && (!alias->host[0] || !alias->port))
        err = why_set(why, ERR_INVALID, "ssh -G names no host or no port");
    return err;
}

/* ---- asking ---- */

static void without_ssh(const char *user, const char *host, uint16_t port, struct alias *alias)
{
    static const char *const keys[] = {"~/.ssh/id_ed25519", "~/.ssh/id_ecdsa", "~/.ssh/id_rsa"};
    memset(alias, 0, sizeof *alias);
    memcpy(alias->host, host, strlen(host) + 1);
    alias->port = port ? port : 22;
    snprintf(alias->user, sizeof alias->user, "%s", user);
    if (!*user)
        own_name(alias->user);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        add_identity(alias, keys[i]);
    add_known(alias, "~/.ssh/known_hosts ~/.ssh/known_hosts2 /etc/ssh/ssh_known_hosts");
}

/* Exit status of `ssh -G`, 127 when there is none. */
static int ask_ssh(const char *config, const char *user, const char *host, uint16_t port, char *out, size_t size,
                   struct why *why)
{
    const char *argv[16] = {"ssh", "-G"};
    char number[16];
    int count = 2, status = 0;
    struct why own = {0};
    snprintf(number, sizeof number, "%u", port);
    if (config) {
        argv[count++] = "-F";
        argv[count++] = config;
    }
    if (*user) {
        argv[count++] = "-l";
        argv[count++] = user;
    }
    if (port) {
        argv[count++] = "-p";
        argv[count++] = number;
    }
    argv[count++] = "--";
    argv[count] = host;
    int err = child_output(argv, true, out, size, SSH_DEADLINE_NS, &status, &own);
    if (err == ERR_TIMEOUT)
        return why_set(why, err, "ssh -G %s did not answer within 5 s: does ~/.ssh/config run a slow command (Match exec)?", host);
    return err ? why_set(why, err, "%s", own.text) : status;
}

/* The ssh program looks into the home folder of the password file; who set HOME elsewhere means that one. */
static bool find_config(char *out, size_t size)
{
    const char *home = getenv("HOME");
    const struct passwd *user = getpwuid(getuid());
    if (!home || home[0] != '/' || !user || strcmp(home, user->pw_dir) == 0)
        return false;
    snprintf(out, size, "%s/.ssh/config", home);
    return access(out, R_OK) == 0;
}

static int resolve(const char *destination, const char *config, struct alias *alias, struct why *why)
{
    char user[64], host[ADDRESS_HOST], shown[300], own_config[KNOWN_PLACE];
    uint16_t port;
    int err = alias_split(destination, user, host, &port, why);
    if (err)
        return err;
    if (!config && find_config(own_config, sizeof own_config))
        config = own_config;
    char *words = mem_new(SSH_WORDS_BYTES);
    int status = ask_ssh(config, user, host, port, words, SSH_WORDS_BYTES, why);
    if (status == 127)
        without_ssh(user, host, port, alias);
    else if (status > 0)
        err = why_set(why, ERR_INVALID, "ssh -G %s: %s", host,
                      text_harmless(words, strcspn(words, "\r\n"), shown, sizeof shown));
    else
        err = status < 0 ? status : alias_parse(words, alias, why);
    mem_free(words);
    if (!err && alias->has_command && !alias->jump_count)
        err = why_set(why, ERR_INVALID, "%s is reached through a ProxyCommand, which kedge does not run: use ProxyJump", host);
    return err;
}

/* ---- asked once ---- */

/* A screen that dials a lost host once a second must not wait for a program each time: milliseconds, or seconds where the configuration
 * runs commands. What was answered holds until one of the files changes. */
static struct remembered {
    char destination[ALIAS_WORD], config[KNOWN_PLACE];
    uint64_t stamp;
    struct alias alias;
} remembered[8];
static unsigned next_remembered;

static uint64_t stamp_of(const char *path, uint64_t stamp)
{
    struct stat file;
    if (stat(path, &file) != 0)
        return stamp;
    const uint64_t words[] = {stamp, (uint64_t)file.st_mtim.tv_sec, (uint64_t)file.st_mtim.tv_nsec, (uint64_t)file.st_size, file.st_ino};
    return hash_bytes(words, sizeof words);
}

static uint64_t stamp_of_files(const char *config)
{
    char own[KNOWN_PLACE] = "";
    const char *home = getenv("HOME");
    snprintf(own, sizeof own, "%s/.ssh/config", home ? home : "");
    return stamp_of("/etc/ssh/ssh_config", stamp_of(config ? config : own, hash_bytes(own, strlen(own))));
}

int alias_resolve(const char *destination, const char *config, struct alias *alias, struct why *why)
{
    uint64_t stamp = stamp_of_files(config);
    for (size_t i = 0; i < sizeof remembered / sizeof *remembered; i++) {
        const struct remembered *at = &remembered[i];
        if (at->stamp != stamp || strcmp(at->destination, destination) != 0 || strcmp(at->config, config ? config : "") != 0)
            continue;
        *alias = at->alias;
        return 0;
    }
    int err = resolve(destination, config, alias, why);
    struct remembered *at = &remembered[next_remembered % (sizeof remembered / sizeof *remembered)];
    if (err || strlen(destination) >= sizeof at->destination || (config && strlen(config) >= sizeof at->config))
        return err;
    next_remembered++;
    *at = (struct remembered){.stamp = stamp, .alias = *alias};
    snprintf(at->destination, sizeof at->destination, "%s", destination);
    snprintf(at->config, sizeof at->config, "%s", config ? config : "");
    return 0;
}

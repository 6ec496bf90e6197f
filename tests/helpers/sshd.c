#include "tests/helpers/sshd.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ssh/base/clock.h"
#include "ssh/base/file.h"
#include "ssh/base/mem.h"
#include "tests/helpers/ends.h"

#define SSHD "/usr/sbin/sshd"

/* libssh2 1.10 forgets two numbers of each ECDSA key file that it reads; they are OpenSSL's memory, so nobody else can
 * free them.
 * To see that it was the library, the sanitizer must look through code without frame pointers. */
const char *__asan_default_options(void);
const char *__lsan_default_suppressions(void);

const char *__asan_default_options(void)
{
    return "fast_unwind_on_malloc=0";
}

const char *__lsan_default_suppressions(void)
{
    return "leak:libssh2.so\n";
}

bool sshd_is_here(void)
{
    return access(SSHD, X_OK) == 0 && access("/usr/bin/ssh-keygen", X_OK) == 0;
}

const char *sshd_user(void)
{
    const struct passwd *user = getpwuid(getuid());
    return user ? user->pw_name : "nobody";
}

int sshd_keygen(struct sshd *sshd, const char *arguments)
{
    char *command = mem_format("cd '%s' && ssh-keygen -q %s </dev/null", sshd->place.folder, arguments);
    int status = system(command);
    mem_free(command);
    return status;
}

static uint16_t free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(fd, (struct sockaddr *)&address, bytes) != 0 || getsockname(fd, (struct sockaddr *)&address, &bytes) != 0)
        address.sin_port = 0;
    close(fd);
    return ntohs(address.sin_port);
}

static bool answers(uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    bool yes = connect(fd, (struct sockaddr *)&address, sizeof address) == 0;
    close(fd);
    return yes;
}

void sshd_again(struct sshd *sshd)
{
    char log[600], config[600];
    snprintf(log, sizeof log, "%s/sshd.log", sshd->place.folder);
    snprintf(config, sizeof config, "%s/sshd_config", sshd->place.folder);
    pid_t parent = getpid();
    sshd->pid = fork();
    if (sshd->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
        int fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
        dup2(fd, STDERR_FILENO);
        for (int i = 3; i < 256; i++)
            close(i);
        execl(SSHD, SSHD, "-D", "-e", "-f", config, (char *)NULL);
        _exit(127);
    }
    for (int i = 0; i < 500 && !answers(sshd->port) && waitpid(sshd->pid, NULL, WNOHANG) == 0; i++)
        nanosleep(&(struct timespec){.tv_nsec = 20 * 1000 * 1000}, NULL);
}

/* From 9.8 on sshd shuts out an address whose connections broke off before a login, as those of tests do; an older one refuses the word. */
static const char *without_penalties(void)
{
    return system("grep -qi persourcepenalties " SSHD) == 0 ? "PerSourcePenalties no\n" : "";
}

/* HOME is the test's own: what somebody's .bashrc does there is not our subject. */
static int write_config(struct sshd *sshd)
{
    const char *folder = sshd->place.folder;
    char *text = mem_format("ListenAddress 127.0.0.1\nPort %u\nHostKey %s/host_key\nPidFile none\nUsePAM no\nStrictModes "
                            "no\n"
                            "AuthorizedKeysFile %s/authorized_keys\nUseDNS no\nMaxStartups 200\nLogLevel VERBOSE\nPrintMotd "
                            "no\n"
                            "PermitRootLogin yes\nMaxSessions 64\nPasswordAuthentication no\nKbdInteractiveAuthentication "
                            "no\n"
                            "SetEnv HOME=%s/home\n%s%s\n",
                            sshd->port, folder, folder, folder, without_penalties(), sshd->extra);
    int err = file_write(place_file(&sshd->place, "sshd_config"), text, strlen(text), 0600, NULL);
    mem_free(text);
    return err;
}

/* "[127.0.0.1]:PORT TYPE KEY" */
static int write_known_hosts(struct sshd *sshd)
{
    uint8_t *key;
    size_t bytes;
    if (file_read(place_file(&sshd->place, "host_key.pub"), 8192, &key, &bytes, NULL) != 0)
        return -1;
    char *line = mem_format("[127.0.0.1]:%u %s", sshd->port, (char *)key);
    int err = file_write(place_file(&sshd->place, "known_hosts"), line, strlen(line), 0600, NULL);
    mem_free(line);
    mem_free(key);
    return err;
}

int sshd_start(struct sshd *sshd, const char *extra)
{
    memset(sshd, 0, sizeof *sshd);
    snprintf(sshd->extra, sizeof sshd->extra, "%s", extra);
    if (getuid() == 0)
        mkdir("/run/sshd", 0755); /* sshd of Debian insists */
    sshd->port = free_port();
    if (place_init(&sshd->place) != 0 || mkdir(place_file(&sshd->place, "home"), 0700) != 0 ||
        sshd_keygen(sshd, "-t ed25519 -N '' -f host_key") != 0 || sshd_keygen(sshd, "-t ed25519 -N '' -C test -f id") != 0 ||
        write_config(sshd) != 0 || write_known_hosts(sshd) != 0)
        return -1;
    char *copy = mem_format("cp '%s/id.pub' '%s/authorized_keys'", sshd->place.folder, sshd->place.folder);
    int status = system(copy);
    mem_free(copy);
    sshd_again(sshd);
    return status == 0 && answers(sshd->port) ? 0 : -1;
}

static pid_t parent_of(pid_t pid)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    int fd = open(path, O_RDONLY);
    ssize_t bytes = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    if (bytes <= 0)
        return -1;
    text[bytes] = '\0';
    const char *field = strrchr(text, ')');
    return field ? (pid_t)strtol(field + 4, NULL, 10) : -1;
}

/* Parents in front of their children: a shell that is killed first would still be reported by its sshd. */
static size_t list_children(pid_t parent, pid_t *list, size_t used, size_t room)
{
    DIR *entries = opendir("/proc");
    for (struct dirent *entry; entries && (entry = readdir(entries)) && used < room;) {
        pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);
        if (pid <= 1 || parent_of(pid) != parent)
            continue;
        list[used++] = pid;
        used = list_children(pid, list, used, room);
    }
    if (entries)
        closedir(entries);
    return used;
}

void sshd_kill_sessions(struct sshd *sshd)
{
    pid_t list[256];
    size_t count = sshd->pid > 0 ? list_children(sshd->pid, list, 0, sizeof list / sizeof *list) : 0;
    for (size_t i = 0; i < count; i++)
        kill(list[i], SIGKILL);
}

void sshd_kill_listener(struct sshd *sshd)
{
    if (sshd->pid <= 0)
        return;
    kill(sshd->pid, SIGKILL);
    waitpid(sshd->pid, NULL, 0);
    sshd->pid = 0;
}

void sshd_stop(struct sshd *sshd)
{
    sshd_kill_sessions(sshd);
    sshd_kill_listener(sshd);
    place_clear(&sshd->place);
}

void sshd_print_log(struct sshd *sshd)
{
    uint8_t *text;
    size_t bytes;
    if (file_read(place_file(&sshd->place, "sshd.log"), 1 << 20, &text, &bytes, NULL) != 0)
        return;
    fprintf(stderr, "---- sshd says\n%s----\n", (char *)text);
    mem_free(text);
}

/* ---- a caller ---- */

void caller_init(struct caller *caller, struct loop *loop, struct sshd *sshd)
{
    memset(caller, 0, sizeof *caller);
    caller->loop = loop;
    struct session_settings *settings = &caller->settings;
    snprintf(settings->name, sizeof settings->name, "host one");
    snprintf(settings->host, sizeof settings->host, "127.0.0.1");
    settings->port = sshd->port;
    snprintf(settings->user, sizeof settings->user, "%s", sshd_user());
    snprintf(settings->policy.files[0], sizeof settings->policy.files[0], "%s", place_file(&sshd->place, "known_hosts"));
    snprintf(settings->identities[0], sizeof settings->identities[0], "%s", place_file(&sshd->place, "id"));
    settings->greet_ns = 20 * CLOCK_SECOND;
    settings->silent_ns = 20 * CLOCK_SECOND;
    settings->ask_ns = 20 * CLOCK_SECOND;
}

static void caller_on_up(struct session *session, void *arg)
{
    (void)session;
    ((struct caller *)arg)->is_up = true;
}

static void caller_on_down(struct session *session, int err, const char *reason, void *arg)
{
    struct caller *caller = arg;
    (void)session;
    if (caller->is_down)
        BUG("down was told twice: %s; %s", caller->reason, reason);
    caller->is_down = true;
    caller->err = err;
    snprintf(caller->reason, sizeof caller->reason, "%s", reason);
}

static void caller_on_ask(struct session *session, const struct session_question *question, void *arg)
{
    struct caller *caller = arg;
    caller->is_asked = true;
    caller->kind = question->kind;
    snprintf(caller->question, sizeof caller->question, "%s", question->text);
    snprintf(caller->art, sizeof caller->art, "%s", question->art);
    const char *answer = caller->answers[caller->asked_count];
    if (answer) {
        caller->asked_count++;
        session_answer(session, answer);
    }
}

void caller_over(struct caller *caller, struct road *road)
{
    const struct session_callbacks callbacks = {
        .up = caller_on_up, .down = caller_on_down, .ask = caller->answers ? caller_on_ask : NULL};
    caller->session = session_new(caller->loop, road, &caller->settings, &callbacks, caller);
}

void caller_dial(struct caller *caller)
{
    char address[300];
    struct why why = {0};
    snprintf(address, sizeof address, "%s:%u", caller->settings.host, caller->settings.port);
    struct road *road = road_tcp_dial(caller->loop, address, &why);
    if (!road)
        BUG("%s", why.text);
    caller_over(caller, road);
}

bool caller_up(struct caller *caller)
{
    uint64_t until_ns = clock_now_ns() + 60 * CLOCK_SECOND;
    while (!caller->is_up && !caller->is_down && clock_now_ns() < until_ns)
        loop_run_once(caller->loop, CLOCK_SECOND);
    return caller->is_up && !caller->is_down;
}

void caller_end(struct caller *caller)
{
    session_free(caller->session);
    caller->session = NULL;
    loop_run_once(caller->loop, 0);
}

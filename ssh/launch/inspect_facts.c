#include "ssh/launch/inspect_facts.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ssh/base/mem.h"
#include "ssh/base/text.h"

#define CLOCK_MOST 1.0 /* seconds apart; certificates and logs bear that much */
#define OPEN_FILES 1024

void inspect_problem(struct inspect_host *found, const char *format, ...)
{
    va_list arguments;
    if (found->problem_count == INSPECT_WORDS)
        return;
    va_start(arguments, format);
    vsnprintf(found->problems[found->problem_count++], INSPECT_WORD, format, arguments);
    va_end(arguments);
}

void inspect_note(struct inspect_host *found, const char *format, ...)
{
    va_list arguments;
    if (found->note_count == INSPECT_WORDS)
        return;
    va_start(arguments, format);
    vsnprintf(found->notes[found->note_count++], INSPECT_WORD, format, arguments);
    va_end(arguments);
}

const char *inspect_facts_script(void)
{
    /* Nothing is made here: looking leaves no folder behind, and two who look at once do not take one from each other. */
    return "for f in \"$R\" \"$D\"; do p=$f; until [ -e \"$p\" ]; do p=$(dirname \"$p\"); done; "
           "[ -d \"$p\" ] && [ -w \"$p\" ] || { echo \"cannot make $f: this login may not write in $p\" >&2; exit 1; }; done; "
           "echo \"os=$(. /etc/os-release 2>/dev/null && echo \"$PRETTY_NAME\")\"; "
           "echo \"machine=$(uname -m)\"; echo \"glibc=$(getconf GNU_LIBC_VERSION 2>/dev/null)\"; echo \"cpus=$(nproc 2>/dev/null)\"; "
           "echo \"memory=$(sed -n 's/^MemAvailable: *\\([0-9]*\\).*/\\1/p' /proc/meminfo 2>/dev/null)\"; "
           "echo \"disk=$(df -Pk \"$p\" | tail -n 1 | { read -r a b c d e; echo $d; })\"; "
           "n=$(ulimit -Hn); [ \"$n\" = unlimited ] && n=1048576; echo \"files=$n\"; "
           "for c in tar dd flock setsid; do command -v $c >/dev/null || echo \"lacks=$c\"; done; "
           "if command -v loginctl >/dev/null && loginctl show-user \"$(id -un)\" -p Linger 2>/dev/null | grep -q no && "
           "grep -qs '^KillUserProcesses=yes' /etc/systemd/logind.conf /etc/systemd/logind.conf.d/*; then echo kills=1; fi; "
           "if command -v nvidia-smi >/dev/null; then nvidia-smi "
           "--query-gpu=name,memory.total,memory.free,driver_version,compute_cap --format=csv,noheader,nounits 2>/dev/null | sed 's/^/gpu=/'; "
           "echo \"gpu_users=$(nvidia-smi --query-compute-apps=pid --format=csv,noheader 2>/dev/null | grep -c .)\"; fi; :";
}

/* "NVIDIA H100, 81559, 80994, 535.1, 9.0" */
static void read_gpu(const char *value, struct inspect_host *found)
{
    char copy[300], *rest = copy, *words[5] = {0};
    if (found->gpu_count == INSPECT_GPUS)
        return;
    text_harmless(value, strlen(value), copy, sizeof copy);
    for (int i = 0; i < 5 && rest; i++) {
        words[i] = strsep(&rest, ",");
        words[i] += strspn(words[i], " ");
    }
    if (!words[4])
        return;
    struct inspect_gpu *gpu = &found->gpus[found->gpu_count++];
    memset(gpu, 0, sizeof *gpu);
    snprintf(gpu->name, sizeof gpu->name, "%s", words[0]);
    snprintf(gpu->driver, sizeof gpu->driver, "%s", words[3]);
    snprintf(gpu->compute, sizeof gpu->compute, "%s", words[4]);
    if (text_to_u64(words[1], &gpu->total_mib) != 0 || text_to_u64(words[2], &gpu->free_mib) != 0)
        gpu->total_mib = gpu->free_mib = 0;
}

static void read_fact(const char *key, const char *value, struct inspect_host *found)
{
    const struct {
        const char *key;
        char *text;
        size_t size;
        uint64_t *number;
    } facts[] = {{"os", found->os, sizeof found->os, NULL},          {"machine", found->machine, sizeof found->machine, NULL},
                 {"glibc", found->glibc, sizeof found->glibc, NULL}, {"cpus", NULL, 0, &found->cpus},
                 {"memory", NULL, 0, &found->memory_kib},            {"disk", NULL, 0, &found->disk_free_kib},
                 {"files", NULL, 0, &found->open_files}};
    uint64_t number;
    char shown[40];
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) {
        if (strcmp(key, facts[i].key) != 0)
            continue;
        if (facts[i].text)
            text_harmless(value, strlen(value), facts[i].text, facts[i].size);
        else if (text_to_u64(value, &number) == 0)
            *facts[i].number = number;
        return;
    }
    if (strcmp(key, "gpu") == 0)
        read_gpu(value, found);
    else if (strcmp(key, "gpu_users") == 0 && text_to_u64(value, &number) == 0)
        found->gpu_users = number > 1000 ? 1000 : (int)number;
    else if (strcmp(key, "lacks") == 0)
        inspect_problem(found, "the program %s is not there: apt-get install coreutils tar util-linux",
                        text_harmless(value, strlen(value), shown, sizeof shown));
    else if (strcmp(key, "kills") == 0)
        inspect_problem(found, "logging out there kills all that was started (KillUserProcesses=yes): say 'loginctl enable-linger' there");
}

void inspect_read_facts(const char *output, struct inspect_host *found)
{
    char *copy = mem_text(output), *rest = copy;
    for (char *line; (line = strsep(&rest, "\n"));) {
        char *equals = strchr(line, '=');
        if (!equals)
            continue;
        *equals = '\0';
        read_fact(line, equals + 1, found);
    }
    mem_free(copy);
}

/* "glibc 2.31" or "2.31" → 2031; 0 = cannot be seen. */
static int version_of(const char *text)
{
    const char *digits = strpbrk(text, "0123456789");
    int major, minor;
    return digits && sscanf(digits, "%d.%d", &major, &minor) == 2 ? major * 1000 + minor : 0;
}

void inspect_judge(struct inspect_host *found, uint64_t needed_kib, const char *our_glibc)
{
    char has[32], needs[32];
#if defined(__x86_64__)
    static const char ours[] = "x86_64";
#else
    static const char ours[] = "aarch64";
#endif
    int theirs = version_of(found->glibc), mine = version_of(our_glibc);
    if (found->machine[0] && strcmp(found->machine, ours) != 0)
        inspect_problem(found, "it is a %s: programs for %s do not run there", found->machine, ours);
    if (!theirs)
        inspect_problem(found, "its C library is no glibc that can be seen; the programs need glibc, as Debian and Ubuntu have it");
    else if (mine && theirs < mine)
        inspect_note(found, "its %s is older than the glibc %s here: the start tries whether the programs run; if not, build kedge on a "
                     "system as old as that", found->glibc, our_glibc);
    if (found->disk_free_kib && found->disk_free_kib < needed_kib)
        inspect_problem(found, "%s free on its disk, up to %s are needed: delete something there, or set XDG_DATA_HOME to a larger disk",
                        text_from_bytes(found->disk_free_kib * 1024, has, sizeof has),
                        text_from_bytes(needed_kib * 1024, needs, sizeof needs));
    if (found->open_files && found->open_files < OPEN_FILES)
        inspect_problem(found, "only %" PRIu64 " open files are allowed (ulimit -Hn): raise nofile in /etc/security/limits.conf to %d",
                        found->open_files, OPEN_FILES);
    if (found->gpu_users)
        inspect_note(found, "%d other programs use its GPU (nvidia-smi lists them): end them, or there may be too little memory",
                     found->gpu_users);
}

void inspect_judge_clock(struct inspect_host *found)
{
    if (found->has_offset && fabs(found->offset_seconds) > CLOCK_MOST)
        inspect_note(found, "its clock is %.1f s %s ours: times in logs will not fit; say 'timedatectl set-ntp true' there",
                     fabs(found->offset_seconds), found->offset_seconds > 0 ? "ahead of" : "behind");
}

/* ---- connect-back ---- */

static void split(const char *address, char host[128], char port[16])
{
    const char *colon = strrchr(address, ':');
    size_t length = colon ? (size_t)(colon - address) : strlen(address);
    bool bracketed = address[0] == '[' && length > 2;
    snprintf(host, 128, "%.*s", (int)(length - (bracketed ? 2 : 0)), address + bracketed);
    snprintf(port, 16, "%.15s", colon ? colon + 1 : "0");
    if (strspn(host, PROFILE_NAME_LETTERS ":%") != strlen(host) || strspn(port, "0123456789") != strlen(port))
        host[0] = port[0] = '\0'; /* it goes into a script */
}

char *inspect_listen_script(const char *listen, unsigned seconds)
{
    char host[128], port[16];
    split(listen, host, port);
    /* It waits for a caller or for the end of its input: who gives up leaves nothing behind on the host. */
    return mem_format("perl -MSocket -e '$|=1; my ($h,$p)=@ARGV; my $a=inet_aton($h) or do { print \"error no address\\n\"; exit }; "
                      "socket(my $s,PF_INET,SOCK_STREAM,0); setsockopt($s,SOL_SOCKET,SO_REUSEADDR,1); "
                      "bind($s,sockaddr_in($p,$a)) or do { print \"error $!\\n\"; exit }; listen($s,5); "
                      "my ($q)=sockaddr_in(getsockname($s)); print \"port $q\\n\"; "
                      "my $f=\"\"; vec($f,0,1)=1; vec($f,fileno($s),1)=1; select($f,undef,undef,%u)>0 and vec($f,fileno($s),1) or exit; "
                      "accept(my $c,$s); syswrite($c,\"kedge\\n\"); sleep 1' '%s' '%s'", seconds, host, port);
}

char *inspect_dial_script(const char *address)
{
    char host[128], port[16];
    split(address, host, port);
    return mem_format("perl -MSocket -e 'my ($h,$p)=@ARGV; alarm(8); $SIG{ALRM}=sub { print STDERR \"no answer\\n\"; exit 1 }; "
                      "my $a=inet_aton($h) or do { print STDERR \"no such name\\n\"; exit 1 }; socket(my $s,PF_INET,SOCK_STREAM,0); "
                      "connect($s,sockaddr_in($p,$a)) or do { print STDERR \"$!\\n\"; exit 1 }; my $w=<$s>; "
                      "$w eq \"kedge\\n\" or do { print STDERR \"somebody else answers there\\n\"; exit 1 };' '%s' '%s'", host, port);
}

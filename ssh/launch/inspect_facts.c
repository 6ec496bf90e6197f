#include "ssh/launch/inspect_facts.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ssh/base/mem.h"
#include "ssh/base/text.h"
#include "ssh/launch/needed.h"

#define CLOCK_MOST 1.0 /* seconds apart; certificates and logs bear that much */
#define OPEN_FILES 1024
#define BF16_CAPABILITY 80 /* of CUDA: 8.0 */

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

char *inspect_facts_script(const char *peer)
{
    bool usable = strspn(peer, PROFILE_NAME_LETTERS ":%") == strlen(peer); /* it goes into a script */
    /* Nothing is made here: looking leaves no folder behind, and two who look at once do not take one from each other. */
    return mem_format("N='%s'; %s", usable ? peer : "", "for f in \"$R\" \"$D\"; do p=$f; until [ -e \"$p\" ]; do p=$(dirname \"$p\"); done; "
           "[ -d \"$p\" ] && [ -w \"$p\" ] || { echo \"cannot make $f: this login may not write in $p\" >&2; exit 1; }; done; "
           "echo \"os=$(. /etc/os-release 2>/dev/null && echo \"$PRETTY_NAME\")\"; "
           "echo \"machine=$(uname -m)\"; echo \"glibc=$(getconf GNU_LIBC_VERSION 2>/dev/null)\"; echo \"cpus=$(nproc 2>/dev/null)\"; "
           "echo \"memory=$(sed -n 's/^MemAvailable: *\\([0-9]*\\).*/\\1/p' /proc/meminfo 2>/dev/null)\"; "
           "echo \"disk=$(df -Pk \"$p\" | tail -n 1 | { read -r a b c d e; echo $d; })\"; "
           "n=$(ulimit -Hn); [ \"$n\" = unlimited ] && n=1048576; echo \"files=$n\"; "
           "for c in tar dd flock setsid; do command -v $c >/dev/null || echo \"lacks=$c\"; done; "
           /* W KEY WORD: is it in that list of logind? Its files may be anywhere, and its defaults are those of the distribution. */
           "if command -v loginctl >/dev/null; then u=$(id -un); "
           "k=$(loginctl show-session -p KillUserProcesses -p KillOnlyUsers -p KillExcludeUsers 2>/dev/null); "
           "W() { echo \"$k\" | sed -n \"s/^$1=//p\" | tr ' ' '\\n' | grep -qxF \"$2\"; }; "
           "if W KillUserProcesses yes && ! W KillExcludeUsers \"$u\" && "
           "{ ! echo \"$k\" | grep -q '^KillOnlyUsers=.' || W KillOnlyUsers \"$u\"; } && "
           "loginctl show-user \"$u\" -p Linger 2>/dev/null | grep -qx Linger=no; then echo kills=1; fi; fi; "
           "if command -v nvidia-smi >/dev/null; then nvidia-smi "
           "--query-gpu=name,memory.total,memory.free,driver_version,compute_cap --format=csv,noheader,nounits 2>/dev/null | sed 's/^/gpu=/'; "
           "echo \"gpu_users=$(nvidia-smi --query-compute-apps=pid --format=csv,noheader 2>/dev/null | grep -c .)\"; fi; "
           "if [ -n \"$N\" ] && command -v ip >/dev/null; then a=$(getent ahosts \"$N\" 2>/dev/null | { read -r x y; echo \"$x\"; }); "
           "echo \"interface=$(ip -o route get \"${a:-$N}\" 2>/dev/null | "
           "sed -n 's/.* dev \\([^ ]*\\).* src \\([^ ]*\\).*/\\1 \\2/p' | head -n 1)\"; fi; :");
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
                 {"interface", found->interface, sizeof found->interface, NULL},
                 {"glibc", found->glibc, sizeof found->glibc, NULL}, {"cpus", NULL, 0, &found->cpus},
                 {"memory", NULL, 0, &found->memory_kib},            {"disk", NULL, 0, &found->disk_free_kib},
                 {"files", NULL, 0, &found->open_files},             {"used", NULL, 0, &found->room.used},
                 {"missing", NULL, 0, &found->room.missing}};
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

/* "7.5" → 75; 0 = not known. */
static int capability_of(const char *text)
{
    int major, minor;
    return sscanf(text, "%d.%d", &major, &minor) == 2 ? major * 10 + minor : 0;
}

static void judge_gpus(struct inspect_host *found, bool bf16)
{
    for (int i = 0; i < found->gpu_count; i++) {
        int capability = capability_of(found->gpus[i].compute);
        if (bf16 && capability && capability < BF16_CAPABILITY)
            inspect_note(found, "its GPU %s has compute capability %s, and bf16 wants 8.0: set train.precision = fp32, or take a newer GPU",
                         found->gpus[i].name, found->gpus[i].compute);
    }
    if (found->gpu_users)
        inspect_note(found, "%d other programs use its GPU (nvidia-smi lists them): end them, or there may be too little memory",
                     found->gpu_users);
}

/* The budget bounds what kedge has there in the end, and what it leaves must be free. */
static void judge_disk(struct inspect_host *found)
{
    char has[32], may[32], left[32];
    struct why why = {0};
    uint64_t budget_kib = found->host->disk_budget / 1024;
    if (room_check(found->host, &found->room, &why) != 0)
        inspect_problem(found, "%s", why.text);
    else if (found->disk_free_kib && budget_kib > found->room.used && budget_kib - found->room.used > found->disk_free_kib)
        inspect_problem(found, "kedge may have %s of its disk (disk_budget) and has %s, but only %s are free: lower the budget, or delete "
                        "something there", text_from_bytes(found->host->disk_budget, may, sizeof may),
                        text_from_bytes(found->room.used * 1024, has, sizeof has),
                        text_from_bytes(found->disk_free_kib * 1024, left, sizeof left));
}

void inspect_judge(struct inspect_host *found, const struct inspect_needs *needs, const char *our_glibc)
{
    char has[32], wanted[32], text[INSPECT_WORD];
#if defined(__x86_64__)
    static const char ours[] = "x86_64";
#else
    static const char ours[] = "aarch64";
#endif
    unsigned theirs = needed_version(found->glibc), mine = needed_version(our_glibc);
    if (found->machine[0] && strcmp(found->machine, ours) != 0)
        inspect_problem(found, "it is a %s: programs for %s do not run there", found->machine, ours);
    if (!theirs)
        inspect_problem(found, "its C library is no glibc that can be seen; the programs need glibc, as Debian and Ubuntu have it");
    else if (needed_is_more(needs->glibc, found->glibc, text, sizeof text))
        inspect_problem(found, "%s", text);
    else if (!needs->glibc && mine && theirs < mine)
        inspect_note(found, "its %s is older than the glibc %s here: the start tries whether the programs run; if not, build kedge on a "
                     "system as old as that", found->glibc, our_glibc);
    if (found->disk_free_kib && found->disk_free_kib < needs->disk_kib)
        inspect_problem(found, "%s free on its disk, up to %s are needed: delete something there, or set XDG_DATA_HOME to a larger disk",
                        text_from_bytes(found->disk_free_kib * 1024, has, sizeof has),
                        text_from_bytes(needs->disk_kib * 1024, wanted, sizeof wanted));
    if (found->host && found->host->disk_budget)
        judge_disk(found);
    if (found->open_files && found->open_files < OPEN_FILES)
        inspect_problem(found, "only %" PRIu64 " open files are allowed (ulimit -Hn): raise nofile in /etc/security/limits.conf to %d",
                        found->open_files, OPEN_FILES);
    judge_gpus(found, needs->bf16);
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

/* ---- how fast a road is ---- */

char *inspect_measure_script(const char *way, const char *address, unsigned seconds)
{
    char host[128], port[16];
    split(address, host, port);
    /* Both ends have both halves. give: bursts that double until a second is over, each "BYTES\n" and so many, answered with the rate at which
     * its second half arrived; "0\n" ends. take: the other half. A listener waits for a caller or for the end of its input, and for a
     * port of its own that the listener before it lets go of. */
    return mem_format(
        "perl -MSocket -MTime::HiRes=time -e '$|=1; $SIG{PIPE}=\"IGNORE\"; my ($w,$h,$p,$t)=@ARGV; "
        "$SIG{ALRM}=sub { print STDERR \"no answer within $t s\\n\"; exit 1 }; alarm($t); my $c; my $z=\"\\0\"x65536; "
        "my $a=inet_aton($h) or do { print STDERR \"no such name\\n\"; exit 1 }; socket(my $s,PF_INET,SOCK_STREAM,0); "
        "sub put { my ($d,$o)=(shift,0); while ($o<length $d) { my $n=syswrite($c,$d,length($d)-$o,$o); defined $n or exit 1; $o+=$n } } "
        "sub line { my ($l,$b)=(\"\"); while (sysread($c,$b,1)) { return $l if $b eq \"\\n\"; $l.=$b; length $l<100 or exit 1 } exit 1 } "
        "sub give { my ($n,$r,$b)=(65536,0,time); while (time-$b<1 && $n<=8388608) { put(\"$n\\n\"); put($z) for 1..$n/65536; "
        "$r=line(); $n*=2 } put(\"0\\n\"); return $r } "
        "sub take { my ($n,$r); while (($n=line())>0) { my ($g,$m,$f,$b)=(0,0,0); while ($g<$n) { "
        "my $k=sysread($c,$b,$n-$g<65536 ? $n-$g : 65536) or exit 1; $g+=$k; ($m,$f)=(time,$g) if !$m && $g>=$n/2 } "
        "my $e=time-$m; $r=sprintf(\"%%.0f\",($n-$f+1)/($e>1e-6 ? $e : 1e-6)); put(\"$r\\n\") } return $r } "
        "if ($w eq \"listen\") { setsockopt($s,SOL_SOCKET,SO_REUSEADDR,1); my $i=0; until (bind($s,sockaddr_in($p,$a))) { "
        "$i++<150 or do { print \"error $!\\n\"; exit }; select(undef,undef,undef,.1) } listen($s,5); my ($q)=sockaddr_in(getsockname($s)); print \"port $q\\n\"; my $f=\"\"; vec($f,0,1)=1; vec($f,fileno($s),1)=1; "
        "select($f,undef,undef,$t)>0 and vec($f,fileno($s),1) or exit; accept($c,$s); setsockopt($c,6,1,1); put(\"kedge\\n\"); "
        "for (;;) { my $o=line(); if ($o eq \"p\") { put(\"p\\n\") } elsif ($o eq \"u\") { take() } else { give(); exit } } } "
        "connect($s,sockaddr_in($p,$a)) or do { print STDERR \"$!\\n\"; exit 1 }; $c=$s; setsockopt($c,6,1,1); "
        "line() eq \"kedge\" or do { print STDERR \"somebody else answers there\\n\"; exit 1 }; my $x=9e9; "
        "for (1..5) { my $b=time; put(\"p\\n\"); line(); my $k=time-$b; $x=$k if $k<$x } "
        "put(\"u\\n\"); my $u=give(); put(\"d\\n\"); my $d=take(); printf(\"rtt %%.6f up %%s down %%s\\n\",$x<1e-6 ? 1e-6 : $x,$u,$d);' "
        "'%s' '%s' '%s' %u", way, host, port, seconds);
}

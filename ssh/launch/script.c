#include "ssh/launch/script.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ssh/base/mem.h"
#include "ssh/base/text.h"

#define GPU_SPARE_MIB "256" /* a driver that stays loaded */

/* The living processes whose environment has the mark of a run: "PID START NAME" each. I: ids, separated by '|'. */
#define LIST_LIVING                                                                                                         \
    "L() { grep -lzxE \"KEDGE_RUN=($I)\" /proc/[0-9]*/environ 2>/dev/null | while IFS=/ read -r x y p z; do "               \
    "s=$(sed 's/.*) //' /proc/$p/stat 2>/dev/null) || continue; set -- $s; "                                                \
    "case $1 in Z|X|'') continue;; esac; "                                                                                  \
    "shift 19 2>/dev/null || continue; n=$(cat /proc/$p/comm 2>/dev/null); echo \"$p $1 $n\"; done; }; "

char *script_of_run(const char *run, const char *script)
{
    return mem_format("export LC_ALL=C; umask 077; R=${XDG_STATE_HOME:-$HOME/.local/state}/kedge/%s; "
                      "D=${XDG_DATA_HOME:-$HOME/.local/share}/kedge; %s", run, script);
}

char *script_look(const char *run, const char *host, uint64_t run_id)
{
    char *look = mem_format(
        "mkdir -p \"$R/log\" \"$R/creds\" \"$D\" || exit 1; chmod 700 \"$R\" || exit 1; "
        "[ \"$(stat -c %%u \"$R\")\" = \"$(id -u)\" ] || { echo \"$R belongs to somebody else\" >&2; exit 1; }; "
        "echo \"run=$R\"; echo \"data=$D\"; "
        "echo \"os=$(. /etc/os-release 2>/dev/null && echo \"$PRETTY_NAME\")\"; echo \"machine=$(uname -m)\"; "
        "echo \"glibc=$(getconf GNU_LIBC_VERSION 2>/dev/null)\"; "
        "echo \"nonce=$(head -c 16 \"$R/nonce@%s\" 2>/dev/null | tr -cd 0-9a-f)\"; "
        "I=$(head -c 16 \"$R/run.id\" 2>/dev/null | tr -cd 0-9a-f); " LIST_LIVING
        "if [ -n \"$I\" ] && [ \"$I\" != %016" PRIx64 " ]; then echo \"old=$I\"; L | { c=0; while read -r p s n; do c=$((c+1)); q=$p; "
        "done; echo \"living=$c\"; echo \"pid=${q:-0}\"; }; fi; for c in tar dd flock setsid; do command -v $c >/dev/null || echo \"lacks=$c\"; done",
        host, run_id);
    char *whole = script_of_run(run, look);
    mem_free(look);
    return whole;
}

static bool set_fact(struct script_facts *facts, const char *key, const char *value, char *lacks, size_t lacks_size)
{
    const struct {
        const char *key;
        char *to;
        size_t size;
    } texts[] = {{"run", facts->run, sizeof facts->run},       {"data", facts->data, sizeof facts->data},
                 {"os", facts->os, sizeof facts->os},          {"machine", facts->machine, sizeof facts->machine},
                 {"glibc", facts->glibc, sizeof facts->glibc}, {"lacks", lacks, lacks_size}};
    uint64_t number;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (strcmp(key, texts[i].key) == 0) {
            text_harmless(value, strlen(value), texts[i].to, texts[i].size);
            return true;
        }
    if (strcmp(key, "old") == 0)
        facts->old_run_id = strtoull(value, NULL, 16);
    else if (strcmp(key, "nonce") == 0)
        facts->nonce = strtoull(value, NULL, 16);
    else if (text_to_u64(value, &number) != 0)
        return false;
    else if (strcmp(key, "living") == 0)
        facts->old_living = number > 10000 ? 10000 : (int)number;
    else if (strcmp(key, "pid") == 0)
        facts->old_pid = number > INT32_MAX ? 0 : (long)number;
    else
        return false;
    return true;
}

int script_read_facts(const char *output, struct script_facts *facts, struct why *why)
{
    char *copy = mem_text(output), *rest = copy, lacks[40] = "", shown[200];
    int err = 0;
    memset(facts, 0, sizeof *facts);
    for (char *line; !err && (line = strsep(&rest, "\n"));) {
        char *equals = strchr(line, '=');
        if (!*line)
            continue;
        if (equals)
            *equals = '\0';
        if (!equals || !set_fact(facts, line, equals + 1, lacks, sizeof lacks))
            err = why_set(why, ERR_INVALID, "answered '%s' when it was looked at",
                          text_harmless(line, strlen(line), shown, sizeof shown));
    }
    mem_free(copy);
    if (!err && (facts->run[0] != '/' || facts->data[0] != '/'))
        err = why_set(why, ERR_INVALID, "has no place for a run: HOME, XDG_STATE_HOME and XDG_DATA_HOME must be absolute paths there");
    if (!err && strpbrk(facts->data, " \t'*?["))
        err = why_set(why, ERR_INVALID, "keeps what runs share in '%s', a name with blanks or stars: set XDG_DATA_HOME there", facts->data);
    if (!err && lacks[0])
        err = why_set(why, ERR_INVALID, "lacks the program %s: apt-get install coreutils tar util-linux", lacks);
    return err;
}

char *script_gpu(const char *host)
{
    return mem_format(
        "b=$(head -n 1 \"$R/gpu@%s\" 2>/dev/null | tr -cd 0-9); t=0; while [ -n \"$b\" ] && command -v nvidia-smi >/dev/null && "
        "u=$(timeout 10 nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits 2>/dev/null | grep -E '^ *[0-9]+ *$' | "
        "{ s=0; while read -r x; do s=$((s+x)); done; echo $s; }) && [ $((u-b)) -gt " GPU_SPARE_MIB " ]; do "
        "[ $t -lt 20 ] || { echo \"holds $((u-b))\"; exit 0; }; sleep 0.5; t=$((t+1)); done; rm -f \"$R/gpu@%s\"; ", host, host);
}

char *script_clean(const char *run, const char *host, const struct nonce *nonce, uint64_t run_id, unsigned grace_s)
{
    char ours[160] = "true", *gpu = script_gpu(host);
    if (nonce->word)
        snprintf(ours, sizeof ours, "[ \"$(head -c 16 \"$R/nonce@%.64s\" 2>/dev/null)\" = %016" PRIx64 " ]", host, nonce->word);
    /* K SIGNAL: whoever was listed, if the number still belongs to the same process. Every half second somebody is waited for. */
    char *clean = mem_format(
        "I=%016" PRIx64 "; " LIST_LIVING
        "if %s; then m=1; o=$(head -c 16 \"$R/run.id\" 2>/dev/null | tr -cd 0-9a-f); [ -z \"$o\" ] || I=\"$I|$o\"; "
        "else m=; %s[ -n \"$(L)\" ] || { echo stranger; exit 0; }; fi; "
        "K() { L | while read -r p s n; do kill -$1 $p 2>/dev/null; done; }; "
        "c=$(L | wc -l); t=0; [ $c = 0 ] || K TERM; "
        "while w=$(L | head -n 1); [ -n \"$w\" ]; do "
        "[ $t -lt %u ] || K KILL; [ $t -lt %u ] || { echo \"left $(L | wc -l) ${w%%%% *} ${w##* }\"; exit 0; }; "
        "[ $((t %% 4)) != 1 ] || echo \"waiting ${w%%%% *} ${w##* }\"; sleep 0.5; t=$((t+1)); done; "
        "[ -n \"$m\" ] || { echo \"gone $c\"; exit 0; }; "
        "for f in \"$R\"/agent@*.lock \"$R/kedged.lock\"; do [ ! -e \"$f\" ] || ! flock -n \"$f\" true || rm -f \"$f\"; done; "
        "[ $c = 0 ] && [ -e \"$R/kedged.lock\" ] || rm -f \"$R/kedged.sock\"; %secho \"gone $c\"",
        run_id, ours, nonce->left ? "" : "true || ", 2 * grace_s, 2 * grace_s + 10, gpu);
    mem_free(gpu);
    char *whole = script_of_run(run, clean);
    mem_free(clean);
    return whole;
}

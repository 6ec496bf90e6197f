#include "scheduler/probe.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "scheduler/folder.h"
#include "ssh/base/file.h"
#include "ssh/base/mem.h"
#include "ssh/base/text.h"

#define PROBE_BYTES 8192
#define PROBE_SECONDS 60

/* All that the program prints, up to the room; its alarm bounds the time. */
static int read_output(const char *const *argv, char *out, size_t size, int *status, struct why *why)
{
    int ends[2];
    if (pipe(ends) < 0)
        return why_errno(why, "cannot run %s", argv[0]);
    pid_t child = fork();
    if (child < 0) {
        close(ends[0]);
        close(ends[1]);
        return why_errno(why, "cannot run %s", argv[0]);
    }
    if (child == 0) {
        alarm(PROBE_SECONDS);
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
        execv(argv[0], (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    close(ends[1]);
    size_t used = 0;
    ssize_t got;
    while (used < size - 1 && ((got = read(ends[0], out + used, size - 1 - used)) > 0 || (got < 0 && errno == EINTR)))
        used += got > 0 ? (size_t)got : 0;
    out[used] = '\0';
    close(ends[0]);
    while (waitpid(child, status, 0) < 0 && errno == EINTR)
        continue;
    return 0;
}

static int take_lines(struct profile *profile, char *lines, struct why *why)
{
    char shown[200], *rest = lines;
    for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
        char *equals = strchr(line, '=');
        text_harmless(line, strlen(line), shown, sizeof shown);
        if (line[0] == '\0')
            continue;
        if (strncmp(line, "error ", 6) == 0)
            return why_set(why, ERR_INVALID, "%s", shown + 6);
        if (!equals || (strncmp(line, "model.", 6) != 0 && strncmp(line, "lora.", 5) != 0))
            return why_set(why, ERR_INVALID, "kedge-worker probe said '%s' about %s: is it of this version?", shown,
                           profile->model_path);
        *equals = '\0';
        if (strcmp(line, "model.head") == 0 && profile_line(profile, line))
            continue; /* a choice, not only a fact: a tied head may be trained on its own */
        int err = profile_set(profile, line, equals + 1, why);
        if (err < 0)
            return err;
    }
    return 0;
}

int probe_model(struct profile *profile, struct why *why)
{
    char folder[FOLDER_PATH], program[FOLDER_PATH + 16], lines[PROBE_BYTES];
    int status = 0;
    int err = file_program_folder(folder, sizeof folder, why);
    if (err < 0)
        return err;
    snprintf(program, sizeof program, "%s/kedge-worker", folder);
    const char *const argv[] = {program, "probe", profile->model_path, profile->lora_path[0] ? profile->lora_path : NULL, NULL};
    err = read_output(argv, lines, sizeof lines, &status, why);
    if (err < 0)
        return err;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
        return why_set(why, ERR_ABSENT, "%s cannot be run; it belongs into the folder of kedged", program);
    struct profile *shaped = mem_copy(profile, sizeof *profile);
    err = take_lines(shaped, lines, why);
    if (err == 0 && (!WIFEXITED(status) || WEXITSTATUS(status) != 0))
        err = why_set(why, ERR_INVALID, "model.path: %s is no checkpoint that kedge-worker can read", profile->model_path);
    if (err == 0)
        *profile = *shaped;
    mem_free(shaped);
    return err;
}

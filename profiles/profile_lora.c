/* lora.targets: letters of the matrices of a layer, and the bits that stand for them. */
#include "profiles/profile.h"

#include <stdio.h>
#include <string.h>

static const char *const letters[PROFILE_LORA_TARGETS] = {
    [PROFILE_LORA_Q] = "q",       [PROFILE_LORA_K] = "k",   [PROFILE_LORA_V] = "v",      [PROFILE_LORA_O] = "o",
    [PROFILE_LORA_GATE] = "gate", [PROFILE_LORA_UP] = "up", [PROFILE_LORA_DOWN] = "down"};

uint32_t profile_lora_targets(const char *text)
{
    uint32_t targets = 0;
    while (*text) {
        size_t blanks = strspn(text, " \t,"), length = strcspn(text + blanks, " \t,");
        int target = 0;
        text += blanks;
        while (target < PROFILE_LORA_TARGETS && (strlen(letters[target]) != length || memcmp(letters[target], text, length) != 0))
            target++;
        if (length && target == PROFILE_LORA_TARGETS)
            return 0;
        targets |= length ? 1u << target : 0;
        text += length;
    }
    return targets;
}

void profile_lora_letters(uint32_t targets, char *out, size_t size)
{
    size_t used = 0;
    memset(out, 0, size);
    for (int target = 0; target < PROFILE_LORA_TARGETS; target++)
        if (targets & 1u << target && used < size)
            used += (size_t)snprintf(out + used, size - used, "%s%s", used ? "," : "", letters[target]);
}

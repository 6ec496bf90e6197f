#include "ssh/session/hostkey.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "ssh/base/mem.h"
#include "ssh/link/digest.h"
#include "ssh/session/blob.h"

#define ART_WIDTH 17
#define ART_HEIGHT 9

static const char *const all_types[] = {
    "ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521", "rsa-sha2-512", "rsa-sha2-256",
    "ssh-rsa"};

char *hostkey_print(const uint8_t *key, size_t bytes, char out[HOSTKEY_PRINT])
{
    uint8_t digest[DIGEST_SHA256];
    digest_sha256(key, bytes, digest);
    memcpy(out, "sha256:", 7);
    blob_to_base64(digest, sizeof digest, out + 7, HOSTKEY_PRINT - 7);
    out[strcspn(out, "=")] = '\0';
    return out;
}

static void type_of(const uint8_t *key, size_t bytes, char out[64])
{
    struct blob blob = {key, bytes}, type;
    if (!blob_string(&blob, &type) || type.left > 60)
        type = (struct blob){(const uint8_t *)"unknown", 7};
    snprintf(out, 64, "%.*s", (int)type.left, (const char *)type.at);
}

char *hostkey_words(const uint8_t *key, size_t bytes, char *out, size_t size)
{
    char type[64], print[HOSTKEY_PRINT];
    type_of(key, bytes, type);
    snprintf(out, size, "%s %s", type, hostkey_print(key, bytes, print));
    return out;
}

/* The drunken bishop walks over the board, two bits a step, and the more often he was on a field the heavier is its
 * letter. */
static void walk(const uint8_t digest[DIGEST_SHA256], uint8_t board[ART_HEIGHT][ART_WIDTH], int *x, int *y)
{
    *x = ART_WIDTH / 2;
    *y = ART_HEIGHT / 2;
    for (int step = 0; step < 4 * DIGEST_SHA256; step++) {
        int bits = digest[step / 4] >> (2 * (step % 4));
        *x += bits & 1 ? 1 : -1;
        *y += bits & 2 ? 1 : -1;
        *x = *x < 0 ? 0 : *x >= ART_WIDTH ? ART_WIDTH - 1 : *x;
        *y = *y < 0 ? 0 : *y >= ART_HEIGHT ? ART_HEIGHT - 1 : *y;
        board[*y][*x]++;
    }
}

/* "+---[ED25519 256]---+": the title in the middle, shortened as ssh-keygen does. */
static char *art_border(char *at, const char *title)
{
    int length = (int)strlen(title), left = (ART_WIDTH - length) / 2;
    *at++ = '+';
    memset(at, '-', ART_WIDTH);
    memcpy(at + left, title, (size_t)length);
    at += ART_WIDTH;
    *at++ = '+';
    return at;
}

/* Bits of an RSA modulus: ssh-rsa, exponent, modulus. */
static unsigned rsa_bits(const uint8_t *key, size_t bytes)
{
    struct blob blob = {key, bytes}, type, exponent, modulus;
    if (!blob_string(&blob, &type) || !blob_string(&blob, &exponent) || !blob_string(&blob, &modulus))
        return 0;
    while (modulus.left && *modulus.at == 0)
        blob_skip(&modulus, 1);
    unsigned bits = (unsigned)modulus.left * 8;
    for (int high = modulus.left ? *modulus.at : 0x80; !(high & 0x80); high <<= 1)
        bits--;
    return bits;
}

static void art_title(const uint8_t *key, size_t bytes, char out[ART_WIDTH + 1])
{
    char type[64];
    type_of(key, bytes, type);
    if (strcmp(type, "ssh-ed25519") == 0)
        snprintf(out, ART_WIDTH + 1, "[ED25519 256]");
    else if (strncmp(type, "ecdsa-sha2-nistp", 16) == 0)
        snprintf(out, ART_WIDTH + 1, "[ECDSA %.3s]", type + 16);
    else if (strcmp(type, "ssh-rsa") == 0)
        snprintf(out, ART_WIDTH + 1, "[RSA %u]", rsa_bits(key, bytes) % 100000);
    else
        snprintf(out, ART_WIDTH + 1, "[KEY]");
}

char *hostkey_art(const uint8_t *key, size_t bytes, char out[HOSTKEY_ART])
{
    char title[ART_WIDTH + 1];
    static const char marks[] = " .o+=*BOX@%&#/^";
    uint8_t digest[DIGEST_SHA256], board[ART_HEIGHT][ART_WIDTH] = {{0}};
    int x, y;
    digest_sha256(key, bytes, digest);
    walk(digest, board, &x, &y);
    art_title(key, bytes, title);
    char *at = art_border(out, title);
    for (int row = 0; row < ART_HEIGHT; row++) {
        *at++ = '\n';
        *at++ = '|';
        for (int column = 0; column < ART_WIDTH; column++) {
            size_t visits = board[row][column];
            bool start = row == ART_HEIGHT / 2 && column == ART_WIDTH / 2, end = row == y && column == x;
            *at++ = end ? 'E' : start ? 'S' : marks[visits < sizeof marks - 2 ? visits : sizeof marks - 2];
        }
        *at++ = '|';
    }
    *at++ = '\n';
    at = art_border(at, "[SHA256]");
    *at = '\0';
    return out;
}

bool hostkey_is_pin(const char *text)
{
    uint8_t digest[DIGEST_SHA256 + 3];
    return strncasecmp(text, "sha256:", 7) == 0 &&
           blob_from_base64(text + 7, strlen(text + 7), digest, sizeof digest) == DIGEST_SHA256;
}

static bool pin_matches(const char *pin, const char *print)
{
    size_t length = strcspn(pin, "=");
    return strlen(print) == length && strncasecmp(pin, print, 7) == 0 && strncmp(pin + 7, print + 7, length - 7) == 0;
}

static int look_everywhere(const struct hostkey_policy *policy, struct known *known, struct why *why)
{
    for (int i = 0; i < HOSTKEY_FILES; i++)
        if (policy->files[i][0] && known_look_in(known, policy->files[i], why) != 0)
            return why->err;
    return policy->save[0] ? known_look_in(known, policy->save, why) : 0;
}

static int refuse_changed(const struct known *known, const char *words, struct why *why)
{
    char old[160] = "", list[220] = "";
    const struct known_key *first = &known->old[0];
    if (known->old_count)
        hostkey_words(first->key, first->bytes, old, sizeof old);
    if (known->old_count > 1)
        snprintf(list, sizeof list, " and %d more", known->old_count - 1);
    why_set(why, ERR_REFUSED,
            "the key of %s has CHANGED: on file is %s (%s%s), now it shows %s. Somebody may be in between. If you "
            "know that the host was made anew, remove that line (ssh-keygen -R '%s') and connect again",
            known->name, old, first->place, list, words, known->name);
    return HOSTKEY_REFUSED;
}

int hostkey_judge(const struct hostkey_policy *policy, const char *host, uint16_t port, const uint8_t *key, size_t bytes,
                  struct known *known, struct why *why)
{
    char words[160], print[HOSTKEY_PRINT];
    struct known *mine = known ? known : mem_new(sizeof *mine);
    int result = HOSTKEY_TRUSTED;
    known_init(mine, host, port, key, bytes);
    hostkey_words(key, bytes, words, sizeof words);
    hostkey_print(key, bytes, print);
    if (policy->pin[0]) {
        if (!pin_matches(policy->pin, print)) {
            why_set(why, ERR_REFUSED,
                    "%s shows the key %s, but host_key = %s is pinned: this is another host, or the pin is old", mine->name,
                    words, policy->pin);
            result = HOSTKEY_REFUSED;
        }
        goto out;
    }
    result = look_everywhere(policy, mine, why);
    if (result)
        goto out;
    if (mine->verdict == KNOWN_REVOKED) {
        why_set(why, ERR_REFUSED, "the key of %s, %s, is marked as revoked in %s: do not connect", mine->name, words,
                mine->place);
        result = HOSTKEY_REFUSED;
    } else if (mine->verdict == KNOWN_CHANGED) {
        result = refuse_changed(mine, words, why);
    } else if (mine->verdict == KNOWN_NOT) {
        why_set(why, ERR_REFUSED,
                "the key of %s is not known: it shows %s. Compare it with what the host itself or its provider says "
                "(ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub), then pin it with host_key = %s, or use --accept-new",
                mine->name, words, print);
        result = HOSTKEY_UNKNOWN;
    }
out:
    if (!known)
        mem_free(mine);
    return result;
}

int hostkey_save(const struct hostkey_policy *policy, const char *host, uint16_t port, const uint8_t *key, size_t bytes,
                 struct why *why)
{
    char name[300];
    if (!policy->save[0])
        return 0;
    known_name(host, port, name);
    return known_append(policy->save, name, key, bytes, why);
}

static void append_type(char *out, size_t size, const char *type)
{
    size_t used = strlen(out);
    snprintf(out + used, size - used, "%s%s", used ? "," : "", type);
}

void hostkey_types(const struct hostkey_policy *policy, const char *host, uint16_t port, char *out, size_t size)
{
    struct known *known = mem_new(sizeof *known);
    bool on_file[sizeof all_types / sizeof *all_types] = {false};
    known_init(known, host, port, NULL, 0);
    if (!policy->pin[0])
        look_everywhere(policy, known, &(struct why){0});
    out[0] = '\0';
    for (size_t i = 0; i < sizeof all_types / sizeof *all_types; i++) {
        const char *kind = strncmp(all_types[i], "rsa-", 4) == 0 ? "ssh-rsa" : all_types[i];
        for (int j = 0; j < known->old_count; j++)
            on_file[i] |= strcmp(known->old[j].type, kind) == 0;
        if (on_file[i])
            append_type(out, size, all_types[i]);
    }
    for (size_t i = 0; i < sizeof all_types / sizeof *all_types; i++)
        if (!on_file[i])
            append_type(out, size, all_types[i]);
    mem_free(known);
}

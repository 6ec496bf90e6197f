#include "tests/helpers/message.h"

#include <string.h>

#include "ssh/base/mem.h"

void message_text(struct dice *dice, char *out, size_t size)
{
    static const char *const rare[] = {"é", "→", "…", "漢", "🜨", "ß"};
    size_t used = 0, wanted = dice_below(dice, 4) ? dice_below(dice, size) : size - 1;
    while (used < wanted) {
        const char *piece = rare[dice_below(dice, sizeof rare / sizeof *rare)];
        char plain[2] = {(char)(0x20 + dice_below(dice, 0x5f)), 0};
        if (dice_below(dice, 8) || used + strlen(piece) > wanted)
            piece = plain;
        memcpy(out + used, piece, strlen(piece));
        used += strlen(piece);
    }
    out[used] = 0;
}

static void fill_number(struct dice *dice, const struct wire_field *field, char *out)
{
    uint64_t value = dice_u64(dice);
    if (dice_below(dice, 8) == 0)
        value = dice_below(dice, 2) ? 0 : UINT64_MAX;
    if (field->least || field->most)
        value = field->least + dice_below(dice, field->most - field->least + 1);
    memcpy(out, &value, field->size);
}

void *message_random(struct dice *dice, const struct wire_message *message, size_t tail_max)
{
    char *payload = mem_new(message->struct_bytes);
    for (size_t i = 0; i < message->field_count; i++) {
        const struct wire_field *field = &message->fields[i];
        char *at = payload + field->offset;
        if (field->kind == WIRE_STRING) {
            message_text(dice, at, field->size);
        } else if (field->kind == WIRE_TAIL) {
            struct wire_bytes tail = {.bytes = (uint32_t)dice_below(dice, tail_max + 1)};
            uint8_t *data = mem_new(tail.bytes + 1u);
            dice_bytes(dice, data, tail.bytes);
            tail.data = data;
            memcpy(at, &tail, sizeof tail);
        } else {
            fill_number(dice, field, at);
        }
    }
    return payload;
}

void message_free(const struct wire_message *message, void *payload)
{
    for (size_t i = 0; i < message->field_count; i++)
        if (message->fields[i].kind == WIRE_TAIL) {
            struct { uint8_t *data; uint32_t bytes; } tail;
            memcpy(&tail, (char *)payload + message->fields[i].offset, sizeof tail);
            mem_free(tail.data);
        }
    mem_free(payload);
}

bool message_same(const struct wire_message *message, const void *one, const void *other)
{
    for (size_t i = 0; i < message->field_count; i++) {
        const struct wire_field *field = &message->fields[i];
        const void *here = (const char *)one + field->offset, *there = (const char *)other + field->offset;
        if (field->kind == WIRE_STRING) {
            if (strcmp(here, there) != 0)
                return false;
        } else if (field->kind == WIRE_TAIL) {
            const struct wire_bytes *left = here, *right = there;
            if (left->bytes != right->bytes || (left->bytes && memcmp(left->data, right->data, left->bytes) != 0))
                return false;
        } else if (memcmp(here, there, field->size) != 0) {
            return false;
        }
    }
    return true;
}

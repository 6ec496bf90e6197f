#include "tests/helpers/placed.h"

struct place place;

int placed_up(void **state)
{
    (void)state;
    return place_init(&place);
}

int placed_down(void **state)
{
    (void)state;
    place_clear(&place);
    return 0;
}

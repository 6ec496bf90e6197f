/* A private folder for a test's files: below $TMP when the runner gave one. Cleared by place_clear. */
#ifndef KEDGE_TESTS_PLACE_H
#define KEDGE_TESTS_PLACE_H

struct place {
    char folder[256];
    char path[512]; /* of the newest place_file */
};

int place_init(struct place *place);                                 /* 0, or −1 */
const char *place_file(struct place *place, const char *name);       /* FOLDER/NAME, valid until the next call */
int place_count(const struct place *place);                          /* entries in the folder */
void place_clear(struct place *place);

#endif

/*
 * PowerSGD of one matrix (Vogels, Karimireddy, Jaggi 2019), for pseudo-gradients: instead of M[m,n] a replica sends its projection on r
 * directions that all replicas know, and what did not get through stays with it.
 *
 *   alternating   B orthonormal, known to all; send C = M·B or Mᵀ·B; decoded = mean(C)·Bᵀ or B·mean(C)ᵀ; the next round's B is
 *                 mean(C) made orthonormal, which is of the other side. One exchange a round.
 *   two-sided     send P = M·Q; U = mean(P) made orthonormal; send C = Mᵀ·U; decoded = U·mean(C)ᵀ; the next round's Q is
 *                 mean(C) made orthonormal. Two exchanges a round, one step of power iteration.
 *
 * M is what is given plus the error e that is left of former rounds. Error feedback is local: after a round e = kept·(M − own part),
 * own part being what this replica really added to the mean (with the rounding of the wire). kept = 1 − α when the merge leaves α of the
 * residual in the local weights, where the next pseudo-gradient finds it again. A round that fails is dropped: e and the basis
 * are as before.
 *
 * Replicas must agree to the bit: basis and decoded are functions of mean(C) alone, in scalar loops of a fixed order (modified
 * Gram-Schmidt twice, in fp64). A column that is (almost) in the span of earlier ones is replaced by a Philox column; never is
 * anything added to a norm, which would shrink columns and make B·Bᵀ no projector. Host memory; pure.
 */
#ifndef KEDGE_MATH_POWERSGD_H
#define KEDGE_MATH_POWERSGD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define POWERSGD_RANK_MOST 512

struct powersgd;

struct powersgd_settings {
    int64_t rows, columns, rank;
    bool two_sided;
    uint64_t seed; /* of the first basis and of replaced columns: of the run and the tensor, the same on all replicas */
};

/* Does it send less than the whole matrix? Who is not worth it is sent whole. */
bool powersgd_pays(int64_t rows, int64_t columns, int64_t rank, bool two_sided);

/* settings->rank is the largest that powersgd_set_rank can set. */
struct powersgd *powersgd_new(const struct powersgd_settings *settings); /* NULL: no memory */
void powersgd_free(struct powersgd *powersgd);
uint64_t powersgd_memory(const struct powersgd_settings *settings);

/* ---- one round: begin, then for each exchange contribute → (all replicas' mean) → turn, the last one ends with commit ---- */
int powersgd_exchanges(const struct powersgd *powersgd);
int64_t powersgd_count(const struct powersgd *powersgd, int exchange); /* floats of a contribution in this round */
int64_t powersgd_most_count(const struct powersgd *powersgd, int exchange); /* in any round */
void powersgd_begin(struct powersgd *powersgd, const float *given); /* M = given + e */
void powersgd_contribute(struct powersgd *powersgd, int exchange, float *values);
void powersgd_turn(struct powersgd *powersgd, const float *mean); /* two-sided: after exchange 0 */
/* own: what this replica's contribution to the last exchange decodes to; decoded[m,n] is the agreed result. */
void powersgd_commit(struct powersgd *powersgd, const float *own, const float *mean, float kept, float *decoded);
void powersgd_drop(struct powersgd *powersgd); /* the round failed, in whatever state it is */

/* Between two rounds: fewer directions, the first ones of the basis, or more, new ones drawn. The error stays. */
void powersgd_set_rank(struct powersgd *powersgd, int64_t rank);

const float *powersgd_error(const struct powersgd *powersgd);
void powersgd_set_error(struct powersgd *powersgd, const float *error); /* between two rounds */
/* Of who joins late: [powersgd_basis_count] floats and the number of rounds; its error is zero. */
int64_t powersgd_basis_count(const struct powersgd *powersgd);
int64_t powersgd_rank(const struct powersgd *powersgd); /* that is used; set it before powersgd_join */
const float *powersgd_basis(const struct powersgd *powersgd, uint64_t *rounds);
void powersgd_join(struct powersgd *powersgd, const float *basis, uint64_t rounds);

/* a[rows, rank] in place; rank ≤ rows. `columns` is scratch of rows · rank. The stream makes replaced columns differ from use to use. */
void powersgd_orthonormalize(float *a, int64_t rows, int64_t rank, uint64_t seed, uint64_t stream, double *columns);

#endif

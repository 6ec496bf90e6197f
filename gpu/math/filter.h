/*
 * Spectral correction of one matrix's gradient: what an anchor's clean gradient says about directions decides how much of
 * the noisy gradient passes.
 *
 *   Ĝ = (1 − mix)·G + mix·C(G),      M ≈ U·diag(s)·Vᵀ from the anchor,  X = Uᵀ·G·V
 *
 *   tikhonov   C = U·(d dᵀ∘X)·Vᵀ,  d = s/(s + τ); τ absolute (the published form), or κ·rms of M's spectrum, or κ·σ of the noise
 *   wiener     every coefficient times the share of its bin's energy that two halves of the batch agree on; bins are index
 *              groups {0}, {1}, {2,3}, {4…7}, … of both sides and what lies outside of the basis on the left, on the right, on both
 *   shrink     no anchor: singular values of G itself shrunk by the optimal rule for white noise (Gavish, Donoho 2017), of
 *              which the strongest `rank` are looked at
 *   align      C = Σ max(0, u_iᵀ·G·v_i)·s_i²/(s_i² + τ²)·u_i·v_iᵀ: of every direction what gradient and anchor agree on
 *   gradient   C = M: the anchor's own gradient, in its strongest directions or whole, stale as it is
 *
 * wiener and shrink need `half`, the gradient of the first half of the step's micro-batches, and so does τ or a norm that is
 * measured in noise. The noise of G is then known without bias: E‖G_first − G_second‖² = ‖noise‖².
 *
 * mix = 0 and a missing basis give G bit for bit. A gradient with non-finite entries comes out non-finite, and leaves no
 * trace in the state. Matrices and bases are device memory, small things are host memory; nothing is allocated after
 * filter_new.
 */
#ifndef KEDGE_MATH_FILTER_H
#define KEDGE_MATH_FILTER_H

#include "gpu/math/ops.h"

/* In the order of enum anchor_filter. */
enum filter_kind { FILTER_NONE, FILTER_TIKHONOV, FILTER_WIENER, FILTER_SHRINK, FILTER_ALIGN, FILTER_GRADIENT };
enum filter_scale { FILTER_ABSOLUTE, FILTER_SPECTRUM, FILTER_NOISE };            /* of τ */
/* What the norm of Ĝ becomes: what it is; that of G; that of G without its noise, √(‖G‖² − ν²). */
enum filter_norm { FILTER_NORM_FREE, FILTER_NORM_GRADIENT, FILTER_NORM_SIGNAL };

struct filter_settings {
    int kind, scale, norm;
    double tau; /* absolute, or κ */
    int64_t rank;
    uint64_t seed; /* shrink: of its first directions */
};

struct filter_basis {
    int64_t rank;
    const float *left, *right; /* device: [rows, rank], [columns, rank] */
    const float *singular;     /* host: [rank], descending */
    double energy;             /* ‖M‖², of all directions */
    const float *whole;        /* device: [rows, columns], M itself in place of its directions (rank 0); only for `gradient` */
};

/* What the correction of one matrix did; sums, so that matrices can be added up. */
struct filter_meters {
    double gradient;      /* ‖G‖² */
    double corrected;     /* ‖Ĝ‖² */
    double changed;       /* of ‖Ĝ‖², what comes of C: ⟨Ĝ, mix·C⟩; the rest of it comes of G */
    double anchor;        /* ‖M_k‖² */
    double aligned;       /* ⟨G, M_k⟩ */
    double inside;        /* ‖X‖²: of ‖G‖² in the anchor's basis */
    double signal, noise; /* of ‖G‖², from the halves; 0 when there are none */
};

struct filter;       /* buffers for matrices up to a size */
struct filter_state; /* of one matrix, kept from step to step */

bool filter_needs_half(const struct filter_settings *settings);
/* 1 up to the limit, then falling in a straight line to 0 at twice the limit. */
double filter_fade(uint64_t age_steps, uint64_t limit_steps);

struct filter *filter_new(const struct ops *ops, struct device *device, const struct filter_settings *settings,
                          int64_t most_rows, int64_t most_columns, struct why *why);
void filter_free(struct filter *filter);
uint64_t filter_memory(const struct filter_settings *settings, int64_t most_rows, int64_t most_columns);
struct filter_state *filter_state_new(const struct filter *filter, int64_t rows, int64_t columns);
void filter_state_free(struct filter_state *state);

/* out[rows, columns] = Ĝ; out must not be `gradient`, but may be `half`, which then is lost. half NULL: not needed; basis
 * NULL: there is no anchor yet. */
void filter_apply(struct filter *filter, struct filter_state *state, const struct filter_basis *basis, const float *gradient,
                  const float *half, double mix, float *out, struct filter_meters *meters);

#endif

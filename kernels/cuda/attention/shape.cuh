#pragma once
/* Defines the shapes of the kernel in tile.cuh: its shared memory, and the registers of a
 * thread. */
#include "kernels/cuda/attention/codes.cuh"
#include "kernels/cuda/attention/store.cuh"

/* `tile_shape` is a shape for keys of D dimensions and values of DV. */
template <uint32_t D_, uint32_t WM_, uint32_t WN_, uint32_t MT_, uint32_t BN_, uint32_t BLOCKS_,
          uint32_t DV_ = D_>
struct tile_shape {
    static constexpr uint32_t D = D_, DV = DV_, WM = WM_, WN = WN_, MT = MT_, BN = BN_;
    /* BLOCKS is the least number of blocks of an SM, which bounds the registers. */
    static constexpr uint32_t BLOCKS = BLOCKS_;
    static constexpr uint32_t BM = 16 * WM * MT, THREADS = 32 * WM * WN;
    static constexpr uint32_t NT = BN / WN / 8, LD = D + 8, LDV = DV + 8;
    static constexpr bool KEEP_Q = MT == 1 && D <= 128; /* whether Q stays in registers */
    static constexpr uint32_t Q_BYTES = BM * LD * 2, UNIT_BYTES = BN * LD * 2;
    static constexpr uint32_t PLACES_BYTES = 4 * BN * sizeof(token_place);
    static constexpr uint32_t SHARED_BYTES = Q_BYTES + 4 * UNIT_BYTES + PLACES_BYTES;
    /* SCALES_BYTES is the shared memory that is added when the cache holds codes. CODES_BYTES is
     * added when the codes are staged. */
    static constexpr uint32_t SCALES_BYTES = 4 * BN * sizeof(float);
    static constexpr uint32_t CODES_BYTES = 4 * BN * D;
    static constexpr uint32_t MERGE_LD = D + 4; /* length of a row of the merge, in floats */
    static_assert(NT % 2 == 0 && (WN == 1 || WM * MT == 1), "16 tokens of each warp; see merge");
    static_assert(BN <= THREADS, "a thread for each token's place");
    static_assert(WN == 1 || WN * BM * (MERGE_LD + 2) * sizeof(float) <= 4 * UNIT_BYTES,
                  "the warps' results take the place of the units");
};

/* `tile_shared` holds the block's shared memory. */
template <class S> struct tile_shared {
    uint16_t *q, *k, *v;        /* k and v have the shape [2][BN][LD] */
    token_place *places;        /* `places` has the shape [4][BN] */
    float *k_scales, *v_scales; /* `k_scales` and `v_scales` have the shape [2][BN] */
    uint8_t *codes;             /* `codes` has the shape [2][keys, values][BN][D] */

    __device__ inline explicit tile_shared(uint8_t *smem)
    {
        q = reinterpret_cast<uint16_t *>(smem);
        k = reinterpret_cast<uint16_t *>(smem + S::Q_BYTES);
        v = k + S::UNIT_BYTES; /* UNIT_BYTES elements of 2 bytes are two units */
        places = reinterpret_cast<token_place *>(smem + S::Q_BYTES + 4 * S::UNIT_BYTES);
        k_scales = reinterpret_cast<float *>(smem + S::SHARED_BYTES);
        v_scales = k_scales + 2 * S::BN;
        codes = smem + S::SHARED_BYTES + S::SCALES_BYTES;
    }
};

/* `tile_state` is a warp's share of the result; `o` is not yet divided by `sum`. Index [half]
 * means row g or row g + 8. */
template <class S> struct tile_state {
    float o[S::MT][S::DV / 8][4];
    float max[S::MT][2], sum[S::MT][2];
    int32_t position[S::MT][2];
    uint32_t q[S::KEEP_Q ? S::D / 16 : 1][4];
};

#pragma once
/* clang-format off */
/* Defines weights as the CUDA kernels read them (docs/develop/gpu.md, "Weights"): the format of
 * each dtype, and the places of codes and scales. C and CUDA share this header, which has no
 * CUDA types.
 * pack.h packs weights on the host; formats.cuh reads them on the device.
 * 
 * Outputs are cut into row tiles of 16; the last tile is filled up with zeros. A row tile is its
 * codes, then its scales, at a multiple of 128 bytes from the first tile:
 * 
 *   BF16     [16 rows][k padded to 8]: all of a matrix is row-major, as cuBLAS needs it
 * 
 *   4 bits   [tile of 64 inputs][lane][16 bytes]: word j of lane 4g + t is its operand of mma.m16n8k16
 *            for inputs 16j .. 16j + 15: pair p (a0 .. a3: row g, or g + 8 for odd p;
 *            inputs 2t, 2t + 1, of the upper eight for p > 1) has its codes at bits 4p and 16 + 4p
 * 
 *   8 bits   [tile of 32 inputs][lane][16 bytes]: words 2j and 2j + 1 are for inputs 16j ..: bytes
 *            0 and 2 are pair a0 (a2 in the second word), bytes 1 and 3 pair a1 (a3)
 * 
 *   scales   [group][16 rows] of gpu_scale_bytes each
 * 
 * Inputs are in order: any multiple of 16 may be a group. Codes of inputs beyond k have no
 * meaning; kernels treat x beyond k as zero. */
/* clang-format on */
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#include "kernels/weight.h"
#ifdef __cplusplus
}
#endif

enum gpu_format {
    GPU_BF16,
    GPU_U4,     /* value = scale * (q - zero); stored: f16 scale, then -(128 + zero) as bfloat16 */
    GPU_U4_MIN, /* value = scale * q + offset; both stored as f16 */
    GPU_I8,     /* value = scale * q; float scale */
    GPU_I8_MIN, /* value = scale * q + offset; both stored as float */
    GPU_F8,     /* value = scale * (e4m3 value of q); float scale */
    GPU_MX4,    /* value = 2^(scale - 127) * (e2m1 value of q); scale of one byte */
    GPU_FORMAT_COUNT
};

#define GPU_TILE_N      16u
#define GPU_PANEL_ALIGN 128u
#define GPU_STEP_K      128u /* number of inputs of quantised weights that kernels read at a time */
/* GPU_MAX_K is the limit of k. With it, sizes fit in 64 bits, and sizes of a row tile in 32. */
#define GPU_MAX_K (1u << 20)

/* `gpu_matrix` is a packed matrix in the form that kernels use. Row tile i has its codes at
 * codes + i * tile_bytes and its scales at scales + i * tile_bytes. */
struct gpu_matrix {
    enum gpu_format format;
    uint32_t n, k;
    /* number of inputs that share a scale: 16, 32, or a multiple of GPU_STEP_K; BF16: 0 */
    uint32_t group;
    uint32_t tile_bytes; /* bytes from one row tile to the next */
    const void *codes, *scales;
};

static inline uint32_t gpu_code_bits(enum gpu_format f)
{
    return f == GPU_BF16 ? 16 : f == GPU_I8 || f == GPU_I8_MIN || f == GPU_F8 ? 8 : 4;
}
/* Returns the number of inputs of a tile of codes (512 bytes). For BF16, it returns the number
 * of inputs in 16 bytes of a row. */
static inline uint32_t gpu_tile_k(enum gpu_format f)
{
    return f == GPU_BF16 ? 8 : 256 / gpu_code_bits(f);
}
static inline uint32_t gpu_scale_bytes(enum gpu_format f)
{
    return f == GPU_BF16 ? 0 : f == GPU_MX4 ? 1 : f == GPU_I8_MIN ? 8 : 4;
}
static inline uint32_t gpu_padded_k(enum gpu_format f, uint32_t k)
{
    return (k + gpu_tile_k(f) - 1) / gpu_tile_k(f) * gpu_tile_k(f);
}
static inline uint32_t gpu_codes_bytes(enum gpu_format f, uint32_t k)
{
    return gpu_padded_k(f, k) * gpu_code_bits(f) * (GPU_TILE_N / 8);
}
static inline uint32_t gpu_n_groups(const struct gpu_matrix *m)
{
    return m->group ? (m->k + m->group - 1) / m->group : 0;
}

/* Fills *out. Returns false when this backend has no kernel for the dtype, or k is not a whole
 * number of its blocks. `data` may be NULL if only sizes are needed. */
bool gpu_matrix_of(enum dtype dtype, uint32_t n, uint32_t k, uint32_t group, const void *data,
                   struct gpu_matrix *out);
static inline bool gpu_matrix_of_weight(const struct weight *w, struct gpu_matrix *out)
{
    return gpu_matrix_of(w->dtype, w->n, w->k, w->group, w->data, out);
}
static inline uint32_t gpu_n_row_tiles(const struct gpu_matrix *m)
{
    return m->n / GPU_TILE_N + (m->n % GPU_TILE_N != 0);
}
static inline uint64_t gpu_matrix_bytes(const struct gpu_matrix *m)
{
    return (uint64_t)gpu_n_row_tiles(m) * m->tile_bytes;
}

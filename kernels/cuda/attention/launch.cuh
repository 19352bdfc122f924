#pragma once
/* Declares the launches that attention.cu chooses from: each kind of kernel has a separate file.
 * Each kind has several instances; `rows` is the number of packed rows in a block of an
 * instance. */
#include "kernels/cuda/attention/args.cuh"
#include "kernels/cuda/device/launch.cuh"

/* Returns the width of the narrowest instance that fits head_dim, or 0 when there is none. */
static inline uint32_t attention_width(uint32_t head_dim)
{
    const uint32_t widths[] = {64, 96, 128, 256};
    for (const uint32_t width : widths)
        if (head_dim <= width)
            return width;
    return 0;
}

/* attention_*_blocks return the number of blocks of a bfloat16 kernel that an SM runs at once.
 * shared_bytes is the limit for a block. An SM has 1 KiB more than that limit, and uses 1 KiB
 * itself for each block. */
template <class S> uint32_t attention_blocks(uint32_t shared_bytes)
{
    const uint32_t n = (shared_bytes + 1024) / (S::SHARED_BYTES + 1024);
    return n < 1 ? 1 : n < S::BLOCKS ? n : S::BLOCKS;
}

/* `attention_shapes` holds the instances of a kernel, by width. */
template <class S64, class S96, class S128, class S256> struct attention_shapes {
    /* Calls f with the instance for a width that attention_width returned. */
    template <class F> static auto at(uint32_t width, F f)
    {
        switch (width) {
        case 64:
            return f(S64{});
        case 96:
            return f(S96{});
        case 128:
            return f(S128{});
        default:
            return f(S256{});
        }
    }
    static uint32_t blocks(uint32_t width, uint32_t shared_bytes)
    {
        return at(width, [&](auto s) { return attention_blocks<decltype(s)>(shared_bytes); });
    }
};

#define ATTENTION_FEW_ROWS 16u
uint32_t attention_few_blocks(uint32_t width, uint32_t shared_bytes);
enum status attention_few(const attention_args &a, uint32_t width, uint32_t n_kv_heads,
                          struct gpu_stream *s, struct error *err);
/* Returns the packed rows in a block of the kernel for many rows; 0 = a block of this device has
 * too little shared memory. */
uint32_t attention_many_rows(uint32_t width, uint32_t shared_bytes);
uint32_t attention_many_blocks(uint32_t width, uint32_t shared_bytes);
enum status attention_many(const attention_args &a, uint32_t width, uint32_t n_kv_heads,
                           struct gpu_stream *s, struct error *err);
/* LATENT_DIM and LATENT_V_DIM are the limits of the kernel for latents: LATENT_DIM dimensions,
 * the first LATENT_V_DIM of which may be the value. */
#define LATENT_DIM   576u
#define LATENT_V_DIM 512u
uint32_t attention_latent_rows(uint32_t group, bool many, uint32_t shared_bytes);
uint32_t attention_latent_blocks(uint32_t rows, uint32_t shared_bytes);
enum status attention_latent(const attention_args &a, uint32_t rows, uint32_t n_kv_heads,
                             struct gpu_stream *s, struct error *err);

/* Enqueues `kernel`, an instance of shape S. Codes are staged if a block has enough shared
 * memory. */
template <class S>
enum status attention_enqueue(void (*kernel)(const attention_args), attention_args a,
                              uint32_t n_kv_heads, struct gpu_stream *s, struct error *err)
{
    a.is_staged =
        a.is_staged && S::SHARED_BYTES + S::SCALES_BYTES + S::CODES_BYTES <= a.shared_bytes;
    const uint32_t n_bytes =
        S::SHARED_BYTES + (a.k_scales ? S::SCALES_BYTES : 0) + (a.is_staged ? S::CODES_BYTES : 0);
    TRY(gpu_check(launch_allow_shared(s->device, (const void *)kernel), "cudaFuncSetAttribute",
                  err));
    const dim3 grid(a.n_tiles * a.n_chunks, n_kv_heads, a.n_splits);
    return gpu_check(launch_kernel(s, kernel, grid, dim3(S::THREADS), n_bytes, a), "attention",
                     err);
}

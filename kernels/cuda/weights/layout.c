#include "kernels/cuda/weights/layout.h"

#include <stddef.h>

#include "kernels/host/blocks.h"

/* `row` is the format of a dtype, and the number of inputs that share a scale when the source
 * does not give it. */
struct row {
    enum gpu_format format;
    uint32_t group;
    bool takes_more;
};
static const struct row rows[DTYPE_COUNT] = {
    [DTYPE_Q4_0] = {GPU_U4, 32, false},     [DTYPE_INT4] = {GPU_U4, 32, true},
    [DTYPE_INT3] = {GPU_U4, 32, true},      [DTYPE_INT2] = {GPU_U4, 32, true},
    [DTYPE_Q3_K] = {GPU_U4, 16, false},     [DTYPE_Q4_1] = {GPU_U4_MIN, 32, false},
    [DTYPE_Q4_K] = {GPU_U4_MIN, 32, false}, [DTYPE_Q2_K] = {GPU_U4_MIN, 16, false},
    [DTYPE_Q8_0] = {GPU_I8, 32, false},     [DTYPE_Q5_0] = {GPU_I8, 32, false},
    [DTYPE_IQ4_NL] = {GPU_I8, 32, false},   [DTYPE_Q6_K] = {GPU_I8, 16, false},
    [DTYPE_INT8] = {GPU_I8_MIN, 32, true},  [DTYPE_Q5_1] = {GPU_I8_MIN, 32, false},
    [DTYPE_Q5_K] = {GPU_I8_MIN, 32, false}, [DTYPE_FP8] = {GPU_F8, 32, true},
    [DTYPE_MXFP4] = {GPU_MX4, 32, false},
};

/* Returns the number of inputs that share a scale in the kernels. The result divides the
 * source's number. It is a whole number of steps of GPU_STEP_K, or 32. GGML's formats have fixed
 * numbers. */
static uint32_t group_of(const struct row *r, uint32_t k, uint32_t group)
{
    if (group == 0 || !r->takes_more)
        return r->group;
    if (group >= k)
        return (k + GPU_STEP_K - 1) / GPU_STEP_K * GPU_STEP_K;
    return group % GPU_STEP_K == 0 ? group : r->group;
}

bool gpu_matrix_of(enum dtype dtype, uint32_t n, uint32_t k, uint32_t group, const void *data,
                   struct gpu_matrix *out)
{
    const struct format *f = format_of(dtype);
    *out = (struct gpu_matrix){0};
    if (!f || n == 0 || k == 0 || k > GPU_MAX_K || k % f->block_elems != 0)
        return false;
    struct gpu_matrix m = {.n = n, .k = k, .codes = data};
    if (f->values != VALUES_PLAIN) {
        m.format = rows[dtype].format;
        m.group = group_of(&rows[dtype], k, group);
    }
    uint32_t codes = gpu_codes_bytes(m.format, k);
    uint32_t all = codes + gpu_n_groups(&m) * GPU_TILE_N * gpu_scale_bytes(m.format);
    m.tile_bytes = m.format == GPU_BF16
                       ? codes
                       : (all + GPU_PANEL_ALIGN - 1) / GPU_PANEL_ALIGN * GPU_PANEL_ALIGN;
    m.scales = data ? (const uint8_t *)data + codes : NULL;
    *out = m;
    return true;
}

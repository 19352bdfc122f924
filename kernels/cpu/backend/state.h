#pragma once
/* What the files of the CPU backend share; see backend.c. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/dot/dot.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/linear/rounded.h"
#include "kernels/host/threads.h"

/* The unit of cost is about 0.3 ns: an addition of two floats from the cache on one thread. Waking
 * the threads takes some microseconds, so what is cheaper than this runs in the caller. */
enum { COST_PARALLEL = 32768, TASKS_PER_THREAD = 8 };

struct scratch {
    void *block;
    float *floats; /* block, aligned to a cache line */
    uint64_t n_floats;
};

/* Rows that attention takes together. */
struct row_tile {
    uint32_t begin, n;
};

struct cpu_device {
    struct device base;
    struct pool *pool;
    const struct cpu_kernels *kernels;
    const struct dot_kernels *dots;
    const struct rounded_kernels *rounding;
    enum cpu_isa isa;
    char isa_name[32];
    bool level_only;
    bool is_narrow;          /* enum cpu_activations */
    struct scratch *scratch; /* [threads] */
    struct scratch parts;    /* of attention, in splits */
    struct row_tile *tiles;  /* of attention */
    uint32_t n_tiles;        /* there is room for */
    struct scratch sorted;   /* rows of a product whose inputs are in another order */
    struct scratch coded;    /* rows of a product as codes */
    struct scratch rounded;  /* the same as bfloat16 */
    struct scratch tops;     /* what threads have found of a product's rows */
};

static inline struct cpu_device *cpu_of(struct device *d)
{
    return (struct cpu_device *)d;
}

static inline float *row_of(struct view v, uint32_t i)
{
    return (float *)v.data + (size_t)i * v.stride;
}

static inline uint32_t div_up(uint64_t a, uint64_t b)
{
    return (uint32_t)((a + b - 1) / b);
}

/* Memory of one size for good after the first step: they grow, and keep nothing. */
void cpu_scratch_grow(struct scratch *s, uint64_t n_floats);
void cpu_scratch_reserve(struct cpu_device *d, uint64_t n_floats); /* of each thread */

/* One unit of an operator: a row, a piece of one, a panel. p is the operator's parameters. */
typedef void (*unit_fn)(struct cpu_device *d, const void *p, uint32_t i, uint32_t i_thread);
/* n units of about the same cost, on the threads when that is worth it. */
void cpu_run_units(struct cpu_device *d, uint32_t n, uint64_t cost, unit_fn fn, const void *p);

/* backend_linear.c */
uint64_t cpu_weight_bytes(const struct device *d, enum dtype dtype, uint32_t n, uint32_t k,
                          uint32_t group);
void cpu_weight_pack(struct device *d, struct weight *w, const struct weight_rows *rows);
void cpu_embed(struct device *d, const struct embed_params *p);
void cpu_linear(struct device *d, const struct linear_params *p);
void cpu_linear_top(struct device *d, const struct linear_params *p, float softcap,
                    struct logits_top *out);

/* backend_moe.c */
void cpu_route(struct device *d, const struct route_params *p);
void cpu_moe(struct device *d, const struct moe_params *p);
void cpu_gate_rows(struct device *d, struct view x, uint32_t n_rows, uint32_t dim,
                   struct view gate);

/* backend_lora.c */
void cpu_lora(struct device *d, const struct lora_params *p);

/* backend_attention.c */
void cpu_copy_heads(struct device *d, const struct copy_heads_params *p);
void cpu_kv_write(struct device *d, const struct kv_write_params *p);
void cpu_attention(struct device *d, const struct attention_params *p);

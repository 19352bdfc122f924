/* Implements the CPU backend's device: opening, memory, the level of instruction sets, and the
 * table of operators (`cpu_ops`).
 * The worker opens a device and calls operators through struct ops; the other files of this
 * folder implement these operators. Device memory is host memory, so uploads return the host's
 * own pointer. One thread calls a device. The device owns the pool of threads and all scratch
 * memory, and frees them when it is closed. The level may change between steps, because all
 * levels read one layout of weights. */
#include "kernels/cpu/cpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/base/mem.h"
#include "common/host/host.h"
#include "kernels/cpu/backend/attention.h"
#include "kernels/cpu/backend/linear.h"
#include "kernels/cpu/backend/lora.h"
#include "kernels/cpu/backend/moe.h"
#include "kernels/cpu/backend/rows.h"
#include "kernels/cpu/backend/units.h"
#include "kernels/cpu/dot/sets.h"

enum { LOGITS_ROWS = 16, CACHE_LINE = 64, SMALL_PAGE = 4096 };
#define HUGE_PAGE ((uint64_t)2 << 20)

#define KERNELS_OF(upper, lower) [CPU_ISA_##upper] = &cpu_kernels_##lower,
static const struct cpu_kernels *const kernels_of[CPU_ISA_COUNT] = {CPU_LEVELS(KERNELS_OF)};

/* ---- memory ---- */

static uint64_t mapped_bytes(uint64_t n_bytes)
{
    return (n_bytes + SMALL_PAGE - 1) / SMALL_PAGE * SMALL_PAGE;
}

/* Returns memory that is aligned to large pages. The mapping is made one large page longer and
 * then cut at both ends, so that it uses no more than n_bytes. */
static void *map_huge(uint64_t n_bytes)
{
    uint64_t n = mapped_bytes(n_bytes);
    uint8_t *p =
        mmap(NULL, n + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    uint64_t skip = (HUGE_PAGE - (uintptr_t)p % HUGE_PAGE) % HUGE_PAGE;
    if (skip > 0)
        munmap(p, skip);
    munmap(p + skip + n, HUGE_PAGE - skip);
    (void)madvise(p + skip, n, MADV_HUGEPAGE); /* madvise is only a hint; small pages work too */
    return p + skip;
}

static void *cpu_alloc(struct device *d, uint64_t n_bytes)
{
    if (n_bytes > SIZE_MAX / 2)
        return NULL;
    if (n_bytes >= HUGE_PAGE)
        return map_huge(n_bytes);
    size_t n = n_bytes == 0 ? CACHE_LINE : (n_bytes + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
    void *p = aligned_alloc(CACHE_LINE, n);
    if (p)
        memset(p, 0, n);
    return p;
}

static void cpu_release(struct device *d, void *ptr, uint64_t n_bytes)
{
    if (!ptr)
        return;
    if (n_bytes >= HUGE_PAGE)
        munmap(ptr, mapped_bytes(n_bytes));
    else
        free(ptr);
}

static void cpu_discard(struct device *d, void *ptr, uint64_t n_bytes)
{
    if (n_bytes >= HUGE_PAGE)
        (void)madvise(ptr, mapped_bytes(n_bytes), MADV_DONTNEED);
    else
        memset(ptr, 0, n_bytes);
}

/* ---- the host's threads ---- */

struct loop {
    void (*fn)(void *ctx, uint32_t i);
    void *ctx;
};
static void loop_task(void *ctx, uint32_t i_task, uint32_t i_thread)
{
    const struct loop *l = ctx;
    l->fn(l->ctx, i_task);
}
void cpu_parallel_for(struct device *device, uint32_t n, void (*fn)(void *ctx, uint32_t i),
                      void *ctx)
{
    pool_run(cpu_of(device)->pool, n, loop_task, &(struct loop){fn, ctx});
}

/* ---- the device ---- */

static enum status cpu_sync(struct device *d, struct error *err)
{
    return STATUS_OK;
}

static void cpu_copy(struct device *d, void *to, const void *from, uint64_t n_bytes)
{
    memcpy(to, from, n_bytes);
}

static enum status cpu_read(struct device *d, void *host, const void *from, uint64_t n_bytes,
                            struct error *err)
{
    memcpy(host, from, n_bytes);
    return STATUS_OK;
}

static uint64_t cpu_available_bytes(const struct device *d)
{
    return host_available_bytes();
}

/* Does nothing: the data of a pass stays in the host's memory. */
static void cpu_begin(struct device *d)
{
}

static const void *cpu_upload(struct device *d, const void *host, uint64_t n_bytes)
{
    return host;
}

static const struct kv_row *cpu_upload_rows(struct device *d, const struct kv_row *rows,
                                            uint32_t n_rows, uint32_t block_tokens)
{
    return rows;
}

/* Returns 0: each thread has scratch memory of its own (cpu_scratch_grow). */
static uint64_t cpu_scratch_bytes(const struct device *d, const struct scratch_shape *s)
{
    return 0;
}

static void cpu_use_scratch(struct device *d, void *ptr, uint64_t n_bytes)
{
}

static uint32_t cpu_isa_level(const struct device *d)
{
    return ((const struct cpu_device *)d)->isa;
}

static const char *cpu_isa_name_of(const struct device *d)
{
    return ((const struct cpu_device *)d)->isa_name;
}

/* Sets the name of the level with the extensions in use, such as avx512-vnni-bf16. */
static void name_isa(struct cpu_device *d)
{
    const char *level = d->kernels->isa, *codes = d->dots->name, *rounded = d->rounding->name;
    snprintf(d->isa_name, sizeof d->isa_name, "%s%s", d->is_narrow && codes ? codes : level,
             d->is_narrow && rounded ? rounded + strlen(level) : "");
}

static enum status cpu_set_isa_level(struct device *device, uint32_t level, struct error *err)
{
    enum cpu_isa best = cpu_isa_best();
    if (level >= CPU_ISA_COUNT)
        return error_set(
            err, STATUS_UNSUPPORTED,
            "the ISA level %s does not exist on this CPU's architecture: its highest level is %s",
            cpu_isa_name(level), cpu_isa_name(CPU_ISA_COUNT - 1));
    if (level > (uint32_t)best)
        return error_set(err, STATUS_UNSUPPORTED,
                         "ISA level %u (%s) is not available: the highest level of this CPU and "
                         "its system is %s",
                         level, cpu_isa_name(level), cpu_isa_name(best));
    struct cpu_device *d = cpu_of(device);
    d->isa = level;
    d->kernels = kernels_of[level];
    d->dots = dot_kernels_of(level, d->level_only);
    d->rounding = rounded_kernels_of(level, d->level_only);
    name_isa(d);
    return STATUS_OK;
}

static void cpu_close(struct device *device)
{
    struct cpu_device *d = cpu_of(device);
    if (!d)
        return;
    for (uint32_t i = 0; d->scratch && i < pool_n_threads(d->pool); i++)
        mem_free(d->scratch[i].block);
    mem_free(d->scratch);
    mem_free(d->parts.block);
    mem_free(d->tiles);
    mem_free(d->sorted.block);
    mem_free(d->coded.block);
    mem_free(d->rounded.block);
    mem_free(d->tops.block);
    pool_free(d->pool);
    mem_free(d);
}

static const struct ops cpu_ops = {
    .name = "cpu",
    .activation_bytes = sizeof(float),
    .logits_rows = LOGITS_ROWS,
    .on_host = true,
    .close = cpu_close,
    .isa_level = cpu_isa_level,
    .set_isa_level = cpu_set_isa_level,
    .isa_name = cpu_isa_name_of,
    .memory = {.alloc = cpu_alloc,
               .release = cpu_release,
               .discard = cpu_discard,
               .write = cpu_copy,
               .read = cpu_read,
               .available_bytes = cpu_available_bytes,
               .scratch_bytes = cpu_scratch_bytes,
               .use_scratch = cpu_use_scratch,
               .copy = cpu_copy},
    .loading = {.weight_bytes = cpu_weight_bytes,
                .weight_pack = cpu_weight_pack,
                .parallel_for = cpu_parallel_for},
    .adapters = {.lora = cpu_lora},
    .pass = {.begin = cpu_begin,
             .upload = cpu_upload,
             .upload_rows = cpu_upload_rows,
             .sync = cpu_sync},
    .math = {.take_last = cpu_take_last,
             .embed = cpu_embed,
             .gather = cpu_gather,
             .norm = cpu_norm,
             .sum_squares = cpu_sum_squares,
             .clear = cpu_clear,
             .linear = cpu_linear,
             .rope_table = cpu_rope_table,
             .rope = cpu_rope,
             .kv_write = cpu_kv_write,
             .attention = cpu_attention,
             .gated = cpu_gated,
             .add = cpu_add,
             .route = cpu_route,
             .moe = cpu_moe,
             .copy_heads = cpu_copy_heads,
             .gate_rows = cpu_gate_rows,
             .softcap = cpu_softcap,
             .linear_top = cpu_linear_top,
             .logits_top = cpu_logits_top,
             .sum_exp = cpu_sum_exp},
};

void cpu_device_spread(struct device *d, uint32_t i, uint32_t n)
{
    pool_spread(cpu_of(d)->pool, i, n);
}

enum status cpu_device_open(const struct cpu_device_options *o, struct device **out,
                            struct error *err)
{
    *out = NULL;
    struct cpu_device *d = mem_zalloc(sizeof *d);
    d->base.ops = &cpu_ops;
    d->level_only = o->level_only;
    d->is_narrow = o->activations == CPU_ACTIVATIONS_NARROW;
    uint32_t level = o->isa_level < 0 ? cpu_isa_best() : (uint32_t)o->isa_level;
    enum status s = cpu_set_isa_level(&d->base, level, err);
    if (s == STATUS_OK)
        s = pool_new(o->n_threads, &d->pool, err);
    if (s != STATUS_OK) {
        cpu_close(&d->base);
        return s;
    }
    d->scratch = mem_array(o->n_threads, sizeof *d->scratch);
    cpu_scratch_reserve(d, LINEAR_SCRATCH_FLOATS);
    *out = &d->base;
    return STATUS_OK;
}

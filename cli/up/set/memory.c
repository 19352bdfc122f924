/* Divides the memory of a machine among the models of a set.
 * set_memory_plan places each model on devices with its least KV cache (`place`), then raises the
 * caches of all models by the same fraction of the distance between their least and their wanted
 * size, as far as memory allows (`share`). The host's memory is one device on which all workers
 * of a model lie.
 * Invariants: on no device do the `always` models exceed the memory. An on-demand model fits
 * beside the `always` models, so it can start when no other on-demand model runs. The order of
 * the models alone decides between equals, so the same set gets the same plan. The functions are
 * pure. */
#include "cli/up/set/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"

enum { FULL = 1000, ON_DEMAND_PARTS = 4, CELL_BYTES = 24 };
/* Memory of the process of a sleeping worker, and of a spare one. On CPUs 18 to 24 MiB were
 * measured (bench/sleep). On GPUs it is the context with its kernels and the buffers of
 * collectives; that was not measured, so the number is high. */
#define CPU_PROCESS_BYTES (24ull << 20)
#define GPU_PROCESS_BYTES (1ull << 30)

/* ---- sizes ---- */

uint64_t set_worker_bytes(const struct set_need *need)
{
    return need->weights_bytes + need->other_bytes + need->kv_bytes;
}

/* Returns the bytes of weights that all workers have on one device. */
static uint64_t weights_of_all(const struct set_need *need)
{
    uint32_t n = need->n_copies > 0 ? need->n_copies : need->n_workers;
    return need->weights_bytes * n;
}

/* Returns the bytes of all workers without their KV caches. */
static uint64_t fixed_of_all(const struct set_need *need)
{
    return weights_of_all(need) + need->other_bytes * need->n_workers;
}

uint64_t set_model_bytes(const struct set_need *need)
{
    return fixed_of_all(need) + need->kv_bytes * need->n_workers;
}

uint32_t set_devices_of(const struct set_memory *m, const struct set_need *need, uint64_t *each)
{
    *each = m->on_gpus ? set_worker_bytes(need) : set_model_bytes(need);
    return need->n_workers == 0 ? 0 : m->on_gpus ? need->n_workers : 1;
}

uint64_t set_asleep_bytes(const struct set_memory *m, const struct set_need *need, int level)
{
    if (m->on_gpus) /* the weights of level 1 are in the host's memory */
        return GPU_PROCESS_BYTES + need->other_bytes;
    return CPU_PROCESS_BYTES * need->n_workers + (level == 1 ? fixed_of_all(need) : 0);
}

void set_memory_keep(struct set_memory *m, uint32_t n_spares)
{
    uint64_t bytes = (m->on_gpus ? GPU_PROCESS_BYTES : CPU_PROCESS_BYTES) * n_spares;
    m->device_bytes -= bytes < m->device_bytes ? bytes : m->device_bytes;
}

/* Sets the KV cache to its least size and `permille` of the distance to the wanted size. */
static void set_kv(struct set_need *need, uint32_t permille)
{
    if (need->is_placed)
        return;
    uint64_t more = need->kv_wanted_bytes > need->kv_least_bytes
                        ? need->kv_wanted_bytes - need->kv_least_bytes
                        : 0;
    need->kv_bytes = need->kv_least_bytes + more / FULL * permille + more % FULL * permille / FULL;
}

static bool fits_at(const struct set_memory *m, const uint64_t *used, const struct set_need *need,
                    uint32_t first)
{
    uint64_t each;
    uint32_t n = set_devices_of(m, need, &each);
    if (first + n > m->n_devices)
        return false;
    for (uint32_t i = first; i < first + n; i++)
        if (used[i] > m->device_bytes || each > m->device_bytes - used[i])
            return false;
    return true;
}

static void take(const struct set_memory *m, uint64_t *used, const struct set_need *need)
{
    uint64_t each;
    uint32_t n = set_devices_of(m, need, &each);
    for (uint32_t i = need->first_device; i < need->first_device + n; i++)
        used[i] += each;
}

static const char *size_text(uint64_t bytes, char out[CELL_BYTES])
{
    double mib = (double)bytes / (double)(1ull << 20);
    if (mib < 1024)
        snprintf(out, CELL_BYTES, "%.1f MiB", mib);
    else
        snprintf(out, CELL_BYTES, "%.1f GiB", mib / 1024);
    return out;
}

/* ---- places ---- */

static bool place(const struct set_memory *m, const uint64_t *used, struct set_need *need)
{
    if (need->is_placed)
        return fits_at(m, used, need, need->first_device);
    for (uint32_t first = 0; first < m->n_devices; first++)
        if (fits_at(m, used, need, first)) {
            need->first_device = first;
            return true;
        }
    return false;
}

static enum status refuse(const struct set_memory *m, const struct set_need *need,
                          const uint64_t *used, struct error *err)
{
    const char *where = m->on_gpus ? " of each GPU" : "";
    char texts[3][CELL_BYTES];
    uint64_t each, most_free = 0;
    uint32_t n = set_devices_of(m, need, &each);
    for (uint32_t i = 0; i < m->n_devices; i++) {
        uint64_t left = m->device_bytes > used[i] ? m->device_bytes - used[i] : 0;
        most_free = left > most_free ? left : most_free;
    }
    if (n > m->n_devices)
        return error_set(err, STATUS_NO_MEMORY,
                         "the model %s needs %u GPUs, but there are only %u. Lower its tp or "
                         "workers",
                         need->name, n, m->n_devices);
    return error_set(
        err, STATUS_NO_MEMORY,
        "the model %s does not fit: it needs at least %s%s, but the models that always run leave "
        "%s of %s. %s, use smaller weights (--quantization), or raise --models-memory",
        need->name, size_text(each, texts[0]), where, size_text(most_free, texts[1]),
        size_text(m->device_bytes, texts[2]),
        need->start == UP_START_ALWAYS ? "Start it on demand (start: on-demand, or --on-demand)"
                                       : "Start fewer models always");
}

/* Places the models of one kind. `used` has the memory of the models placed before. An on-demand
 * model for which there is no room beside the other ones shares their devices. */
static enum status place_all(const struct set_memory *m, struct set_need *needs, uint32_t n,
                             bool always, const uint64_t *always_used, uint64_t *used,
                             struct error *err)
{
    for (uint32_t i = 0; i < n; i++) {
        struct set_need *need = &needs[i];
        if ((need->start == UP_START_ALWAYS) != always)
            continue;
        set_kv(need, 0);
        if (!place(m, used, need) && (always || !place(m, always_used, need)))
            return refuse(m, need, always ? used : always_used, err);
        take(m, used, need);
    }
    return STATUS_OK;
}

/* ---- shares ---- */

static bool fit_together(const struct set_memory *m, const struct set_need *needs, uint32_t n,
                         bool only_always, uint64_t *used)
{
    memset(used, 0, m->n_devices * sizeof *used);
    for (uint32_t i = 0; i < n; i++) {
        if (only_always && needs[i].start != UP_START_ALWAYS)
            continue;
        if (!fits_at(m, used, &needs[i], needs[i].first_device))
            return false;
        take(m, used, &needs[i]);
    }
    return true;
}

/* Gives all models the largest equal share of their wanted KV caches. Returns false when they do
 * not fit even with the least caches. */
static bool share(const struct set_memory *m, struct set_need *needs, uint32_t n, uint64_t *used)
{
    for (uint32_t permille = FULL + 1; permille-- > 0;) {
        for (uint32_t i = 0; i < n; i++)
            set_kv(&needs[i], permille);
        if (fit_together(m, needs, n, false, used))
            return true;
    }
    return false;
}

/* Gives the `always` models the largest equal share that leaves room for each on-demand model
 * alone, whose KV cache has `permille` of its way to the wanted size. Sets `used` to the memory of
 * the `always` models. */
static bool share_beside(const struct set_memory *m, struct set_need *needs, uint32_t n,
                         uint32_t on_demand_permille, uint64_t *used)
{
    for (uint32_t permille = FULL + 1; permille-- > 0;) {
        bool fit = true;
        for (uint32_t i = 0; i < n; i++)
            set_kv(&needs[i], needs[i].start == UP_START_ALWAYS ? permille : on_demand_permille);
        if (!fit_together(m, needs, n, true, used))
            continue;
        for (uint32_t i = 0; i < n; i++)
            fit = fit && (needs[i].start == UP_START_ALWAYS ||
                          fits_at(m, used, &needs[i], needs[i].first_device));
        if (fit)
            return true;
    }
    return false;
}

/* Sets the KV cache of an on-demand model that does not fit together with all other ones. `used`
 * has the memory of the `always` models. */
static void share_of_rest(const struct set_memory *m, const uint64_t *used, struct set_need *need)
{
    if (need->is_placed)
        return;
    uint64_t rest = UINT64_MAX, each;
    uint32_t n = set_devices_of(m, need, &each), per_device = m->on_gpus ? 1 : need->n_workers;
    for (uint32_t i = need->first_device; i < need->first_device + n; i++) {
        uint64_t left = m->device_bytes - used[i];
        rest = left < rest ? left : rest;
    }
    if (n == 0)
        return;
    uint64_t fixed = m->on_gpus ? need->weights_bytes + need->other_bytes : fixed_of_all(need);
    uint64_t kv = rest / per_device / ON_DEMAND_PARTS, most = (rest - fixed) / per_device;
    kv = kv < need->kv_least_bytes ? need->kv_least_bytes : kv;
    kv = kv > need->kv_wanted_bytes ? need->kv_wanted_bytes : kv;
    need->kv_bytes = kv > most ? most : kv;
}

static uint32_t count_at_once(const struct set_memory *m, const struct set_need *needs, uint32_t n,
                              uint64_t *used)
{
    uint32_t n_fit = 0;
    memset(used, 0, m->n_devices * sizeof *used);
    for (int pass = 0; pass < 2; pass++)
        for (uint32_t i = 0; i < n; i++)
            if ((needs[i].start == UP_START_ALWAYS) == (pass == 0) &&
                fits_at(m, used, &needs[i], needs[i].first_device)) {
                take(m, used, &needs[i]);
                n_fit++;
            }
    return n_fit;
}

static enum status plan_with(const struct set_memory *m, struct set_need *needs, uint32_t n,
                             uint64_t *always_used, uint64_t *used, struct error *err)
{
    TRY(place_all(m, needs, n, true, always_used, used, err));
    memcpy(always_used, used, m->n_devices * sizeof *used);
    TRY(place_all(m, needs, n, false, always_used, used, err));
    if (share(m, needs, n, used))
        return STATUS_OK;
    /* place_all has checked that the least caches fit */
    if (!share_beside(m, needs, n, FULL, used))
        (void)share_beside(m, needs, n, 0, used);
    for (uint32_t i = 0; i < n; i++)
        if (needs[i].start != UP_START_ALWAYS)
            share_of_rest(m, used, &needs[i]);
    return STATUS_OK;
}

enum status set_memory_plan(const struct set_memory *m, struct set_need *needs, uint32_t n,
                            uint32_t *n_at_once, struct error *err)
{
    uint64_t *used = mem_array(m->n_devices, sizeof *used);
    uint64_t *always_used = mem_array(m->n_devices, sizeof *always_used);
    memset(used, 0, m->n_devices * sizeof *used);
    memset(always_used, 0, m->n_devices * sizeof *always_used);
    *n_at_once = 0;
    enum status s = plan_with(m, needs, n, always_used, used, err);
    for (uint32_t i = 0; s != STATUS_OK && i < n; i++)
        set_kv(&needs[i], 0); /* the table of a refused set shows the least sizes */
    *n_at_once = count_at_once(m, needs, n, used);
    mem_free(used);
    mem_free(always_used);
    return s;
}

/* ---- the output ---- */

static void print_devices(const struct set_memory *m, const struct set_need *need,
                          struct strbuf *out)
{
    uint64_t each;
    uint32_t n = set_devices_of(m, need, &each);
    if (m->on_gpus && n > 1)
        strbuf_printf(out, "  GPU %u-%u", need->first_device, need->first_device + n - 1);
    else if (m->on_gpus && n == 1)
        strbuf_printf(out, "  GPU %u", need->first_device);
    strbuf_append_c(out, "\n");
}

void set_memory_print(const struct set_memory *m, const struct set_need *needs, uint32_t n,
                      uint32_t n_at_once, struct strbuf *out)
{
    char cells[4][CELL_BYTES];
    int width = 5;
    for (uint32_t i = 0; i < n; i++)
        width = (int)strlen(needs[i].name) > width ? (int)strlen(needs[i].name) : width;
    strbuf_printf(out, "%-*s  %-9s  %10s  %11s  %10s  %10s\n", width, "model", "start", "weights",
                  "activations", "KV cache", "total");
    for (uint32_t i = 0; i < n; i++) {
        const struct set_need *r = &needs[i];
        uint32_t w = r->n_workers;
        strbuf_printf(out, "%-*s  %-9s  %10s  %11s  %10s  %10s", width, r->name,
                      up_start_names[r->start], size_text(weights_of_all(r), cells[0]),
                      size_text(r->other_bytes * w, cells[1]), size_text(r->kv_bytes * w, cells[2]),
                      size_text(set_model_bytes(r), cells[3]));
        print_devices(m, r, out);
    }
    size_text(m->device_bytes, cells[0]);
    if (m->on_gpus)
        strbuf_printf(out, "memory: %s on each of %u GPUs; ", cells[0], m->n_devices);
    else
        strbuf_printf(out, "memory: %s; ", cells[0]);
    if (n_at_once == n)
        strbuf_append_c(out, "all models fit together\n");
    else
        strbuf_printf(out, "%u of %u models fit together\n", n_at_once, n);
}

static void print_model_json(const struct set_memory *m, const struct set_need *r,
                             struct strbuf *out)
{
    uint64_t w = r->n_workers;
    strbuf_append_c(out, "{\"name\": ");
    strbuf_append_json(out, str_from(r->name));
    strbuf_printf(out,
                  ", \"start\": \"%s\", \"workers\": %" PRIu64 ", \"weights_bytes\": %" PRIu64
                  ", \"other_bytes\": %" PRIu64 ", \"kv_bytes\": %" PRIu64
                  ", \"total_bytes\": %" PRIu64 ", \"first_gpu\": ",
                  up_start_names[r->start], w, weights_of_all(r), r->other_bytes * w,
                  r->kv_bytes * w, set_model_bytes(r));
    if (m->on_gpus && w > 0)
        strbuf_printf(out, "%u}", r->first_device);
    else
        strbuf_append_c(out, "null}");
}

void set_memory_print_json(const struct set_memory *m, const struct set_need *needs, uint32_t n,
                           uint32_t n_at_once, const char *refusal, struct strbuf *out)
{
    strbuf_printf(out,
                  "{\"memory_bytes\": %" PRIu64 ", \"gpus\": %u, \"fit_together\": %u, "
                  "\"refusal\": ",
                  m->device_bytes, m->on_gpus ? m->n_devices : 0, n_at_once);
    if (refusal)
        strbuf_append_json(out, str_from(refusal));
    else
        strbuf_append_c(out, "null");
    strbuf_append_c(out, ", \"models\": [");
    for (uint32_t i = 0; i < n; i++) {
        strbuf_append_c(out, i > 0 ? ", " : "");
        print_model_json(m, &needs[i], out);
    }
    strbuf_append_c(out, "]}\n");
}

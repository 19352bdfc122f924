/* Implements sampling on a GPU, for a worker (sampler.h). The lists of a step are sent to the
 * device from one piece of pinned memory. The kernels of sample.cu write ids into `last` and
 * into the step's results. The results are copied to the host in one copy with an event behind
 * it.
 * Host memory exists for each step in flight. Device memory exists once, since enqueued work is
 * done in order. The first rows of a step therefore find their lists at the same address in
 * every step, and their sampling may be recorded. Lists of any length are stored behind the
 * rows, and a row has the index and number of its entries. */
#include "kernels/cuda/backend/sampler.h"

#include <string.h>

#include "common/base/arena.h"
#include "common/base/mem.h"
#include "kernels/cuda/backend/enqueue.h"

enum { ALIGN = 256 };

struct step {
    /* pinned host memory, like all host memory here, with the layout of the device's lists */
    uint8_t *host_lists;
    struct gpu_sampled *host;
    uint32_t *host_last;
    struct gpu_event *event;
    uint64_t n_used; /* bytes of host_lists in use */
};

struct own_sampler {
    struct gpu_sampler base;
    struct cuda_device *device;
    void *memory, *pinned;
    uint8_t *lists; /* lists in device memory; all fields except `steps` are in device memory */
    struct gpu_sampled *results; /* `results` has the shape [n_places] */
    void *scratch;
    uint64_t scratch_bytes, lists_bytes;
    struct gpu_sample_params sent; /* parameters of the last send; logits are set later */
    struct step steps[GPU_SAMPLER_STEPS];
};

static struct own_sampler *of(struct gpu_sampler *w)
{
    return (struct own_sampler *)w;
}

/* Returns the bytes of a step's lists. Each list of a launch begins at a multiple of 256, which
 * needs extra bytes. */
static uint64_t lists_bytes(const struct gpu_sampler_options *o)
{
    uint64_t n_launches = o->n_places / (o->n_rows ? o->n_rows : 1) + 64;
    return align_up((uint64_t)o->n_places * sizeof(struct gpu_sample_row), ALIGN) +
           align_up((uint64_t)o->n_places * sizeof(uint32_t), ALIGN) +
           align_up((uint64_t)o->n_biases * sizeof(struct gpu_bias), ALIGN) +
           align_up((uint64_t)o->n_allowed * sizeof(uint32_t), ALIGN) +
           align_up((uint64_t)o->n_history * sizeof(uint32_t), ALIGN) + n_launches * 5 * 256;
}

static uint64_t results_bytes(const struct gpu_sampler_options *o)
{
    return align_up((uint64_t)o->n_places * sizeof(struct gpu_sampled), ALIGN);
}

uint64_t gpu_sampler_bytes(const struct gpu_sampler_options *o)
{
    return align_up((uint64_t)o->n_slots * sizeof(uint32_t), ALIGN) +
           align_up(cuda_sample_scratch_bytes(o->n_rows, o->vocab_size), ALIGN) +
           align_up(lists_bytes(o), ALIGN) + results_bytes(o);
}

static void sampler_close(struct gpu_sampler *base)
{
    struct own_sampler *w = of(base);
    for (uint32_t i = 0; i < GPU_SAMPLER_STEPS; i++)
        gpu_event_free(w->steps[i].event);
    gpu_host_release(w->device->gpu, w->pinned);
    if (w->memory)
        w->device->base.ops->memory.release(&w->device->base, w->memory, w->base.n_bytes);
    mem_free(w);
}

static void sampler_begin(struct gpu_sampler *w, uint32_t i_step)
{
    of(w)->steps[i_step].n_used = 0;
}

/* Appends a list and returns its offset, which is the same on host and device. Sets *ok to false
 * when the memory is full. */
static uint64_t put(struct own_sampler *w, struct step *s, const void *list, uint64_t n_bytes,
                    bool *ok)
{
    uint64_t at = s->n_used;
    if (!*ok || n_bytes > w->lists_bytes - at) {
        *ok = false;
        return 0;
    }
    if (n_bytes > 0)
        memcpy(s->host_lists + at, list, n_bytes);
    /* n_used stays within lists_bytes, which is a multiple of ALIGN */
    s->n_used += align_up(n_bytes, ALIGN);
    return at;
}

/* Changes the rows' indexes of list entries so that they count from the start of all lists. The
 * kernels' arguments therefore do not depend on the lengths of other rows' lists. */
static void shift(struct gpu_sample_row *rows, uint32_t n_rows, uint64_t biases, uint64_t allowed,
                  uint64_t history)
{
    for (uint32_t i = 0; i < n_rows; i++) {
        rows[i].first_bias += (uint32_t)(biases / sizeof(struct gpu_bias));
        rows[i].first_allowed += (uint32_t)(allowed / sizeof(uint32_t));
        rows[i].first_history += (uint32_t)(history / sizeof(uint32_t));
    }
}

static enum status sampler_send(struct gpu_sampler *base, uint32_t i_step,
                                const struct gpu_sample_lists *d, const uint32_t **at,
                                struct error *err)
{
    struct own_sampler *w = of(base);
    struct step *s = &w->steps[i_step];
    bool ok = d->first_place + (uint64_t)d->n_rows <= base->o.n_places;
    const uint64_t begin = s->n_used;
    const uint64_t rows = put(w, s, d->rows, d->n_rows * sizeof *d->rows, &ok);
    const uint64_t at_rows = put(w, s, d->at_rows, d->n_rows * sizeof *d->at_rows, &ok);
    const uint64_t biases = put(w, s, d->biases, d->n_biases * sizeof *d->biases, &ok);
    const uint64_t allowed = put(w, s, d->allowed, d->n_allowed * sizeof *d->allowed, &ok);
    const uint64_t history = put(w, s, d->history, d->n_history * sizeof *d->history, &ok);
    if (!ok)
        return error_set(err, STATUS_LIMIT,
                         "cannot sample: the device has no space for %u rows with %u biases, %u "
                         "allowed ids and %u ids of history. Lower --max-num-seqs",
                         d->n_rows, d->n_biases, d->n_allowed, d->n_history);
    shift((struct gpu_sample_row *)(void *)(s->host_lists + rows), d->n_rows, biases, allowed,
          history);
    if (!cuda_goes_on(w->device)) {
        *err = w->device->error;
        return w->device->failed;
    }
    const uint32_t *lists = (const uint32_t *)(const void *)w->lists;
    w->sent = (struct gpu_sample_params){
        .vocab_size = base->o.vocab_size,
        .n_rows = d->n_rows,
        .wants = d->wants,
        .rows = (const struct gpu_sample_row *)(const void *)(w->lists + rows),
        .biases = (const struct gpu_bias *)(const void *)lists,
        .allowed = lists,
        .history = lists,
        .last = base->last,
        .out = w->results + d->first_place,
        .scratch = w->scratch,
        .scratch_bytes = w->scratch_bytes};
    *at = lists + at_rows / sizeof *lists;
    return gpu_copy_to_device(w->device->stream, w->lists + begin, s->host_lists + begin,
                              s->n_used - begin, err);
}

/* Samples the rows that were sent last. A failure is also recorded as a failure of the device,
 * like that of any operator. A recording that contains the failed call is then refused. */
static enum status sampler_sample(struct gpu_sampler *base, float *logits, uint32_t stride,
                                  struct error *err)
{
    struct own_sampler *w = of(base);
    struct gpu_sample_params p = w->sent;
    p.logits = logits;
    p.stride = stride;
    if (!cuda_goes_on(w->device)) {
        *err = w->device->error;
        return w->device->failed;
    }
    enum status s = cuda_sample(w->device->stream, &p, err);
    cuda_note(w->device, s, err);
    return s;
}

static enum status sampler_end(struct gpu_sampler *base, uint32_t i_step, uint32_t n_places,
                               uint32_t n_slots, struct error *err)
{
    struct own_sampler *w = of(base);
    struct step *s = &w->steps[i_step];
    if (!cuda_goes_on(w->device)) {
        *err = w->device->error;
        return w->device->failed;
    }
    if (n_places > 0)
        TRY(gpu_copy_from_device(w->device->stream, s->host, w->results, n_places * sizeof *s->host,
                                 err));
    if (n_slots > 0)
        TRY(gpu_copy_from_device(w->device->stream, s->host_last, base->last,
                                 n_slots * sizeof *s->host_last, err));
    return gpu_event_record(s->event, w->device->stream, err);
}

static enum status sampler_query(struct gpu_sampler *w, uint32_t i_step, struct error *err)
{
    return gpu_event_query(of(w)->steps[i_step].event, err);
}

static enum status sampler_wait(struct gpu_sampler *w, uint32_t i_step, struct error *err)
{
    return gpu_event_wait(of(w)->steps[i_step].event, err);
}

void cuda_backend_take_last(struct device *d, uint32_t *ids, const uint32_t *slots,
                            const uint32_t *last, uint32_t n_rows)
{
    struct cuda_device *x = cuda_of(d);
    struct error err;
    if (cuda_goes_on(x))
        cuda_note(x, cuda_take_last(x->stream, ids, slots, last, n_rows, &err), &err);
}

static const struct gpu_sampler_ops sampler_ops = {.begin = sampler_begin,
                                                   .send = sampler_send,
                                                   .sample = sampler_sample,
                                                   .end = sampler_end,
                                                   .query = sampler_query,
                                                   .wait = sampler_wait,
                                                   .close = sampler_close};

static void lay_out(struct own_sampler *w)
{
    const struct gpu_sampler_options *o = &w->base.o;
    uint8_t *at = w->memory, *host = w->pinned;
    w->base.last = (uint32_t *)(void *)at;
    at += align_up((uint64_t)o->n_slots * sizeof(uint32_t), ALIGN);
    w->scratch = at;
    at += align_up(w->scratch_bytes, ALIGN);
    w->lists = at;
    at += w->lists_bytes;
    w->results = (struct gpu_sampled *)(void *)at;
    for (uint32_t i = 0; i < GPU_SAMPLER_STEPS; i++) {
        struct step *s = &w->steps[i];
        s->host_lists = host;
        host += w->lists_bytes;
        s->host = (struct gpu_sampled *)(void *)host;
        host += results_bytes(o);
        s->host_last = (uint32_t *)(void *)host;
        host += align_up((uint64_t)o->n_slots * sizeof(uint32_t), ALIGN);
        w->base.host_last[i] = s->host_last;
        w->base.results[i] = s->host;
    }
}

static enum status open_parts(struct own_sampler *w, struct error *err)
{
    const struct gpu_sampler_options *o = &w->base.o;
    struct device *d = &w->device->base;
    w->memory = d->ops->memory.alloc(d, gpu_sampler_bytes(o));
    if (!w->memory)
        return error_set(err, STATUS_NO_MEMORY,
                         "this worker's share of the GPU has no %.1f MiB left to sample tokens: "
                         "raise --gpu-memory-utilization",
                         (double)gpu_sampler_bytes(o) / (1 << 20));
    TRY(gpu_host_alloc(w->device->gpu,
                       GPU_SAMPLER_STEPS *
                           (w->lists_bytes + results_bytes(o) +
                            align_up((uint64_t)o->n_slots * sizeof(uint32_t), ALIGN)),
                       &w->pinned, err));
    for (uint32_t i = 0; i < GPU_SAMPLER_STEPS; i++)
        TRY(gpu_event_new(w->device->gpu, &w->steps[i].event, err));
    lay_out(w);
    return STATUS_OK;
}

enum status gpu_sampler_open(struct device *d, const struct gpu_sampler_options *o,
                             struct gpu_sampler **out, struct error *err)
{
    struct own_sampler *w = mem_zalloc(sizeof *w);
    w->base = (struct gpu_sampler){.ops = &sampler_ops, .o = *o, .n_bytes = gpu_sampler_bytes(o)};
    w->device = cuda_of(d);
    w->lists_bytes = align_up(lists_bytes(o), ALIGN);
    w->scratch_bytes = cuda_sample_scratch_bytes(o->n_rows, o->vocab_size);
    enum status s = open_parts(w, err);
    if (s != STATUS_OK) {
        sampler_close(&w->base);
        return s;
    }
    *out = &w->base;
    return STATUS_OK;
}

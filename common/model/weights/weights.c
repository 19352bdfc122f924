/* Keeps one table of tensors over all files, in the order of files and data, and an array of
 * pointers sorted by name. The files stay open in their readers, which have checked them. */
#include "common/model/weights/weights.h"

#include <assert.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define XXH_STATIC_LINKING_ONLY /* the macro allows a hash state on the stack */
#include <xxhash.h>

#include "common/base/mem.h"
#include "common/model/gguf/gguf.h"
#include "common/model/weights/folder.h"
#include "common/model/weights/state.h"
#include "common/model/weights/table.h"

enum { SAMPLE_BYTES = 4096 };

/* ---- GGUF ---- */

static struct tensor from_gguf(const struct gguf_tensor *g)
{
    struct tensor t = {.name = g->name,
                       .dtype = g->dtype,
                       .n_dims = g->n_dims,
                       .n_bytes = g->n_bytes,
                       .data = g->data};
    for (uint32_t i = 0; i < TENSOR_MAX_DIMS; i++)
        t.shape[i] = i < g->n_dims ? g->shape[g->n_dims - 1 - i] : 1;
    return t;
}

static enum status open_gguf(struct weights *w, struct error *err)
{
    TRY(gguf_open(w->path, &w->gguf, err));
    uint64_t n = gguf_n_tensors(w->gguf);
    if (n == 0)
        return error_set(err, STATUS_NOT_FOUND, "%s contains no tensors. Fetch the file again",
                         w->path);
    TRY(weights_reserve(w, n, err));
    for (uint64_t i = 0; i < n; i++)
        w->tensors[w->n_tensors++] = from_gguf(gguf_tensor_at(w->gguf, i));
    for (uint32_t i = 0; i < gguf_n_parts(w->gguf); i++)
        w->n_file_bytes += gguf_file_bytes(gguf_part(w->gguf, i));
    return STATUS_OK;
}

/* ---- opening ---- */

enum status weights_open(const struct model_info *m, struct weights **out, struct error *err)
{
    return weights_open_kind(m, WEIGHTS_ANY, out, err);
}

enum status weights_open_kind(const struct model_info *m, enum weights_kind kind,
                              struct weights **out, struct error *err)
{
    *out = NULL;
    if (m->format != MODEL_GGUF && m->format != MODEL_HF)
        return error_set(err, STATUS_UNSUPPORTED, "the model %s has no weights", m->name);
    struct weights *w = mem_zalloc(sizeof *w);
    w->path = mem_strdup(m->path);
    enum status s = m->format == MODEL_GGUF ? open_gguf(w, err) : weights_open_folder(w, kind, err);
    if (s == STATUS_OK)
        s = weights_index_names(w, err);
    if (s != STATUS_OK) {
        weights_close(w);
        return s;
    }
    *out = w;
    return STATUS_OK;
}

void weights_close(struct weights *w)
{
    if (!w)
        return;
    for (uint64_t i = 0; i < w->n_shards; i++)
        shard_close(&w->shards[i]);
    mem_free(w->shards);
    gguf_close(w->gguf);
    mem_free(w->tensors);
    mem_free(w->by_name);
    mem_free(w->path);
    mem_free(w);
}

/* ---- queries ---- */

uint64_t weights_n_tensors(const struct weights *w)
{
    return w->n_tensors;
}

const struct tensor *weights_tensor_at(const struct weights *w, uint64_t i)
{
    return i < w->n_tensors ? &w->tensors[i] : NULL;
}

uint64_t weights_file_bytes(const struct weights *w)
{
    return w->n_file_bytes;
}

static bool is_inside(struct str file, const char *data, uint64_t n)
{
    return data >= file.ptr && data + n <= file.ptr + file.len;
}

static bool is_ours(const struct weights *w, const void *data, uint64_t n)
{
    for (uint32_t i = 0; w->gguf && i < gguf_n_parts(w->gguf); i++) {
        const struct gguf *g = gguf_part(w->gguf, i);
        if (is_inside((struct str){gguf_header(g).ptr, gguf_file_bytes(g)}, data, n))
            return true;
    }
    for (uint64_t i = 0; i < w->n_shards; i++)
        if (is_inside(shard_bytes(&w->shards[i]), data, n))
            return true;
    return false;
}

/* Releases the pages of this process only. They stay in the page cache for the next start. A
 * page that lies only partly in the range also belongs to a neighbour and stays. */
void weights_done(const struct weights *w, const void *data, uint64_t n)
{
    assert(is_ours(w, data, n)); /* any other memory would lose its contents */
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t begin = ((uintptr_t)data + page - 1) & ~(page - 1);
    uintptr_t end = ((uintptr_t)data + n) & ~(page - 1);
    if (begin < end)
        /* the call is only advice, so its failure is ignored */
        (void)madvise((void *)begin, end - begin, MADV_DONTNEED);
}

/* ---- identity ---- */

static void hash_u64(XXH3_state_t *h, uint64_t v)
{
    /* the number is hashed in little-endian order, like those in the files */
    XXH3_128bits_update(h, &v, sizeof v);
}

static void hash_header(XXH3_state_t *h, uint64_t n_file_bytes, struct str header)
{
    hash_u64(h, n_file_bytes);
    hash_u64(h, header.len);
    XXH3_128bits_update(h, header.ptr, header.len);
}

static void hash_samples(XXH3_state_t *h, const struct tensor *t)
{
    if (t->n_bytes <= 3ul * SAMPLE_BYTES) {
        XXH3_128bits_update(h, t->data, t->n_bytes);
        return;
    }
    uint64_t middle = (t->n_bytes - SAMPLE_BYTES) / 2;
    XXH3_128bits_update(h, t->data, SAMPLE_BYTES);
    XXH3_128bits_update(h, t->data + middle, SAMPLE_BYTES);
    XXH3_128bits_update(h, t->data + t->n_bytes - SAMPLE_BYTES, SAMPLE_BYTES);
}

void weights_identity(const struct weights *w, uint8_t out[16])
{
    XXH3_state_t h;
    XXH3_128bits_reset(&h);
    if (w->gguf) {
        for (uint32_t i = 0; i < gguf_n_parts(w->gguf); i++) {
            const struct gguf *g = gguf_part(w->gguf, i);
            hash_header(&h, gguf_file_bytes(g), gguf_header(g));
        }
    } else {
        XXH3_128bits_update(&h, w->config_digest, sizeof w->config_digest);
        for (uint64_t i = 0; i < w->n_shards; i++)
            for (int k = 0; k < SHARD_HEADERS; k++)
                hash_header(&h, shard_bytes(&w->shards[i]).len, shard_header(&w->shards[i], k));
    }
    for (uint64_t i = 0; i < w->n_tensors; i++)
        hash_samples(&h, &w->tensors[i]);
    XXH128_canonicalFromHash((XXH128_canonical_t *)out, XXH3_128bits_digest(&h));
}

static void hash_stamp(XXH3_state_t *h, struct file_stamp s)
{
    XXH3_128bits_update(h, &s, sizeof s);
}

void weights_stamp(const struct weights *w, uint8_t out[16])
{
    XXH3_state_t h;
    XXH3_128bits_reset(&h);
    for (uint32_t i = 0; w->gguf && i < gguf_n_parts(w->gguf); i++)
        hash_stamp(&h, gguf_stamp(gguf_part(w->gguf, i)));
    for (uint64_t i = 0; i < w->n_shards; i++)
        hash_stamp(&h, shard_stamp(&w->shards[i]));
    XXH128_canonicalFromHash((XXH128_canonical_t *)out, XXH3_128bits_digest(&h));
}

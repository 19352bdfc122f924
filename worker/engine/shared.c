/* The key covers all that decides about the bytes: the files with their inodes and times, the rank
 * slot, the quantisation, the type of activations, the memory policy (each NUMA node has weights of
 * its own), and the program file itself. So two builds never share, and a change of the layout
 * needs no version. Names of processes count within a PID namespace, so it is in the key too. The
 * level of instruction sets is not: all levels read one layout (kernels/cpu/pack/pack.h). */
#include "worker/engine/shared.h"

#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define XXH_STATIC_LINKING_ONLY /* the macro allows a hash state on the stack */
#include <xxhash.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/host/share_folder.h"
#include "worker/share/share.h"

enum { POLICY_WORDS = 1024 / (8 * sizeof(unsigned long)) };

static void hash_u64(XXH3_state_t *h, uint64_t v)
{
    XXH3_128bits_update(h, &v, sizeof v);
}

/* An unreadable /proc counts as zeros: it gives no memory of other processes either. */
static void hash_program(XXH3_state_t *h)
{
    struct stat st = {0};
    (void)stat("/proc/self/exe", &st);
    hash_u64(h, st.st_dev);
    hash_u64(h, st.st_ino);
    hash_u64(h, (uint64_t)st.st_size);
    hash_u64(h, (uint64_t)st.st_mtim.tv_sec);
    hash_u64(h, (uint64_t)st.st_mtim.tv_nsec);
}

/* The times of a namespace's inode differ from process to process. */
static void hash_pid_namespace(XXH3_state_t *h)
{
    struct stat st = {0};
    (void)stat("/proc/self/ns/pid", &st);
    hash_u64(h, st.st_dev);
    hash_u64(h, st.st_ino);
}

static void hash_memory_policy(XXH3_state_t *h)
{
    unsigned long mask[POLICY_WORDS] = {0};
    int mode = 0;
    (void)syscall(SYS_get_mempolicy, &mode, mask, 8 * sizeof mask + 1, NULL, 0ul);
    hash_u64(h, (uint64_t)mode);
    XXH3_128bits_update(h, mask, sizeof mask);
}

static void hash_matrix(XXH3_state_t *h, const struct op_weight *x)
{
    const uint64_t numbers[] = {x->layer, x->expert, x->n0, x->n_len, x->k0, x->k_len, x->n, x->k};
    XXH3_128bits_update(h, numbers, sizeof numbers);
}

static void make_key(const struct engine *e, uint8_t out[16])
{
    const struct program *p = e->program;
    const uint64_t numbers[] = {p->tp,
                                p->rank,
                                p->pp,
                                p->stage,
                                e->expert_parallel,
                                e->config.quant.at_load,
                                e->activations,
                                e->weights_bytes};
    XXH3_state_t h;
    uint8_t files[16];
    weights_stamp(e->files, files);
    XXH3_128bits_reset(&h);
    XXH3_128bits_update(&h, e->identity, sizeof e->identity);
    XXH3_128bits_update(&h, files, sizeof files);
    XXH3_128bits_update(&h, numbers, sizeof numbers);
    for (uint32_t i = 0; i < p->n_weights; i++)
        hash_matrix(&h, &p->weights[i]);
    hash_program(&h);
    hash_pid_namespace(&h);
    hash_memory_policy(&h);
    XXH128_canonicalFromHash((XXH128_canonical_t *)out, XXH3_128bits_digest(&h));
}

static void on_wait(void *ctx, uint64_t done_bytes)
{
    load_progress_at(ctx, done_bytes);
}

void engine_share_begin(struct engine *e)
{
    struct load_progress progress = {.permille = e->load_permille,
                                     .rank = e->program->rank,
                                     .n_ranks = e->tp,
                                     .n_bytes = e->weights_bytes};
    struct share_ask ask = {.option = e->weights_share,
                            .n_bytes = e->weights_bytes,
                            .on_wait = on_wait,
                            .ctx = &progress};
    struct error err;
    e->found_bytes = 0;
    if (!share_folder_wanted(e->weights_share) || !e->files || !e->device->ops->on_host)
        return;
    make_key(e, ask.key);
    load_progress_begin(&progress);
    enum status s = share_open(&ask, &e->share, &err);
    load_progress_end(&progress);
    if (s != STATUS_OK)
        log_warn("weights_not_shared", "error=%s", log_quote(err.text));
    else if (e->share->is_packed)
        e->found_bytes = e->weights_bytes;
}

static void on_done(void *ctx, uint64_t done_bytes)
{
    share_beat(ctx, done_bytes);
}

void engine_share_lend(struct engine *e, struct load_progress *progress)
{
    struct error err;
    if (e->share && share_reserve(e->share, e->device, &err) != STATUS_OK) {
        log_warn("weights_not_shared", "error=%s", log_quote(err.text));
        engine_share_end(e);
    }
    if (!e->share)
        return;
    e->loaded.memory = e->share->memory.at;
    e->loaded.is_borrowed = true;
    e->loaded.is_packed = e->share->is_packed;
    progress->on_done = on_done;
    progress->ctx = e->share;
}

void engine_share_publish(struct engine *e)
{
    struct error err;
    if (!e->share)
        return;
    bool found = e->loaded.is_packed;
    if (!found && share_publish(e->share, &err) != STATUS_OK)
        log_warn("weights_not_shared", "error=%s", log_quote(err.text));
    else
        log_info("weights_shared", "bytes=%llu found=%s", (unsigned long long)e->weights_bytes,
                 found ? "true" : "false");
    e->loaded.is_packed = true;
}

void engine_share_end(struct engine *e)
{
    share_close(e->share);
    e->share = NULL;
}

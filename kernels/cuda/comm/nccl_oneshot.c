/* Implements small sums of a stage over memory that its ranks map from each other (oneshot.cu).
 * They replace NCCL's sums when possible. nccl.c calls this file when a group is joined and
 * left. nccl_ops.c calls it for sums. Each group tests again whether the sums work, and all
 * ranks of the stage get the same result. NCCL sums up a table of each rank's properties. Each
 * rank maps the others' regions and reports the result. Then a trial sum runs, and each rank
 * reports whether it was right. If one rank reports a failure, NCCL computes all sums. CUDA's
 * handles are valid on one host only. A boot id distinguishes hosts, even for ranks in
 * containers.
 *
 * Loss of a rank. A kernel that waits for a rank polls a word of the host, which an interrupt
 * sets. The kernel then ends, and sums enqueued behind it do nothing. Without an interrupt, the
 * kernel ends at the deadline of a wait, and another word has the number of the rank that did
 * not arrive. A rank's own region is kept until the process exits, since a rank of an earlier
 * group may still write a flag into it. The regions of other ranks are unmapped when the stream
 * has ended. */
#include "kernels/cuda/comm/nccl_state.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/mem.h"

#define TRIAL_NS (5 * 1000000000ull) /* most delay of a rank at a trial, in ns */

enum {
    BOOT_ID_BYTES = 36,
    /* elements of a trial: enough that every block of the kernel has words */
    TRIAL_ELEMENTS = 64 << 10,
    TRIAL_POWERS = 7,
    /* The WORD_ constants are indices of the host's words; each word has a separate cache line. */
    WORD_ABORT = 0,
    WORD_FAILED = 16,
    N_WORDS = 32
};

/* `entry` holds a rank's properties. They are sent as one float for each byte, with zeros in the
 * other ranks' places, because the sum of one number and zeros is that number. */
struct entry {
    /* 0: sums over peer memory are disabled; 1: they are enabled; 2: there is too little memory
     * for them */
    uint8_t is_willing;
    uint8_t boot[BOOT_ID_BYTES];
    uint8_t handle[GPU_PEER_HANDLE_BYTES];
    char pci[GPU_PEER_PCI_BYTES];
};
_Static_assert(sizeof(struct entry) * GPU_ONESHOT_MAX_RANKS * 4 <= TRIAL_ELEMENTS * 2, "scratch");

_Static_assert(TRIAL_ELEMENTS * 2 <= GPU_COMM_ONE_SHOT_BYTES / 2, "in a page of its own");

/* Does not free the rank's own region. Other ranks may not have unmapped it yet, and a rank that
 * is still in the group may write a flag into it. The region is freed when the process exits. */
void nccl_oneshot_close(struct nccl_comm *c)
{
    struct nccl_oneshot *o = &c->oneshot;
    if (!c->o.stream)
        return;
    struct gpu_device *d = gpu_stream_device(c->o.stream);
    gpu_release(d, o->scratch);
    gpu_host_release(d, (void *)atomic_exchange(&o->words, NULL));
}

/* The store is sequentially consistent, as in nccl_enter: a thread that begins a group clears
 * the word and then checks for an interrupt. */
void nccl_oneshot_interrupt(struct nccl_oneshot *o)
{
    _Atomic uint32_t *words = atomic_load(&o->words);
    if (words)
        atomic_store(&words[WORD_ABORT], 1);
}

enum status nccl_oneshot_check(const struct nccl_comm *c, struct error *err)
{
    _Atomic uint32_t *words = atomic_load(&c->oneshot.words);
    uint32_t failed = c->base.one_shot_bytes > 0 ? atomic_load(&words[WORD_FAILED]) : 0;
    if (failed == 0)
        return STATUS_OK;
    return error_set(err, STATUS_IO,
                     "rank %u of the stage did not arrive at a one-shot sum in time. See its log",
                     failed - 1);
}

/* ---- memory ---- */

static enum status allocate(struct nccl_comm *c, struct error *err)
{
    struct nccl_oneshot *o = &c->oneshot;
    struct gpu_device *d = gpu_stream_device(c->o.stream);
    void *words;
    if (!o->scratch)
        TRY(gpu_alloc(d, TRIAL_ELEMENTS * 2, &o->scratch, err));
    if (o->own.ptr || c->o.no_one_shot)
        return STATUS_OK;
    if (!atomic_load(&o->words)) {
        TRY(gpu_host_alloc(d, N_WORDS * sizeof(uint32_t), &words, err));
        memset(words, 0, N_WORDS * sizeof(uint32_t));
        atomic_store(&o->words, words);
    }
    return gpu_peer_alloc(d, cuda_oneshot_bytes(), &o->own, err);
}

static void unmap(struct nccl_comm *c)
{
    struct nccl_oneshot *o = &c->oneshot;
    c->base.one_shot_bytes = 0;
    for (uint32_t r = 0; r < GPU_ONESHOT_MAX_RANKS; r++) {
        if (o->regions[r] && o->regions[r] != o->own.ptr)
            gpu_peer_close(gpu_stream_device(c->o.stream), o->regions[r]);
        o->regions[r] = NULL;
    }
}

void nccl_oneshot_leave(struct nccl_comm *c)
{
    if (c->o.stream)
        unmap(c);
}

/* ---- the table of all ranks ---- */

static void read_boot_id(uint8_t out[BOOT_ID_BYTES])
{
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, out, BOOT_ID_BYTES) : -1;
    if (n != BOOT_ID_BYTES) /* the boot id is unknown and matches no rank */
        memset(out, 0, BOOT_ID_BYTES);
    if (fd >= 0)
        close(fd);
}

static struct entry own_entry(const struct nccl_comm *c)
{
    const struct nccl_oneshot *o = &c->oneshot;
    struct entry e = {.is_willing = c->o.no_one_shot ? 0 : o->own.ptr ? 1 : 2};
    read_boot_id(e.boot);
    memcpy(e.handle, o->own.handle, sizeof e.handle);
    memcpy(e.pci, o->own.pci, sizeof e.pci);
    return e;
}

/* Sums n floats of the host over the stage. The call waits for the device, so it must not be
 * used in a step. */
static enum status sum_host(struct nccl_comm *c, float *x, size_t n, struct error *err)
{
    void *scratch = c->oneshot.scratch;
    TRY(gpu_copy_to_device(c->o.stream, scratch, x, n * sizeof *x, err));
    TRY(c->base.ops->sum_floats(&c->base, scratch, n, err));
    TRY(c->base.ops->wait(&c->base, NULL, NULL, err));
    TRY(gpu_copy_from_device(c->o.stream, x, scratch, n * sizeof *x, err));
    return gpu_stream_sync(c->o.stream, err);
}

static enum status share_entries(struct nccl_comm *c, struct entry *entries, struct error *err)
{
    const struct gpu_comm_group *g = &c->base.group;
    float table[GPU_ONESHOT_MAX_RANKS * sizeof(struct entry)] = {0};
    const struct entry own = own_entry(c);
    const uint8_t *bytes = (const uint8_t *)&own;
    for (size_t i = 0; i < sizeof own; i++)
        table[g->rank * sizeof own + i] = bytes[i];
    TRY(sum_host(c, table, g->tp * sizeof own, err));
    for (size_t i = 0; i < g->tp * sizeof own; i++)
        ((uint8_t *)entries)[i] = (uint8_t)table[i];
    for (uint32_t r = 0; r < g->tp; r++)
        entries[r].pci[sizeof entries[r].pci - 1] = '\0';
    return STATUS_OK;
}

/* Returns whether all ranks may try the sums. The answer is the same on all ranks, because it
 * depends on the table alone. */
static bool may_try(struct nccl_comm *c, const struct entry *entries)
{
    static const uint8_t nobody[BOOT_ID_BYTES];
    char *why = c->base.one_shot_why;
    const size_t size = sizeof c->base.one_shot_why;
    for (uint32_t r = 0; r < c->base.group.tp; r++) {
        const struct entry *e = &entries[r];
        if (e->is_willing == 0)
            snprintf(why, size, "rank %u turned them off (--no-one-shot)", r);
        else if (e->is_willing != 1)
            snprintf(why, size, "rank %u could not allocate memory for them", r);
        else if (memcmp(e->boot, nobody, BOOT_ID_BYTES) == 0 ||
                 memcmp(e->boot, entries[0].boot, BOOT_ID_BYTES) != 0)
            snprintf(why, size, "ranks 0 and %u may be on different hosts", r);
        else
            continue;
        return false;
    }
    return true;
}

/* ---- trying ---- */

static enum status map(struct nccl_comm *c, const struct entry *entries, struct error *err)
{
    struct nccl_oneshot *o = &c->oneshot;
    for (uint32_t r = 0; r < c->base.group.tp; r++) {
        if (r == c->base.group.rank) {
            o->regions[r] = o->own.ptr;
            continue;
        }
        enum status s = gpu_peer_open(gpu_stream_device(c->o.stream), entries[r].handle,
                                      entries[r].pci, &o->regions[r], err);
        if (s != STATUS_OK)
            return error_prefix(err, s, "mapping the memory of rank %u", r);
    }
    return STATUS_OK;
}

/* Sets *all to whether `yes` is true on every rank. */
static enum status agree(struct nccl_comm *c, bool yes, const struct error *own_why, bool *all,
                         struct error *err)
{
    float n_yes = yes ? 1 : 0;
    TRY(sum_host(c, &n_yes, 1, err));
    *all = n_yes == (float)c->base.group.tp;
    if (!yes)
        snprintf(c->base.one_shot_why, sizeof c->base.one_shot_why, "%.150s", own_why->text);
    else if (!*all)
        snprintf(c->base.one_shot_why, sizeof c->base.one_shot_why,
                 "%u of %u ranks cannot use them: look at their logs",
                 (unsigned)((float)c->base.group.tp - n_yes), c->base.group.tp);
    return STATUS_OK;
}

static enum status enqueue(struct nccl_comm *c, void *x, size_t n, uint64_t timeout_ns,
                           struct error *err)
{
    struct nccl_oneshot *o = &c->oneshot;
    uint32_t *words = (uint32_t *)atomic_load(&o->words);
    struct oneshot_params p = {.rank = c->base.group.rank,
                               .n_ranks = c->base.group.tp,
                               .tag = o->tag,
                               .x = x,
                               .n = n,
                               .timeout_ns = timeout_ns,
                               .failed = words + WORD_FAILED,
                               .abort = words + WORD_ABORT};
    memcpy(p.regions, o->regions, sizeof p.regions);
    return cuda_oneshot_sum_bf16(c->o.stream, &p, err);
}

/* Returns the upper half of a float's bits as a bfloat16. The result is exact for powers of two
 * and for their sums. */
static uint16_t bf16_of(float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    return (uint16_t)(bits >> 16);
}

static float power_at(size_t i)
{
    return (float)(1u << i / 8 % TRIAL_POWERS);
}

/* Computes two sums, one in each slot: of 2^r from rank r, then of the result that all ranks
 * should have. Returns an error after an interrupt or when a rank is lost. If a rank does not
 * arrive, the trial has failed. */
static enum status try_sums(struct nccl_comm *c, uint16_t *x, bool *right, struct error *err)
{
    const uint32_t tp = c->base.group.tp;
    void *scratch = c->oneshot.scratch;
    for (size_t i = 0; i < TRIAL_ELEMENTS; i++)
        x[i] = bf16_of((float)(1u << c->base.group.rank) * power_at(i));
    TRY(gpu_copy_to_device(c->o.stream, scratch, x, TRIAL_ELEMENTS * 2, err));
    for (uint32_t i = 0; i < 2; i++)
        TRY(enqueue(c, scratch, TRIAL_ELEMENTS, TRIAL_NS, err));
    TRY(c->base.ops->wait(&c->base, NULL, NULL, err));
    TRY(gpu_copy_from_device(c->o.stream, x, scratch, TRIAL_ELEMENTS * 2, err));
    TRY(gpu_stream_sync(c->o.stream, err));
    *right = true;
    for (size_t i = 0; i < TRIAL_ELEMENTS && *right; i++)
        *right = x[i] == bf16_of((float)(tp * ((1u << tp) - 1)) * power_at(i));
    return STATUS_OK;
}

/* Runs the trial. All ranks have mapped all regions by now. */
static enum status try_and_agree(struct nccl_comm *c, bool *all, struct error *err)
{
    bool right = false;
    struct error why = {0};
    uint16_t *x = mem_alloc(TRIAL_ELEMENTS * 2);
    enum status s = try_sums(c, x, &right, err);
    mem_free(x);
    TRY(s);
    if (!right)
        (void)error_set(
            &why, STATUS_IO,
            "the test of one-shot sums over peer memory gave wrong sums, so NCCL sums instead");
    return agree(c, right, &why, all, err);
}

/* ---- the group ---- */

/* Returns a mark that the flags of earlier groups do not have. The mark is not a secret. */
static uint32_t tag_of(const struct gpu_comm_group *g)
{
    uint32_t h = 2166136261u; /* offset basis of FNV-1a */
    for (uint32_t i = 0; i < g->n_id; i++)
        h = (h ^ g->id[i]) * 16777619u;
    return h == 0 ? 1 : h; /* fresh memory contains 0, so the tag must not be 0 */
}

/* Begins a group. No rank of this group can have written into the region, because no rank has
 * its handle yet. Ranks of earlier groups may write, but with another tag. */
static enum status begin(struct nccl_comm *c, const struct gpu_comm_group *g, struct error *err)
{
    struct nccl_oneshot *o = &c->oneshot;
    struct error why;
    if (allocate(c, &why) != STATUS_OK && !o->scratch)
        return error_set(err, STATUS_NO_MEMORY, "%s", why.text);
    if (!o->own.ptr)
        return STATUS_OK;
    _Atomic uint32_t *words = atomic_load(&o->words);
    o->tag = tag_of(g);
    atomic_store(&words[WORD_FAILED], 0);
    atomic_store(&words[WORD_ABORT], 0);
    if (atomic_load(&c->interrupted))
        return error_set(err, STATUS_CLOSED, "interrupted");
    return cuda_oneshot_begin(c->o.stream, o->own.ptr, err);
}

enum status nccl_oneshot_join(struct nccl_comm *c, const struct gpu_comm_group *g,
                              struct error *err)
{
    struct entry entries[GPU_ONESHOT_MAX_RANKS];
    struct error why = {0};
    bool all = false;
    c->base.one_shot_bytes = 0;
    snprintf(c->base.one_shot_why, sizeof c->base.one_shot_why, "they need 2, 4 or 8 ranks");
    if (cuda_oneshot_limit(g->tp) == 0)
        return STATUS_OK;
    TRY(begin(c, g, err));
    TRY(share_entries(c, entries, err));
    if (!may_try(c, entries))
        return STATUS_OK;
    TRY(agree(c, map(c, entries, &why) == STATUS_OK, &why, &all, err));
    if (all)
        TRY(try_and_agree(c, &all, err));
    if (!all)
        unmap(c);
    else
        c->base.one_shot_bytes = cuda_oneshot_limit(g->tp);
    return STATUS_OK;
}

/* Returns whether this sum may use peer memory. The result is the same on all ranks, because all
 * call with the same n, and with x at the same offset of equally aligned memory. */
bool nccl_oneshot_takes(const struct nccl_comm *c, const void *x, size_t n)
{
    return n % 8 == 0 && n > 0 && n <= c->base.one_shot_bytes / 2 && (uintptr_t)x % 16 == 0;
}

enum status nccl_oneshot_sum(struct nccl_comm *c, void *x, size_t n, struct error *err)
{
    if (atomic_load(&c->interrupted))
        return error_set(err, STATUS_CLOSED, "interrupted");
    return enqueue(c, x, n, c->o.wait_timeout_ms * 1000000ull, err);
}

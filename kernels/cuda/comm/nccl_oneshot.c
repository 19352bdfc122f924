/* Small sums of a stage over memory that its ranks map from each other (oneshot.cu), in front of
 * NCCL's. Whether they are used is found out by trying, anew for each group, and all ranks of the
 * stage come to the same answer: a table of what each has is summed up by NCCL, each maps the
 * others' regions and says so, then a trial is summed and each says whether it is right. One no is
 * everybody's, and NCCL has all sums. Handles of CUDA are of one host: a boot id tells hosts apart,
 * whatever containers their ranks are in.
 *
 * Loss. A kernel that waits for a rank looks at a word of the host, which an interrupt sets: it
 * ends then, and what is enqueued behind it does nothing. Without an interrupt it ends at the
 * deadline of a wait, and another word says who did not come. Regions stay for the life of the
 * process, since a rank that was left behind may still write a flag into them; what the others have
 * is unmapped when the stream has come to its end. */
#include "kernels/cuda/comm/nccl_state.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/mem.h"

#define TRIAL_NS (5 * 1000000000ull) /* that a rank may come late to a trial */

enum {
    BOOT_ID_BYTES = 36,
    TRIAL_ELEMENTS = 64 << 10, /* every block of the kernel has words of its own */
    TRIAL_POWERS = 7,
    /* words of the host, on cache lines of their own */
    WORD_ABORT = 0,
    WORD_FAILED = 16,
    N_WORDS = 32
};

/* What a rank says of itself. It travels as a float for each byte, zeros in the others' places: a
 * sum of one number and zeros is that number. */
struct entry {
    uint8_t is_willing; /* 2: it has no memory for it */
    uint8_t boot[BOOT_ID_BYTES];
    uint8_t handle[GPU_PEER_HANDLE_BYTES];
    char pci[GPU_PEER_PCI_BYTES];
};
_Static_assert(sizeof(struct entry) * GPU_ONESHOT_MAX_RANKS * 4 <= TRIAL_ELEMENTS * 2, "scratch");

_Static_assert(TRIAL_ELEMENTS * 2 <= GPU_COMM_ONE_SHOT_BYTES / 2, "in a page of its own");

/* Not the region: other ranks may not have unmapped it yet, and a rank that is still in the group
 * may write a flag into it. It goes when the process does, as that of a rank that was killed. */
void nccl_oneshot_close(struct nccl_comm *c)
{
    struct nccl_oneshot *o = &c->oneshot;
    if (!c->o.stream)
        return;
    struct gpu_device *d = gpu_stream_device(c->o.stream);
    gpu_release(d, o->scratch);
    gpu_host_release(d, (void *)atomic_exchange(&o->words, NULL));
}

/* Both are sequentially consistent, as nccl_enter: whoever begins a group looks for an interrupt
 * behind the zero. */
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
                     "rank %u of the stage did not arrive at a one-shot sum in time", failed - 1);
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
    if (n != BOOT_ID_BYTES) /* nobody's */
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

/* Sums n floats of the host over the stage. Not one of a step: it waits. */
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

/* The same answer on all ranks: it follows from the table. */
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

/* Does everybody say yes? */
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

/* Powers of two are bfloat16's own: their bits are a float's upper half. Sums stay exact. */
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

/* Two sums, one in each slot: of rank r's 2^r, then of what all of them should have. An interrupt
 * and a lost rank are errors; a rank that does not come is a trial that failed. */
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

/* All ranks have mapped all regions. */
static enum status try_and_agree(struct nccl_comm *c, bool *all, struct error *err)
{
    bool right = false;
    struct error why = {0};
    uint16_t *x = mem_alloc(TRIAL_ELEMENTS * 2);
    enum status s = try_sums(c, x, &right, err);
    mem_free(x);
    TRY(s);
    if (!right)
        (void)error_set(&why, STATUS_IO,
                        "the test of one-shot sums over peer memory gave wrong sums");
    return agree(c, right, &why, all, err);
}

/* ---- the group ---- */

/* Not a secret: a mark that the last group's flags do not have. */
static uint32_t tag_of(const struct gpu_comm_group *g)
{
    uint32_t h = 2166136261u; /* FNV-1a */
    for (uint32_t i = 0; i < g->n_id; i++)
        h = (h ^ g->id[i]) * 16777619u;
    return h == 0 ? 1 : h; /* fresh memory has zeros */
}

/* Nothing of this group's can have been written into the region: nobody has its handle yet, but for
 * ranks of groups before, which have another tag. */
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

/* All ranks call with the same n; x lies at the same place of memory of the same alignment. */
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

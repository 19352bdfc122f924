/* The CPU device behind its executor, plan by plan, against folders with expectations: every prompt
 * several times at once, in chunks and whole, in steps of more rows than a pass and more samples
 * than logits are computed at once; then one that enters with KV blocks copied from another.
 * Usage: executor_golden FOLDER...; exit 77: a FOLDER is not there. */
#include <stdio.h>
#include <string.h>

#include "golden_file.h"
#include "worker/executor.h"
#include "worker/runner.h"

enum { MAX_STREAMS = 24, STREAM_BLOCKS = 16, BLOCK = 16, N_BLOCKS = 401, N_COPIED = 4 };
/* Tokens of a prompt in one step, for each time that it is there. */
static const uint32_t chunks[] = {1000, 1000, 1000, 64, 7};
enum { TIMES = sizeof chunks / sizeof chunks[0] };

struct stream {
    const struct golden_prompt *prompt;
    uint32_t slot, chunk, n_done, n_drawn;
    struct sampling_params sampling;
    struct plan_blocks tables[PROGRAM_MAX_KV_GROUPS];
    uint32_t blocks[PROGRAM_MAX_KV_GROUPS][STREAM_BLOCKS];
};
struct job {
    struct executor *executor;
    struct stream streams[MAX_STREAMS];
    uint32_t n_streams, n_groups;
    uint64_t step;
    struct arena arena;
};

/* Scattered, no two alike, other ones in each group: N_BLOCKS is a prime. */
static uint32_t block_of(uint32_t i_group, uint32_t slot, uint32_t i)
{
    return (slot * STREAM_BLOCKS + i) * (7 + i_group) % N_BLOCKS;
}

/* The first token that did not come before may stop the stream, but not a step earlier: the greedy
 * tokens stay as they are when the executor counts what was generated. */
static void forbid_until_due(struct stream *s)
{
    const uint32_t *ids = s->prompt->greedy;
    for (uint32_t i = 1, k; i < s->prompt->n_greedy; i++) {
        for (k = 0; k < i && ids[k] != ids[i];)
            k++;
        if (k < i)
            continue;
        s->sampling.stop_ids = (struct u32_span){ids + i, 1};
        s->sampling.min_tokens = i;
        return;
    }
}

static struct stream *add_stream(struct job *j, const struct golden_prompt *p, uint32_t chunk)
{
    if (j->n_streams == MAX_STREAMS || p->n_ids + p->n_greedy > STREAM_BLOCKS * BLOCK)
        golden_die("prompt %s: no room for it", p->name);
    struct stream *s = &j->streams[j->n_streams];
    *s = (struct stream){.prompt = p, .slot = j->n_streams++, .chunk = chunk};
    s->sampling.n_logprobs = s->slot % 2 ? 3 : -1;
    forbid_until_due(s);
    for (uint32_t g = 0; g < j->n_groups; g++) {
        for (uint32_t i = 0; i < STREAM_BLOCKS; i++)
            s->blocks[g][i] = block_of(g, s->slot, i);
        s->tables[g] = (struct plan_blocks){.i_group = g, .ids = {s->blocks[g], STREAM_BLOCKS}};
    }
    return s;
}

static void check_item(struct stream *s, const struct result_item *item)
{
    uint32_t want = s->prompt->greedy[s->n_drawn++];
    if (item->slot != s->slot || item->ids.n != 1 || item->ids.ptr[0] != want)
        golden_die("%s: slot %u token %u: slot %u says %u, expected %u", s->prompt->name, s->slot,
                   s->n_drawn - 1, item->slot, item->ids.ptr[0], want);
    if (item->n_logprobs != (s->sampling.n_logprobs >= 0))
        golden_die("%s: slot %u: %u rows of log-probabilities", s->prompt->name, s->slot,
                   item->n_logprobs);
    if (item->n_logprobs &&
        (item->logprobs->ids.ptr[0] != want || item->logprobs->chosen_rank != 1 ||
         item->logprobs->ids.ptr[1] != want))
        golden_die("%s: slot %u: log-probabilities of another row", s->prompt->name, s->slot);
}

/* One step of all streams that are not done. False: there was none. */
static bool run_step(struct job *j, const struct plan_copy *copies, uint32_t n_copies)
{
    struct plan_admit admits[MAX_STREAMS];
    struct plan_run runs[MAX_STREAMS];
    struct stream *sampled[MAX_STREAMS];
    struct msg_plan p = {
        .step = ++j->step, .copies = copies, .n_copies = n_copies, .admits = admits, .runs = runs};
    uint32_t n_sampled = 0;
    for (uint32_t i = 0; i < j->n_streams; i++) {
        struct stream *s = &j->streams[i];
        const struct golden_prompt *g = s->prompt;
        uint32_t left = g->n_ids + s->n_drawn - s->n_done;
        bool enters = s->tables[0].ids.n > 0;
        if (s->n_drawn == g->n_greedy)
            continue;
        if (enters)
            admits[p.n_admits++] = (struct plan_admit){.slot = s->slot,
                                                       .n_prompt = g->n_ids,
                                                       .n_computed = s->n_done,
                                                       .ids = {g->ids, g->n_ids},
                                                       .sampling = s->sampling};
        struct plan_run *r = &runs[p.n_runs++];
        *r = (struct plan_run){.slot = s->slot,
                               .start = s->n_done,
                               .n_tokens = left < s->chunk ? left : s->chunk,
                               .sample = left <= s->chunk,
                               .blocks = s->tables,
                               .n_blocks = enters ? j->n_groups : 0};
        s->n_done += r->n_tokens;
        if (r->sample)
            sampled[n_sampled++] = s;
    }
    struct msg_result result;
    struct error err = {0};
    arena_reset(&j->arena);
    if (p.n_runs == 0)
        return false;
    if (j->executor->ops->step(j->executor, &p, &j->arena, &result, &err) != STATUS_OK)
        golden_die("step %llu: %s", (unsigned long long)p.step, err.text);
    if (result.n_items != n_sampled)
        golden_die("%u items, %u runs were sampled", result.n_items, n_sampled);
    for (uint32_t i = 0; i < n_sampled; i++)
        check_item(sampled[i], &result.items[i]);
    for (uint32_t i = 0; i < p.n_runs; i++)
        for (uint32_t g = 0; g < j->n_groups; g++)
            j->streams[runs[i].slot].tables[g].ids.n = 0; /* the rank has them now */
    return true;
}

/* As after a prefix hit, but in blocks of its own: those of `from`, copied in the same step. */
static void enter_with_copies(struct job *j, const struct stream *from)
{
    struct plan_copy copies[PROGRAM_MAX_KV_GROUPS * N_COPIED];
    struct stream *s = add_stream(j, from->prompt, 1000);
    uint32_t n = 0;
    s->n_done = N_COPIED * BLOCK;
    for (uint32_t g = 0; g < j->n_groups; g++)
        for (uint32_t i = 0; i < N_COPIED; i++)
            copies[n++] =
                (struct plan_copy){.i_group = g, .from = from->blocks[g][i], .to = s->blocks[g][i]};
    if (!run_step(j, copies, n))
        golden_die("nothing ran");
    while (run_step(j, NULL, 0)) {
    }
}

static void open_executor(struct job *j, const char *folder)
{
    const struct worker_options o = {.model = folder,
                                     .tp = 1,
                                     .pp = 1,
                                     .threads = 2,
                                     .block_size = BLOCK,
                                     .num_gpu_blocks_override = N_BLOCKS,
                                     .kv_cache_dtype = WORKER_KV_FLOAT32};
    uint8_t id[64];
    uint32_t n = sizeof id, n_blocks[PROGRAM_MAX_KV_GROUPS];
    struct error err = {0};
    if (executor_cpu_open(&o, &j->executor, &err) != STATUS_OK)
        golden_die("%s: %s", folder, err.text);
    const struct executor_ops *ops = j->executor->ops;
    const struct executor_info *info = ops->info(j->executor);
    j->n_groups = info->limits.n_kv_groups;
    for (uint32_t g = 0; g < j->n_groups; g++)
        n_blocks[g] = N_BLOCKS;
    if (ops->make_comm_id(j->executor, id, &n, &err) != STATUS_OK)
        golden_die("%s: %s", folder, err.text);
    const struct executor_comm comm = {.term_epoch = 1,
                                       .tp = 1,
                                       .pp = 1,
                                       .isa_level = info->isa_level,
                                       .n_blocks = {n_blocks, j->n_groups},
                                       .id = {id, n}};
    if (ops->join_comm(j->executor, &comm, &err) != STATUS_OK)
        golden_die("%s: %s", folder, err.text);
}

static bool check_folder(const char *folder)
{
    static struct job j;
    struct golden_file f;
    uint32_t i_long = 0;
    if (!golden_file_open(&f, folder, NULL))
        return false;
    j = (struct job){0};
    arena_init(&j.arena, 0);
    open_executor(&j, folder);
    for (uint32_t t = 0; t < TIMES; t++)
        for (uint32_t i = 0; i < f.n_prompts; i++) {
            i_long = f.prompts[i].n_ids > N_COPIED * BLOCK ? j.n_streams : i_long;
            (void)add_stream(&j, &f.prompts[i], chunks[t]);
        }
    while (run_step(&j, NULL, 0)) {
    }
    enter_with_copies(&j, &j.streams[i_long]);
    printf("%s: %u streams, %llu steps\n", folder, j.n_streams, (unsigned long long)j.step);
    j.executor->ops->close(j.executor);
    arena_fini(&j.arena);
    golden_file_close(&f);
    return true;
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (!check_folder(argv[i])) {
            fprintf(stderr, "skipped: no %s; scripts/make-goldens makes it\n", argv[i]);
            return 77;
        }
    return argc > 1 ? 0 : 2;
}

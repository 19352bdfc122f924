/* Tests the CPU device behind its executor, plan by plan, against folders with expected results.
 * Every prompt runs several times at once, in chunks and whole. Steps have more rows than a pass
 * and more samples than logits are computed at once, and most runs have draft tokens. A last
 * sequence starts with KV blocks that are copied from another sequence.
 * The ranks are one rank, two ranks (threads here), and two stages of two. The latter two run
 * twice, the second time with their ranks exchanged.
 * Usage: executor_golden own|reference|FOLDER...; exit 77: a set has no model. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/golden/golden_file.h"
#include "tests/golden/golden_models.h"
#include "worker/executor/device/cpu.h"
#include "worker/executor/executor.h"
#include "worker/runner/runner.h"

enum {
    MAX_STREAMS = 24,
    MAX_RANKS = 4,
    MAX_TURNS = 2,
    STREAM_BLOCKS = 16,
    BLOCK = 16,
    N_BLOCKS = 401,
    N_COPIED = 4,
    MAX_DRAFT = 4,
    MAX_LEN = STREAM_BLOCKS * BLOCK
};
#define SCORE_BOUND 1e-3f /* bound of model_golden.c for log-probabilities */
/* `chunks` has the tokens of a prompt in one step, for each time that the prompt runs. */
static const uint32_t chunks[] = {1000, 1000, 1000, 64, 7};
enum { TIMES = sizeof chunks / sizeof chunks[0] };

struct stream {
    const struct golden_prompt *prompt;
    uint32_t slot, chunk, n_done, n_sampled, n_prompt_logprobs;
    struct sampling_params sampling;
    struct plan_blocks tables[PROGRAM_MAX_KV_GROUPS];
    uint32_t blocks[PROGRAM_MAX_KV_GROUPS][STREAM_BLOCKS];
};
/* `rank` holds one rank, and the work of its thread. */
struct rank {
    struct executor *executor;
    const struct executor_comm *comm; /* communicator that the rank joins; NULL = run a step */
    const struct msg_plan *plan;
    struct arena arena;
    struct msg_result result;
    struct error err;
    enum status status;
};
struct job {
    struct rank ranks[MAX_RANKS];
    uint32_t tp, pp, n_ranks;
    struct stream streams[MAX_STREAMS];
    uint32_t n_streams, n_groups;
    uint64_t step, epoch, n_drafted, n_right;
    uint32_t shortest, longest; /* bounds of the prompts that are run */
    uint32_t vocab_size;        /* vocabulary of the reference's rows */
};

/* Returns the scattered number of block i of a sequence. All numbers are different, because
 * N_BLOCKS is a prime, and they differ between groups. */
static uint32_t block_of(uint32_t i_group, uint32_t slot, uint32_t i)
{
    return (slot * STREAM_BLOCKS + i) * (7 + i_group) % N_BLOCKS;
}

/* Picks the first greedy token that did not occur before. The function makes this token a stop
 * token, and min_tokens forbids it until its position. The greedy tokens stay the same only if
 * the executor counts the generated tokens correctly. */
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
    s->sampling.n_prompt_logprobs = p->logprobs && s->slot % 3 == 0 ? 2 : -1;
    s->sampling.max_tokens = p->n_greedy;
    forbid_until_due(s);
    for (uint32_t g = 0; g < j->n_groups; g++) {
        for (uint32_t i = 0; i < STREAM_BLOCKS; i++)
            s->blocks[g][i] = block_of(g, s->slot, i);
        s->tables[g] = (struct plan_blocks){.i_group = g, .ids = {s->blocks[g], STREAM_BLOCKS}};
    }
    return s;
}

static void check_token(struct stream *s, const struct result_item *item, uint32_t i)
{
    uint32_t want = s->prompt->greedy[s->n_sampled++];
    if (item->ids.ptr[i] != want)
        golden_die("%s: slot %u token %u: %u, expected %u", s->prompt->name, s->slot,
                   s->n_sampled - 1, item->ids.ptr[i], want);
    if (s->sampling.n_logprobs < 0)
        return;
    const struct logprob_row *row = &item->logprobs[i];
    if (row->ids.ptr[0] != want || row->chosen_rank != 1 || row->ids.ptr[1] != want)
        golden_die("%s: slot %u: log-probabilities of another row", s->prompt->name, s->slot);
}

static void check_item(struct job *j, struct stream *s, uint32_t n_draft,
                       const struct result_item *item)
{
    uint32_t n = item->ids.n;
    if (item->slot != s->slot || n < 1 || n > n_draft + 1 || item->gaps.n != n ||
        item->n_logprobs != (s->sampling.n_logprobs >= 0 ? n : 0) ||
        s->n_sampled + n > s->prompt->n_greedy)
        golden_die("%s: slot %u: an item of slot %u with %u ids and %u log-probabilities",
                   s->prompt->name, s->slot, item->slot, n, item->n_logprobs);
    for (uint32_t i = 0; i < n; i++)
        check_token(s, item, i);
    s->n_done = s->prompt->n_ids + s->n_sampled - 1;
    j->n_right += n - 1;
}

static uint64_t all_scored;

/* Compares prompt_logprobs with the reference's log-probabilities at every position. */
static void check_scores(struct stream *s, uint32_t n, const struct result_item *item,
                         uint32_t vocab_size)
{
    const struct golden_prompt *p = s->prompt;
    if (item->n_prompt_logprobs != n || item->slot != s->slot)
        golden_die("%s: slot %u: %u rows of its prompt, not %u", p->name, s->slot,
                   item->n_prompt_logprobs, n);
    for (uint32_t i = 0; i < n; i++) {
        const struct logprob_row *row = &item->prompt_logprobs[i];
        const float *want = p->logprobs + (size_t)s->n_prompt_logprobs++ * vocab_size;
        uint32_t id = p->ids[s->n_prompt_logprobs], rank = 1;
        for (uint32_t k = 0; k < vocab_size; k++)
            rank += want[k] > want[id] + SCORE_BOUND;
        if (row->ids.n != 3 || row->ids.ptr[0] != id || row->chosen_rank < rank ||
            !(fabsf(row->values.ptr[0] - want[id]) <= SCORE_BOUND) ||
            !(fabsf(row->values.ptr[1] - want[row->ids.ptr[1]]) <= SCORE_BOUND) ||
            !(fabsf(row->values.ptr[2] - want[row->ids.ptr[2]]) <= SCORE_BOUND))
            golden_die("%s: slot %u: the row of id %u at %u is not the reference's (%g, %g)",
                       p->name, s->slot, id, s->n_prompt_logprobs, (double)row->values.ptr[0],
                       (double)want[id]);
    }
    all_scored += n;
}

static void *run_rank(void *arg)
{
    struct rank *r = arg;
    const struct executor_ops *ops = r->executor->ops;
    r->status = r->comm ? ops->join_comm(r->executor, r->comm, &r->err)
                        : ops->step(r->executor, r->plan, &r->arena, &r->result, &r->err);
    return NULL;
}

static void run_ranks(struct job *j, const char *what)
{
    pthread_t threads[MAX_RANKS];
    for (uint32_t i = 0; i < j->n_ranks; i++)
        if (pthread_create(&threads[i], NULL, run_rank, &j->ranks[i]) != 0)
            golden_die("no thread");
    for (uint32_t i = 0; i < j->n_ranks; i++) {
        pthread_join(threads[i], NULL);
        if (j->ranks[i].status != STATUS_OK)
            golden_die("%s: rank %u of %u: %s", what, i, j->n_ranks, j->ranks[i].err.text);
    }
}

static const struct msg_result *step_all(struct job *j, const struct msg_plan *p)
{
    for (uint32_t i = 0; i < j->n_ranks; i++) {
        arena_reset(&j->ranks[i].arena);
        j->ranks[i].comm = NULL;
        j->ranks[i].plan = p;
    }
    run_ranks(j, "step");
    uint32_t answers = (j->pp - 1) * j->tp;
    for (uint32_t i = 0; i < j->n_ranks; i++)
        if (i != answers && j->ranks[i].result.n_items != 0)
            golden_die("rank %u answers", i);
    return &j->ranks[answers].result;
}

/* Returns the number of rows in the next run that are followed by an id of the prompt. */
static uint32_t n_prompt_logprobs_of(const struct stream *s, uint32_t n_tokens)
{
    uint32_t last = s->prompt->n_ids - 1, left = s->n_done < last ? last - s->n_done : 0;
    if (s->sampling.n_prompt_logprobs < 0)
        return 0;
    return n_tokens < left ? n_tokens : left;
}

/* Runs one step of all streams that are not done. Returns false when all streams are done. */
static bool run_step(struct job *j, const struct plan_copy *copies, uint32_t n_copies)
{
    struct plan_admit admits[MAX_STREAMS];
    struct plan_run runs[MAX_STREAMS];
    struct stream *sampled[MAX_STREAMS];
    uint32_t drafts[MAX_STREAMS], n_prompt_logprobs[MAX_STREAMS];
    bool samples[MAX_STREAMS];
    struct msg_plan p = {
        .step = ++j->step, .copies = copies, .n_copies = n_copies, .admits = admits, .runs = runs};
    uint32_t n_sampled = 0;
    for (uint32_t i = 0; i < j->n_streams; i++) {
        struct stream *s = &j->streams[i];
        const struct golden_prompt *g = s->prompt;
        uint32_t left = g->n_ids + s->n_sampled - s->n_done;
        bool enters = s->tables[0].ids.n > 0;
        if (s->n_sampled == g->n_greedy)
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
                               .n_draft = s->n_sampled > 0 ? s->slot % (MAX_DRAFT + 1) : 0,
                               .blocks = s->tables,
                               .n_blocks = enters ? j->n_groups : 0};
        uint32_t prompt_logprobs = n_prompt_logprobs_of(s, r->n_tokens);
        s->n_done += r->n_tokens;
        if (!r->sample && prompt_logprobs == 0)
            continue;
        samples[n_sampled] = r->sample;
        n_prompt_logprobs[n_sampled] = prompt_logprobs;
        drafts[n_sampled] = r->n_draft;
        sampled[n_sampled++] = s;
    }
    if (p.n_runs == 0)
        return false;
    const struct msg_result *result = step_all(j, &p);
    if (result->n_items != n_sampled)
        golden_die("%u items, %u runs were sampled", result->n_items, n_sampled);
    for (uint32_t i = 0; i < n_sampled; i++) {
        check_scores(sampled[i], n_prompt_logprobs[i], &result->items[i], j->vocab_size);
        if (samples[i])
            check_item(j, sampled[i], drafts[i], &result->items[i]);
    }
    j->n_drafted += result->n_drafted;
    for (uint32_t i = 0; i < p.n_runs; i++)
        for (uint32_t g = 0; g < j->n_groups; g++)
            /* the list is emptied, because the rank has the block table now */
            j->streams[runs[i].slot].tables[g].ids.n = 0;
    return true;
}

/* Starts a stream as after a prefix hit, but in blocks of its own. The blocks are copied from
 * `from` in the same step. */
static void enter_with_copies(struct job *j, const struct stream *from)
{
    struct plan_copy copies[PROGRAM_MAX_KV_GROUPS * N_COPIED];
    struct stream *s = add_stream(j, from->prompt, 1000);
    uint32_t n = 0;
    s->n_done = N_COPIED * BLOCK;
    s->sampling.n_prompt_logprobs = -1;
    for (uint32_t g = 0; g < j->n_groups; g++)
        for (uint32_t i = 0; i < N_COPIED; i++)
            copies[n++] =
                (struct plan_copy){.i_group = g, .from = from->blocks[g][i], .to = s->blocks[g][i]};
    if (!run_step(j, copies, n))
        golden_die("nothing ran");
    while (run_step(j, NULL, 0)) {
    }
}

static void open_ranks(struct job *j, const char *model)
{
    for (uint32_t i = 0; i < j->n_ranks; i++) {
        const struct worker_options o = {.model = model,
                                         .dtype =
                                             /* float32, because the references have it too */
                                         ACTIVATIONS_FLOAT32,
                                         .max_model_len = j->longest < MAX_LEN ? j->longest : 0,
                                         .tp = j->tp,
                                         .pp = j->pp,
                                         .ordinal = i,
                                         .comm_host = "127.0.0.1",
                                         .threads = j->n_ranks == 1 ? 2 : 1,
                                         .block_size = BLOCK,
                                         .num_gpu_blocks_override = N_BLOCKS,
                                         .speculation = {.n_tokens = MAX_DRAFT, .lookup_min = 1},
                                         .kv_cache_dtype = KV_CACHE_FLOAT32};
        struct error err = {0};
        arena_init(&j->ranks[i].arena, 0);
        if (executor_cpu_open(&o, &j->ranks[i].executor, &err) != STATUS_OK)
            golden_die("%s: rank %u of %u: %s", model, i, j->n_ranks, err.text);
    }
    const struct executor *e = j->ranks[0].executor;
    j->n_groups = e->ops->info(e)->limits.n_kv_groups;
}

static void join_ranks(struct job *j)
{
    uint8_t id[COMM_ID_MAX_BYTES];
    uint32_t n = sizeof id, n_blocks[PROGRAM_MAX_KV_GROUPS];
    struct executor_comm comms[MAX_RANKS];
    struct str addresses[MAX_RANKS];
    struct error err = {0};
    struct executor *first = j->ranks[0].executor;
    if (first->ops->make_comm_id(first, id, &n, &err) != STATUS_OK)
        golden_die("%s", err.text);
    for (uint32_t g = 0; g < j->n_groups; g++)
        n_blocks[g] = N_BLOCKS;
    j->epoch++;
    for (uint32_t i = 0; i < j->n_ranks; i++) {
        const struct executor_info *info = first->ops->info(j->ranks[i].executor);
        addresses[i] = info->comm_address;
        comms[i] = (struct executor_comm){.term_epoch = j->epoch,
                                          .tp = j->tp,
                                          .pp = j->pp,
                                          .rank = i % j->tp,
                                          .stage = i / j->tp,
                                          .isa_level = info->isa_level,
                                          .addresses = addresses,
                                          .n_addresses = j->n_ranks,
                                          .n_blocks = {n_blocks, j->n_groups},
                                          .id = {id, n}};
        j->ranks[i].comm = &comms[i];
    }
    run_ranks(j, "join");
}

static void leave_ranks(struct job *j)
{
    for (uint32_t i = 0; i < j->n_ranks; i++)
        j->ranks[i].executor->ops->abort_comm(j->ranks[i].executor);
    j->n_streams = 0;
    j->step = j->n_drafted = j->n_right = 0;
}

static void run_prompts(struct job *j, const struct golden_file *f)
{
    j->vocab_size = f->vocab_size;
    uint32_t i_long = 0;
    for (uint32_t t = 0; t < TIMES; t++)
        for (uint32_t i = 0; i < f->n_prompts; i++) {
            const struct golden_prompt *p = &f->prompts[i];
            if (p->n_ids + p->n_greedy < j->shortest || p->n_ids + p->n_greedy > j->longest)
                continue;
            i_long = p->n_ids > N_COPIED * BLOCK ? j->n_streams : i_long;
            (void)add_stream(j, p, chunks[t]);
        }
    while (run_step(j, NULL, 0)) {
    }
    enter_with_copies(j, &j->streams[i_long]);
}

/* `all_drafted` counts the draft tokens of all runs of the program, and `all_right` those that
 * were right. */
static uint64_t all_drafted, all_right;

static void check_model(const char *folder, struct job *j, const struct golden_file *f)
{
    char model[PATH_MAX];
    snprintf(model, sizeof model, "%s/model.gguf", folder);
    open_ranks(j, access(model, R_OK) == 0 ? model : folder);
    for (uint32_t t = 0; t < MAX_TURNS && t < j->n_ranks; t++) {
        join_ranks(j);
        run_prompts(j, f);
        printf("%s: tp %u, pp %u, %u streams, %llu steps, %llu of %llu draft tokens right\n",
               folder, j->tp, j->pp, j->n_streams, (unsigned long long)j->step,
               (unsigned long long)j->n_right, (unsigned long long)j->n_drafted);
        all_drafted += j->n_drafted;
        all_right += j->n_right;
        leave_ranks(j);
        struct rank first = j->ranks[0]; /* the second round runs with the ranks exchanged */
        for (uint32_t i = 0; i + 1 < j->n_ranks; i++)
            j->ranks[i] = j->ranks[i + 1];
        j->ranks[j->n_ranks - 1] = first;
    }
    for (uint32_t i = 0; i < j->n_ranks; i++) {
        j->ranks[i].executor->ops->close(j->ranks[i].executor);
        arena_fini(&j->ranks[i].arena);
    }
}

static void check_folder(const struct golden_model *m, uint32_t tp, uint32_t pp)
{
    static struct job j;
    struct golden_file f;
    if (!golden_file_open(&f, m->path, NULL))
        golden_die("%s has no expected.json", m->path);
    j = (struct job){
        .tp = tp, .pp = pp, .n_ranks = tp * pp, .shortest = m->short_len + 1, .longest = MAX_LEN};
    check_model(m->path, &j, &f);
    if (m->short_len > 0) {
        j = (struct job){.tp = tp, .pp = pp, .n_ranks = tp * pp, .longest = m->short_len};
        check_model(m->path, &j, &f);
    }
    golden_file_close(&f);
}

int main(int argc, char **argv)
{
    static const uint32_t shapes[][2] = {{1, 1}, {2, 1}, {2, 2}};
    uint32_t n_missing = 0;
    for (int i = 1; i < argc; i++) {
        uint32_t n;
        struct golden_model *models = golden_models_find(argv[i], &n);
        for (uint32_t m = 0; m < n; m++)
            for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++)
                check_folder(&models[m], shapes[k][0], shapes[k][1]);
        free(models);
        n_missing += n == 0;
    }
    if (n_missing == 0 && (all_drafted == 0 || all_right == 0 || all_right == all_drafted))
        golden_die("draft tokens that are all of one kind");
    if (n_missing == 0 && argc > 1 && all_scored == 0)
        golden_die("no prompt has log-probabilities to be scored against");
    return argc == 1 ? 2 : n_missing > 0 ? 77 : 0;
}

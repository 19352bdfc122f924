#include "common/base/clock.h"
#include "tests/sim/sim_internal.h"

uint32_t below(struct world *w, uint32_t n)
{
    uint32_t x = 0;
    if (!w->from_bytes)
        return (uint32_t)rng_below(&w->rng, n);
    if (n <= 1)
        return 0;
    if (w->at == w->end)
        return n - 1;
    for (uint32_t room = 1; room < n && w->at < w->end; room *= 256)
        x = x << 8 | *w->at++;
    return x % n;
}

/* ---- the shape of the world ---- */

static void draw_replicas(struct world *w)
{
    /* `size` selects how many sequences of MAX_MODEL_LEN fit: 0: at most 1; 1: 1 to 2; 2: 4 to
     * 16. */
    uint32_t size = below(w, 3);
    w->c.n_kv_groups = percent(w, 50) ? 1 : between(w, 2, 3);
    for (uint32_t i = 0; i < w->c.n_kv_groups; i++) {
        struct kv_group *g = &w->c.kv_groups[i];
        g->block_tokens = percent(w, 70) ? 16 : 32;
        g->kind = i > 0 && percent(w, 60) ? KV_WINDOW : i == 2 ? KV_LATENT : KV_FULL;
        g->window_tokens = g->kind == KV_WINDOW ? between(w, 1, 100) : 0;
        g->bytes_per_block = 1;
        uint32_t whole = MAX_MODEL_LEN / g->block_tokens + 8;
        uint32_t low[] = {whole / 4, whole, whole * 4}, high[] = {whole, whole * 2, whole * 16};
        g->n_blocks = between(w, low[size], high[size]);
    }
    if (w->c.n_kv_groups == 1 && percent(w, 20)) { /* this model has windows only */
        w->c.kv_groups[0].kind = KV_WINDOW;
        w->c.kv_groups[0].window_tokens = between(w, 1, 60);
    }
}

/* Makes a world of hundreds of sequences, so that work of O(sequences) or O(blocks) in the
 * scheduler gets long lists. */
static void draw_large(struct world *w)
{
    w->c.max_num_seqs = between(w, 64, MAX_SEQS_LARGE);
    w->c.max_num_batched_tokens = w->c.max_num_seqs + between(w, 100, 2000);
    w->c.max_waiting = MAX_LIVE_LARGE;
    w->arrival_percent = between(w, 50, 100);
    w->burst = between(w, 1, 60);
    for (uint32_t i = 0; i < w->c.n_kv_groups; i++)
        w->c.kv_groups[i].n_blocks *= 16;
}

/* Makes a small world for fuzzing by bytes, where everything is checked after every operation. */
static void draw_small(struct world *w)
{
    w->c.max_num_seqs = between(w, 1, 8);
    w->c.max_num_batched_tokens = w->c.max_num_seqs + between(w, 0, 100);
    w->longest_prompt = between(w, 2, 100);
    w->longest_answer = between(w, 1, 60);
    for (uint32_t i = 0; i < w->c.n_kv_groups; i++)
        w->c.kv_groups[i].n_blocks = between(w, 4, 40);
}

void draw_world(struct world *w)
{
    w->large = !w->from_bytes && percent(w, 5);
    w->c.max_model_len = MAX_MODEL_LEN;
    w->c.depth = between(w, 1, 2);
    w->c.max_num_seqs = between(w, 1, 24);
    w->c.max_num_batched_tokens =
        w->c.max_num_seqs + (percent(w, 30) ? below(w, 8) : between(w, 16, 400));
    w->c.max_waiting = between(w, 2, 40);
    w->c.long_prefill_token_threshold = percent(w, 50) ? 0 : between(w, 1, 64);
    w->c.max_partial_prefills = percent(w, 50) ? 0 : between(w, 1, 4);
    w->c.n_draft = percent(w, 50) ? 0 : between(w, 1, 4);
    w->c.draft_max_seqs = percent(w, 50) ? 0 : between(w, 1, w->c.max_num_seqs);
    w->c.enable_prefix_caching = percent(w, 80);
    w->c.gives_prompt_logprobs = true;
    w->c.step_target_ns = percent(w, 30) ? STEP_TARGET_NS : 0;
    draw_replicas(w);
    w->arrival_percent = percent(w, 50) ? between(w, 1, 6) : between(w, 6, 50);
    w->burst = percent(w, 30) ? 12 : 1;
    w->n_tenants = percent(w, 50) ? 1 : between(w, 2, 4);
    w->choices_percent = percent(w, 50) ? 30 : 0;
    w->cancel_permille = percent(w, 50) ? between(w, 1, 30) : 0;
    w->reset_permille = percent(w, 40) ? between(w, 1, 10) : 0;
    w->deliver_percent = between(w, 30, 100);
    w->lie_percent = percent(w, 30) ? between(w, 1, 20) : 0;
    w->move_permille = percent(w, 40) ? between(w, 1, 60) : 0;
    w->stop_percent = percent(w, 50) ? 30 : 2;
    w->longest_prompt = between(w, 2, 300);
    w->longest_answer = between(w, 1, MAX_MODEL_LEN - 301);
    if (percent(w, 30)) { /* short prompts that grow long in a small pool cause preemptions */
        w->longest_prompt = between(w, 2, 40);
        w->longest_answer = between(w, 150, MAX_MODEL_LEN - 41);
        w->c.max_num_seqs = between(w, 8, 24);
        w->c.max_num_batched_tokens = w->c.max_num_seqs + between(w, 1, 100);
        w->arrival_percent = between(w, 6, 50);
        w->stop_percent = 2;
        for (uint32_t i = 0; i < w->c.n_kv_groups; i++)
            w->c.kv_groups[i].n_blocks = between(w, 1, 3) * MAX_MODEL_LEN / 16;
    }
    if (w->large)
        draw_large(w);
    if (w->from_bytes)
        draw_small(w);
    for (uint32_t i = 0; i < N_PREFIXES; i++)
        for (uint32_t k = 0; k < MAX_MODEL_LEN; k++)
            w->prefixes[i][k] = letter(w);
}

/* ---- clients ---- */

static void draw_prompt(struct world *w, struct client *c)
{
    uint32_t shared = percent(w, 70) ? below(w, w->longest_prompt) : 0;
    const uint32_t *prefix = w->prefixes[below(w, N_PREFIXES)];
    c->n_prompt = between(w, 1, w->longest_prompt);
    for (uint32_t i = 0; i < c->n_prompt; i++)
        c->ids[i] = i < shared ? prefix[i] : letter(w);
}

void draw_client(struct world *w, struct client *c)
{
    *c = (struct client){.tenant = 1 + below(w, w->n_tenants)};
    draw_prompt(w, c);
    c->max_tokens = between(w, 1, w->longest_answer);
    c->stop_id = percent(w, w->stop_percent) ? letter(w) : 0;
    c->eos_id = percent(w, w->stop_percent) ? letter(w) : 0;
    c->sampling = (struct sampling_params){
        .temperature = percent(w, 50) ? 0.0f : 1.0f,
        .top_p = 1.0f,
        .seed = below(w, 1000),
        .n_logprobs = -1,
        .n_prompt_logprobs = percent(w, 5) ? 0 : -1,
        .max_tokens = c->max_tokens,
        .min_tokens = percent(w, 20) ? below(w, 20) : 0,
        .lora = percent(w, 10) ? STR("an-adapter") : (struct str){0},
    };
    c->i_request = ++w->n_requests;
}

/* Tests that the simulated rank refuses illegal plans. The plans are written by hand: a right
 * plan, and the same plan with one fault. Blocks have 16 tokens, prompts 40. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/sim/sim_rank.h"

enum { N_PROMPT = 40, MAX_TOKENS = 20, N_DRAFT = 4 };

static struct sim_rank *new_rank(uint32_t draft_percent, uint32_t window)
{
    struct kv_group kv = {.kind = window ? KV_WINDOW : KV_FULL,
                          .window_tokens = window,
                          .block_tokens = 16,
                          .n_blocks = 12};
    struct sim_rank_config c = {.max_num_seqs = 4,
                                .max_num_batched_tokens = 96,
                                .max_model_len = 128,
                                .vocab_size = 259,
                                .kv_groups = &kv,
                                .n_kv_groups = 1,
                                .n_draft = N_DRAFT,
                                .draft_max_seqs = 2,
                                .draft_percent = draft_percent};
    struct sim_rank *rank = sim_rank_new(&c);
    sim_rank_reset(rank, 1);
    return rank;
}

/* Describes one sequence of a plan; with `prompt` it is admitted. */
struct line {
    uint32_t slot;
    const uint32_t *prompt;
    uint32_t start, n_tokens, n_draft;
    bool no_sample, follows;
    uint32_t blocks[4], n_blocks, drop;
    uint64_t seed;
    uint32_t max_tokens; /* token limit of the request; 0 = MAX_TOKENS */
};

struct hand_made {
    struct line lines[3];
    struct plan_copy copies[2];
    uint32_t n_copies, window;
};

static bool execute(struct sim_rank *rank, uint64_t step, uint64_t done, const struct hand_made *h,
                    struct msg_result *out, struct error *err)
{
    struct plan_admit admits[3];
    struct plan_run runs[3];
    struct plan_blocks blocks[3];
    struct msg_plan plan = {.term_epoch = 1,
                            .step = step,
                            .copies = h->copies,
                            .n_copies = h->n_copies,
                            .admits = admits,
                            .runs = runs};
    for (uint32_t i = 0; i < 3 && h->lines[i].n_tokens; i++) {
        const struct line *l = &h->lines[i];
        blocks[i] = (struct plan_blocks){.drop_leading = l->drop, .ids = {l->blocks, l->n_blocks}};
        runs[plan.n_runs++] = (struct plan_run){.slot = l->slot,
                                                .start = l->start,
                                                .n_tokens = l->n_tokens,
                                                .n_draft = l->n_draft,
                                                .sample = !l->no_sample,
                                                .follows = l->follows,
                                                .blocks = &blocks[i],
                                                .n_blocks = 1};
        if (l->prompt)
            admits[plan.n_admits++] = (struct plan_admit){
                .slot = l->slot,
                .n_prompt = N_PROMPT,
                .n_computed = l->start,
                .ids = {l->prompt, N_PROMPT},
                .sampling = {.seed = l->seed,
                             .temperature = 1,
                             .n_prompt_logprobs = -1,
                             .max_tokens = l->max_tokens ? l->max_tokens : MAX_TOKENS}};
    }
    return sim_rank_execute(rank, &plan, done, out, err);
}

static uint32_t prompt[N_PROMPT], other[N_PROMPT];

#define FIRST(s)                                                                                   \
    {                                                                                              \
        .slot = (s), .prompt = prompt, .n_tokens = 40, .blocks = {0, 1, 2}, .n_blocks = 3          \
    }

#define DECODE(at, drafts)                                                                         \
    {                                                                                              \
        .start = (at), .n_tokens = 1, .n_draft = (drafts)                                          \
    }
#define FOLLOW(drafts)                                                                             \
    {                                                                                              \
        .start = 41, .n_tokens = 1, .n_draft = (drafts), .follows = true                           \
    }

/* Each case has plans 1 and 2. The second plan is refused for `why`, or accepted when `why` is
 * NULL. A plan without runs is not sent. */
static const struct {
    const char *name;
    struct hand_made plans[2];
    const char *why;
} sharing[] = {
    {"blocks of another one",
     {{.lines = {FIRST(0)}}, {.lines = {{1, prompt, 32, 8, .blocks = {0, 1, 3}, .n_blocks = 3}}}},
     NULL},
    {"of another prompt",
     {{.lines = {FIRST(0)}}, {.lines = {{1, other, 32, 8, .blocks = {0, 1, 3}, .n_blocks = 3}}}},
     "content"},
    {"never written",
     {{.lines = {FIRST(0)}}, {.lines = {{1, prompt, 32, 8, .blocks = {0, 4, 3}, .n_blocks = 3}}}},
     "content"},
    {"the last block is written by both",
     {{.lines = {FIRST(0)}}, {.lines = {{1, prompt, 32, 8, .blocks = {0, 1, 2}, .n_blocks = 3}}}},
     "n_owners == 0"},
    {"in the same plan",
     {{.lines = {FIRST(0), {1, prompt, 32, 8, .blocks = {0, 1, 3}, .n_blocks = 3}}}},
     NULL},
    {"in the same plan, before they are written",
     {{.lines = {{1, prompt, 32, 8, .blocks = {0, 1, 3}, .n_blocks = 3}, FIRST(0)}}},
     "n_owners == 0"},
    {"on the way",
     {{.lines = {FIRST(0), {1, prompt, 0, 16, .no_sample = true, .blocks = {3}, .n_blocks = 1}}},
      {.lines = {{.slot = 1, .start = 32, .n_tokens = 8, .blocks = {1, 4}, .n_blocks = 2}}}},
     NULL},
    {"on the way, and forgot one",
     {{.lines = {FIRST(0), {1, prompt, 0, 16, .no_sample = true, .blocks = {3}, .n_blocks = 1}}},
      {.lines = {{.slot = 1, .start = 32, .n_tokens = 8, .blocks = {4, 5}, .n_blocks = 2}}}},
     "content"},
    {"back to what was computed",
     {{.lines = {{1, prompt, 0, 16, .no_sample = true, .blocks = {0, 1, 2}, .n_blocks = 3}}},
      {.lines = {{.slot = 1, .start = 15, .n_tokens = 25}}}},
     "start >= x->length"},
    {"a window jumps over what fell out of it",
     {{.lines = {FIRST(0), {1, prompt, 0, 16, .no_sample = true, .blocks = {3}, .n_blocks = 1}},
       .window = 1},
      {.lines =
           {{.slot = 1, .start = 32, .n_tokens = 8, .blocks = {4}, .n_blocks = 1, .drop = 2}}}},
     NULL},
    {"and over more than that",
     {{.lines = {FIRST(0), {1, prompt, 0, 16, .no_sample = true, .blocks = {3}, .n_blocks = 1}},
       .window = 1},
      {.lines =
           {{.slot = 1, .start = 32, .n_tokens = 8, .blocks = {4}, .n_blocks = 1, .drop = 3}}}},
     "pb->drop_leading"},
    {"and over what the window still needs",
     {{.lines = {FIRST(0), {1, prompt, 0, 16, .no_sample = true, .blocks = {3}, .n_blocks = 1}},
       .window = 2},
      {.lines =
           {{.slot = 1, .start = 32, .n_tokens = 8, .blocks = {4}, .n_blocks = 1, .drop = 2}}}},
     "t->first * bt <= from"},
    {"a copied block",
     {{.lines = {FIRST(0)}},
      {.lines = {{1, prompt, 39, 1, .blocks = {0, 1, 3}, .n_blocks = 3}},
       .copies = {{0, 2, 3}},
       .n_copies = 1}},
     NULL},
    {"a block that was not copied",
     {{.lines = {FIRST(0)}}, {.lines = {{1, prompt, 39, 1, .blocks = {0, 1, 3}, .n_blocks = 3}}}},
     "content"},
    {"copied before it is written",
     {{.lines = {FIRST(0), {1, prompt, 39, 1, .blocks = {0, 1, 3}, .n_blocks = 3}},
       .copies = {{0, 2, 3}},
       .n_copies = 1}},
     "content"},
    {"copied for nobody",
     {{.lines = {FIRST(0)}}, {.lines = {DECODE(40, 0)}, .copies = {{0, 2, 3}}, .n_copies = 1}},
     "n_owners == 1"},
    {"copied over what somebody has",
     {{.lines = {FIRST(0)}}, {.lines = {DECODE(40, 0)}, .copies = {{0, 0, 1}}, .n_copies = 1}},
     "fresh_in"},
    {"a copy of a copy",
     {{.lines = {FIRST(0)}},
      {.lines = {{1, prompt, 39, 1, .blocks = {0, 1, 4}, .n_blocks = 3}},
       .copies = {{0, 2, 3}, {0, 3, 4}},
       .n_copies = 2}},
     "copied_to"},
};

static void blocks_are_shared_only_when_their_content_is_right(void **state)
{
    for (uint32_t i = 0; i < sizeof sharing / sizeof *sharing; i++) {
        struct sim_rank *rank = new_rank(0, sharing[i].plans[0].window);
        struct msg_result result;
        struct error err;
        bool ok = true;
        for (uint32_t k = 0; k < 2 && ok && sharing[i].plans[k].lines[0].n_tokens; k++)
            ok = execute(rank, k + 1, k, &sharing[i].plans[k], &result, &err);
        if (ok != !sharing[i].why || (!ok && !strstr(err.text, sharing[i].why)))
            fail_msg("%s: %s", sharing[i].name, ok ? "accepted" : err.text);
        sim_rank_free(rank);
    }
}

/* Each case has a second plan after a prompt, and a third plan that is made before the second's
 * result is known. */
static const struct {
    const char *name;
    struct line second, third;
    const char *why;
} drafts[] = {
    {"a run that follows", DECODE(40, 4), FOLLOW(1), NULL},
    {"place taken for known", DECODE(40, 4), DECODE(41, 0), "follows == place_unknown"},
    {"nothing to follow", DECODE(40, 0), FOLLOW(0), "place_unknown"},
    {"without them", DECODE(40, 0), DECODE(41, 0), NULL},
    {"more than agreed", DECODE(40, 5), DECODE(41, 0), "n_draft <="},
    {"a furthest place without a block", DECODE(40, 4), FOLLOW(4), "block_tokens >= x->n_ids + n"},
    {"and with it",
     DECODE(40, 4),
     {.start = 41, .n_tokens = 1, .n_draft = 4, .follows = true, .blocks = {5}, .n_blocks = 1},
     NULL},
};

static void drafts_have_room_and_a_known_place(void **state)
{
    for (uint32_t i = 0; i < sizeof drafts / sizeof *drafts; i++) {
        const struct hand_made plans[] = {
            {.lines = {FIRST(0)}}, {.lines = {drafts[i].second}}, {.lines = {drafts[i].third}}};
        bool ok = true;
        struct error err;
        /* Some seeds draft all tokens, and some draft none. */
        for (uint64_t seed = 1; seed < 50 && ok; seed++) {
            struct sim_rank *rank = new_rank(100, 0);
            struct msg_result result;
            for (uint32_t k = 0; k < 3 && ok && plans[k].lines[0].n_tokens; k++) {
                struct hand_made h = plans[k];
                h.lines[0].seed = seed;
                ok = execute(rank, k + 1, k > 0, &h, &result, &err);
            }
            sim_rank_free(rank);
        }
        if (ok != !drafts[i].why || (!ok && !strstr(err.text, drafts[i].why)))
            fail_msg("%s: %s", drafts[i].name, ok ? "accepted" : err.text);
    }
}

/* Draft tokens change no token. The ids are those of the rule, accepted draft tokens arrive
 * several at a time, and when the end is reached in flight, the next run has no effect. */
static void drafts_change_no_token(void **state)
{
    uint32_t n_several = 0, n_nothing = 0;
    for (uint64_t seed = 1; seed < 200; seed++) {
        struct sim_rank *rank = new_rank((uint32_t)(seed % 5 * 25), 0);
        struct msg_result results[3];
        struct error err;
        struct null_hash want;
        const struct hand_made plans[] = {
            {.lines = {{0, prompt, 0, 40, .blocks = {0, 1, 2}, .n_blocks = 3, .seed = seed,
                        .max_tokens = 3}}},
            {.lines = {DECODE(40, 4)}},
            {.lines = {FOLLOW(4)}}};
        null_hash_init(&want, seed, 0, 0, 1);
        for (uint32_t i = 0; i < N_PROMPT; i++)
            null_hash_push(&want, prompt[i]);
        for (uint32_t k = 0, n = 0; k < 3; k++) {
            if (!execute(rank, k + 1, k > 0, &plans[k], &results[k], &err))
                fail_msg("%s", err.text);
            assert_int_equal(results[k].n_items, 1);
            const struct u32_span ids = results[k].items[0].ids;
            n += ids.n;
            assert_true(n <= 3 && ids.n <= 2);
            n_several += ids.n > 1;
            n_nothing += ids.n == 0;
            assert_true(ids.n > 0 || n == 3);
            assert_int_equal(results[k].items[0].gaps.n, ids.n);
            for (uint32_t i = 0; i < ids.n; i++) {
                assert_int_equal(ids.ptr[i], null_hash_token(&want, 259));
                null_hash_push(&want, ids.ptr[i]);
            }
        }
        sim_rank_free(rank);
    }
    assert_true(n_several > 20 && n_nothing == n_several);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_shared_only_when_their_content_is_right),
        cmocka_unit_test(drafts_have_room_and_a_known_place),
        cmocka_unit_test(drafts_change_no_token),
    };
    for (uint32_t i = 0; i < N_PROMPT; i++) {
        prompt[i] = 97 + i % 26;
        other[i] = 97 + i * 5 % 26;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}

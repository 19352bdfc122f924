/* Tests the messages of a step, which are sent in columns. The tests encode a message, decode it
 * and compare (codec_fixture.h), and also decode bodies written by hand. Invariants: a decoded
 * message equals the sent one, in its order, with and without the columns that may be absent.
 * Columns that do not fit together are refused. Nothing is allocated once the largest step has
 * been seen. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/unit/malloc_count.h"
#include "tests/unit/proto/codec/codec_fixture.h"
#include "tests/unit/proto/codec/message_gen.c"

enum { N = 256 };

/* Holds the messages of a step of N sequences. They have the usual fields, and with `drafts` all
 * possible fields. */
struct step {
    struct plan_run runs[N];
    struct plan_admit admits[8];
    struct plan_copy copies[4];
    struct plan_blocks blocks[N];
    struct result_item items[N];
    struct tokens_item tokens[N];
    struct logprob_row row;
    uint32_t ids[4 * N], prompt[1024];
    float gaps[4 * N];
    struct msg plan, result, out;
};

static void make_step(struct step *s, uint32_t step, bool drafts)
{
    static const uint32_t eos = 2;
    for (uint32_t i = 0; i < 4 * N; i++) {
        s->ids[i] = i * 997;
        s->gaps[i] = (float)i / 16;
        s->prompt[i] = i * 31;
    }
    s->row = (struct logprob_row){{s->ids, 3}, {s->gaps, 3}, 1};
    for (uint32_t i = 0; i < N; i++) {
        uint32_t n_ids = drafts ? (i + step) % 5 : 1;
        bool rows = drafts && i % 50 == 7 && n_ids == 1;
        uint32_t n_rows = rows ? n_ids : 0;
        const struct logprob_row *row = n_rows ? &s->row : NULL;
        struct u32_span ids = {s->ids + 3 * i, n_ids};
        s->blocks[i] = (struct plan_blocks){.i_group = drafts ? i % 2 : 0,
                                            .drop_leading = drafts && i % 3 == 0,
                                            .ids = {s->ids + i, drafts ? i % 4 : 1}};
        s->runs[i] = (struct plan_run){.slot = (i * 7) % N,
                                       .start = 1000 + step,
                                       .n_tokens = 1,
                                       .n_draft = drafts ? i % 5 : 0,
                                       .sample = true,
                                       .follows = drafts && i % 5 > 0,
                                       .blocks = &s->blocks[i],
                                       .n_blocks = i % 16 == step % 16};
        s->items[i] = (struct result_item){.slot = (i * 7) % N,
                                           .ids = ids,
                                           .logprobs = row,
                                           .n_logprobs = n_rows,
                                           .gaps = {s->gaps + 3 * i, n_ids}};
        s->tokens[i] = (struct tokens_item){.id = {~0ull - i, i},
                                            .attempt = 1,
                                            .start = 12 * step,
                                            .ids = ids,
                                            .logprobs = row,
                                            .n_logprobs = n_rows,
                                            .text = STR("")};
    }
    if (drafts) {
        s->runs[5] = (struct plan_run){.slot = 5, .start = 64, .n_tokens = 300};
        s->tokens[9].i_choice = 3;
        s->tokens[10].attempt = 2;
        s->tokens[11].finish = FINISH_STOP;
        s->tokens[11].stop_id = UINT32_MAX;
        s->tokens[12].finish = FINISH_ERROR;
        s->tokens[12].status = STATUS_LIMIT;
        s->tokens[12].text = STR("the queue is full");
        s->tokens[13].n_cached = 512;
        s->copies[3].i_group = 1;
    }
    for (uint32_t i = 0; i < 8; i++)
        s->admits[i] = (struct plan_admit){.slot = i,
                                           .n_prompt = 1000,
                                           .n_computed = 512,
                                           .ids = {s->prompt, 1024},
                                           .sampling = {.top_p = 1, .eos_ids = {&eos, 1}}};
    s->plan = (struct msg){.type = MSG_PLAN,
                           .plan = {.term_epoch = 1ull << 32 | 1,
                                    .step = step,
                                    .finished = {s->ids, drafts ? 5 : 0},
                                    .copies = s->copies,
                                    .n_copies = drafts ? 4 : 0,
                                    .admits = s->admits,
                                    .n_admits = drafts ? 8 : 0,
                                    .runs = s->runs,
                                    .n_runs = N}};
    s->result = (struct msg){
        .type = MSG_RESULT,
        .result = {.term_epoch = 1ull << 32 | 1, .step = step, .items = s->items, .n_items = N}};
    s->out = (struct msg){.type = MSG_TOKENS, .tokens = {.items = s->tokens, .n_items = N}};
}

static void round_trip(struct fixture *f, const struct msg *m)
{
    struct msg back;
    struct error err = {0};
    encode(f, m, 1, 1);
    if (decode(f, &back, &err) != STATUS_OK)
        fail_msg("%s: %s", msg_type_name(m->type), err.text);
    const char *d = diff_message(m, &back);
    if (d)
        fail_msg("%s: %s differs", msg_type_name(m->type), d);
}

static void test_a_step_arrives_as_it_was(void **state)
{
    struct fixture *f = *state;
    static struct step s;
    for (uint32_t step = 0; step < 16; step++) {
        make_step(&s, step, step % 2);
        round_trip(f, &s.plan);
        round_trip(f, &s.result);
        round_trip(f, &s.out);
    }
    struct msg empty = {.type = MSG_PLAN};
    round_trip(f, &empty);
}

static void test_random_steps(void **state)
{
    struct fixture *f = *state;
    static const enum msg_type types[] = {MSG_PLAN, MSG_RESULT, MSG_TOKENS};
    struct rng r = {0x57E9};
    for (int i = 0; i < 3000; i++) {
        struct msg m;
        arena_reset(&f->gen);
        gen_message(&r, &f->gen, types[i % 3], &m);
        round_trip(f, &m);
    }
}

/* Only fields that differ from the usual value are sent: 8 bytes for a run, 12 for a result, 24
 * for a token to a gateway. */
static void test_usual_columns_are_absent(void **state)
{
    struct fixture *f = *state;
    static struct step s;
    make_step(&s, 0, false);
    const struct {
        const struct msg *m;
        size_t per_item;
    } cases[] = {{&s.plan, 8}, {&s.result, 12}, {&s.out, 24}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        encode(f, cases[i].m, 1, 1);
        size_t blocks = i == 0 ? N / 16 * 8 : 0, most = N * cases[i].per_item + blocks + 96;
        if (f->frame.len > most)
            fail_msg("%s: %zu bytes", msg_type_name(cases[i].m->type), f->frame.len);
    }
}

#define BODY(bytes) sizeof(bytes) - 1, bytes
#define WORD_0      "\0\0\0\0"
#define WORD_1      "\1\0\0\0"
#define WORD_2      "\2\0\0\0"
#define WORD_18     "\22\0\0\0"
#define WORD_MAX    "\377\377\377\377"

struct refused {
    const char *name;
    size_t n;
    const char *body;
};

#define SLOT  "\x52\4" WORD_0
#define START "\x5A\4" WORD_0
#define BLOCK "\x7A\4" WORD_0
static const struct refused plans_refused[] = {
    {"a run without a start", BODY(SLOT)},
    {"a start without a run", BODY(START)},
    {"two starts", BODY(SLOT "\x5A\10" WORD_0 WORD_1)},
    {"two n_tokens", BODY(SLOT START "\x62\10" WORD_1 WORD_1)},
    {"two n_draft", BODY(SLOT START "\x6A\10" WORD_0 WORD_0)},
    {"n_draft without a run", BODY("\x6A\4" WORD_0)},
    {"two flags", BODY(SLOT START "\x72\10" WORD_1 WORD_1)},
    {"unknown flag", BODY(SLOT START "\x72\4\5\0\0\0")},
    {"half a word", BODY(SLOT "\x5A\6" WORD_0 "\0\0")},
    {"start + n_tokens", BODY(SLOT "\x5A\4" WORD_MAX)},
    {"start + n_draft", BODY(SLOT "\x5A\4\376\377\377\377\x6A\4" WORD_1)},
    {"n_draft", BODY(SLOT START "\x6A\4" WORD_18)},
    {"drafts of a prompt", BODY(SLOT START "\x62\4" WORD_2 "\x6A\4" WORD_1)},
    {"drafts without sample", BODY(SLOT START "\x6A\4" WORD_1 "\x72\4" WORD_0)},
    {"a prompt that follows", BODY(SLOT START "\x62\4" WORD_2 "\x72\4\3\0\0\0")},
    {"follows without sample", BODY(SLOT START "\x72\4" WORD_2)},
    {"a block without its id", BODY(SLOT START BLOCK)},
    {"an id without its block", BODY(SLOT START "\x9A\1\4" WORD_0)},
    {"a block of no run", BODY(SLOT START "\x7A\4" WORD_1 "\x9A\1\4" WORD_0)},
    {"a block without any run", BODY(BLOCK "\x9A\1\4" WORD_0)},
    {"runs of blocks that fall", BODY("\x52\10" WORD_0 WORD_1 "\x5A\10" WORD_0 WORD_0
                                      "\x7A\10" WORD_1 WORD_0 "\x9A\1\10" WORD_0 WORD_0)},
    {"two groups", BODY(SLOT START BLOCK "\x82\1\10" WORD_0 WORD_0)},
    {"i_group", BODY(SLOT START BLOCK "\x82\1\4\10\0\0\0\x9A\1\4" WORD_0)},
    {"drop without a block", BODY(SLOT START "\x8A\1\4" WORD_1)},
    {"more ids than there are", BODY(SLOT START BLOCK "\x92\1\4" WORD_2 "\x9A\1\4" WORD_0)},
    {"huge count of ids", BODY(SLOT START BLOCK "\x92\1\4" WORD_MAX "\x9A\1\4" WORD_0)},
    {"ids left over", BODY(SLOT START BLOCK "\x9A\1\10" WORD_0 WORD_0)},
    {"a copy from nowhere", BODY("\x4A\4" WORD_0)},
    {"a copy to nowhere", BODY("\x42\4" WORD_0)},
    {"two groups of a copy", BODY("\x42\4" WORD_0 "\x4A\4" WORD_0 "\x3A\10" WORD_0 WORD_0)},
    {"a copy's i_group", BODY("\x42\4" WORD_0 "\x4A\4" WORD_0 "\x3A\4\10\0\0\0")},
};
#undef SLOT
#undef START

#define ITEM "\x32\4" WORD_0
#define ID   "\x42\4" WORD_0
#define GAP  "\x4A\4" WORD_0
static const struct refused results_refused[] = {
    {"a gap without a token", BODY(ITEM "\x3A\4" WORD_0 GAP)},
    {"a token without a gap", BODY(ITEM ID)},
    {"two gaps for a token", BODY(ITEM ID "\x4A\10" WORD_0 WORD_0)},
    {"a token without an item", BODY(ID GAP)},
    {"an item without its token", BODY(ITEM)},
    {"two counts", BODY(ITEM ID GAP "\x3A\10" WORD_1 WORD_0)},
    {"more tokens than there are", BODY(ITEM ID GAP "\x3A\4" WORD_2)},
    {"fewer tokens than there are", BODY(ITEM ID GAP "\x3A\4" WORD_0)},
    {"logprobs without any item", BODY("\x52\2\x08\0")},
    {"logprobs of no item", BODY(ITEM ID GAP "\x52\2\x08\1")},
    {"logprobs twice", BODY(ITEM ID GAP "\x52\2\x08\0\x52\2\x08\0")},
    {"logprobs not for every token", BODY(ITEM ID GAP "\x52\10\x12\2\x18\1\x12\2\x18\1")},
};
#undef ITEM
#undef ID

#define HI    "\x12\10" WORD_0 WORD_0
#define LO    "\x1A\10" WORD_0 WORD_0
#define START "\x32\4" WORD_0
#define ID    "\x5A\4" WORD_0
static const struct refused tokens_refused[] = {
    {"half a request id", BODY(HI START ID)},
    {"the other half", BODY(LO START ID)},
    {"tokens without a start", BODY(HI LO ID)},
    {"tokens without ids", BODY(HI LO START)},
    {"two i_choice", BODY(HI LO START ID "\x22\10" WORD_0 WORD_0)},
    {"two attempts", BODY(HI LO START ID "\x2A\10" WORD_0 WORD_0)},
    {"two n_cached", BODY(HI LO START ID "\x3A\10" WORD_0 WORD_0)},
    {"two finishes", BODY(HI LO START ID "\x42\10" WORD_0 WORD_0)},
    {"unknown finish", BODY(HI LO START ID "\x42\4" WORD_18)},
    {"negative finish", BODY(HI LO START ID "\x42\4" WORD_MAX)},
    {"two stop ids", BODY(HI LO START ID "\x4A\10" WORD_0 WORD_0)},
    {"more ids than there are", BODY(HI LO START ID "\x52\4" WORD_MAX)},
    {"an extra without any item", BODY("\x62\0")},
    {"an extra of no item", BODY(HI LO START ID "\x62\2\x08\1")},
    {"an extra twice", BODY(HI LO START ID "\x62\0\x62\0")},
    {"unknown status", BODY(HI LO START ID "\x62\2\x20\x63")},
    {"text is no UTF-8", BODY(HI LO START ID "\x62\3\x32\1\xFF")},
};

static void test_columns_refused(void **state)
{
    struct fixture *f = *state;
    static const struct {
        enum msg_type type;
        const struct refused *cases;
        size_t n_cases;
    } types[] = {
        {MSG_PLAN, plans_refused, sizeof plans_refused / sizeof *plans_refused},
        {MSG_RESULT, results_refused, sizeof results_refused / sizeof *results_refused},
        {MSG_TOKENS, tokens_refused, sizeof tokens_refused / sizeof *tokens_refused},
    };
    struct msg out;
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        for (size_t i = 0; i < types[t].n_cases; i++) {
            const struct refused *c = &types[t].cases[i];
            struct error err = {0};
            make_frame(f, types[t].type, c->body, c->n);
            enum status got = decode(f, &out, &err);
            if (got != STATUS_PROTOCOL)
                fail_msg("%s: %s", c->name, status_name(got));
            assert_true(err.text[0] != '\0');
        }
    }
    /* The same parts are accepted in the right combination. */
    static const char good[] = HI LO START ID "\x62\3\x32\1x";
    make_frame(f, MSG_TOKENS, good, sizeof good - 1);
    assert_int_equal(decode(f, &out, NULL), STATUS_OK);
    assert_true(str_eq_c(out.tokens.items[0].text, "x"));
}

static void test_values_refused_on_encode(void **state)
{
    struct fixture *f = *state;
    static const uint32_t ids[PROTO_MAX_DRAFT + 2];
    static const float gaps[PROTO_MAX_DRAFT + 2];
    struct plan_run run = {.n_tokens = 1, .sample = true, .n_draft = PROTO_MAX_DRAFT + 1};
    struct msg m = {.type = MSG_PLAN, .plan = {.runs = &run, .n_runs = 1}};
    expect_refused(f, "n_draft", &m);
    run = (struct plan_run){.n_tokens = 1, .follows = true};
    expect_refused(f, "follows without sample", &m);
    run = (struct plan_run){.n_tokens = 2, .sample = true, .follows = true};
    expect_refused(f, "a prompt that follows", &m);
    struct result_item item = {.ids = {ids, 1}};
    m = (struct msg){.type = MSG_RESULT, .result = {.items = &item, .n_items = 1}};
    expect_refused(f, "a token without a gap", &m);
    item = (struct result_item){.ids = {ids, PROTO_MAX_DRAFT + 2},
                                .gaps = {gaps, PROTO_MAX_DRAFT + 2}};
    expect_refused(f, "more tokens than drafts", &m);
    item = (struct result_item){.slot = 3}; /* a run that began behind the end has an empty item */
    encode(f, &m, 1, 1);
}

static void test_no_malloc_in_steady_state(void **state)
{
    struct fixture *f = *state;
    static struct step s;
    unsigned long before = 0;
    if (!COUNTS_MALLOC)
        skip(); /* the sanitizer replaces malloc */
    for (uint32_t step = 0; step < 200; step++) {
        make_step(&s, step, step % 2);
        if (step == 10) /* the largest step has been seen */
            before = n_mallocs;
        const struct msg *const sent[] = {&s.plan, &s.result, &s.out};
        for (size_t i = 0; i < 3; i++) {
            struct msg out;
            encode(f, sent[i], 1, step);
            assert_int_equal(decode(f, &out, NULL), STATUS_OK);
        }
    }
    assert_true(before > 0);
    assert_int_equal(n_mallocs - before, 0);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_a_step_arrives_as_it_was), T(test_random_steps),
        T(test_usual_columns_are_absent), T(test_columns_refused),
        T(test_values_refused_on_encode), T(test_no_malloc_in_steady_state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Tests the size of a plan in bytes. A step may cost few tokens and many bytes, and a plan must
 * fit into a frame. */
#include "head/kv/blocks.h"
#include "proto/codec/codec.h"
#include "tests/unit/head/scheduler/scheduler_bed.h"

enum { LONG = 300000, MIB = 1 << 20 };

static struct scheduler_config wide(uint32_t max_num_seqs, uint32_t n_blocks)
{
    struct scheduler_config c = config(n_blocks);
    c.max_num_batched_tokens = MIB;
    c.max_num_seqs = c.max_waiting = max_num_seqs;
    c.max_model_len = BLOCKS_MAX_MODEL_LEN;
    c.enable_prefix_caching = true;
    return c;
}

static struct request *make_long(struct bed *b, const struct msg_submit *m)
{
    struct request *r;
    assert_int_equal(request_new(NULL, m, BLOCKS_MAX_MODEL_LEN, 1, &r, NULL), STATUS_OK);
    r->arrival_seq = b->n_requests + 1;
    b->requests[b->n_requests++] = r;
    return r;
}

/* Plans steps until all n requests are admitted. Each plan must admit at least one request and
 * fit into a frame. Returns the number of plans. */
static uint32_t admit_all(struct bed *b, uint32_t n)
{
    uint32_t n_plans = 0;
    for (uint32_t n_in = 0; n_in < n; n_plans++) {
        struct strbuf out;
        struct arena scratch;
        struct answer a;
        const struct msg_plan *p = step(b);
        struct msg m = {.type = MSG_PLAN, .plan = *p};
        assert_in_range(p->n_admits, 1, n - n_in);
        strbuf_init(&out, FRAME_MAX_BYTES);
        arena_init(&scratch, 0);
        assert_int_equal(codec_encode(&m, 1, 1, &scratch, &out), STATUS_OK);
        assert_true(p->n_admits == 1 || out.len <= 9 * MIB);
        strbuf_fini(&out);
        arena_fini(&scratch);
        n_in += p->n_admits;
        answer(p, OTHER_ID, &a);
        give(b, &a);
    }
    return n_plans;
}

static void many_large_grammars_come_in_by_several_plans(void **state)
{
    struct bed b;
    struct scheduler_config c = wide(MAX_REQUESTS, 512);
    char *source = mem_zalloc(MIB);
    memset(source, 'a', MIB);
    open_bed(&b, &c);
    for (uint32_t i = 0; i < MAX_REQUESTS; i++) {
        struct msg_submit m = submit(&b, 4, 100);
        m.sampling.grammar_kind = GRAMMAR_REGEX;
        m.sampling.grammar = (struct str){source, MIB};
        assert_int_equal(scheduler_add(b.s, make(&b, &m)), STATUS_OK);
    }
    assert_in_range(admit_all(&b, MAX_REQUESTS), 8, 16);
    mem_free(source);
    close_bed(&b);
}

/* Prompts with a cached prefix cost one token each, but a plan contains all of their ids. */
static void long_prompts_that_are_cached_come_in_by_several_plans(void **state)
{
    struct bed b;
    struct scheduler_config c = wide(16, 40000);
    uint32_t *ids = mem_array(LONG, sizeof *ids);
    memset(ids, 0, LONG * sizeof *ids);
    open_bed(&b, &c);
    for (uint32_t i = 0; i < 12; i++) {
        struct msg_submit m = submit(&b, 1, 100);
        m.n_prompt = LONG;
        m.ids = (struct u32_span){ids, LONG};
        assert_int_equal(scheduler_add(b.s, make_long(&b, &m)), STATUS_OK);
    }
    assert_in_range(admit_all(&b, 12), 2, 4);
    mem_free(ids);
    close_bed(&b);
}

/* A request whose own plan exceeds a frame never fits a replica. Otherwise each replica that got
 * the request would be lost. */
static void who_passes_a_frame_alone_never_fits(void **state)
{
    struct bed b;
    struct scheduler_config c = wide(4, BLOCKS_MAX_MODEL_LEN / 16 + 16);
    open_bed(&b, &c);
    struct msg_submit m = submit(&b, 4, BLOCKS_MAX_MODEL_LEN - 4);
    struct request *r = make_long(&b, &m);
    assert_false(scheduler_fits(b.s, r));
    assert_int_equal(scheduler_add(b.s, r), STATUS_NO_MEMORY);
    m = submit(&b, 4, 10 * MIB);
    assert_int_equal(scheduler_add(b.s, make_long(&b, &m)), STATUS_OK);
    close_bed(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_large_grammars_come_in_by_several_plans),
        cmocka_unit_test(long_prompts_that_are_cached_come_in_by_several_plans),
        cmocka_unit_test(who_passes_a_frame_alone_never_fits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Tests requests at the head, without a scheduler. The tests make a request from a Submit by
 * `request_new`, add tokens, log-probabilities or ends, and read the fields and the item for the
 * gateway. Cases: limits of a Submit, ends by length, stop and EOS, rows that are dropped once
 * delivered. `request_free` frees everything that a request owns. All tests run on one thread. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/random.h"
#include "head/request/logprobs.h"
#include "head/request/request.h"
#include "head/request/table.h"

enum { MAX_LEN = 100 };
static const uint32_t some_ids[200] = {11, 12, 13, 14, 15};

static struct msg_submit submit_of(uint32_t n_prompt, uint32_t n_ids, uint32_t max_tokens)
{
    return (struct msg_submit){
        .id = {1, 2},
        .attempt = 1,
        .n_prompt = n_prompt,
        .ids = {some_ids, n_ids},
        .sampling = {.top_p = 1.0f,
                     .max_tokens = max_tokens,
                     .n_logprobs = -1,
                     .n_prompt_logprobs = -1},
    };
}

static void lengths_are_checked_and_max_tokens_clipped(void **state)
{
    static const struct {
        uint32_t n_prompt, n_ids, max_tokens;
        enum status want;
        uint32_t want_cap;
        enum finish_reason want_finish;
    } cases[] = {
        {5, 5, 10, STATUS_OK, 15, FINISH_NONE},
        {5, 5, UINT32_MAX, STATUS_OK, MAX_LEN, FINISH_NONE},
        {99, 99, 10, STATUS_OK, MAX_LEN, FINISH_NONE},
        {100, 100, 1, STATUS_INVALID, 0, FINISH_NONE},
        {0, 0, 1, STATUS_INVALID, 0, FINISH_NONE},
        {0, 5, 1, STATUS_INVALID, 0, FINISH_NONE},
        {5, 4, 1, STATUS_INVALID, 0, FINISH_NONE},
        {5, 5, 0, STATUS_INVALID, 0, FINISH_NONE},
        {5, 8, 4, STATUS_OK, 9, FINISH_NONE},
        {5, 9, 4, STATUS_OK, 9, FINISH_LENGTH}, /* the gateway never got the end of the request */
        {5, 10, 4, STATUS_INVALID, 0, FINISH_NONE},
        {5, 150, UINT32_MAX, STATUS_INVALID, 0, FINISH_NONE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct msg_submit m = submit_of(cases[i].n_prompt, cases[i].n_ids, cases[i].max_tokens);
        struct request *r;
        struct error err;
        assert_int_equal(request_new(NULL, &m, MAX_LEN, 5, &r, &err), cases[i].want);
        if (cases[i].want != STATUS_OK) {
            assert_null(r);
            assert_true(err.text[0] != '\0');
            continue;
        }
        assert_int_equal(r->ids_cap, cases[i].want_cap);
        assert_int_equal(r->finish, cases[i].want_finish);
        assert_int_equal(r->resubmitted, cases[i].n_ids > cases[i].n_prompt);
        assert_memory_equal(r->ids, some_ids, r->n_ids * sizeof *r->ids);
        request_free(r);
    }
}

static void hostile_numbers_are_refused(void **state)
{
    struct msg_submit base = submit_of(5, 5, 5);
    struct msg_submit cases[10];
    for (size_t i = 0; i < 10; i++)
        cases[i] = base;
    cases[0].sampling.temperature = NAN;
    cases[1].sampling.temperature = -0.1f;
    cases[2].sampling.top_p = INFINITY;
    cases[3].sampling.min_p = 1.5f;
    cases[4].sampling.repetition_penalty = NAN;
    cases[5].sampling.n_logprobs = 1000000;
    cases[6].sampling.n_prompt_logprobs = -2;
    cases[7].sampling.stop_ids = (struct u32_span){some_ids, 5000};
    cases[8].sampling.presence_penalty = -INFINITY;
    cases[9].sampling.n_prompt_logprobs = 0;
    cases[9].sampling.pooling = POOLING_MEAN;
    for (size_t i = 0; i < 10; i++) {
        struct request *r;
        struct error err;
        assert_int_equal(request_new(NULL, &cases[i], MAX_LEN, 0, &r, &err), STATUS_INVALID);
    }
}

static void it_keeps_nothing_of_the_message(void **state)
{
    uint32_t ids[3] = {1, 2, 3}, stop[1] = {9};
    char lora[] = "adapter", salt_a[] = "a", salt_b[] = "b";
    struct msg_submit m = submit_of(3, 3, 5);
    m.ids.ptr = ids;
    m.sampling.stop_ids = (struct u32_span){stop, 1};
    m.sampling.lora = str_from(lora);
    m.cache_salt = str_from(salt_a);
    m.deadline_ms = 10;
    struct request *r, *other;
    assert_int_equal(request_new(NULL, &m, MAX_LEN, 1000, &r, NULL), STATUS_OK);
    m.cache_salt = str_from(salt_b);
    m.deadline_ms = UINT64_MAX; /* a deadline beyond the last time counts as none */
    assert_int_equal(request_new(NULL, &m, MAX_LEN, 1000, &other, NULL), STATUS_OK);
    memset(ids, 0, sizeof ids);
    memset(stop, 0, sizeof stop);
    memset(lora, 0, sizeof lora);
    assert_int_equal(r->ids[2], 3);
    assert_int_equal(r->sampling.stop_ids.ptr[0], 9);
    assert_true(str_eq_c(r->sampling.lora, "adapter"));
    assert_true(r->salt.lo != other->salt.lo && r->salt.hi != other->salt.hi);
    assert_true(r->deadline_ns == 1000 + 10 * 1000000ull && other->deadline_ns == 0);
    request_free(r);
    request_free(other);
}

static void tokens_end_a_request(void **state)
{
    static const struct {
        uint32_t min_tokens, tokens[4];
        enum finish_reason want[4];
        uint32_t want_stop_id;
    } cases[] = {
        {0, {1, 2, 3, 4}, {0, 0, 0, FINISH_LENGTH}, 0},
        {0, {1, 50}, {0, FINISH_STOP}, 50},
        {0, {1, 2, 60}, {0, 0, FINISH_STOP}, UINT32_MAX},
        {3, {50, 60, 50}, {0, 0, FINISH_STOP}, 50}, /* stop ids before min_tokens do not count */
        {9, {1, 2, 3, 50}, {0, 0, 0, FINISH_STOP}, 50},
    };
    uint32_t stop_id = 50, eos_id = 60;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct msg_submit m = submit_of(5, 5, 4);
        m.sampling.min_tokens = cases[i].min_tokens;
        m.sampling.stop_ids = (struct u32_span){&stop_id, 1};
        m.sampling.eos_ids = (struct u32_span){&eos_id, 1};
        struct request *r;
        assert_int_equal(request_new(NULL, &m, MAX_LEN, 0, &r, NULL), STATUS_OK);
        for (int k = 0; k < 4 && r->finish == FINISH_NONE; k++)
            assert_int_equal(request_push_token(r, cases[i].tokens[k], NULL), cases[i].want[k]);
        assert_int_not_equal(r->finish, FINISH_NONE);
        assert_int_equal(r->stop_id, cases[i].want_stop_id);
        request_free(r);
    }
}

static void assert_row(const struct logprob_row *row, uint32_t i)
{
    assert_int_equal(row->ids.n, i == 40 ? 0 : 2);
    if (i != 40)
        assert_true(row->ids.ptr[1] == i + 1 && row->values.ptr[0] == -(float)i &&
                    row->chosen_rank == i);
}

/* Each token keeps its own row of log-probabilities, whether the rows are sent at the end, one
 * by one, or several at a time. */
static void log_probabilities_stay_with_their_token(void **state)
{
    static const uint32_t each[] = {1000, 1, 7, 33};
    for (size_t how = 0; how < sizeof each / sizeof *each; how++) {
        struct msg_submit m = submit_of(5, 7, 90); /* the Submit contains two tokens */
        m.sampling.n_logprobs = 1;
        struct request *r;
        assert_int_equal(request_new(NULL, &m, MAX_LEN, 0, &r, NULL), STATUS_OK);
        r->n_delivered = 2;
        for (uint32_t i = 2; i < 80; i++) {
            uint32_t ids[2] = {i, i + 1};
            float values[2] = {-(float)i, -(float)i - 1};
            struct logprob_row row = {{ids, 2}, {values, 2}, i};
            assert_int_equal(request_push_token(r, i, i == 40 ? NULL : &row), FINISH_NONE);
            uint32_t n_new = i + 1 - r->n_delivered, n_sent = n_new - n_new / 3;
            if (n_new < each[how])
                continue;
            struct tokens_item item;
            request_fill_tokens(r, 0, n_sent, &item);
            assert_int_equal(item.n_logprobs, n_sent);
            for (uint32_t k = 0; k < n_sent; k++)
                assert_row(&item.logprobs[k], item.start + k);
            r->n_delivered += n_sent;
            request_rows_delivered(r);
            assert_int_equal(r->logprobs->n, n_new - n_sent); /* delivered rows are dropped */
            assert_true(request_has_rows_from(r, r->n_delivered));
            assert_false(request_has_rows_from(r, r->n_delivered - 1));
        }
        for (uint32_t i = r->n_delivered; i < 80; i++)
            assert_row(&request_undelivered_rows(r)[i - r->n_delivered], i);
        request_free(r);
    }
}

/* A waiting request holds only its ids. Memory for its answer is allocated when the request is
 * about to run. */
static void who_waits_holds_what_came(void **state)
{
    enum { N = 20000, LONG = 1 << 20, REST = 2048 };
    static uint32_t many[N];
    for (uint32_t i = 0; i < N; i++)
        many[i] = i;
    static const struct {
        uint32_t n_prompt, n_ids, max_tokens, want_room;
    } cases[] = {
        {N, N, UINT32_MAX, N},    {N - 9, N, UINT32_MAX, N}, {N, N, 100, N + 100},
        {10, 10, UINT32_MAX, 10}, {10, 10, 1, 11},           {N, N, 513, N},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct msg_submit m = submit_of(cases[i].n_prompt, cases[i].n_ids, cases[i].max_tokens);
        m.ids.ptr = many;
        struct request *r;
        assert_int_equal(request_new(NULL, &m, LONG, 0, &r, NULL), STATUS_OK);
        const uint64_t bytes = request_held_bytes(r);
        assert_int_equal(r->ids_room, cases[i].want_room);
        assert_true(bytes >= 5ull * cases[i].want_room &&
                    bytes <= 5ull * cases[i].want_room + REST);
        assert_true(request_make_room(r));
        assert_int_equal(r->ids_room, r->ids_cap);
        assert_memory_equal(r->ids, many, r->n_ids * sizeof *many);
        while (r->n_ids < r->ids_cap)
            (void)request_push_id(r, 1);
        assert_int_equal(r->finish, FINISH_LENGTH);
        request_free(r);
    }
}

static struct request *with_id(uint64_t lo, uint32_t i_choice)
{
    struct msg_submit m = submit_of(1, 1, 1);
    m.id = (struct request_id){7, lo};
    m.i_choice = i_choice;
    struct request *r;
    assert_int_equal(request_new(NULL, &m, MAX_LEN, 0, &r, NULL), STATUS_OK);
    return r;
}

static void the_table_agrees_with_a_model(void **state)
{
    enum { N_IDS = 60, N_MAX = 20 };
    struct request_table *t = request_table_new(N_MAX);
    struct request *model[N_IDS] = {0};
    struct rng rng = {3};
    uint32_t n = 0, n_limits = 0;
    for (int i = 0; i < 5000; i++) {
        uint32_t k = (uint32_t)rng_below(&rng, N_IDS);
        struct request_id id = {7, k / 3};
        assert_ptr_equal(request_table_find(t, id, k % 3), model[k]);
        if (model[k]) {
            if (rng_below(&rng, 2)) {
                struct request *again = with_id(k / 3, k % 3);
                assert_int_equal(request_table_add(t, again), STATUS_EXISTS);
                request_free(again);
                continue;
            }
            request_table_remove(t, model[k]);
            request_free(model[k]);
            model[k] = NULL;
            n--;
        } else {
            struct request *r = with_id(k / 3, k % 3);
            enum status st = request_table_add(t, r);
            assert_int_equal(st, n == N_MAX ? STATUS_LIMIT : STATUS_OK);
            if (st == STATUS_OK) {
                model[k] = r;
                n++;
            } else {
                request_free(r);
                n_limits++;
            }
        }
        uint32_t n_seen = 0;
        for (struct request *r = request_table_next(t, NULL); r; r = request_table_next(t, r))
            n_seen += model[r->id.lo * 3 + r->i_choice] == r;
        assert_int_equal(n_seen, n);
        assert_int_equal(request_table_count(t), n);
    }
    assert_true(n_limits > 10);
    request_table_free(t);
}

static void states_move_only_along_the_arrows(void **state)
{
    struct request *r = with_id(1, 0);
    request_enter(r, REQUEST_RUNNING);
    request_enter(r, REQUEST_PREEMPTED);
    request_enter(r, REQUEST_RUNNING);
    request_enter(r, REQUEST_FINISHED);
    assert_int_equal(r->state, REQUEST_FINISHED);
    request_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lengths_are_checked_and_max_tokens_clipped),
        cmocka_unit_test(hostile_numbers_are_refused),
        cmocka_unit_test(it_keeps_nothing_of_the_message),
        cmocka_unit_test(tokens_end_a_request),
        cmocka_unit_test(log_probabilities_stay_with_their_token),
        cmocka_unit_test(who_waits_holds_what_came),
        cmocka_unit_test(the_table_agrees_with_a_model),
        cmocka_unit_test(states_move_only_along_the_arrows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

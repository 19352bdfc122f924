/* Tests the adapter table of a head. Scripted workers and a gateway (`core_fixture.h`) send
 * frames. The tests read which worker is ordered to load or unload an adapter, and how requests
 * for adapters end. Cases: workers refuse, leave, join and return, files change, and a head is
 * replaced. All tests run on one thread. */
#include <stdio.h>

#include "head/cluster/adapters.h"
#include "head/cluster/eligible.h"
#include "tests/unit/head/core/core_fixture.h"

enum { GATEWAY = 3, SPARE = 4, TICKET = 77 };

static const uint32_t ids[40] = {5, 6, 7};

static struct fixture *cluster(void)
{
    struct fixture *f = fixture_new(2);
    f->core->cluster.adapters.max_loras = 2;
    form_pair(f);
    /* The head started too long ago to take over adapters that workers hold. */
    f->core->cluster.adapters.met_ns -= 60 * NS_PER_S;
    say_gateway_hello(f, GATEWAY, 9);
    box_clear(f);
    return f;
}

static void order(struct fixture *f, bool on, const char *name, bool in_place)
{
    say(f, GATEWAY,
        &(struct msg){.type = MSG_ADAPTER_ORDER,
                      .adapter_order = {TICKET, on, in_place, str_from(name),
                                        str_from(on ? "/l/a" : ""), STR("alice")}});
}

static bool event_says(const struct fixture *f, const char *name, const char *fields)
{
    bool found = false;
    for (uint64_t seq = 1; seq < f->core->events.next_seq; seq++) {
        const struct event *e = events_get(&f->core->events, seq);
        found = found || (strcmp(e->name, name) == 0 && strcmp(e->fields, fields) == 0);
    }
    return found;
}

static void done(struct fixture *f, uint8_t conn, uint64_t id, bool on, enum status s)
{
    say(f, conn,
        &(struct msg){.type = MSG_ADAPTER_DONE,
                      .adapter_done = {.id = id,
                                       .on = on,
                                       .status = s,
                                       .text = s ? STR("tensor q has shape [1]") : STR("")}});
}

static void done_as(struct fixture *f, uint8_t conn, uint64_t id, uint64_t identity)
{
    say(f, conn,
        &(struct msg){.type = MSG_ADAPTER_DONE,
                      .adapter_done = {id, true, STATUS_OK, STR(""), {1, identity}}});
}

static const struct msg_adapter *told(const struct fixture *f, uint8_t conn)
{
    const struct msg *m = box_find(f, conn, MSG_ADAPTER);
    return m ? &m->adapter : NULL;
}

static void expect_answer(const struct fixture *f, enum status want, const char *text)
{
    const struct msg *m = box_find(f, GATEWAY, MSG_ADAPTER_ANSWER);
    assert_non_null(m);
    assert_true(m->adapter_answer.ticket == TICKET);
    if (m->adapter_answer.status != want)
        fail_msg("%s: " STR_FMT, status_name(m->adapter_answer.status),
                 STR_ARG(m->adapter_answer.text));
    char said[512];
    snprintf(said, sizeof said, STR_FMT, STR_ARG(m->adapter_answer.text));
    assert_non_null(strstr(said, text));
}

static uint64_t load(struct fixture *f, const char *name)
{
    order(f, true, name, false);
    uint64_t id = told(f, 1)->id;
    done(f, 1, id, true, STATUS_OK);
    done(f, 2, id, true, STATUS_OK);
    expect_answer(f, STATUS_OK, "");
    box_clear(f);
    return id;
}

static void submit(struct fixture *f, uint64_t lo, const char *lora, uint32_t n_ids)
{
    say(f, GATEWAY,
        &(struct msg){.type = MSG_SUBMIT,
                      .submit = {.id = {1, lo},
                                 .attempt = 1,
                                 .n_prompt = n_ids,
                                 .ids = {ids, n_ids},
                                 .sampling = {.top_p = 1,
                                              .repetition_penalty = 1,
                                              .n_logprobs = -1,
                                              .n_prompt_logprobs = -1,
                                              .lora = str_from(lora),
                                              /* The head ignores an adapter's id that a gateway
                                               * sends. */
                                              .lora_id = 12345,
                                              .max_tokens = 2}}});
}

/* Rank 0 answers the oldest plan in the box with a token. Removes that plan and all earlier
 * letters from the box. */
static void answer_plan(struct fixture *f)
{
    static const float gap = 1;
    static const uint32_t token = 1000;
    uint32_t n = 0;
    const struct msg *p = box_find(f, 1, MSG_PLAN);
    assert_non_null(p);
    struct result_item item = {.slot = p->plan.runs[0].slot, .ids = {&token, 1}, .gaps = {&gap, 1}};
    struct msg m = {.type = MSG_RESULT,
                    .result = {.term_epoch = p->plan.term_epoch,
                               .step = p->plan.step,
                               .items = &item,
                               .n_items = p->plan.runs[0].sample}};
    while (&f->box[n].m != p)
        n++;
    say(f, 1, &m);
    for (uint32_t i = 0; i <= n; i++)
        arena_fini(&f->box[i].arena);
    memmove(f->box, &f->box[n + 1], (f->n_box - n - 1) * sizeof f->box[0]);
    f->n_box -= n + 1;
}

static const struct plan_admit *admitted(const struct fixture *f)
{
    const struct msg *m = box_find(f, 1, MSG_PLAN);
    assert_non_null(m);
    assert_int_equal(m->plan.n_admits, 1);
    return &m->plan.admits[0];
}

static void it_is_named_when_all_have_it(void **state)
{
    struct fixture *f = cluster();
    order(f, true, "sql", false);
    const struct msg_adapter *a = told(f, 1), *b = told(f, 2);
    assert_true(a && b && a->on && a->id != 0 && a->id == b->id);
    assert_true(str_eq_c(a->name, "sql") && str_eq_c(b->path, "/l/a"));
    uint64_t id = a->id;
    done(f, 1, id, true, STATUS_OK);
    assert_null(box_find(f, GATEWAY, MSG_ADAPTER_ANSWER));
    done(f, 2, id, true, STATUS_OK);
    expect_answer(f, STATUS_OK, "");
    const struct msg *names = box_find(f, GATEWAY, MSG_ADAPTERS);
    assert_true(names && names->adapters.n == 1 && str_eq_c(names->adapters.list[0].name, "sql") &&
                str_eq_c(names->adapters.list[0].path, "/l/a"));
    submit(f, 1, "sql", 3);
    assert_true(admitted(f)->sampling.lora_id == id);
    assert_true(str_eq_c(admitted(f)->sampling.lora, "sql"));
    submit(f, 2, "", 3);
    fixture_free(f);
}

static void what_a_worker_refuses_is_dropped_by_the_others(void **state)
{
    struct fixture *f = cluster();
    order(f, true, "sql", false);
    uint64_t id = told(f, 1)->id;
    done(f, 1, id, true, STATUS_OK);
    box_clear(f);
    done(f, 2, id, true, STATUS_INVALID);
    expect_answer(f, STATUS_INVALID, "n: tensor q has shape [1]");
    const struct msg_adapter *a = told(f, 1);
    assert_true(a && !a->on && a->id == id);
    assert_null(told(f, 2));
    assert_null(box_find(f, GATEWAY, MSG_ADAPTERS));
    done(f, 1, id, false, STATUS_OK);
    submit(f, 1, "sql", 3);
    const struct msg *m = box_find(f, GATEWAY, MSG_TOKENS);
    assert_true(m && m->tokens.items[0].status == STATUS_INVALID);
    box_clear(f);
    load(f, "sql"); /* the name is free again */
    fixture_free(f);
}

static void it_leaves_when_nobody_uses_it(void **state)
{
    struct fixture *f = cluster();
    uint64_t id = load(f, "sql");
    submit(f, 1, "sql", 3);
    order(f, false, "sql", false);
    assert_true(box_find(f, GATEWAY, MSG_ADAPTERS)->adapters.n == 0);
    submit(f, 2, "sql", 3); /* new requests are refused */
    const struct msg *m = box_find(f, GATEWAY, MSG_TOKENS);
    assert_true(m && m->tokens.items[0].status == STATUS_INVALID);
    wait_ms(f, 300, 1u << 1 | 1u << 2 | 1u << GATEWAY);
    assert_null(told(f, 1));
    for (int i = 0; i < 2; i++)
        answer_plan(f);
    wait_ms(f, 100, 0);
    const struct msg_adapter *a = told(f, 1), *b = told(f, 2);
    assert_true(a && b && !a->on && a->id == id && b->id == id);
    done(f, 1, id, false, STATUS_OK);
    assert_null(box_find(f, GATEWAY, MSG_ADAPTER_ANSWER));
    done(f, 2, id, false, STATUS_OK);
    expect_answer(f, STATUS_OK, "");
    fixture_free(f);
}

/* A worker that connects later gets the table before its steps. A spare that lacks an adapter
 * does not count as a spare. */
static void who_comes_later_gets_the_table_first(void **state)
{
    struct fixture *f = cluster();
    uint64_t id = load(f, "sql");
    submit(f, 1, "sql", 3);
    box_clear(f);
    struct msg hello = worker_hello(104, -1);
    say(f, SPARE, &hello);
    assert_true(told(f, SPARE) && told(f, SPARE)->id == id);
    say(f, 2, &(struct msg){.type = MSG_GOODBYE});
    uint64_t epoch = box_find(f, 1, MSG_ABORT)->abort_.term_epoch;
    say(f, 1, &(struct msg){.type = MSG_ABORTED, .aborted = {epoch}});
    wait_ms(f, 1000, 1u << 1 | 1u << SPARE | 1u << GATEWAY);
    assert_null(box_find(f, SPARE, MSG_FORM));
    done(f, SPARE, id, true, STATUS_OK);
    wait_ms(f, 5000, 1u << 1 | 1u << SPARE | 1u << GATEWAY);
    assert_non_null(box_find(f, SPARE, MSG_FORM));
    fixture_free(f);
}

static void who_cannot_load_it_is_asked_again_and_not_placed(void **state)
{
    struct fixture *f = cluster();
    uint64_t id = load(f, "sql");
    struct msg hello = worker_hello(104, -1);
    say(f, SPARE, &hello);
    done(f, SPARE, id, true, STATUS_IO);
    assert_false(
        eligible_has_adapters(&f->core->cluster, cluster_find_worker(&f->core->cluster, 104)));
    box_clear(f);
    wait_ms(f, 2000, 1u << 1 | 1u << 2 | 1u << SPARE | 1u << GATEWAY);
    assert_null(told(f, SPARE));
    wait_ms(f, 4000, 1u << 1 | 1u << 2 | 1u << SPARE | 1u << GATEWAY);
    assert_true(told(f, SPARE) && told(f, SPARE)->on);
    assert_int_equal(f->core->cluster.adapters.all[0].state, ADAPTER_READY);
    fixture_free(f);
}

/* An adapter loaded again under the same name has a new id, and uses none of the blocks that the
 * old one computed. */
static void in_place_is_another_one(void **state)
{
    struct fixture *f = cluster();
    uint64_t id = load(f, "sql");
    submit(f, 1, "sql", 40);
    for (int i = 0; i < 2; i++)
        answer_plan(f);
    submit(f, 2, "sql", 40);
    assert_true(admitted(f)->n_computed >= 32); /* the prompt shares two blocks of 16 tokens */
    order(f, true, "sql", false);
    expect_answer(f, STATUS_EXISTS, "load_inplace");
    box_clear(f);
    order(f, true, "sql", true);
    uint64_t fresh = told(f, 1)->id;
    assert_true(fresh != id);
    done(f, 1, fresh, true, STATUS_OK);
    done(f, 2, fresh, true, STATUS_OK);
    expect_answer(f, STATUS_OK, "");
    assert_true(adapters_use(&f->core->cluster, STR("sql"), &id) == ADAPTER_USABLE && id == fresh);
    box_clear(f);
    submit(f, 3, "sql", 40);
    wait_ms(f, 100, 1u << 1 | 1u << 2 | 1u << GATEWAY);
    const struct request *r = request_table_find(f->core->requests, (struct request_id){1, 3}, 0);
    assert_true(r && r->sampling.lora_id == fresh && r->n_hit == 0);
    r = request_table_find(f->core->requests, (struct request_id){1, 2}, 0);
    /* the request keeps its old adapter until it ends */
    assert_true(r && r->sampling.lora_id != fresh);
    fixture_free(f);
}

/* A new head takes over the table of its workers. `waited` means that the head was a standby, or
 * that workers could not reach it for long. */
static void takes_over(bool waited)
{
    struct fixture *f = fixture_new(2);
    f->core->cluster.adapters.max_loras = 2;
    if (waited)
        wait_ms(f, 2 * ADAPTERS_YOUNG_NS / NS_PER_MS, 0);
    const struct msg_adapter held[] = {{41, true, STR("sql"), STR("/l/sql"), {1, 2}}};
    say_gateway_hello(f, GATEWAY, 9);
    submit(f, 1, "sql", 3); /* this request waits until a worker reports its adapters */
    assert_null(box_find(f, GATEWAY, MSG_TOKENS));
    for (uint8_t i = 1; i <= 2; i++) {
        struct msg hello = worker_hello(100 + i, i - 1);
        hello.hello.worker.adapters = held;
        hello.hello.worker.n_adapters = 1;
        say(f, i, &hello);
    }
    uint64_t id = 0;
    assert_true(adapters_use(&f->core->cluster, STR("sql"), &id) == ADAPTER_USABLE && id == 41);
    assert_null(told(f, 1));
    assert_null(told(f, 2));
    fixture_free(f);
}

static void a_new_head_takes_over(void **state)
{
    takes_over(false);
}

static void a_head_that_waited_takes_over(void **state)
{
    takes_over(true);
}

static void events_say_who_asked(void **state)
{
    struct fixture *f = cluster();
    struct error err;
    load(f, "sql");
    assert_true(event_says(f, "adapter_load", "name=\"sql\" by=\"alice, at the gateway g\""));
    order(f, false, "nobody", false); /* the order is refused, so nothing is logged */
    assert_false(event_says(f, "adapter_unload", "name=\"nobody\" by=\"alice, at the gateway g\""));
    assert_int_equal(head_core_unload_adapter(f->core, STR("sql"), "bob", f->now, &err), STATUS_OK);
    assert_true(event_says(f, "adapter_unload", "name=\"sql\" by=\"bob\""));
    fixture_free(f);
}

/* --lora-modules of a restarted head decide which adapters are loaded, and from which path. */
static void what_a_head_is_told_at_its_start_counts(void **state)
{
    for (int same = 0; same < 2; same++) {
        struct fixture *f = fixture_new(2);
        struct adapters *t = &f->core->cluster.adapters;
        struct error err;
        t->max_loras = 2;
        assert_int_equal(head_core_load_adapter(f->core, STR("sql"), STR("/l/new"), false, "a test",
                                                f->now, &err),
                         STATUS_OK);
        uint64_t drawn = t->all[0].id;
        const struct msg_adapter held[] = {
            {41, true, STR("sql"), same ? STR("/l/new") : STR("/l/old"), {1, 2}}};
        struct msg hello = worker_hello(101, 0);
        hello.hello.worker.adapters = held;
        hello.hello.worker.n_adapters = 1;
        say(f, 1, &hello);
        assert_string_equal(t->all[0].path, "/l/new");
        assert_true(t->all[0].id == (same ? 41 : drawn));
        const struct msg_adapter *a = told(f, 1);
        assert_true(same ? !a : a && !a->on && a->id == 41);
        assert_int_equal(t->all[0].state, same ? ADAPTER_READY : ADAPTER_LOADING);
        fixture_free(f);
    }
}

/* The first worker decides which adapters exist. A replica with a member that lacks an adapter
 * waits for that member to load it, but not for ever. */
static void a_replica_that_lacks_one_is_not_adopted(void **state)
{
    for (int loads = 0; loads < 2; loads++) {
        struct fixture *f = fixture_new(2);
        f->core->cluster.adapters.max_loras = 2;
        const struct msg_adapter held[] = {{41, true, STR("sql"), STR("/l/sql"), {1, 2}}};
        for (uint8_t i = 1; i <= 2; i++) {
            struct msg hello = worker_hello(100 + i, i - 1);
            hello.hello.term_seen = 5;
            hello.hello.worker.term_epoch = 5ull << 32 | 3;
            hello.hello.worker.rank = i - 1u;
            hello.hello.worker.adapters = held;
            hello.hello.worker.n_adapters = i == 1;
            say(f, i, &hello);
        }
        wait_ms(f, 500, 0x6);
        assert_true(told(f, 2) && told(f, 2)->on && told(f, 2)->id == 41);
        assert_null(box_find(f, 1, MSG_RESET));
        assert_null(box_find(f, 1, MSG_ABORT));
        if (loads)
            done_as(f, 2, 41, 2);
        wait_ms(f, loads ? 50 : 3000, 0x6);
        for (uint8_t i = 1; i <= 2; i++) {
            assert_true((box_find(f, i, MSG_RESET) != NULL) == loads);
            assert_true((box_find(f, i, MSG_ABORT) != NULL) == !loads);
        }
        fixture_free(f);
    }
}

static void strays_are_dropped(void **state)
{
    struct fixture *f = cluster();
    const struct msg_adapter held[] = {{41, true, STR("old"), STR("/l/old"), {1, 2}}};
    struct msg hello = worker_hello(104, -1);
    hello.hello.worker.adapters = held;
    hello.hello.worker.n_adapters = 1;
    say(f, SPARE, &hello);
    assert_true(told(f, SPARE) && told(f, SPARE)->id == 41 && !told(f, SPARE)->on);
    done(f, 1, 99, true, STATUS_OK); /* the worker loaded adapter 99 for an earlier head */
    assert_true(told(f, 1) && told(f, 1)->id == 99 && !told(f, 1)->on);
    fixture_free(f);
}

/* The first rank's report gives the adapter its identity. Each rank that reads the files later
 * must report the same identity. */
static void all_read_the_same_files(void **state)
{
    struct fixture *f = cluster();
    order(f, true, "sql", false);
    uint64_t id = told(f, 1)->id;
    assert_false(adapter_identity_known(told(f, 1)->identity));
    done_as(f, 1, id, 5);
    done_as(f, 2, id, 5);
    expect_answer(f, STATUS_OK, "");
    box_clear(f);
    struct msg hello = worker_hello(104, -1);
    say(f, SPARE, &hello);
    assert_true(told(f, SPARE)->identity.hi == 1 && told(f, SPARE)->identity.lo == 5);
    box_clear(f);
    done_as(f, SPARE, id, 6); /* this worker has another build, or its report is wrong */
    const struct msg_adapter *a = told(f, SPARE);
    assert_true(a && !a->on && a->id == id);
    assert_false(
        eligible_has_adapters(&f->core->cluster, cluster_find_worker(&f->core->cluster, 104)));
    done(f, SPARE, id, false, STATUS_OK);
    assert_int_equal(f->core->cluster.adapters.all[0].state, ADAPTER_READY);
    fixture_free(f);
}

/* Two ranks were ordered to load at once, and the folder was replaced between their reads. */
static void files_that_change_while_they_are_read(void **state)
{
    struct fixture *f = cluster();
    order(f, true, "sql", false);
    uint64_t id = told(f, 1)->id;
    done_as(f, 1, id, 5);
    box_clear(f);
    done_as(f, 2, id, 6);
    expect_answer(f, STATUS_INVALID, "changed while the workers loaded it");
    for (uint8_t i = 1; i <= 2; i++) {
        assert_true(told(f, i) && !told(f, i)->on && told(f, i)->id == id);
        done(f, i, id, false, STATUS_OK);
    }
    box_clear(f);
    load(f, "sql");
    fixture_free(f);
}

static void what_is_held_of_other_files_is_a_stray(void **state)
{
    struct fixture *f = cluster();
    order(f, true, "sql", false);
    uint64_t id = told(f, 1)->id;
    done_as(f, 1, id, 5);
    done_as(f, 2, id, 5);
    box_clear(f);
    for (uint64_t i = 0; i < 2; i++) {
        const struct msg_adapter held[] = {{id, true, STR("sql"), STR("/l/a"), {1, 5 + i}}};
        struct msg hello = worker_hello(104 + i, -1);
        hello.hello.worker.adapters = held;
        hello.hello.worker.n_adapters = 1;
        say(f, SPARE + (uint8_t)i, &hello);
        const struct worker *w = cluster_find_worker(&f->core->cluster, 104 + i);
        assert_true(eligible_has_adapters(&f->core->cluster, w) == (i == 0));
    }
    assert_null(told(f, SPARE));
    /* The head sends the order to load after the order to unload. */
    assert_true(told(f, SPARE + 1) && !told(f, SPARE + 1)->on);
    fixture_free(f);
}

static void worker_2_goes(struct fixture *f)
{
    say(f, 2, &(struct msg){.type = MSG_GOODBYE});
    uint64_t epoch = box_find(f, 1, MSG_ABORT)->abort_.term_epoch;
    say(f, 1, &(struct msg){.type = MSG_ABORTED, .aborted = {epoch}});
}

static void expect_lost(const struct fixture *f, const char *text)
{
    const struct msg *m = box_find(f, GATEWAY, MSG_TOKENS);
    assert_non_null(m);
    assert_int_equal(m->tokens.items[0].finish, FINISH_ERROR);
    char said[256];
    snprintf(said, sizeof said, STR_FMT, STR_ARG(m->tokens.items[0].text));
    if (!strstr(said, text))
        fail_msg("%s", said);
}

/* An adapter whose folder is gone is dropped. The base model and the other adapters stay. */
static void what_stands_in_the_way_goes(void **state)
{
    const uint32_t alive = 1u << 1 | 1u << 2 | 1u << SPARE | 1u << GATEWAY;
    struct fixture *f = cluster();
    const struct adapter *all = f->core->cluster.adapters.all;
    uint64_t a = load(f, "a"), b = load(f, "b");
    struct msg hello = worker_hello(104, -1);
    say(f, SPARE, &hello);
    done(f, SPARE, a, true, STATUS_OK);
    done(f, SPARE, b, true, STATUS_NOT_FOUND);
    wait_ms(f, 5200, alive);
    done(f, SPARE, b, true, STATUS_NOT_FOUND);
    wait_ms(f, 200, alive);
    assert_int_equal(all[1].state, ADAPTER_READY); /* a replica still serves the adapter */
    box_clear(f);
    submit(f, 1, "b", 3);
    worker_2_goes(f);
    wait_ms(f, 50, alive & ~(1u << 2));
    assert_int_equal(all[0].state, ADAPTER_READY);
    assert_int_equal(all[1].state, ADAPTER_FAILED);
    expect_lost(f, "the adapter b was lost on a worker: n: tensor q has shape [1]");
    assert_true(told(f, 1) && told(f, 1)->id == b && !told(f, 1)->on);
    assert_null(told(f, SPARE));
    wait_ms(f, 5000, alive & ~(1u << 2));
    assert_non_null(box_find(f, SPARE, MSG_FORM));
    fixture_free(f);
}

/* One failed load is not final, because a disk can be unavailable for a moment. */
static void one_failure_is_not_the_end(void **state)
{
    const uint32_t alive = 1u << 1 | 1u << SPARE | 1u << GATEWAY;
    struct fixture *f = cluster();
    uint64_t id = load(f, "sql");
    worker_2_goes(f);
    struct msg hello = worker_hello(104, -1);
    say(f, SPARE, &hello);
    done(f, SPARE, id, true, STATUS_IO);
    wait_ms(f, 4000, alive);
    assert_int_equal(f->core->cluster.adapters.all[0].state, ADAPTER_READY);
    assert_string_equal(f->core->cluster.adapters.all[0].text, "n: tensor q has shape [1]");
    box_clear(f);
    wait_ms(f, 1500, alive);
    assert_true(told(f, SPARE) && told(f, SPARE)->on);
    done(f, SPARE, id, true, STATUS_OK);
    wait_ms(f, 1000, alive);
    assert_non_null(box_find(f, SPARE, MSG_FORM));
    assert_int_equal(f->core->cluster.adapters.all[0].state, ADAPTER_READY);
    assert_string_equal(f->core->cluster.adapters.all[0].text, "");
    fixture_free(f);
}

static void what_leaves_is_not_waited_for(void **state)
{
    const uint32_t alive = 1u << 1 | 1u << SPARE | 1u << GATEWAY;
    struct fixture *f = cluster();
    uint64_t id = load(f, "sql");
    submit(f, 1, "sql", 3);
    order(f, false, "sql", false);
    worker_2_goes(f);
    struct msg hello = worker_hello(104, -1);
    say(f, SPARE, &hello);
    assert_int_equal(f->core->cluster.adapters.all[0].state, ADAPTER_LEAVING);
    box_clear(f);
    done(f, SPARE, id, true, STATUS_NOT_FOUND);
    wait_ms(f, 50, alive);
    expect_lost(f, "the adapter sql was lost on a worker: n: tensor q has shape [1]");
    assert_true(told(f, 1) && !told(f, 1)->on);
    done(f, 1, id, false, STATUS_OK);
    expect_answer(f, STATUS_OK, "");
    assert_int_equal(f->core->cluster.adapters.all[0].state, ADAPTER_NONE);
    fixture_free(f);
}

/* A rank that took another shard could not read the adapter again. Its replica must not run
 * without the adapter. */
static void what_a_rank_loses_ends_the_epoch(void **state)
{
    struct fixture *f = cluster();
    uint64_t id = load(f, "sql");
    done(f, 2, id, true, STATUS_NOT_FOUND);
    for (uint8_t i = 1; i <= 2; i++) {
        const struct msg *m = box_find(f, i, MSG_ABORT);
        assert_non_null(m);
        say(f, i, &(struct msg){.type = MSG_ABORTED, .aborted = {m->abort_.term_epoch}});
    }
    wait_ms(f, 1000, 1u << 1 | 1u << 2 | 1u << GATEWAY);
    assert_null(box_find(f, 1, MSG_FORM));
    wait_ms(f, 4500, 1u << 1 | 1u << 2 | 1u << GATEWAY);
    assert_true(told(f, 2) && told(f, 2)->on);
    done(f, 2, id, true, STATUS_OK);
    wait_ms(f, 1000, 1u << 1 | 1u << 2 | 1u << GATEWAY);
    assert_non_null(box_find(f, 1, MSG_FORM));
    fixture_free(f);
}

static void orders_that_are_refused(void **state)
{
    static const char *const names[] = {"first", "second"};
    struct fixture *f = cluster();
    char longest[300];
    f->core->config.served_names = names;
    f->core->config.n_served_names = 2;
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    const struct {
        bool on;
        const char *name;
        enum status want;
        const char *text;
    } cases[] = {{true, "", STATUS_INVALID, "lora_name"},
                 {true, "a b", STATUS_INVALID, "lora_name"},
                 {true, "a\nb", STATUS_INVALID, "lora_name"},
                 {true, longest, STATUS_INVALID, "lora_name"},
                 {true, "null", STATUS_EXISTS, "is the name of the model itself"},
                 {true, "first", STATUS_EXISTS, "is a name of the model itself"},
                 {true, "second", STATUS_EXISTS, "is a name of the model itself"},
                 {true, "a", STATUS_EXISTS, "is already loaded"},
                 {true, "c", STATUS_LIMIT, "--max-loras"},
                 {false, "c", STATUS_NOT_FOUND, "no adapter is named c"}};
    load(f, "a");
    load(f, "b");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        box_clear(f);
        order(f, cases[i].on, cases[i].name, false);
        expect_answer(f, cases[i].want, cases[i].text);
        assert_null(told(f, 1));
    }
    box_clear(f);
    order(f, true, "a", true); /* the old adapter keeps its place until no request uses it */
    expect_answer(f, STATUS_LIMIT, "keeps its place until no request uses it");
    f->core->cluster.adapters.max_loras = 0;
    box_clear(f);
    order(f, true, "d", false);
    expect_answer(f, STATUS_UNSUPPORTED, "--enable-lora");
    fixture_free(f);
}

static void what_is_loading_can_be_unloaded(void **state)
{
    struct fixture *f = cluster();
    order(f, true, "sql", false);
    uint64_t id = told(f, 1)->id;
    box_clear(f);
    order(f, false, "sql", false);
    /* the operator who loaded the adapter gets this answer */
    expect_answer(f, STATUS_CLOSED, "unloaded before");
    assert_true(told(f, 1) && !told(f, 1)->on);
    for (uint8_t i = 1; i <= 2; i++) { /* load and unload end in this order */
        done(f, i, id, true, STATUS_OK);
        done(f, i, id, false, STATUS_OK);
    }
    assert_int_equal(f->core->cluster.adapters.all[0].state, ADAPTER_NONE);
    fixture_free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_named_when_all_have_it),
        cmocka_unit_test(what_a_worker_refuses_is_dropped_by_the_others),
        cmocka_unit_test(it_leaves_when_nobody_uses_it),
        cmocka_unit_test(who_comes_later_gets_the_table_first),
        cmocka_unit_test(who_cannot_load_it_is_asked_again_and_not_placed),
        cmocka_unit_test(in_place_is_another_one),
        cmocka_unit_test(a_new_head_takes_over),
        cmocka_unit_test(a_head_that_waited_takes_over),
        cmocka_unit_test(events_say_who_asked),
        cmocka_unit_test(what_a_head_is_told_at_its_start_counts),
        cmocka_unit_test(a_replica_that_lacks_one_is_not_adopted),
        cmocka_unit_test(strays_are_dropped),
        cmocka_unit_test(all_read_the_same_files),
        cmocka_unit_test(files_that_change_while_they_are_read),
        cmocka_unit_test(what_is_held_of_other_files_is_a_stray),
        cmocka_unit_test(what_stands_in_the_way_goes),
        cmocka_unit_test(one_failure_is_not_the_end),
        cmocka_unit_test(what_leaves_is_not_waited_for),
        cmocka_unit_test(what_a_rank_loses_ends_the_epoch),
        cmocka_unit_test(orders_that_are_refused),
        cmocka_unit_test(what_is_loading_can_be_unloaded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

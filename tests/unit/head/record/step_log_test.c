/* Tests the step log and its replay. `struct life` plays random requests, steps and moves on two
 * schedulers, and logs them. A replay reads the bytes and must make the same plans, or name the
 * first difference. Other tests damage the log, put false statements into it, or write it to a
 * file that is rotated. The life owns its requests and schedulers. All tests run on one thread. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/mem.h"
#include "common/base/random.h"
#include "head/record/file.h"
#include "head/record/replay.h"

enum { N_REPLICAS = 2, MAX_REQUESTS = 400, N_STEPS = 600, MAX_ITEMS = 64 };

/* Names the false statements that a test puts into the log. */
enum lie {
    TRUTH,
    LIE_RUN,      /* a run has another length */
    LIE_NO_PLAN,  /* a plan that was made is not logged */
    LIE_PLAN,     /* a plan is logged that was not made */
    LIE_ENDS,     /* the log has one more end than there was */
    LIE_STATUS,   /* an accepted request is logged as refused */
    LIE_PRIORITY, /* the scheduler had another priority */
};

struct life {
    struct step_log *log;
    struct strbuf bytes;
    bool is_full, may_restart;
    struct rng rng;
    uint64_t now_ns;
    struct scheduler *schedulers[N_REPLICAS];
    struct request *requests[MAX_REQUESTS]; /* requests by arrival number - 1; NULL = gone */
    uint32_t in_replica[MAX_REQUESTS];
    uint32_t n_requests;
    struct result_item items[N_REPLICAS][2][MAX_ITEMS];
    struct msg_result results[N_REPLICAS][2]; /* results of the plans in flight, oldest first */
    uint32_t n_results[N_REPLICAS];
    uint32_t token;
    enum lie lie;
    uint64_t n_steps, n_added, n_refused, n_ended, n_held, n_imported, n_left;
};

static enum status keep(void *ctx, struct str bytes, struct error *err)
{
    struct life *x = ctx;
    if (x->is_full)
        return error_set(err, STATUS_LIMIT, "full");
    strbuf_append_str(&x->bytes, bytes);
    return STATUS_OK;
}

static bool restart(void *ctx)
{
    struct life *x = ctx;
    if (x->may_restart)
        strbuf_reset(&x->bytes);
    return x->may_restart;
}

static const struct scheduler_config config = {
    .max_num_batched_tokens = 64,
    .max_num_seqs = 8,
    .max_waiting = 5,
    .max_model_len = 256,
    .depth = 2,
    .step_target_ns = 5000, /* the target is in nanoseconds, and steps take 1000 to 2000 */
    .enable_prefix_caching = true,
    .n_kv_groups = 2,
    .kv_groups = {{.kind = KV_FULL, .block_tokens = 16, .n_blocks = 40},
                  {.kind = KV_WINDOW, .window_tokens = 32, .block_tokens = 16, .n_blocks = 60}},
};

static void open_replica(struct life *x, uint32_t g, uint64_t epoch)
{
    struct error err;
    if (scheduler_new(&config, &x->schedulers[g], &err) != STATUS_OK)
        fail_msg("%s", err.text);
    step_log_replica(x->log, g, g, epoch, &config);
    scheduler_reset(x->schedulers[g], epoch, NULL, NULL);
    x->n_results[g] = 0;
}

static struct life *life_new(uint64_t seed)
{
    struct life *x = mem_zalloc(sizeof *x);
    struct step_log_sink sink = {.ctx = x, .write = keep, .restart = restart};
    strbuf_init(&x->bytes, 0);
    x->log = step_log_new(&sink, 5);
    x->rng.state = seed;
    x->now_ns = 1000;
    return x;
}

static void drop(struct life *x, struct request *r)
{
    x->requests[r->arrival_seq - 1] = NULL;
    request_free(r);
}

static void let_go(void *ctx, struct request *r)
{
    drop(ctx, r);
}

static void close_replica(struct life *x, uint32_t g)
{
    if (!x->schedulers[g])
        return;
    step_log_down(x->log, g);
    scheduler_reset(x->schedulers[g], 0, let_go, x);
    scheduler_free(x->schedulers[g]);
    x->schedulers[g] = NULL;
}

static void life_free(struct life *x)
{
    for (uint32_t g = 0; g < N_REPLICAS; g++)
        close_replica(x, g);
    step_log_free(x->log);
    strbuf_fini(&x->bytes);
    mem_free(x);
}

static bool tells(struct life *x, enum lie lie)
{
    bool yes = x->lie == lie;
    if (yes)
        x->lie = TRUTH;
    return yes;
}

static void add(struct life *x, uint32_t g)
{
    static const uint32_t stops[] = {7, 8};
    uint32_t ids[128], n = 1 + (uint32_t)rng_below(&x->rng, 128);
    if (x->n_requests == MAX_REQUESTS)
        return;
    for (uint32_t i = 0; i < n; i++)
        ids[i] = 100 + i / 20 * (uint32_t)rng_below(&x->rng, 2);
    struct msg_submit m = {
        .id = {1, x->n_requests},
        .attempt = 1,
        .tenant = rng_below(&x->rng, 3),
        .priority = (int32_t)rng_below(&x->rng, 3) - 1,
        .n_prompt = n,
        .ids = {ids, n},
        .deadline_ms = rng_below(&x->rng, 4) == 0 ? 1 : 0,
        .sampling = {.top_p = 1.0f,
                     .max_tokens = 1 + (uint32_t)rng_below(&x->rng, 60),
                     .n_logprobs = -1,
                     /* Every fifth request asks for prompt_logprobs, but its results have no
                      * rows. */
                     .n_prompt_logprobs = x->n_requests % 5 ? -1 : 0,
                     .eos_ids = {stops, 1},
                     .stop_ids = {stops + 1, 1},
                     .grammar_kind = x->n_requests % 2 ? GRAMMAR_REGEX : GRAMMAR_NONE,
                     .lora = STR("adapter")}};
    struct request *r;
    assert_int_equal(request_new(NULL, &m, config.max_model_len, x->now_ns, &r, NULL), STATUS_OK);
    r->arrival_seq = ++x->n_requests;
    x->requests[r->arrival_seq - 1] = r;
    x->in_replica[r->arrival_seq - 1] = g;
    r->priority += tells(x, LIE_PRIORITY) ? 5 : 0;
    step_log_add(x->log, g, r, x->now_ns);
    r->priority = m.priority;
    enum status s = scheduler_add(x->schedulers[g], r);
    x->n_added += s == STATUS_OK;
    if (s == STATUS_OK && tells(x, LIE_STATUS))
        step_log_refused(x->log, g, STATUS_LIMIT);
    if (s == STATUS_OK)
        return;
    x->n_refused++;
    step_log_refused(x->log, g, s);
    drop(x, r);
}

static void remove_one(struct life *x)
{
    uint32_t i = (uint32_t)rng_below(&x->rng, x->n_requests + 1u);
    struct request *r = i < x->n_requests ? x->requests[i] : NULL;
    if (!r || !r->sched)
        return;
    step_log_remove(x->log, x->in_replica[i], r);
    scheduler_remove(x->schedulers[x->in_replica[i]], r);
    drop(x, r);
}

/* Makes one move of a random kind from one replica to the other. */
static void move_one(struct life *x, uint32_t from)
{
    uint32_t i = (uint32_t)rng_below(&x->rng, x->n_requests + 1u), to = 1 - from;
    uint64_t id = 1 + rng_below(&x->rng, 8);
    struct request *r = i < x->n_requests ? x->requests[i] : NULL;
    if (!r || !r->sched || x->in_replica[i] != from || r->finish != FINISH_NONE)
        return;
    uint32_t n = scheduler_movable(x->schedulers[from], r);
    if (n > 0) {
        step_log_hold(x->log, from, r, n, id);
        x->n_held += scheduler_hold(x->schedulers[from], r, n, id) == STATUS_OK;
        step_log_import(x->log, to, r, n, id);
        x->n_imported += scheduler_import(x->schedulers[to], r, n, id) == STATUS_OK;
    } else if (rng_below(&x->rng, 2) == 0) {
        step_log_let_go(x->log, from, id);
        scheduler_let_go(x->schedulers[from], id);
    } else {
        step_log_imported(x->log, from, id);
        scheduler_imported(x->schedulers[from], id);
    }
    if (rng_below(&x->rng, 3) > 0)
        return;
    step_log_leave(x->log, from, r);
    if (!scheduler_leave(x->schedulers[from], r))
        return;
    step_log_remove(x->log, from, r);
    scheduler_remove(x->schedulers[from], r);
    drop(x, r);
    x->n_left++;
}

static void pop_ended(struct life *x, uint32_t g)
{
    for (struct request *r; (r = scheduler_pop_ended(x->schedulers[g])) != NULL;) {
        step_log_ended(x->log, g, r);
        x->n_ended++;
        drop(x, r);
    }
}

static void log_plan(struct life *x, uint32_t g, const struct msg_plan *plan)
{
    if (plan && plan->n_runs > 0 && tells(x, LIE_RUN)) {
        struct plan_run *runs = mem_array(plan->n_runs, sizeof *runs);
        struct msg_plan other = *plan;
        memcpy(runs, plan->runs, plan->n_runs * sizeof *runs);
        runs[plan->n_runs - 1].n_tokens++;
        other.runs = runs;
        step_log_plan(x->log, g, &other);
        mem_free(runs);
    } else if (plan && tells(x, LIE_NO_PLAN)) {
        step_log_plan(x->log, g, NULL);
    } else if (!plan && tells(x, LIE_PLAN)) {
        step_log_plan(x->log, g, &(struct msg_plan){.step = 3});
    } else {
        step_log_plan(x->log, g, plan);
    }
}

/* Returns a result for the slot. Some results cost masks, and a few cost so much that their
 * tenant has to wait. Some results end the answer because of its grammar. */
static struct result_item item(struct life *x, uint32_t slot)
{
    static const float ends[] = {RESULT_DEAD_END, RESULT_MASK_COST};
    uint64_t kind = rng_below(&x->rng, 40);
    struct result_item it = {.slot = slot, .ids = {&x->token, 1}};
    if (kind < 20)
        it.mask_units = kind == 0 ? 1500000 : (uint32_t)rng_below(&x->rng, 20000);
    if (kind == 0 || kind == 39)
        it.gaps = (struct f32_span){&ends[kind != 0], 1};
    return it;
}

static void step(struct life *x, uint32_t g)
{
    step_log_step(x->log, g, x->now_ns);
    const struct msg_plan *plan = scheduler_step(x->schedulers[g], x->now_ns);
    log_plan(x, g, plan);
    if (plan) {
        x->n_steps++;
        uint32_t at = x->n_results[g]++;
        struct msg_result *m = &x->results[g][at];
        *m = (struct msg_result){.term_epoch = plan->term_epoch,
                                 .step = plan->step,
                                 .items = x->items[g][at],
                                 .execute_ns = 1000 + rng_below(&x->rng, 1000)};
        for (uint32_t i = 0; i < plan->n_runs; i++)
            if (plan->runs[i].sample)
                x->items[g][at][m->n_items++] = item(x, plan->runs[i].slot);
    }
    pop_ended(x, g);
}

static void answer(struct life *x, uint32_t g)
{
    const struct scheduler_event *events = NULL;
    uint32_t n = 0;
    struct error err;
    if (x->n_results[g] == 0)
        return;
    const struct msg_result *m = &x->results[g][0];
    x->token = 1 + (uint32_t)rng_below(&x->rng, 30);
    step_log_result(x->log, g, m, x->now_ns);
    assert_int_equal(scheduler_on_result(x->schedulers[g], m, x->now_ns, &events, &n, &err),
                     STATUS_OK);
    struct scheduler_event *told = mem_array(n + 1u, sizeof *told);
    if (n > 0)
        memcpy(told, events, n * sizeof *told);
    bool lies = tells(x, LIE_ENDS);
    told[n].ended = true;
    step_log_done(x->log, g, STATUS_OK, told, lies ? n + 1 : n);
    for (uint32_t i = 0; i < n; i++)
        if (told[i].ended)
            drop(x, told[i].request);
    mem_free(told);
    x->results[g][0] = x->results[g][1];
    memcpy(x->items[g][0], x->items[g][1], sizeof x->items[g][0]);
    x->results[g][0].items = x->items[g][0];
    x->n_results[g]--;
}

static void flush(struct life *x)
{
    struct error err;
    if (!step_log_flush(x->log, &err))
        fail_msg("%s", err.text);
}

static void live(struct life *x, uint32_t n_steps)
{
    for (uint32_t g = 0; g < N_REPLICAS; g++)
        open_replica(x, g, 1ull << 32 | (g + 1));
    for (uint32_t i = 0; i < n_steps; i++) {
        uint32_t g = (uint32_t)rng_below(&x->rng, N_REPLICAS);
        x->now_ns += 50000;
        switch (rng_below(&x->rng, 8)) {
        case 0:
        case 1:
            add(x, g);
            break;
        case 2:
            remove_one(x);
            move_one(x, g);
            break;
        case 3:
        case 4:
        case 5:
            answer(x, g);
            break;
        default:
            step(x, g);
        }
        if (rng_below(&x->rng, 3) == 0)
            flush(x);
        if (i == n_steps / 2) { /* a new epoch begins in the middle */
            close_replica(x, 1);
            open_replica(x, 1, 1ull << 32 | 9);
        }
    }
}

static enum status replay(struct str bytes, struct replay_totals *totals, struct error *err)
{
    static const struct replay_options o = {.check = true, .print = true, .replica = -1};
    struct step_log_reader *r;
    FILE *out = fopen("/dev/null", "w");
    assert_non_null(out);
    enum status s = step_log_open_bytes(bytes, &r, err);
    if (s == STATUS_OK)
        s = replay_run(r, &o, out, totals, err);
    step_log_close(r);
    fclose(out);
    return s;
}

static void a_life_is_replayed(void **state)
{
    uint64_t n_held = 0, n_imported = 0, n_left = 0;
    for (uint64_t seed = 1; seed <= 5; seed++) {
        struct life *x = life_new(seed);
        struct replay_totals t;
        struct error err = {0};
        live(x, N_STEPS);
        for (uint32_t g = 0; g < N_REPLICAS; g++)
            close_replica(x, g);
        flush(x);
        if (replay(strbuf_str(&x->bytes), &t, &err) != STATUS_OK)
            fail_msg("seed %u: %s", (unsigned)seed, err.text);
        assert_int_equal(t.n_steps, x->n_steps);
        assert_int_equal(t.n_requests, x->n_added);
        assert_int_equal(t.n_replicas, N_REPLICAS + 1);
        assert_true(x->n_ended > 0 && x->n_refused > 0 && t.n_results > 0 && !t.died_in_step);
        n_held += x->n_held;
        n_imported += x->n_imported;
        n_left += x->n_left;
        life_free(x);
    }
    assert_true(n_held > 0 && n_imported > 0 && n_left > 0);
}

static void what_is_not_so_is_found(void **state)
{
    static const struct {
        enum lie lie;
        const char *want;
    } cases[] = {
        {LIE_RUN, "the plan differs from the head's"},
        {LIE_NO_PLAN, "the replay made a plan where the head made none"},
        {LIE_PLAN, "the plan differs from the head's"},
        {LIE_ENDS, "a step's result differs"},
        {LIE_STATUS, "the head's scheduler returned limit"},
        {LIE_PRIORITY, "the plan differs from the head's"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct life *x = life_new(3);
        struct replay_totals t;
        struct error err = {0};
        live(x, 0);
        for (int k = 0; k < 12; k++)
            add(x, 0);
        x->lie = cases[i].lie;
        if (x->lie == LIE_PRIORITY)
            add(x, 1), add(x, 1);
        for (int k = 0; k < 20 && cases[i].lie != LIE_PRIORITY; k++) {
            add(x, 1);
            for (uint32_t n = 0; n < 6; n++) /* this is more than may be in flight */
                step(x, n % 2);
            answer(x, 0);
            answer(x, 1);
        }
        if (cases[i].lie == LIE_PRIORITY)
            step(x, 1);
        flush(x);
        assert_int_equal(x->lie, TRUTH);
        assert_int_equal(replay(strbuf_str(&x->bytes), &t, &err), STATUS_INTERNAL);
        if (!strstr(err.text, cases[i].want))
            fail_msg("case %zu: %s", i, err.text);
        life_free(x);
    }
}

static void a_step_that_never_returned_is_in_the_last_words(void **state)
{
    struct life *x = life_new(4);
    struct replay_totals t;
    struct error err = {0};
    live(x, 40);
    flush(x);
    step_log_step(x->log, 0, x->now_ns);
    strbuf_append_str(&x->bytes, step_log_last_words(x->log));
    assert_int_equal(replay(strbuf_str(&x->bytes), &t, &err), STATUS_OK);
    assert_true(t.died_in_step);
    step_log_plan(x->log, 0, NULL);
    assert_int_equal(step_log_last_words(x->log).len, 0);
    life_free(x);
}

static void damage_is_found_and_a_cut_is_not_damage(void **state)
{
    struct life *x = life_new(5);
    struct replay_totals t;
    struct error err = {0};
    live(x, 30);
    flush(x);
    for (size_t i = 0; i < x->bytes.len; i++) {
        x->bytes.ptr[i] ^= 0x10;
        if (replay(strbuf_str(&x->bytes), &t, &err) != STATUS_INVALID)
            fail_msg("byte %zu of %zu: %s", i, x->bytes.len, err.text);
        x->bytes.ptr[i] ^= 0x10;
    }
    for (size_t n = 0; n <= x->bytes.len; n += 7) {
        enum status want = n < STEP_LOG_MAGIC_BYTES ? STATUS_INVALID : STATUS_OK;
        assert_int_equal(replay((struct str){x->bytes.ptr, n}, &t, &err), want);
    }
    life_free(x);
}

static void another_version_is_refused_by_name(void **state)
{
    static const char older[] = "coxstep\x01";
    struct step_log_reader *r;
    struct error err;
    assert_int_equal(step_log_open_bytes((struct str){older, 8}, &r, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "version 1, but this program reads version 3"));
    assert_int_equal(step_log_open_bytes((struct str){older, 7}, &r, &err), STATUS_INVALID);
    assert_string_equal(err.text, "the file is not a step log. Give a file that --step-log wrote");
}

static void a_full_sink_ends_the_log_once_and_a_new_replica_begins_another(void **state)
{
    struct life *x = life_new(6);
    struct replay_totals t;
    struct error err = {0};
    live(x, 60);
    flush(x);
    size_t n = x->bytes.len;
    x->is_full = true;
    add(x, 0);
    assert_false(step_log_flush(x->log, &err));
    assert_string_equal(err.text, "full");
    assert_true(step_log_flush(x->log, &err));
    x->is_full = false;
    add(x, 0);
    step(x, 0);
    flush(x);
    assert_int_equal(x->bytes.len, n);
    x->may_restart = true;
    close_replica(x, 0);
    /* The other replica is up, and a new log file cannot start in the middle of its epoch. */
    open_replica(x, 0, 77);
    flush(x);
    assert_int_equal(x->bytes.len, n);
    close_replica(x, 0);
    close_replica(x, 1);
    open_replica(x, 0, 78);
    add(x, 0);
    step(x, 0);
    flush(x);
    assert_int_equal(replay(strbuf_str(&x->bytes), &t, &err), STATUS_OK);
    assert_int_equal(t.n_replicas, 1);
    life_free(x);
}

/* ---- the file ---- */

struct folder {
    char path[64], file[96], old[96];
};

static void make_folder(struct folder *f)
{
    snprintf(f->path, sizeof f->path, "/tmp/step-log-XXXXXX");
    assert_non_null(mkdtemp(f->path));
    snprintf(f->file, sizeof f->file, "%s/log", f->path);
    snprintf(f->old, sizeof f->old, "%s/log.1", f->path);
}

static void remove_folder(const struct folder *f)
{
    unlink(f->file);
    unlink(f->old);
    rmdir(f->path);
}

static long size_of(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? (long)st.st_size : -1;
}

static void a_file_keeps_what_came_and_what_was_there(void **state)
{
    struct folder d;
    struct step_log_file *f;
    struct error err = {0};
    struct stat st;
    make_folder(&d);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(step_log_file_open(d.file, 10, &f, &err), STATUS_OK);
        struct step_log_sink s = step_log_file_sink(f);
        assert_int_equal(s.write(s.ctx, STR("1234567"), &err), STATUS_OK);
        assert_int_equal(s.write(s.ctx, STR("8901"), &err), STATUS_LIMIT);
        step_log_file_close(f);
        assert_int_equal(size_of(d.file), 7);
        assert_int_equal(size_of(d.old), i == 0 ? -1 : 7);
    }
    assert_int_equal(stat(d.file, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(step_log_file_open(d.path, 10, &f, &err), STATUS_INVALID);
    assert_int_equal(step_log_file_open("/nowhere/at/all", 10, &f, &err), STATUS_INVALID);
    remove_folder(&d);
}

static void a_disk_that_is_too_slow_ends_the_log(void **state)
{
    struct folder d;
    struct step_log_file *f;
    struct error err = {0};
    make_folder(&d);
    assert_int_equal(step_log_file_open(d.file, 0, &f, &err), STATUS_OK);
    struct step_log_sink s = step_log_file_sink(f);
    char *much = mem_zalloc(STEP_LOG_BACKLOG_MAX + 2ul);
    assert_int_equal(s.write(s.ctx, (struct str){much, STEP_LOG_BACKLOG_MAX + 2ul}, &err),
                     STATUS_LIMIT);
    assert_non_null(strstr(err.text, "too slow"));
    assert_true(s.restart(s.ctx));
    assert_int_equal(s.write(s.ctx, STR("new"), &err), STATUS_OK);
    step_log_file_close(f);
    assert_int_equal(size_of(d.file), 3);
    mem_free(much);
    remove_folder(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_life_is_replayed),
        cmocka_unit_test(what_is_not_so_is_found),
        cmocka_unit_test(a_step_that_never_returned_is_in_the_last_words),
        cmocka_unit_test(damage_is_found_and_a_cut_is_not_damage),
        cmocka_unit_test(another_version_is_refused_by_name),
        cmocka_unit_test(a_full_sink_ends_the_log_once_and_a_new_replica_begins_another),
        cmocka_unit_test(a_file_keeps_what_came_and_what_was_there),
        cmocka_unit_test(a_disk_that_is_too_slow_ends_the_log),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

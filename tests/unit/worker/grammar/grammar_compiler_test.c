/* Tests grammars that are compiled beside the steps. The compiler reports each grammar that the
 * head needs once. It forgets a grammar that the head drops. The compute thread gets a matcher
 * of an announced grammar without compiling. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "common/base/log.h"
#include "proto/limits.h"
#include "worker/grammar/compiler.h"

static _Atomic uint32_t n_calls;

static void on_done(void *ctx)
{
    assert_ptr_equal(ctx, &n_calls);
    atomic_fetch_add(&n_calls, 1);
}

static struct grammar_compiler *open_compiler(const char *tokenizer)
{
    struct grammar_compiler *c = grammar_compiler_new(tokenizer, NULL, GRAMMAR_ROOM_MOST);
    atomic_store(&n_calls, 0);
    grammar_compiler_watch(c, on_done, &n_calls);
    return c;
}

static enum status want(struct grammar_compiler *c, uint64_t id, const char *pattern)
{
    return grammar_compiler_want(
        c, &(struct msg_grammar){
               .id = id, .on = true, .kind = GRAMMAR_REGEX, .source = str_from(pattern)});
}

static struct grammar_compiler_done await_done(struct grammar_compiler *c)
{
    struct grammar_compiler_done d = {0};
    while (!grammar_compiler_next_done(c, &d))
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    return d;
}

static struct sampling_params sampling(const char *pattern)
{
    static const uint32_t eos[] = {256};
    return (struct sampling_params){
        .grammar_kind = GRAMMAR_REGEX, .grammar = str_from(pattern), .eos_ids = {eos, 1}};
}

static void what_is_wanted_is_told_once(void **state)
{
    struct grammar_compiler *c = open_compiler("builtin:bytes");
    struct grammar_compiler_done d;
    _Atomic uint64_t progress = 0;
    assert_int_equal(want(c, 11, "ab+"), STATUS_OK);
    d = await_done(c);
    assert_true(d.id == 11 && d.status == STATUS_OK);
    assert_int_equal(atomic_load(&n_calls), 1);
    assert_false(grammar_compiler_next_done(c, &d));
    assert_int_equal(want(c, 11, "ab+"), STATUS_OK); /* the answer was lost with a session */
    assert_true(grammar_compiler_next_done(c, &d) && d.id == 11 && d.status == STATUS_OK);
    const struct sampling_params p = sampling("ab+");
    struct text_matcher *m = grammar_compiler_matcher(c, &p, &progress);
    assert_non_null(m);
    assert_int_equal(atomic_load(&progress), 0); /* the step did not wait */
    text_matcher_free(m);
    grammar_compiler_let_go_all(c); /* the next epoch has another id for the grammar */
    assert_int_equal(want(c, 12, "ab+"), STATUS_OK);
    assert_true(grammar_compiler_next_done(c, &d) && d.id == 12);
    grammar_compiler_free(c);
}

static void a_source_at_fault_is_said_to_be(void **state)
{
    struct grammar_compiler *c = open_compiler("builtin:bytes");
    _Atomic uint64_t progress = 0;
    assert_int_equal(want(c, 1, "(a"), STATUS_OK);
    assert_int_equal(want(c, 2, "a"), STATUS_OK);
    struct grammar_compiler_done d = await_done(c);
    assert_true(d.id == 1 && d.status == STATUS_INVALID && d.why[0]);
    d = await_done(c);
    assert_true(d.id == 2 && d.status == STATUS_OK);
    const struct sampling_params p = sampling("(a");
    assert_null(grammar_compiler_matcher(c, &p, &progress));
    grammar_compiler_free(c);
    c = open_compiler("/nowhere/tokenizer.json");
    assert_int_equal(want(c, 3, "a"), STATUS_OK);
    d = await_done(c);
    assert_true(d.id == 3 && d.status == STATUS_INTERNAL && strstr(d.why, "tokenizer"));
    grammar_compiler_free(c);
}

/* An older head announces no grammars. The step then compiles the grammar, and reports progress
 * meanwhile. */
static void what_was_not_announced_is_compiled_now(void **state)
{
    struct grammar_compiler *c = open_compiler("builtin:bytes");
    _Atomic uint64_t progress = 0;
    struct grammar_compiler_done d;
    const struct sampling_params p = sampling("[0-9]{1,20}");
    struct text_matcher *m = grammar_compiler_matcher(c, &p, &progress);
    assert_non_null(m);
    assert_true(atomic_load(&progress) > 0);
    text_matcher_free(m);
    assert_false(grammar_compiler_next_done(c, &d));
    assert_int_equal(atomic_load(&n_calls), 0);
    grammar_compiler_free(c);
}

/* A grammar that is dropped before its turn is not reported. The queue has a bound. */
static void the_queue_is_bounded(void **state)
{
    struct grammar_compiler *c = open_compiler("builtin:bytes");
    char pattern[32];
    uint32_t n = 0, n_told = 0;
    for (; n <= 3 * PROTO_MAX_GRAMMARS; n++) {
        snprintf(pattern, sizeof pattern, "x{%u}", n + 1);
        if (want(c, 1 + n, pattern) != STATUS_OK)
            break;
    }
    assert_int_equal(n, 2 * PROTO_MAX_GRAMMARS);
    for (uint32_t i = 0; i + 1 < n; i++)
        grammar_compiler_let_go(c, 1 + i);
    assert_int_equal(want(c, 5000, "y"), STATUS_OK);
    uint64_t last = 0;
    while (last != 5000) {
        struct grammar_compiler_done d = await_done(c);
        assert_true(d.id == n || d.id == 5000);
        last = d.id;
        n_told++;
    }
    assert_int_equal(n_told, 2);
    grammar_compiler_free(c);
}

/* Returns true when a dropped grammar stays with a memory limit of `room` bytes. A matcher of a
 * kept grammar needs no compilation, so `progress` stays 0. Measuring the time of a compilation
 * would not be reliable. */
static bool is_kept(uint64_t room, const char *pattern, struct grammar_compiler_done *done)
{
    struct grammar_compiler *c = grammar_compiler_new("builtin:bytes", NULL, room);
    _Atomic uint64_t progress = 0;
    const struct sampling_params p = sampling(pattern);
    assert_int_equal(want(c, 1, pattern), STATUS_OK);
    *done = await_done(c);
    assert_int_equal(done->status, STATUS_OK);
    grammar_compiler_let_go(c, 1);
    struct text_matcher *m = grammar_compiler_matcher(c, &p, &progress);
    assert_non_null(m);
    assert_int_equal(text_matcher_bytes(m), done->matcher_bytes);
    text_matcher_free(m);
    grammar_compiler_free(c);
    return atomic_load(&progress) == 0;
}

static void what_nobody_wants_has_a_part_of_the_room(void **state)
{
    static const char pattern[] = "([a-f]{1,50}|[e-k]{2,70}|x[0-9]*y)+z";
    struct grammar_compiler_done d, same;
    assert_true(is_kept(GRAMMAR_ROOM_MOST, pattern, &d));
    assert_true(d.bytes > sizeof pattern && d.matcher_bytes > d.bytes / 4);
    assert_int_equal(d.room_bytes, GRAMMAR_ROOM_MOST / 8 * 7);
    assert_false(is_kept(4 * d.bytes, pattern, &same));
    assert_true(is_kept(16 * d.bytes, pattern, &same));
    assert_int_equal(same.matcher_bytes, d.matcher_bytes);
}

static void the_room_is_of_what_is_free(void **state)
{
    assert_int_equal(grammar_compiler_room(0), GRAMMAR_ROOM_LEAST);
    assert_int_equal(grammar_compiler_room(1ull << 30), 256ull << 20);
    assert_int_equal(grammar_compiler_room(1ull << 40), GRAMMAR_ROOM_MOST);
}

int main(void)
{
    log_init("test", LOG_LEVEL_COUNT, LOG_LOGFMT);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_wanted_is_told_once),
        cmocka_unit_test(a_source_at_fault_is_said_to_be),
        cmocka_unit_test(what_was_not_announced_is_compiled_now),
        cmocka_unit_test(the_queue_is_bounded),
        cmocka_unit_test(what_nobody_wants_has_a_part_of_the_room),
        cmocka_unit_test(the_room_is_of_what_is_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

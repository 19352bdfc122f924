/* Tests a worker's answers to the head's orders for grammars. A device without grammars reports
 * each grammar as ready. Orders for another epoch get no answer. The loop thread sends the
 * answer once a grammar is compiled. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/log.h"
#include "common/loop/loop.h"
#include "worker/grammar/compiler.h"
#include "worker/grammar_orders.h"

struct bed {
    struct loop *loop;
    struct grammar_compiler *compiler;
    struct executor executor;
    struct grammar_orders *orders;
    struct rank_state rank;
    uint32_t n_told;
    uint64_t id, term_epoch; /* ids of the last answer */
    enum status status;
};

static struct bed bed;

static struct grammar_compiler *compiler_of(const struct executor *e)
{
    return bed.compiler;
}

static void on_send(void *ctx, const struct msg *m)
{
    assert_int_equal(m->type, MSG_GRAMMAR_DONE);
    bed.n_told++;
    bed.id = m->grammar_done.id;
    bed.term_epoch = m->grammar_done.term_epoch;
    bed.status = m->grammar_done.status;
    loop_stop(bed.loop);
}

static void open_bed(const struct executor_ops *ops, struct grammar_compiler *compiler)
{
    struct error err;
    bed = (struct bed){.compiler = compiler, .executor = {.ops = ops}};
    assert_int_equal(loop_new(&bed.loop, &err), STATUS_OK);
    rank_state_init(&bed.rank);
    bed.rank.phase = RANK_READY;
    bed.rank.term_epoch = 7;
    bed.orders = grammar_orders_start(
        &(struct grammar_orders_setup){bed.loop, &bed.executor, on_send, NULL});
}

static void close_bed(void)
{
    grammar_orders_stop(bed.orders);
    grammar_compiler_free(bed.compiler);
    loop_free(bed.loop);
}

static void take(uint64_t epoch, uint64_t id, const char *pattern)
{
    grammar_orders_take(bed.orders,
                        &(struct msg_grammar){.term_epoch = epoch,
                                              .id = id,
                                              .on = pattern != NULL,
                                              .kind = pattern ? GRAMMAR_REGEX : GRAMMAR_NONE,
                                              .source = str_from(pattern ? pattern : "")},
                        &bed.rank);
}

static void a_device_without_grammars_has_all(void **state)
{
    static const struct executor_ops ops = {0};
    open_bed(&ops, NULL);
    take(8, 1, "a+"); /* this order is for another epoch */
    bed.rank.phase = RANK_JOINING;
    take(7, 2, "a+"); /* the order arrives before the replica is ready */
    bed.rank.phase = RANK_READY;
    assert_int_equal(bed.n_told, 0);
    take(7, 3, "a+");
    assert_true(bed.n_told == 1 && bed.id == 3 && bed.term_epoch == 7 && bed.status == STATUS_OK);
    take(7, 3, NULL);
    assert_int_equal(bed.n_told, 1);
    grammar_orders_end_epoch(bed.orders);
    close_bed();
}

static void what_is_compiled_is_told_from_the_loop(void **state)
{
    static const struct executor_ops ops = {.compiler = compiler_of};
    static const struct {
        const char *pattern;
        enum status want;
    } cases[] = {{"a+", STATUS_OK}, {"(a", STATUS_INVALID}, {"a+", STATUS_OK}};
    open_bed(&ops, grammar_compiler_new("builtin:bytes", NULL, GRAMMAR_ROOM_MOST));
    for (uint32_t i = 0; i < 3; i++) {
        take(7, 10 + i, cases[i].pattern);
        assert_int_equal(bed.n_told, i);
        loop_run(bed.loop);
        assert_true(bed.n_told == i + 1 && bed.id == 10 + i && bed.status == cases[i].want);
    }
    take(7, 20, "b+");
    grammar_orders_end_epoch(bed.orders); /* the answer about this grammar is no longer sent */
    take(7, 21, "c+");
    loop_run(bed.loop);
    assert_true(bed.n_told == 4 && bed.id == 21);
    close_bed();
}

int main(void)
{
    log_init("test", LOG_LEVEL_COUNT, LOG_LOGFMT);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_device_without_grammars_has_all),
        cmocka_unit_test(what_is_compiled_is_told_from_the_loop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

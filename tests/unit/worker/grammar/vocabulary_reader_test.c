/* Tests that a worker sends the sketch of its vocabulary once its reader thread is done: in the
 * first heartbeat of a session and in every eighth one. */
#include "worker/grammar/vocabulary_reader.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

static bool says(struct vocabulary_reader *r)
{
    struct msg_heartbeat h = {0};
    vocabulary_reader_say(r, &h);
    assert_true(!h.has_vocabulary || h.vocabulary.n_tokens == 259);
    return h.has_vocabulary;
}

static void one_heartbeat_of_eight_says_it(void **state)
{
    struct vocabulary_reader *r = vocabulary_reader_start("builtin:bytes", NULL);
    assert_non_null(r);
    while (!says(r))
        usleep(1000);
    for (int i = 1; i <= 32; i++)
        assert_int_equal(says(r), i % 8 == 0);
    assert_false(says(r));
    vocabulary_reader_on_open(r);
    assert_true(says(r));
    assert_false(says(r));
    vocabulary_reader_stop(r);
}

/* A reader may be stopped at once, whether the thread or its owner is the last to release it.
 * Without a tokenizer nothing is read. */
static void what_cannot_be_read_is_not_said(void **state)
{
    for (int i = 0; i < 50; i++)
        vocabulary_reader_stop(vocabulary_reader_start("builtin:bytes", "/tmp"));
    assert_null(vocabulary_reader_start(NULL, "/tmp"));
    assert_false(says(NULL));
    vocabulary_reader_on_open(NULL);
    vocabulary_reader_stop(NULL);
    struct vocabulary_reader *r = vocabulary_reader_start("/there/is/none", NULL);
    assert_false(says(r));
    usleep(20000);
    assert_false(says(r));
    vocabulary_reader_stop(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_heartbeat_of_eight_says_it),
        cmocka_unit_test(what_cannot_be_read_is_not_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

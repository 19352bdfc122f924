/* Tests that --max-replicas bounds the number of replicas. Workers beyond it are spares, and
 * take the place of lost ranks. */
#include "tests/unit/head/core/core_fixture.h"

static uint32_t n_forming(const struct fixture *f)
{
    uint32_t n = 0;
    for (uint8_t conn = 1; conn <= 4; conn++)
        n += box_find(f, conn, MSG_FORM) != NULL;
    return n;
}

static void the_others_are_spares(void **state)
{
    struct fixture *f = fixture_new(1);
    f->core->cluster.config.serving_replicas = 2;
    for (int i = 0; i < 4; i++) {
        struct msg hello = worker_hello(101 + (uint64_t)i, i);
        hello.hello.worker.tp = 1;
        say(f, (uint8_t)(i + 1), &hello);
    }
    wait_ms(f, 1000, 0x1E);
    assert_int_equal(f->core->cluster.n_replicas, 2);
    assert_int_equal(n_forming(f), 2);
    assert_non_null(box_find(f, 1, MSG_FORM));
    assert_non_null(box_find(f, 2, MSG_FORM));
    box_clear(f);
    struct msg bye = {.type = MSG_GOODBYE};
    say(f, 1, &bye);
    say(f, 2, &bye);
    wait_ms(f, 1000, 0x18);
    assert_int_equal(f->core->cluster.n_replicas, 2);
    assert_non_null(box_find(f, 3, MSG_FORM));
    assert_non_null(box_find(f, 4, MSG_FORM));
    fixture_free(f);
}

int main(void)
{
    log_init("test", LOG_LEVEL_COUNT, LOG_LOGFMT);
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_others_are_spares)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

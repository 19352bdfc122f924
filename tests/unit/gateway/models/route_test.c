/* Tests which targets of a route get requests. The models are plain structs: only the fields that
 * the choice reads are set, and time is a variable. */
#include "gateway/models/route.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/mem.h"

enum { N_TARGETS = 3, N_REQUESTS = 300 };

static uint64_t now;
static struct models_file_route file;
static struct model_route route;
static struct served_model *models[N_TARGETS];
static struct rng rng;

static uint64_t clock_now(void *ctx)
{
    return now;
}

static int setup(void **state)
{
    static char names[N_TARGETS][2] = {"a", "b", "c"};
    now = 100 * NS_PER_S;
    rng.state = 7;
    file = (struct models_file_route){.name = "chat", .n_targets = N_TARGETS};
    route = (struct model_route){.file = &file};
    for (int i = 0; i < N_TARGETS; i++) {
        struct served_model *m = route.targets[i] = models[i] = mem_zalloc(sizeof *m);
        m->name = names[i];
        m->phase = SERVED_OPEN;
        m->serving.o.now_ns = clock_now;
        m->serving.cluster.link_up = true;
        m->serving.cluster.n_replicas_ready = 1;
        file.targets[i].model = names[i];
        file.targets[i].weight = i < 2 ? 1 : 0;
    }
    return 0;
}

static int teardown(void **state)
{
    for (int i = 0; i < N_TARGETS; i++)
        mem_free(models[i]);
    return 0;
}

/* Returns how many requests the target gets. */
static uint32_t share(int target)
{
    uint32_t n = 0;
    for (int i = 0; i < N_REQUESTS; i++)
        n += model_route_choose(&route, STR(""), NULL, &rng) == models[target];
    return n;
}

static void check_is_out(void)
{
    assert_int_equal(share(0), 0);
    assert_int_equal(share(1), N_REQUESTS);
    assert_int_equal(share(2), 0); /* the weight 0 is not for this */
    assert_ptr_equal(model_route_choose(&route, STR("a"), NULL, &rng), models[0]);
}

static void check_is_back(void)
{
    assert_in_range(share(0), 90, 210); /* 7 standard deviations */
}

static void test_a_target_that_has_failed(void **state)
{
    check_is_back();
    strcpy(models[0]->mark, "no memory");
    check_is_out();
    models[0]->mark[0] = '\0';
    check_is_back();
}

static void test_a_target_without_head_or_replica(void **state)
{
    struct cluster_view *c = &models[0]->serving.cluster;
    c->link_up = false;
    c->link_changed_ns = now;
    check_is_back(); /* the head may only be restarting */
    now += 3 * NS_PER_S;
    check_is_out();
    c->link_up = true;
    c->link_changed_ns = now;
    check_is_back();
    c->n_replicas_ready = 0;
    c->replica_lost_ns = now;
    now += 3 * NS_PER_S;
    check_is_out();
    c->start_s = 5; /* its workers are being started */
    check_is_back();
}

static void test_failures_in_a_row(void **state)
{
    struct serving *s = &models[0]->serving;
    s->n_failed_in_row = 4;
    s->failed_ns = now;
    check_is_back();
    s->n_failed_in_row = 5;
    check_is_out();
    now += 11 * NS_PER_S;
    check_is_back(); /* requests try it again */
    s->n_failed_in_row = 6;
    s->failed_ns = now;
    check_is_out();
    s->n_failed_in_row = 0;
    check_is_back();
}

/* When no target can serve, each keeps its share, and the request says why it fails. */
static void test_all_targets_have_failed(void **state)
{
    strcpy(models[0]->mark, "no memory");
    strcpy(models[1]->mark, "no memory");
    check_is_back();
}

static void test_a_target_with_a_fallback_keeps_its_share(void **state)
{
    strcpy(models[0]->mark, "no memory");
    models[0]->fallback = models[2];
    check_is_back();
    strcpy(models[2]->mark, "no memory");
    check_is_out();
    models[0]->mark[0] = models[2]->mark[0] = '\0';
    check_is_back();
    models[0]->serving.n_failed_in_row = 5; /* the fallback does not answer for these */
    models[0]->serving.failed_ns = now;
    check_is_out();
}

static void test_a_fallback_that_can_serve(void **state)
{
    assert_null(served_model_fallback(models[0]));
    models[0]->fallback = models[2];
    assert_ptr_equal(served_model_fallback(models[0]), &models[2]->serving);
    strcpy(models[2]->mark, "no memory");
    assert_null(served_model_fallback(models[0]));
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {TEST(test_a_target_that_has_failed),
                                       TEST(test_a_target_without_head_or_replica),
                                       TEST(test_failures_in_a_row),
                                       TEST(test_all_targets_have_failed),
                                       TEST(test_a_target_with_a_fallback_keeps_its_share),
                                       TEST(test_a_fallback_that_can_serve)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Tests the division of memory among the models of a set, and the answer of `cox plan` that gives
 * the sizes. A test makes the needs of two or three models, plans them, and looks at the caches,
 * the devices or the error. Sizes are in MiB unless a test says otherwise. Invariants: no plan
 * exceeds a device, weights that workers share count once, and an error names the model. */
#include "cli/up/set/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "cli/up/set/measure.h"

#define MIB (1ull << 20)

static struct set_need need(const char *name, enum up_start_kind start, uint64_t weights,
                            uint64_t kv, uint64_t kv_least)
{
    return (struct set_need){.name = name,
                             .start = start,
                             .n_workers = 1,
                             .weights_bytes = weights * MIB,
                             .other_bytes = 10 * MIB,
                             .kv_wanted_bytes = kv * MIB,
                             .kv_least_bytes = kv_least * MIB};
}

static const struct set_memory host = {.device_bytes = 1000 * MIB, .n_devices = 1};

static void all_get_what_they_want_when_it_fits(void **state)
{
    struct set_need n[] = {need("a", UP_START_ALWAYS, 300, 100, 10),
                           need("b", UP_START_ON_DEMAND, 400, 100, 10)};
    struct error err = {0};
    uint32_t at_once;
    assert_int_equal(set_memory_plan(&host, n, 2, &at_once, &err), STATUS_OK);
    assert_int_equal(at_once, 2);
    assert_int_equal(n[0].kv_bytes, 100 * MIB);
    assert_int_equal(n[1].kv_bytes, 100 * MIB);
}

static void caches_shrink_together(void **state)
{
    struct set_need n[] = {need("a", UP_START_ALWAYS, 400, 110, 10),
                           need("b", UP_START_ALWAYS, 400, 210, 10)};
    struct error err = {0};
    uint32_t at_once;
    assert_int_equal(set_memory_plan(&host, n, 2, &at_once, &err), STATUS_OK);
    assert_int_equal(at_once, 2);
    /* 180 MiB are left for caches; both get 53.3 % of the way from 10 to the wanted size */
    assert_in_range(n[0].kv_bytes, 63 * MIB, 64 * MIB);
    assert_in_range(n[1].kv_bytes, 116 * MIB, 117 * MIB);
    assert_true(set_worker_bytes(&n[0]) + set_worker_bytes(&n[1]) <= host.device_bytes);
}

static void spares_take_memory_from_each_device(void **state)
{
    struct set_memory m = {.device_bytes = 100 * MIB, .n_devices = 1};
    set_memory_keep(&m, 0);
    assert_int_equal(m.device_bytes, 100 * MIB);
    set_memory_keep(&m, 2);
    assert_int_equal(m.device_bytes, 52 * MIB);
    set_memory_keep(&m, 1000);
    assert_int_equal(m.device_bytes, 0);
    m = (struct set_memory){.device_bytes = 2048 * MIB, .n_devices = 2, .on_gpus = true};
    set_memory_keep(&m, 1);
    assert_int_equal(m.device_bytes, 1024 * MIB);
}

static void always_models_that_do_not_fit_are_refused_by_name(void **state)
{
    struct set_need n[] = {need("a", UP_START_ALWAYS, 600, 100, 10),
                           need("b", UP_START_ON_DEMAND, 100, 100, 10),
                           need("c", UP_START_ALWAYS, 500, 100, 10)};
    struct error err = {0};
    uint32_t at_once;
    assert_int_equal(set_memory_plan(&host, n, 3, &at_once, &err), STATUS_NO_MEMORY);
    assert_non_null(strstr(err.text, "the model c does not fit"));
    n[2].start = UP_START_ON_DEMAND; /* still too large beside a */
    assert_int_equal(set_memory_plan(&host, n, 3, &at_once, &err), STATUS_NO_MEMORY);
    assert_non_null(strstr(err.text, "the model c does not fit"));
    n[0].start = UP_START_ASLEEP;
    assert_int_equal(set_memory_plan(&host, n, 3, &at_once, &err), STATUS_OK);
    assert_int_equal(at_once, 2); /* a and b */
}

static void on_demand_models_share_what_is_left(void **state)
{
    struct set_need n[] = {need("a", UP_START_ALWAYS, 200, 50, 10),
                           need("b", UP_START_ON_DEMAND, 500, 400, 10),
                           need("c", UP_START_ON_DEMAND, 500, 50, 10)};
    struct error err = {0};
    uint32_t at_once;
    assert_int_equal(set_memory_plan(&host, n, 3, &at_once, &err), STATUS_OK);
    assert_int_equal(at_once, 2);
    for (int i = 1; i < 3; i++)
        assert_true(set_worker_bytes(&n[0]) + set_worker_bytes(&n[i]) <= host.device_bytes);
    assert_true(n[1].kv_bytes >= 10 * MIB);
    assert_int_equal(n[2].kv_bytes, 50 * MIB);
}

static void shared_weights_count_once(void **state)
{
    struct set_need n[] = {need("a", UP_START_ALWAYS, 300, 100, 10),
                           need("b", UP_START_ON_DEMAND, 400, 50, 10),
                           need("c", UP_START_ON_DEMAND, 400, 50, 10)};
    struct error err = {0};
    struct strbuf table;
    uint64_t each;
    uint32_t at_once;
    n[0].n_workers = 3;
    assert_int_equal(set_memory_plan(&host, n, 2, &at_once, &err), STATUS_NO_MEMORY);
    n[0].n_copies = 1; /* 260 MiB are left for the caches, so each of the three gets 73.9 */
    assert_int_equal(set_memory_plan(&host, n, 2, &at_once, &err), STATUS_OK);
    assert_int_equal(at_once, 2);
    assert_in_range(n[0].kv_bytes, 73 * MIB, 74 * MIB);
    assert_int_equal(set_devices_of(&host, &n[0], &each), 1);
    assert_int_equal(each, 330 * MIB + 3 * n[0].kv_bytes);
    assert_int_equal(set_model_bytes(&n[0]), each);
    strbuf_init(&table, 0);
    set_memory_print(&host, n, 2, at_once, &table);
    assert_non_null(strstr(table.ptr, " 300.0 MiB     30.0 MiB"));
    strbuf_fini(&table);
    /* c needs 420 MiB beside a, and b 320 without its two caches, which get the other 100 */
    n[1].weights_bytes = 300 * MIB;
    n[1].kv_wanted_bytes = 500 * MIB;
    n[1].n_workers = 2;
    n[1].n_copies = 1;
    assert_int_equal(set_memory_plan(&host, n, 3, &at_once, &err), STATUS_OK);
    assert_in_range(n[0].kv_bytes, 83 * MIB, 84 * MIB);
    assert_in_range(n[1].kv_bytes, 50 * MIB, 51 * MIB);
}

static void gpus_are_given_first_fit(void **state)
{
    const struct set_memory gpus = {.device_bytes = 1000 * MIB, .n_devices = 4, .on_gpus = true};
    struct set_need n[] = {
        need("a", UP_START_ALWAYS, 700, 100, 10), need("b", UP_START_ALWAYS, 400, 100, 10),
        need("c", UP_START_ALWAYS, 200, 20, 10), need("d", UP_START_ON_DEMAND, 900, 100, 10)};
    struct error err = {0};
    uint32_t at_once;
    n[1].n_workers = 2; /* tp 2: one GPU for each rank */
    assert_int_equal(set_memory_plan(&gpus, n, 4, &at_once, &err), STATUS_OK);
    assert_int_equal(n[0].first_device, 0);
    assert_int_equal(n[1].first_device, 1);
    assert_int_equal(n[2].first_device, 0); /* beside a */
    assert_int_equal(n[3].first_device, 3);
    assert_int_equal(at_once, 4);
    n[3].n_workers = 5;
    assert_int_equal(set_memory_plan(&gpus, n, 4, &at_once, &err), STATUS_NO_MEMORY);
    assert_non_null(strstr(err.text, "the model d needs 5 GPUs"));
}

static void models_without_weights_need_nothing(void **state)
{
    struct set_need n[] = {{.name = "null", .start = UP_START_ALWAYS},
                           need("a", UP_START_ALWAYS, 900, 10, 10)};
    struct error err = {0};
    uint32_t at_once;
    assert_int_equal(set_memory_plan(&host, n, 2, &at_once, &err), STATUS_OK);
    assert_int_equal(at_once, 2);
}

static void the_table_names_each_model(void **state)
{
    struct set_need n[] = {need("llama", UP_START_ALWAYS, 300, 100, 10),
                           need("a-longer-name", UP_START_ON_DEMAND, 600, 100, 10)};
    struct error err = {0};
    struct strbuf out;
    uint32_t at_once = 0;
    strbuf_init(&out, 0);
    assert_int_equal(set_memory_plan(&host, n, 2, &at_once, &err), STATUS_OK);
    set_memory_print(&host, n, 2, at_once, &out);
    assert_non_null(strstr(out.ptr, "llama "));
    assert_non_null(strstr(out.ptr, "a-longer-name  on-demand"));
    assert_non_null(strstr(out.ptr, "memory: 1000.0 MiB; "));
    strbuf_fini(&out);
}

static void the_json_escapes_names_and_has_the_refusal(void **state)
{
    struct set_need n[] = {
        {.name = "a\"b", .n_workers = 2, .weights_bytes = 5, .other_bytes = 1, .kv_bytes = 4},
        {.name = "null", .start = UP_START_ASLEEP}};
    const struct set_memory m = {.device_bytes = 64, .n_devices = 2, .on_gpus = true};
    struct strbuf out;
    strbuf_init(&out, 0);
    set_memory_print_json(&m, n, 2, 1, "no \"room\"", &out);
    assert_string_equal(
        out.ptr, "{\"memory_bytes\": 64, \"gpus\": 2, \"fit_together\": 1, \"refusal\": \"no "
                 "\\\"room\\\"\", "
                 "\"models\": [{\"name\": \"a\\\"b\", \"start\": \"always\", \"workers\": 2, "
                 "\"weights_bytes\": 10, \"other_bytes\": 2, \"kv_bytes\": 8, \"total_bytes\": 20, "
                 "\"first_gpu\": 0}, {\"name\": \"null\", \"start\": \"asleep\", \"workers\": 0, "
                 "\"weights_bytes\": 0, \"other_bytes\": 0, \"kv_bytes\": 0, \"total_bytes\": 0, "
                 "\"first_gpu\": null}]}\n");
    strbuf_fini(&out);
}

static void the_answer_of_cox_plan_is_checked(void **state)
{
    static const char good[] =
        "{\"kv_bytes_per_token\":512,\"max_model_len\":1024,\"block_size\":16,"
        "\"memory_bytes\":9000,\"ranks\":[{\"weights_bytes\":7,\"activation_bytes\":3,"
        "\"comm_bytes\":2,\"lora_bytes\":1,\"kv_bytes\":2097152}]}";
    static const char *const bad[] = {
        "",
        "{}",
        "[]",
        "{\"ranks\":[]}",
        "{\"kv_bytes_per_token\":512,\"max_model_len\":1024,\"block_size\":16,"
        "\"memory_bytes\":9000,\"ranks\":[{\"weights_bytes\":-7,\"activation_bytes\":3,"
        "\"comm_bytes\":2,\"lora_bytes\":1,\"kv_bytes\":2097152}]}",
        "{\"kv_bytes_per_token\":1125899906842624,\"max_model_len\":1073741824,\"block_size\":16,"
        "\"memory_bytes\":9000,\"ranks\":[{\"weights_bytes\":7,\"activation_bytes\":3,"
        "\"comm_bytes\":2,\"lora_bytes\":1,\"kv_bytes\":2097152}]}"};
    struct set_need n = {.name = "x"};
    struct error err = {0};
    uint64_t bytes;
    assert_int_equal(set_measure_read(good, &n, &bytes, &err), STATUS_OK);
    assert_int_equal(n.weights_bytes, 7);
    assert_int_equal(n.other_bytes, 6);
    assert_int_equal(n.kv_wanted_bytes, 2097152);
    assert_int_equal(n.kv_least_bytes, 512 * (1024 + 16));
    assert_int_equal(bytes, 9000);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(set_measure_read(bad[i], &n, &bytes, &err), STATUS_PROTOCOL);
}

/* The processes of sleepers are counted, so many of them do not fill the host unseen. */
static void sleepers_keep_their_process(void **state)
{
    const struct set_memory gpus = {.device_bytes = 1000 * MIB, .n_devices = 2, .on_gpus = true};
    struct set_need n = need("a", UP_START_ON_DEMAND, 300, 100, 10);
    n.n_workers = 2;
    n.kv_bytes = 100 * MIB;
    assert_int_equal(set_asleep_bytes(&host, &n, 2), 2 * 24 * MIB);
    assert_int_equal(set_asleep_bytes(&host, &n, 1), 2 * (24 + 310) * MIB);
    assert_true(set_asleep_bytes(&gpus, &n, 1) >= 1024 * MIB);
    n.n_copies = 1; /* shared weights count once, as they do while the model computes */
    assert_int_equal(set_asleep_bytes(&host, &n, 2), 2 * 24 * MIB);
    assert_int_equal(set_asleep_bytes(&host, &n, 1), (300 + 2 * (24 + 10)) * MIB);
    n.n_workers = n.n_copies = 0;
    assert_int_equal(set_asleep_bytes(&host, &n, 1), 0);
}

/* A model that is added beside running ones takes what they leave, and moves none of them. */
static void running_models_keep_their_memory(void **state)
{
    static const struct set_memory gpus = {
        .device_bytes = 1000 * MIB, .n_devices = 2, .on_gpus = true};
    struct set_need n[] = {need("a", UP_START_ALWAYS, 300, 900, 10),
                           need("new", UP_START_ALWAYS, 300, 900, 10)};
    struct error err = {0};
    uint32_t at_once;
    n[0].is_placed = true;
    n[0].kv_bytes = 400 * MIB; /* 710 MiB in all */
    assert_int_equal(set_memory_plan(&host, n, 2, &at_once, &err), STATUS_NO_MEMORY);
    assert_non_null(strstr(err.text, "the model new does not fit"));
    n[1].weights_bytes = 200 * MIB;
    assert_int_equal(set_memory_plan(&host, n, 2, &at_once, &err), STATUS_OK);
    assert_int_equal(n[0].kv_bytes, 400 * MIB);
    assert_in_range(n[1].kv_bytes, 79 * MIB, 80 * MIB);
    n[0].first_device = 1; /* the first GPU became free */
    assert_int_equal(set_memory_plan(&gpus, n, 2, &at_once, &err), STATUS_OK);
    assert_int_equal(n[0].first_device, 1);
    assert_int_equal(n[1].first_device, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_get_what_they_want_when_it_fits),
        cmocka_unit_test(caches_shrink_together),
        cmocka_unit_test(spares_take_memory_from_each_device),
        cmocka_unit_test(always_models_that_do_not_fit_are_refused_by_name),
        cmocka_unit_test(on_demand_models_share_what_is_left),
        cmocka_unit_test(shared_weights_count_once),
        cmocka_unit_test(gpus_are_given_first_fit),
        cmocka_unit_test(running_models_keep_their_memory),
        cmocka_unit_test(models_without_weights_need_nothing),
        cmocka_unit_test(the_table_names_each_model),
        cmocka_unit_test(sleepers_keep_their_process),
        cmocka_unit_test(the_json_escapes_names_and_has_the_refusal),
        cmocka_unit_test(the_answer_of_cox_plan_is_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Tests model files with one wrong byte, read as a worker reads them: configuration, tensors,
 * program, weights in memory. Either the model is refused with a text that names the file, or
 * the file holds another valid model and a step runs. Each byte of config.json and of the
 * tensors' header is tried. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/log.h"
#include "tests/unit/worker/tiny_model.c"
#include "worker/executor/device/open.h"
#include "worker/executor/executor.h"

enum { N_PROMPT = 4, RUN_EVERY = 16 };

struct damage {
    char folder[64];
    uint32_t n_opened, n_refused, n_run;
};

static int set_up(void **state)
{
    struct damage *d = calloc(1, sizeof *d);
    *state = d;
    strcpy(d->folder, "/tmp/cox-damaged-XXXXXX");
    if (!mkdtemp(d->folder))
        return -1;
    tiny_model_write(d->folder, 3);
    log_init("test", LOG_ERROR, LOG_LOGFMT);
    return 0;
}

static int tear_down(void **state)
{
    static const char *const names[] = {"model.safetensors", "config.json"};
    struct damage *d = *state;
    char path[128];
    for (size_t i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", d->folder, names[i]);
        unlink(path);
    }
    rmdir(d->folder);
    free(d);
    return 0;
}

static void run_a_step(struct executor *e)
{
    static const uint32_t ids[N_PROMPT] = {1, 2, 3, 4}, block = 0;
    const struct plan_blocks blocks = {.ids = {&block, 1}};
    const struct plan_admit admit = {.n_prompt = N_PROMPT,
                                     .ids = {ids, N_PROMPT},
                                     .sampling = {.top_p = 1,
                                                  .repetition_penalty = 1,
                                                  .n_logprobs = -1,
                                                  .n_prompt_logprobs = -1,
                                                  .max_tokens = 4}};
    const struct plan_run run = {
        .n_tokens = N_PROMPT, .sample = true, .blocks = &blocks, .n_blocks = 1};
    const struct msg_plan plan = {
        .term_epoch = 1, .step = 1, .admits = &admit, .n_admits = 1, .runs = &run, .n_runs = 1};
    uint8_t id[COMM_ID_MAX_BYTES];
    uint32_t n = sizeof id;
    struct error err = {0};
    struct msg_result result;
    struct arena arena;
    arena_init(&arena, 0);
    assert_int_equal(e->ops->make_comm_id(e, id, &n, &err), STATUS_OK);
    const struct executor_comm c = {.term_epoch = 1, .tp = 1, .pp = 1, .id = {id, n}};
    if (e->ops->join_comm(e, &c, &err) != STATUS_OK ||
        e->ops->step(e, &plan, &arena, &result, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    assert_int_equal(result.n_items, 1);
    arena_fini(&arena);
}

static struct worker_options options_of(const struct damage *d)
{
    return (struct worker_options){.model = d->folder,
                                   .device = WORKER_DEVICE_CPU,
                                   .tp = 1,
                                   .pp = 1,
                                   .threads = 1,
                                   .block_size = 16,
                                   .num_gpu_blocks_override = 4};
}

static void try_it(struct damage *d, size_t at)
{
    const struct worker_options o = options_of(d);
    struct executor *e = NULL;
    struct error err = {0};
    enum status s = executor_open(&o, &e, &err);
    if (s != STATUS_OK) {
        if (!status_is_configuration(s) || !strstr(err.text, d->folder))
            fail_msg("byte %zu: %s: %s", at, status_name(s), err.text);
        d->n_refused++;
        return;
    }
    if (d->n_opened++ % RUN_EVERY == 0 && e->ops->info(e)->limits.vocab_size > N_PROMPT) {
        run_a_step(e);
        d->n_run++;
    }
    e->ops->close(e);
}

static void damage_file(struct damage *d, const char *name, size_t n_bytes)
{
    struct rng rng = {11};
    char path[128];
    snprintf(path, sizeof path, "%s/%s", d->folder, name);
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    for (size_t at = 0; at < n_bytes; at++) {
        uint8_t good, bad;
        assert_int_equal(fseek(f, (long)at, SEEK_SET), 0);
        assert_int_equal(fread(&good, 1, 1, f), 1);
        bad = good ^ (uint8_t)(1u << rng_below(&rng, 8));
        assert_int_equal(pwrite(fileno(f), &bad, 1, (off_t)at), 1);
        try_it(d, at);
        assert_int_equal(pwrite(fileno(f), &good, 1, (off_t)at), 1);
    }
    fclose(f);
    assert_true(d->n_refused > n_bytes / 2);
    try_it(d, n_bytes); /* the file is whole again */
    assert_true(d->n_opened > 0 && d->n_run > 0);
}

static void every_byte_of_the_header(void **state)
{
    struct damage *d = *state;
    uint64_t n;
    char path[128];
    snprintf(path, sizeof path, "%s/model.safetensors", d->folder);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fread(&n, sizeof n, 1, f), 1);
    fclose(f);
    damage_file(d, "model.safetensors", sizeof n + n);
}

static void every_byte_of_the_configuration(void **state)
{
    struct damage *d = *state;
    char path[128];
    snprintf(path, sizeof path, "%s/config.json", d->folder);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    size_t n = (size_t)ftell(f);
    fclose(f);
    damage_file(d, "config.json", n);
}

/* Overwrites bytes of the file, expects an error with the tensor's name, and restores the bytes. */
static void refuse_tensor(const struct damage *d, FILE *f, const struct str *tensor, long at,
                          const char *bad)
{
    const struct worker_options o = options_of(d);
    struct executor *e = NULL;
    struct error err = {0};
    char good[8], name[128];
    ssize_t n = (ssize_t)strlen(bad);
    assert_int_equal(pread(fileno(f), good, (size_t)n, at), n);
    assert_int_equal(pwrite(fileno(f), bad, (size_t)n, at), n);
    snprintf(name, sizeof name, STR_FMT, STR_ARG(*tensor));
    enum status s = executor_open(&o, &e, &err);
    if (s == STATUS_OK || !status_is_configuration(s) || !strstr(err.text, d->folder) ||
        !strstr(err.text, name))
        fail_msg("%s, \"%s\" for \"%.*s\": %s: %s", name, bad, (int)n, good, status_name(s),
                 err.text);
    assert_int_equal(pwrite(fileno(f), good, (size_t)n, at), n);
}

/* Each tensor is refused when it has another name, an unusable or unknown dtype, another size,
 * or another place. */
static void every_tensor(void **state)
{
    static const char *const dtypes[] = {"I32", "U32", "F99"};
    struct damage *d = *state;
    char path[128], header[8192];
    uint64_t n;
    int n_tensors = 0;
    snprintf(path, sizeof path, "%s/model.safetensors", d->folder);
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(pread(fileno(f), &n, sizeof n, 0), sizeof n);
    assert_true(n < sizeof header);
    assert_int_equal(pread(fileno(f), header, n, sizeof n), n);
    header[n] = '\0';
    for (char *p = header; (p = strstr(p, "\":{\"dtype\":\"")) != NULL; p++, n_tensors++) {
        char *begin = p, *dtype = p + strlen("\":{\"dtype\":\"");
        while (begin[-1] != '"')
            begin--;
        struct str name = {begin, (size_t)(p - begin)};
        char *shape = strchr(p, '[') + 1, *place = strchr(shape, '[') + 1;
        long first = (long)sizeof n;
        refuse_tensor(d, f, &name, first + (p - 1 - header), "x");
        for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
            refuse_tensor(d, f, &name, first + (dtype - header), dtypes[i]);
        refuse_tensor(d, f, &name, first + (shape - header), *shape == '9' ? "8" : "9");
        refuse_tensor(d, f, &name, first + (place - header), *place == '9' ? "8" : "9");
    }
    fclose(f);
    assert_int_equal(n_tensors, 3 + 9 * TINY_LAYERS);
    try_it(d, 0); /* the file is whole again */
    assert_int_equal(d->n_opened, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_tensor, set_up, tear_down),
        cmocka_unit_test_setup_teardown(every_byte_of_the_header, set_up, tear_down),
        cmocka_unit_test_setup_teardown(every_byte_of_the_configuration, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

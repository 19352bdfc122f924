/* Tests that a model which is added to a running cluster leaves the process as it was: its signal
 * handlers, its environment and its temporary folder. */
#include "cli/up/prepare/model.h"

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "cli/pull/stop.h"
#include "common/base/mem.h"

static char home[] = "/tmp/cox-model-test-XXXXXX";
static char cache[64], tmp[64], revision[128];
static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
enum { N_SIGNALS = sizeof signals / sizeof *signals };

static void on_signal(int signum)
{
}

static void check_handlers(void)
{
    for (int i = 0; i < N_SIGNALS; i++) {
        struct sigaction now;
        assert_int_equal(sigaction(signals[i], NULL, &now), 0);
        assert_ptr_equal(now.sa_handler, on_signal);
    }
}

static void install_handlers(void)
{
    const struct sigaction own = {.sa_handler = on_signal};
    for (int i = 0; i < N_SIGNALS; i++)
        assert_int_equal(sigaction(signals[i], &own, NULL), 0);
}

struct opening {
    int load_format;
    enum status status;
    struct error err;
};

static void *open_model(void *ctx)
{
    struct opening *o = ctx;
    struct up_model m = {.name = "hf:org/none", .has_loop = true};
    struct up_options *options = mem_zalloc(sizeof *options);
    struct arena arena;
    arena_init(&arena, 0);
    options->cache_dir = cache;
    options->load_format = o->load_format;
    o->status = up_model_open(&m, options, "up", tmp, &arena, &o->err);
    up_model_close(&m);
    arena_fini(&arena);
    mem_free(options);
    return NULL;
}

static void a_refused_stream_changes_nothing(void **state)
{
    struct opening o = {.load_format = UP_LOAD_STREAM};
    install_handlers();
    (void)open_model(&o);
    assert_int_equal(o.status, STATUS_NOT_FOUND);
    assert_non_null(strstr(o.err.text, "hf:org/none"));
    check_handlers();
    assert_string_equal(getenv("COX_CONFIG"), "a file of another command");
    assert_int_equal(rmdir(tmp), 0); /* fails when the folder has an entry */
    assert_int_equal(mkdir(tmp, 0700), 0);
}

/* The file of the revision is a pipe, so the look-up stands still there until the test writes. */
static void handlers_stay_during_the_look_up(void **state)
{
    struct opening o = {0};
    pthread_t thread;
    install_handlers();
    assert_int_equal(mkfifo(revision, 0600), 0);
    assert_int_equal(pthread_create(&thread, NULL, open_model, &o), 0);
    const int fd = open(revision, O_WRONLY | O_CLOEXEC); /* waits for the thread */
    assert_true(fd >= 0);
    check_handlers();
    assert_int_equal(raise(SIGTERM), 0);
    assert_int_equal(write(fd, "none", 4), 4);
    close(fd);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(unlink(revision), 0);
    assert_int_equal(o.status, STATUS_NOT_FOUND);
    check_handlers();
    assert_false(pull_is_stopped()); /* the signal was for the loop */
    up_model_stop();
    assert_true(pull_is_stopped());
}

static void make_folders(void)
{
    static const char *const below[] = {"cache", "tmp", "hub", "hub/models--org--none",
                                        "hub/models--org--none/refs"};
    char path[128];
    for (size_t i = 0; i < sizeof below / sizeof *below; i++) {
        snprintf(path, sizeof path, "%s/%s", home, below[i]);
        if (mkdir(path, 0700) != 0)
            exit(1);
    }
    snprintf(cache, sizeof cache, "%s/cache", home);
    snprintf(tmp, sizeof tmp, "%s/tmp", home);
    snprintf(revision, sizeof revision, "%s/hub/models--org--none/refs/main", home);
}

/* Returns false if the tests have left a file. */
static bool remove_folders(void)
{
    static const char *const below[] = {
        "/hub/models--org--none/refs", "/hub/models--org--none", "/hub", "/tmp", "/cache", ""};
    char path[128];
    bool ok = true;
    for (size_t i = 0; i < sizeof below / sizeof *below; i++) {
        snprintf(path, sizeof path, "%s%s", home, below[i]);
        ok = rmdir(path) == 0 && ok;
    }
    return ok;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_refused_stream_changes_nothing),
                                       cmocka_unit_test(handlers_stay_during_the_look_up)};
    if (!mkdtemp(home))
        return 1;
    make_folders();
    if (setenv("HF_HOME", home, 1) != 0 ||
        setenv("COX_CONFIG", "a file of another command", 1) != 0)
        return 1;
    (void)unsetenv("COX_HF_CACHE");
    (void)unsetenv("HF_HUB_CACHE");
    (void)unsetenv("HUGGINGFACE_HUB_CACHE");
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return remove_folders() ? failed : 1;
}

/* Tests checks that run before a device is opened. */
#include "worker/executor/device/cuda.h"
#include "worker/executor/device/open.h"
#include "worker/executor/executor.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

static void make(const char *folder, const char *name, char *path, size_t size)
{
    snprintf(path, size, "%s/%s", folder, name);
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    close(fd);
}

/* A build that cannot use GPUs detects a GPU by the driver's device node. */
static void test_a_gpus_node(void **state)
{
    static const char *const names[] = {"nvidiactl", "dxg"};
    char folder[] = "/tmp/cox-executor-XXXXXX", path[64], found[64];
    assert_non_null(mkdtemp(folder));
    make(folder, "null", path, sizeof path);
    assert_false(executor_gpu_node(folder, found, sizeof found));
    unlink(path);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        make(folder, names[i], path, sizeof path);
        assert_true(executor_gpu_node(folder, found, sizeof found));
        assert_string_equal(found, path);
        unlink(path);
    }
    rmdir(folder);
}

static void test_only_cuda_is_looked_for(void **state)
{
    struct error err;
    assert_int_equal(
        executor_cuda_look(&(struct worker_options){.device = WORKER_DEVICE_AUTO, .gpu = -1}, &err),
        STATUS_OK);
    assert_int_equal(
        executor_cuda_look(&(struct worker_options){.device = WORKER_DEVICE_CPU, .gpu = -1}, &err),
        STATUS_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_gpus_node),
                                       cmocka_unit_test(test_only_cuda_is_looked_for)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

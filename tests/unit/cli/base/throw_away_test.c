/* Tests throw-away folders. They are removed at the end of a run, and a later run removes the
 * folders of a killed run. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "cli/base/throw_away.h"

static char parent[] = "/tmp/cox-throw-away-test-XXXXXX";

static bool is_there(const char *path)
{
    return access(path, F_OK) == 0;
}

static void put(const char *dir, const char *name)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    int fd = open(path, O_CREAT | O_WRONLY, 0600);
    assert_true(fd >= 0);
    close(fd);
}

static void age(const char *path)
{
    const struct timespec long_ago[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
    assert_int_equal(utimensat(AT_FDCWD, path, long_ago, 0), 0);
}

/* A folder of links, like the folder of a model kept in memory, is removed. The links' targets
 * stay. */
static void links_are_swept(void **state)
{
    struct throw_away t;
    struct error err;
    char path[4400], below[4200], other[4200];
    put(parent, "pointed-to");
    snprintf(other, sizeof other, "%s/pointed-to", parent);
    assert_int_equal(throw_away_make(&t, parent, "stream", &err), STATUS_OK);
    snprintf(below, sizeof below, "%s/1_Pooling", t.path);
    assert_int_equal(mkdir(below, 0700), 0);
    snprintf(path, sizeof path, "%s/config.json", below);
    assert_int_equal(symlink(other, path), 0);
    snprintf(path, sizeof path, "%s/model.safetensors", t.path);
    assert_int_equal(symlink("/proc/0/fd/9", path), 0);
    put(t.path, "model.safetensors.part.ranges");
    put(t.path, "head.key.new");
    close(t.lock_fd); /* this is the state after the owner was killed */
    close(t.dir_fd);
    age(t.path);
    throw_away_sweep(parent);
    assert_false(is_there(t.path));
    assert_true(is_there(other));
    assert_int_equal(unlink(other), 0);
}

/* `cox up` of several models writes the lists of its gateways and of its models. A process that was
 * killed while it stored a list leaves a half that mkstemp named. Other files stay. */
static void lists_of_models_are_removed(void **state)
{
    static const char *const names[] = {"models.yaml",    "models.yaml.new", "models.yaml.lock",
                                        "set.yaml",       "set.yaml.lock",   "set.yaml.aB3xYz",
                                        "set.yaml.000000"};
    static const char *const others[] = {"set.yaml.aB3xY", "set.yaml.aB3xYzz", "set.yaml.aB-xYz",
                                         "reset.yaml.aB3xYz"};
    struct throw_away t;
    struct error err;
    char path[4400];
    assert_int_equal(throw_away_make(&t, parent, "keys", &err), STATUS_OK);
    snprintf(path, sizeof path, "%s", t.path);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        put(t.path, names[i]);
    throw_away_remove(&t);
    assert_false(is_there(path));
    assert_int_equal(throw_away_make(&t, parent, "keys", &err), STATUS_OK);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        put(t.path, others[i]);
    close(t.lock_fd);
    close(t.dir_fd);
    age(t.path);
    throw_away_sweep(parent);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        snprintf(path, sizeof path, "%s/%s", t.path, others[i]);
        assert_int_equal(unlink(path), 0);
    }
    assert_int_equal(rmdir(t.path), 0);
}

static void each_kind_is_made_removed_and_swept(void **state)
{
    static const char *const kinds[][2] = {{"keys", "head.key"}, {"batch", "gateway"}};
    for (size_t i = 0; i < 2; i++) {
        struct throw_away t, left;
        struct error err = {0};
        char name[64];
        assert_int_equal(throw_away_make(&t, parent, kinds[i][0], &err), STATUS_OK);
        snprintf(name, sizeof name, "/cox-%s-%d-", kinds[i][0], (int)getpid());
        assert_non_null(strstr(t.path, name));
        put(t.path, kinds[i][1]);
        assert_int_equal(throw_away_make(&left, parent, kinds[i][0], &err), STATUS_OK);
        put(left.path, kinds[i][1]);
        age(t.path);
        age(left.path);
        close(left.lock_fd); /* this is the state after the owner was killed */
        close(left.dir_fd);
        throw_away_sweep(parent);
        assert_true(is_there(t.path));
        assert_false(is_there(left.path));
        char path[sizeof t.path];
        memcpy(path, t.path, sizeof path);
        throw_away_remove(&t);
        assert_false(is_there(path));
        throw_away_remove(&t); /* a second removal has no effect */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_kind_is_made_removed_and_swept),
                                       cmocka_unit_test(links_are_swept),
                                       cmocka_unit_test(lists_of_models_are_removed)};
    if (!mkdtemp(parent))
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return rmdir(parent) == 0 ? failed : 1; /* rmdir fails when an entry is left */
}

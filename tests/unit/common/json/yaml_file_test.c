/* Tests how a file of models is replaced (common/json/yaml_file.h), in a temporary folder. */
#include "common/json/yaml_file.h"

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

static void a_link_stays_a_link(void **state)
{
    char folder[] = "/tmp/coxtest-yaml-XXXXXX", file[64], link[64], lock[80], have[16] = "";
    struct error err;
    struct stat st;
    assert_non_null(mkdtemp(folder));
    snprintf(file, sizeof file, "%s/file", folder);
    snprintf(link, sizeof link, "%s/link", folder);
    snprintf(lock, sizeof lock, "%s.lock", file);
    assert_int_equal(yaml_file_store(file, "old", 0640, &err), STATUS_OK);
    assert_int_equal(symlink("file", link), 0);
    const int held = yaml_file_lock(link, &err);
    assert_true(held >= 0);
    assert_int_equal(yaml_file_lock(file, &err), -1); /* both names have one lock */
    close(held);
    assert_int_equal(yaml_file_store(link, "new", 0600, &err), STATUS_OK);
    assert_int_equal(lstat(link, &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    assert_int_equal(lstat(file, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0640);
    const int fd = open(file, O_RDONLY | O_CLOEXEC);
    assert_int_equal(read(fd, have, sizeof have - 1), 3);
    close(fd);
    assert_string_equal(have, "new");
    assert_int_equal(unlink(link) | unlink(file) | unlink(lock) | rmdir(folder), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_link_stays_a_link),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

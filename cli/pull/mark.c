#include "cli/pull/mark.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/pull/place.h"
#include "common/base/mem.h"
#include "common/model/info/ref.h"

#define MARK ".reference"

void pull_mark_write(const char *folder, const char *reference)
{
    char *path = pull_join(folder, "/", MARK);
    size_t n = strlen(reference);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd >= 0 && write(fd, reference, n) != (ssize_t)n)
        (void)unlink(path);
    if (fd >= 0)
        (void)close(fd);
    mem_free(path);
}

void pull_mark_remove(const char *folder)
{
    char *path = pull_join(folder, "/", MARK);
    (void)unlink(path);
    mem_free(path);
}

bool pull_mark_read(int folder_fd, char *out, size_t size)
{
    struct model_ref r;
    struct error err;
    int fd = openat(folder_fd, MARK, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, out, size - 1) : 0;
    if (fd >= 0)
        (void)close(fd);
    out[n > 0 ? n : 0] = '\0';
    if (n <= 0 || strlen(out) != (size_t)n || model_ref_parse(out, &r, &err) != STATUS_OK)
        return false;
    bool ok = model_ref_is_remote(&r);
    model_ref_fini(&r);
    return ok;
}

#include "common/model/files/map.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum status file_open_regular(const char *path, int *fd, uint64_t *n_bytes, struct error *err)
{
    struct stat st;
    *n_bytes = 0;
    /* O_NONBLOCK is set, because otherwise a FIFO would block the open */
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0)
        return error_set(err,
                         errno == ENOENT   ? STATUS_NOT_FOUND
                         : errno == EACCES ? STATUS_DENIED
                                           : STATUS_IO,
                         "cannot open %s: %s", path, strerror(errno));
    if (fstat(*fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        close(*fd);
        *fd = -1;
        return error_set(err, STATUS_INVALID,
                         "%s is not a regular file. Give the path of a regular file", path);
    }
    *n_bytes = (uint64_t)st.st_size;
    return STATUS_OK;
}

static uint64_t ns_of(struct timespec t)
{
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static struct file_stamp stamp_of(int fd)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return (struct file_stamp){0};
    return (struct file_stamp){.device = st.st_dev,
                               .inode = st.st_ino,
                               .n_bytes = (uint64_t)st.st_size,
                               .modified_ns = ns_of(st.st_mtim),
                               .changed_ns = ns_of(st.st_ctim)};
}

enum status file_map_open(const char *path, struct file_map *out, struct error *err)
{
    int fd;
    uint64_t n;
    *out = (struct file_map){0};
    TRY(file_open_regular(path, &fd, &n, err));
    void *p = n > 0 ? mmap(NULL, n, PROT_READ, MAP_PRIVATE, fd, 0) : NULL;
    int saved = errno;
    struct file_stamp stamp = stamp_of(fd);
    close(fd);
    if (p == MAP_FAILED)
        return error_set(err, STATUS_IO, "cannot map %s into memory: %s", path, strerror(saved));
    *out = (struct file_map){p, n, stamp};
    return STATUS_OK;
}

void file_map_close(struct file_map *m)
{
    if (m->bytes)
        munmap((void *)m->bytes, m->n_bytes);
    *m = (struct file_map){0};
}

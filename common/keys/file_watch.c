#include "common/keys/file_watch.h"

struct key_file_stamp key_file_stamp_of(const struct stat *st)
{
    return (struct key_file_stamp){.mtime_ns = st->st_mtim.tv_sec * INT64_C(1000000000) +
                                               st->st_mtim.tv_nsec,
                                   .size = st->st_size,
                                   .inode = (uint64_t)st->st_ino};
}

static bool same(const struct key_file_stamp *a, const struct key_file_stamp *b)
{
    return a->mtime_ns == b->mtime_ns && a->size == b->size && a->inode == b->inode;
}

void key_file_opened(struct key_file_watch *w, int fd)
{
    struct stat st;
    if (fstat(fd, &st) == 0)
        w->read = w->seen = key_file_stamp_of(&st);
}

bool key_file_is_news(struct key_file_watch *w, const char *path)
{
    struct stat st;
    struct key_file_stamp now = KEY_FILE_GONE; /* the loss of the file is a change too */
    if (stat(path, &st) == 0)
        now = key_file_stamp_of(&st);
    bool settled = same(&now, &w->seen);
    w->seen = now;
    if (same(&now, &w->read) || !settled)
        return false;
    w->read = now;
    return true;
}

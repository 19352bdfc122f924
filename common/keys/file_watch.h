#pragma once
/* Detects that a file of keys has changed since it was read. The structs are plain data, and the
 * functions may run on any thread. */
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

/* `key_file_stamp` is the state of a file that is read again when it changes. The struct is all
 * zero before its first use. */
struct key_file_stamp {
    int64_t mtime_ns, size;
    uint64_t inode;
};
#define KEY_FILE_GONE ((struct key_file_stamp){.mtime_ns = -1})
struct key_file_watch {
    /* state when the file was read, and state at the last check */
    struct key_file_stamp read, seen;
};
struct key_file_stamp key_file_stamp_of(const struct stat *st);
/* Records the state of the open file before it is read, so that a later write counts as a
 * change. */
void key_file_opened(struct key_file_watch *w, int fd);
/* Returns true once when the file differs from what was read and has not changed since the last
 * call. (A file that still changes may be only half written.) The new state then counts as read,
 * so that an error in the file is reported once. */
bool key_file_is_news(struct key_file_watch *w, const char *path);

#pragma once
/* Has a file of keys changed since it was read? Plain values; any thread. */
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

/* A file that is read again when it changes. Zeroed before its first use. */
struct key_file_stamp {
    int64_t mtime_ns, size;
    uint64_t inode;
};
#define KEY_FILE_GONE ((struct key_file_stamp){.mtime_ns = -1})
struct key_file_watch {
    struct key_file_stamp read, seen; /* when it was read, at the last look */
};
struct key_file_stamp key_file_stamp_of(const struct stat *st);
/* Stamps the open file before it is read: a write in the meantime is news. */
void key_file_opened(struct key_file_watch *w, int fd);
/* Is it another one than was read, and was it the same at the last look (it may still be being
 * written)? True once: it counts as read then, so that an error in it is said once. */
bool key_file_is_news(struct key_file_watch *w, const char *path);

#pragma once
/* Keeps the file that lists the processes which hold the same packed weights. A file has one lock
 * for the whole table, and one lock for the slot of each process. Both are locks of an open file
 * (F_OFD_SETLK), so the kernel releases them when the process ends, however it ends. A slot
 * without a lock is empty, whatever its bytes say. One thread uses a table. */
#include <stdint.h>

#include "common/base/status.h"

enum { SHARE_MAX_HOLDERS = 128, SHARE_NAME_BYTES = 33 };

/* `share_holder` names a process and its descriptor of the memory. */
struct share_holder {
    int32_t pid, fd;
};
struct share_table {
    int dir_fd;                  /* the folder; borrowed */
    int fd;                      /* -1 = closed */
    int32_t slot;                /* slot of this process; -1 = none */
    bool is_locked;              /* this process has locked the table */
    char name[SHARE_NAME_BYTES]; /* name of the file: 32 hexadecimal digits */
};

/* Opens the file, or makes it with mode 0600. STATUS_DENIED: the file is not a regular file of
 * this user alone. */
MUST_USE enum status share_table_open(struct share_table *t, int dir_fd, const uint8_t key[16],
                                      struct error *err);
/* Tries to lock the table. STATUS_AGAIN: another process has locked it, to change it or while it
 * packs. STATUS_CLOSED: the file was removed meanwhile, so it must be opened again. */
MUST_USE enum status share_table_lock(struct share_table *t, struct error *err);
void share_table_unlock(struct share_table *t);
/* Closes the file, which releases all locks. */
void share_table_close(struct share_table *t);

/* The functions below need the table's lock. */
/* Copies the holders that live, of all processes. Returns their number. */
uint32_t share_table_holders(const struct share_table *t,
                             struct share_holder out[SHARE_MAX_HOLDERS]);
/* Takes a slot for this process. STATUS_LIMIT: there is no free slot. */
MUST_USE enum status share_table_enter(struct share_table *t, int32_t fd, struct error *err);
/* Leaves the slot, and removes the file if no process has one. */
void share_table_leave(struct share_table *t);
/* Stores a sign of progress of the process that packs. STATUS_IO: the file cannot be written, for
 * example because its file system is full. */
MUST_USE enum status share_table_beat(struct share_table *t, uint64_t beat, uint64_t done_bytes,
                                      struct error *err);

/* Reads the last sign of progress; needs no lock. */
void share_table_read_beat(const struct share_table *t, uint64_t *beat, uint64_t *done_bytes);
/* Removes the files of the folder that no process uses: their processes were killed. */
void share_table_sweep(int dir_fd);

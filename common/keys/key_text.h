#pragma once
/* The text of one key file: a Z85 key and a newline (a .pub file may have two), or PEM that
 * somebody else made. The text is read with its bounds, and written whole or not at all. Private to
 * common/keys. Any thread. */
#include <sys/stat.h>

#include "common/base/str.h"
#include "common/keys/curve_keys.h"
#include "common/keys/file_watch.h"

enum { KEY_PATH_BYTES = 1024 };
#define KEY_BLANKS " \t\r\n"

/* 40 characters of Z85 that stand for 32 bytes. */
bool key_text_decode(struct str text, uint8_t out[KEY_BYTES]);
/* DIR/NAMESUFFIX. */
MUST_USE enum status key_text_path(char out[KEY_PATH_BYTES], const char *dir, const char *name,
                                   const char *suffix, struct error *err);
/* stamp may be NULL; of a file that is not there it stays as it is. */
MUST_USE enum status key_text_read(const char *path, struct strbuf *out,
                                   struct key_file_stamp *stamp, struct error *err);
/* max: 1 for a secret, PUBLIC_KEYS_MAX for a .pub file. is_pem and stamp may be NULL. */
MUST_USE enum status key_text_read_keys(const char *path, char (*out)[KEY_CHARS + 1], uint32_t max,
                                        uint32_t *n, bool *is_pem, struct key_file_stamp *stamp,
                                        struct error *err);
MUST_USE enum status key_text_read_secret(const char *path, char out[KEY_CHARS + 1], bool *is_pem,
                                          struct error *err);
/* Whole or not at all: temporary name, fsync, rename. The folder is locked. */
MUST_USE enum status key_text_write(const char *path, struct str text, mode_t mode,
                                    struct error *err);
MUST_USE enum status key_text_write_key(const char *path, const char *key, mode_t mode,
                                        struct error *err);
/* Closing *fd gives the lock back. */
MUST_USE enum status key_text_lock_folder(const char *dir, int *fd, struct error *err);

#pragma once
/* Reads and writes the text of one key file. The text is a Z85 key and a newline, or PEM from
 * another tool. A .pub file may have two keys. Reads are bounded. A written file appears whole
 * or not at all. Only common/keys uses this header. The functions may run on any thread. */
#include <sys/stat.h>

#include "common/base/str.h"
#include "common/keys/curve_keys.h"
#include "common/keys/file_watch.h"

enum { KEY_PATH_BYTES = 1024 };
#define KEY_BLANKS " \t\r\n"

/* Decodes 40 characters of Z85 into 32 bytes. Returns false for any other text. */
bool key_text_decode(struct str text, uint8_t out[KEY_BYTES]);
/* Writes the path DIR/NAMESUFFIX of a key file into `out`. */
MUST_USE enum status key_text_path(char out[KEY_PATH_BYTES], const char *dir, const char *name,
                                   const char *suffix, struct error *err);
/* Reads a key file as text. `stamp` may be NULL; a missing file leaves it unchanged. */
MUST_USE enum status key_text_read(const char *path, struct strbuf *out,
                                   struct key_file_stamp *stamp, struct error *err);
/* Reads the keys of a file. `max` is 1 for a secret, PUBLIC_KEYS_MAX for a .pub file. `is_pem`
 * and `stamp` may be NULL. */
MUST_USE enum status key_text_read_keys(const char *path, char (*out)[KEY_CHARS + 1], uint32_t max,
                                        uint32_t *n, bool *is_pem, struct key_file_stamp *stamp,
                                        struct error *err);
MUST_USE enum status key_text_read_secret(const char *path, char out[KEY_CHARS + 1], bool *is_pem,
                                          struct error *err);
/* Writes a temporary file, syncs and renames it, so that the content appears whole or not at
 * all. The caller must hold the folder's lock. */
MUST_USE enum status key_text_write(const char *path, struct str text, mode_t mode,
                                    struct error *err);
MUST_USE enum status key_text_write_key(const char *path, const char *key, mode_t mode,
                                        struct error *err);
/* Locks a folder of keys; closing *fd releases the lock. */
MUST_USE enum status key_text_lock_folder(const char *dir, int *fd, struct error *err);

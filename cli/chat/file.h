#pragma once
/* Stores a conversation in a file, for /save and /load of `cox chat`: {"model": …, "messages":
 * […]}. */
#include <jansson.h>

#include "common/base/status.h"

/* Saves the conversation. An existing file is overwritten only when that file also holds a
 * conversation. */
MUST_USE enum status chat_file_save(const char *path, const char *model, const json_t *messages,
                                    struct error *err);
/* Loads a conversation. *messages is a new array that the caller owns. */
MUST_USE enum status chat_file_load(const char *path, json_t **messages, struct error *err);

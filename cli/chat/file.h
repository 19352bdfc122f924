#pragma once
/* A conversation in a file, for /save and /load of `cox chat`: {"model": …, "messages": […]}. */
#include <jansson.h>

#include "common/base/status.h"

/* A file that is there is written over only when it is a conversation, too. */
MUST_USE enum status chat_file_save(const char *path, const char *model, const json_t *messages,
                                    struct error *err);
/* *messages is a new array. */
MUST_USE enum status chat_file_load(const char *path, json_t **messages, struct error *err);

#pragma once
/* A flag whose value is a JSON object, such as --pooler-config. Pure. */
#include <jansson.h>

#include "common/base/status.h"

/* Reads one member, which is not null, into out. An error says how it is wrong. */
typedef enum status json_flag_member(const char *key, const json_t *value, void *out,
                                     struct error *err);
/* Each member of json's object, until one is wrong. flag: its name, for errors. json: NULL has no
 * members. */
MUST_USE enum status json_flag_read(const char *flag, const char *json, json_flag_member *member,
                                    void *out, struct error *err);

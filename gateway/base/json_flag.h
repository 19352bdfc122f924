#pragma once
/* Reads an option whose value is a JSON object, such as --pooler-config. The functions are pure. */
#include <jansson.h>

#include "common/base/status.h"

/* Reads one member into `out`. `value` is never a JSON null. An error describes what is wrong
 * with the value. */
typedef enum status json_flag_member(const char *key, const json_t *value, void *out,
                                     struct error *err);
/* Reads all members of the JSON object and stops at the first invalid member. `flag` is the
 * option's name, for errors. A NULL `json` has no members. */
MUST_USE enum status json_flag_read(const char *flag, const char *json, json_flag_member *member,
                                    void *out, struct error *err);

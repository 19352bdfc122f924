#pragma once
/* The head's admin API as the commands use it: one call, JSON in and out. */
#include <jansson.h>

#include "cli/tables.h"

/* The rows every admin command shares. */
#define ADMIN_ROWS                                                                                 \
    OPT_STRING(admin_access, address, "address", "127.0.0.1:8265",                                 \
               "HOST:PORT of the head's admin API"),                                               \
        {.name = "admin-key",                                                                      \
         .type = OPTION_STRING,                                                                    \
         .offset = offsetof(struct admin_access, admin_key),                                       \
         .help = "key of the admin API (better: COX_ADMIN_KEY)",                                   \
         .secret = true},                                                                          \
        OPT_STRING(admin_access, admin_key_file, "admin-key-file", NULL,                           \
                   "file with that key, as the head has it (COX_ADMIN_KEY_FILE)")

/* STATUS_IO, STATUS_TIMEOUT: nobody answers there. STATUS_DENIED: the key, or this way of asking.
 * STATUS_INVALID: 400, or what was given here; STATUS_NOT_FOUND, STATUS_EXISTS: 404, 409; each with
 * the answer's own words. STATUS_PROTOCOL: any other code, or no JSON object. *owned_answer is the
 * caller's. */
MUST_USE enum status admin_call(const struct admin_access *o, const char *method, const char *path,
                                const char *body, json_t **owned_answer, struct error *err);
/* A line on stderr when the head that answers only waits: what it knows is little, and who serves.
 * False when nobody answers, which is said as well: the command need not wait for that again. */
bool admin_tell_standby(const struct admin_access *o, const char *command);

#pragma once
/* The head's admin API as the commands use it: one call, JSON in and out. */
#include <jansson.h>

#include "common/config/config.h"

/* The address and the key of the admin API: shared by status, top, drain, events, lora. */
struct admin_access {
    const char *address, *admin_key, *admin_key_file;
    bool json, watch, undo, in_place, once, no_follow;
    int64_t since, timeout_s;
    double interval_s;
    char followed[280]; /* the head that is asked in place of address; "": none */
};

/* The rows every admin command shares. */
#define ADMIN_ROWS                                                                                 \
    OPT_STRING(admin_access, address, "address", "127.0.0.1:8265",                                 \
               "HOST:PORT of the head's admin API."),                                              \
        {.name = "admin-key",                                                                      \
         .type = OPTION_STRING,                                                                    \
         .offset = offsetof(struct admin_access, admin_key),                                       \
         .help = "Key of the admin API. Better set COX_ADMIN_KEY: a command line is visible to "   \
                 "others.",                                                                        \
         .secret = true},                                                                          \
        OPT_STRING(admin_access, admin_key_file, "admin-key-file", NULL,                           \
                   "File with the key of the admin API, in the head's format.")

/* The row of commands that ask the head that serves (admin_follow). */
#define ADMIN_FOLLOW_ROW                                                                           \
    OPT_BOOL(admin_access, no_follow, "no-follow", NULL,                                           \
             "Ask this head itself, even if it is the standby of another one.")

/* STATUS_IO, STATUS_TIMEOUT: nobody answers there. STATUS_DENIED: the key, or this way of asking.
 * STATUS_INVALID: 400, or what was given here; STATUS_NOT_FOUND, STATUS_EXISTS: 404, 409; each with
 * the answer's own words. STATUS_PROTOCOL: any other code, or no JSON object. *owned_answer is the
 * caller's. */
MUST_USE enum status admin_call(const struct admin_access *o, const char *method, const char *path,
                                const char *body, json_t **owned_answer, struct error *err);
/* If the head at o->address is a standby, the one that its lease names is asked from now on, with
 * the same key, and a line on stderr says so; once, and only when it is the lease's own. Where that
 * is not to be and tell is set, a line says that this one waits, and who serves. False:
 * nobody answers, which is said, and the command need not wait for that again; what else is wrong
 * its own call says. */
MUST_USE bool admin_follow(struct admin_access *o, const char *command, bool tell);
/* The head that is asked. */
const char *admin_address(const struct admin_access *o);

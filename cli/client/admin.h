#pragma once
/* Calls the head's admin API for the commands: JSON in, JSON out. */
#include <jansson.h>

#include "common/config/config.h"

#define ADMIN_USUAL_ADDRESS "127.0.0.1:8265" /* default of --address */

/* `admin_access` holds the address and key of the admin API, and the options that status, top,
 * drain, events and lora share. */
struct admin_access {
    const char *address, *admin_key, *admin_key_file;
    bool json, watch, undo, in_place, once, no_follow, abort;
    int64_t since, timeout_s, level;
    double interval_s;
    struct http_session *session; /* session of repeated calls; NULL = none */
    char followed[280]; /* address of the head that is called instead of `address`; "" = none */
};

/* `ADMIN_ROWS` lists the option rows of every admin command. */
#define ADMIN_ROWS                                                                                 \
    OPT_STRING(admin_access, address, "address", ADMIN_USUAL_ADDRESS,                              \
               "HOST:PORT of the head's admin API."),                                              \
        {.name = "admin-key",                                                                      \
         .type = OPTION_STRING,                                                                    \
         .offset = offsetof(struct admin_access, admin_key),                                       \
         .help = "Key of the admin API. Prefer COX_ADMIN_KEY, since other users can see a "        \
                 "command line.",                                                                  \
         .secret = true},                                                                          \
        OPT_STRING(admin_access, admin_key_file, "admin-key-file", NULL,                           \
                   "File with the key of the admin API, in the head's format.")

/* `ADMIN_FOLLOW_ROW` lists the option row of the commands that call the serving head
 * (`admin_follow`). */
#define ADMIN_FOLLOW_ROW                                                                           \
    OPT_BOOL(admin_access, no_follow, "no-follow", NULL,                                           \
             "Ask this head itself, even if it is the standby of another one.")

/* Sends one request. The caller owns *owned_answer.
 * STATUS_IO, STATUS_TIMEOUT: no head answers at the address.
 * STATUS_DENIED: the key or the method is refused.
 * STATUS_INVALID: status 400, or a wrong option.
 * STATUS_NOT_FOUND, STATUS_EXISTS: the HTTP status is 404 or 409. STATUS_PROTOCOL: any other
 * status, or an answer that is not a JSON object. The error text is that of the answer. */
MUST_USE enum status admin_call(const struct admin_access *o, const char *method, const char *path,
                                const char *body, json_t **owned_answer, struct error *err);
/* Directs later calls from a standby to the serving head. When the head at o->address is a
 * standby, later calls go to the head that its lease names, with the same key. The function
 * writes this to stderr once. The named head must confirm that it holds the lease.
 * When that head cannot be called and `tell` is set, a line says that the standby waits, and
 * which head serves.
 * Returns false when no head answers. The error is printed. The command's own call reports all
 * other errors. */
MUST_USE bool admin_follow(struct admin_access *o, const char *command, bool tell);
/* Returns the address of the head that receives the calls. */
const char *admin_address(const struct admin_access *o);

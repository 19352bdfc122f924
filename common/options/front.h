#pragma once
/* Rows for every request and answer of a gateway, on any route. cox-gateway and cox up share
 * them. S has a `struct front_options front`. */
#include "common/config/config.h"

struct front_options {
    struct option_list allowed_origins, allowed_methods, allowed_headers;
    bool allow_credentials, request_id_headers, no_chat_page;
    const char *root_path, *access_log; /* NULL = none */
};

#define ROWS_FRONT(S)                                                                              \
    OPT_WORDS(S, front.allowed_origins, "allowed-origins", WORDS_ARE_VALUES,                       \
              "CORS: origins whose pages may call, *: all, also as a JSON list; default: none"),   \
        OPT_WORDS(S, front.allowed_methods, "allowed-methods", WORDS_ARE_VALUES,                   \
                  "CORS: methods that they may use; default: all"),                                \
        OPT_WORDS(S, front.allowed_headers, "allowed-headers", WORDS_ARE_VALUES,                   \
                  "CORS: headers that they may send; default: all"),                               \
        OPT_BOOL(S, front.allow_credentials, "allow-credentials", NULL,                            \
                 "CORS: with cookies and the browser's own passwords"),                            \
        OPT_BOOL(S, front.request_id_headers, "enable-request-id-headers", NULL,                   \
                 "answers have an X-Request-Id: the request's, or a new one"),                     \
        OPT_STRING(S, front.root_path, "root-path", NULL,                                          \
                   "what a proxy in front puts before every path; paths without it work too"),     \
        OPT_STRING(S, front.access_log, "access-log", NULL,                                        \
                   "file to which a line of JSON is added for every request; -: stdout"),          \
        OPT_BOOL(S, front.no_chat_page, "no-chat-page", NULL,                                      \
                 "Do not serve the chat page at GET / (a playground for people with a browser).")

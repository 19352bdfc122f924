#pragma once
/* Defines rows that apply to every request and answer of a gateway, on any route. cox-gateway
 * and cox up share them. S has a `struct front_options front`. */
#include "common/config/config.h"

struct front_options {
    struct option_list allowed_origins, allowed_methods, allowed_headers;
    bool allow_credentials, request_id_headers, no_chat_page;
    /* prefix of paths, and path of the access log; NULL = none */
    const char *root_path, *access_log;
};

#define ROWS_FRONT(S)                                                                              \
    OPT_WORDS(S, front.allowed_origins, "allowed-origins", WORDS_ARE_VALUES,                       \
              "CORS: origins whose pages may call the API, also as a JSON list. * = all. "         \
              "Default: none."),                                                                   \
        OPT_WORDS(S, front.allowed_methods, "allowed-methods", WORDS_ARE_VALUES,                   \
                  "CORS: HTTP methods that pages of --allowed-origins may use. Default: all."),    \
        OPT_WORDS(S, front.allowed_headers, "allowed-headers", WORDS_ARE_VALUES,                   \
                  "CORS: headers that pages of --allowed-origins may send. Default: all."),        \
        OPT_BOOL(S, front.allow_credentials, "allow-credentials", NULL,                            \
                 "CORS: allow cookies and the browser's own credentials."),                        \
        OPT_BOOL(                                                                                  \
            S, front.request_id_headers, "enable-request-id-headers", NULL,                        \
            "Send an X-Request-Id header with each answer: the request's own, or a new one."),     \
        OPT_STRING(S, front.root_path, "root-path", NULL,                                          \
                   "Path prefix that a proxy in front adds to every URL. Paths without the "       \
                   "prefix work too."),                                                            \
        OPT_STRING(S, front.access_log, "access-log", NULL,                                        \
                   "File that gets one line of JSON per request. Use - for stdout."),              \
        OPT_BOOL(S, front.no_chat_page, "no-chat-page", NULL,                                      \
                 "Do not serve the chat page at GET /.")

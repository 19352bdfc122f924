#pragma once
/* The source that files are fetched from: its network, and what each request to it says of who
 * asks. Everything is borrowed. */
#include "cli/pull/request/aws_credentials.h"
#include "cli/pull/request/retry.h"

struct pull_lock;
struct pull_source {
    const struct fetch_net *net;
    const char *bearer;
    struct aws_credentials *aws;   /* NULL: unsigned */
    struct fetch_session *session; /* of the calling thread; or NULL */
    uint32_t n_parallel;           /* connections of pull_files_fetch */
    bool follows_links;            /* parts are links to files in memory (stream.h) */
    const char *user;              /* of one host, as all of these */
    struct pull_lock *lock;        /* under which files are written; NULL: nobody else's */
    struct pull_words words;
};

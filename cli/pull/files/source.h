#pragma once
/* Describes the server that files are fetched from: its network and the credentials of each
 * request. All pointers are borrowed. */
#include "cli/pull/request/aws_credentials.h"
#include "cli/pull/request/retry.h"

struct pull_lock;
struct pull_source {
    const struct fetch_net *net;
    const char *bearer;
    struct aws_credentials *aws;   /* keys that sign requests; NULL = requests are not signed */
    struct fetch_session *session; /* session of the calling thread, or NULL */
    uint32_t n_parallel;           /* number of connections of pull_files_fetch */
    bool follows_links;     /* each NAME.part file is a link to a file in memory (stream.h) */
    const char *user;       /* USER:PASSWORD for the host of these files, or NULL */
    struct pull_lock *lock; /* lock that protects the files; NULL = no other process writes them */
    struct pull_words words;
};

#pragma once
/* The files of a model at a server, as its listing has them, and how one of them comes here: into
 * NAME.part, which is gone on with where it ended, checked by size and hash, then renamed to NAME.
 * So a NAME in the folder is a whole one. */
#include "cli/pull/files/progress.h"
#include "cli/pull/request/aws_credentials.h"
#include "cli/pull/request/retry.h"

#define PULL_MAX_FILE_BYTES (UINT64_C(1) << 42) /* 4 TiB */

struct pull_file {
    char *name, *url;
    char *hub_name;        /* of a hub: its name there, with folders; or NULL */
    uint64_t n_bytes;      /* FETCH_UNKNOWN only while a listing is made */
    char sha256[65];       /* "": nobody has said it */
    char git_id[41];       /* SHA-1 of a git blob; "" likewise */
    char etag[136];        /* strong; ranges are asked for under it. "" likewise */
    bool hf_blob_is_right; /* what huggingface_hub's cache has of it was read, and is it */
};
struct pull_lock;
struct pull_list {
    struct pull_file *files;
    uint32_t n_files, cap;
    char commit[65];   /* of a hub */
    char identity[65]; /* SHA-256 of all that the listing says: what parts belong to */
};

/* Who may be asked with what; of one source. */
struct pull_source {
    const struct fetch_net *net;
    const char *bearer;
    struct aws_credentials *aws;   /* NULL: unsigned */
    struct fetch_session *session; /* of the calling thread; or NULL */
    uint32_t n_parallel;           /* connections of pull_files_fetch */
    bool follows_links;            /* parts are links to files in memory (pull_stream.h) */
    const char *user;              /* of one host, as all of these */
    struct pull_lock *lock;        /* under which files are written; NULL: nobody else's */
    struct pull_words words;
};

/* Refuses names that are not safe, that are there already, and what is too large or too much. url
 * is taken over. */
MUST_USE enum status pull_list_add(struct pull_list *l, const char *name, char *owned_url,
                                   uint64_t n_bytes, struct error *err);
/* When all are in it: small ones first, so that what is not a model is seen soon. */
void pull_list_finish(struct pull_list *l);
uint64_t pull_list_bytes(const struct pull_list *l);
void pull_list_fini(struct pull_list *l);
/* Of weights: what is large. */
bool pull_is_weights(const char *name);

/* Is name the GGUF wanted, or another part of it (NAME-00002-of-00003.gguf)? */
bool pull_is_of_gguf(const char *name, const char *wanted);

/* Bytes of f that lie in folder already, whole or in part. */
uint64_t pull_file_have(const struct pull_file *f, const char *folder);
/* Bytes of the disk that f takes in folder already, at most its own: those, and what of its part is
 * written again in its place. */
uint64_t pull_file_room(const struct pull_file *f, const char *folder);
/* Fetches f into folder in one stream, or what is missing of it. sha256[65] is filled with what it
 * was said or found to be. */
MUST_USE enum status pull_file_fetch(const struct pull_source *source, const struct pull_file *f,
                                     const char *folder, struct pull_progress *progress,
                                     char *sha256, struct error *err);
/* All of files into folder, over several connections; large ones in ranges (pull_ranges.h). Of each
 * sha256 is filled likewise. */
MUST_USE enum status pull_files_fetch(const struct pull_source *source,
                                      const struct pull_file *files, uint32_t n_files,
                                      const char *folder, struct pull_progress *progress,
                                      char (*sha256)[65], struct error *err);
/* Are path's bytes those that f's hashes stand for? PROTOCOL: no; CLOSED: stopped. */
MUST_USE enum status pull_file_check(const struct fetch_net *net, const struct pull_file *f,
                                     const char *path, struct error *err);
/* The SHA-256 of a file here; CLOSED when stopped. */
MUST_USE enum status pull_file_hash(const struct fetch_net *net, const char *path, char *sha256,
                                    struct error *err);

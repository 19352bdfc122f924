#pragma once
/* The files of a model at a server, as its listing has them. The names come from that server: what
 * is not safe as a name is refused when it is added. */
#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"

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

struct pull_list {
    struct pull_file *files;
    uint32_t n_files, cap;
    char commit[65];   /* of a hub */
    char identity[65]; /* SHA-256 of all that the listing says: what parts belong to */
};

/* Refuses names that are not safe, that are there already, and what is too large or too much. url
 * is taken over. */
MUST_USE enum status pull_list_add(struct pull_list *l, const char *name, char *owned_url,
                                   uint64_t n_bytes, struct error *err);
/* When all are in it: small ones first, so that what is not a model is seen soon. */
void pull_list_finish(struct pull_list *l);
uint64_t pull_list_bytes(const struct pull_list *l);
void pull_list_fini(struct pull_list *l);
/* Is it a file of weights, which are large? */
bool pull_is_weights(const char *name);

/* Is name the GGUF wanted, or another part of it (NAME-00002-of-00003.gguf)? */
bool pull_is_of_gguf(const char *name, const char *wanted);

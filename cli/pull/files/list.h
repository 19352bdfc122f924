#pragma once
/* Lists the files of a model on a server. The names come from the server, so the list refuses a
 * name that is not safe as a file name. */
#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"

#define PULL_MAX_FILE_BYTES (UINT64_C(1) << 42) /* largest size of a file, 4 TiB */

struct pull_file {
    char *name, *url;
    char *hub_name;   /* file's path in the hub's repository; NULL = the same as `name` */
    uint64_t n_bytes; /* size in bytes; FETCH_UNKNOWN only while the list is made */
    char sha256[65];  /* SHA-256 in hexadecimal; "" = unknown */
    char git_id[41];  /* SHA-1 of the git blob; "" = unknown */
    char etag[136];   /* strong ETag for requests with ranges; "" = unknown */
    /* huggingface_hub's cache has the file's blob with the right hash */
    bool hf_blob_is_right;
};

struct pull_list {
    struct pull_file *files;
    uint32_t n_files, cap;
    char commit[65]; /* commit at a hub; "" = none */
    /* SHA-256 of the whole list; parts of a fetch are used only with the same identity */
    char identity[65];
};

/* Adds a file and takes over `owned_url`. Unsafe names, duplicates, too large files and too many
 * files are refused. */
MUST_USE enum status pull_list_add(struct pull_list *l, const char *name, char *owned_url,
                                   uint64_t n_bytes, struct error *err);
/* Completes the list: sorts it and computes `identity`. Weights are last, so that a folder that
 * is not a model is noticed early. */
void pull_list_finish(struct pull_list *l);
uint64_t pull_list_bytes(const struct pull_list *l);
void pull_list_fini(struct pull_list *l);
/* Returns true when `name` is a file of weights. */
bool pull_is_weights(const char *name);

/* Returns true when `name` is the GGUF `wanted`, or another part of it
 * (NAME-00002-of-00003.gguf). */
bool pull_is_of_gguf(const char *name, const char *wanted);

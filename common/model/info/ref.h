#pragma once
/* How a model is named: a path, "demo", "null", or a reference to a model elsewhere, which `cox
 * pull` puts into the cache and every --model then finds there:
 *   hf:ORG/NAME[@REVISION], hf:ORG/NAME/FILE.gguf[@REVISION]   a model hub's; "ORG/NAME" alone too,
 *                                                              where no such path exists, and
 *                                                              its page's URL on huggingface.co
 *   https://HOST/…/FILE.gguf[#sha256=HEX]                      one file (http:, or a query: only
 *                                                              with the hash)
 *   s3://BUCKET/PREFIX                                         a folder of a bucket, or one GGUF
 *   file:PATH                                                  the same as PATH
 * The text may come from anybody: what parses has no control characters, no "..", no user or
 * password, and a bounded length. Strings are owned by the struct. */
#include "common/base/status.h"
#include "common/base/str.h"

enum model_ref_kind {
    MODEL_REF_PATH,
    MODEL_REF_NULL,
    MODEL_REF_DEMO,
    MODEL_REF_HUB,
    MODEL_REF_URL,
    MODEL_REF_S3,
    MODEL_REF_COUNT
};

#define MODEL_REF_MAX_BYTES 2048

struct model_ref {
    enum model_ref_kind kind;
    bool is_plain;  /* a hub's ORG/NAME without "hf:": a path of that name comes first */
    char *text;     /* the one spelling of it, without a URL's query, which may hold a secret */
    char *path;     /* PATH: without "file:" */
    char *repo;     /* HUB: "ORG/NAME", of some old models "NAME" */
    char *revision; /* HUB: a branch, a tag or a commit; "main" when none is named */
    char *file;     /* HUB: the GGUF in it, or NULL; URL: the name that its file gets */
    char *url;      /* URL: without what follows # */
    char *sha256;   /* URL: 64 small hexadecimal digits, or NULL */
    char *bucket, *prefix; /* S3; prefix without slashes at its ends, "" for the whole bucket */
    char *name;            /* default served name: the hub's ORG/NAME, else the last component */
    char *folder; /* HUB, URL, S3: where it lies below the cache folder, "models/pulled/…" */
};

/* STATUS_INVALID says what a reference of that kind has to look like. *out is empty on failure. */
MUST_USE enum status model_ref_parse(const char *text, struct model_ref *out, struct error *err);
void model_ref_fini(struct model_ref *r);
/* Does it lie below the cache folder once it is pulled, by its own name? */
static inline bool model_ref_is_remote(const struct model_ref *r)
{
    return r->kind == MODEL_REF_HUB || r->kind == MODEL_REF_URL || r->kind == MODEL_REF_S3;
}
/* A file's name as a server may give it: relative, of UTF-8 without control characters and
 * backslashes, no component empty or with a dot in front, at most 255 bytes each and 512 in all. */
bool model_ref_name_is_safe(const char *name);
/* Last component of a path, without .gguf and without what says which part of a GGUF it is. */
struct str model_name_of(const char *path);

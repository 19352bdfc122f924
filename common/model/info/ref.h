#pragma once
/* Parses names of models: a path, "null", a demo model (demo.h), or a reference to a model
 * elsewhere. `cox pull` puts such a model into the cache, where every --model then finds it:
 *   hf:ORG/NAME[@REVISION]                   a model of a hub; also "ORG/NAME" alone if there is no
 *                                            such path, or its page's URL on huggingface.co
 *   hf:ORG/NAME/FILE.gguf[@REVISION]         one GGUF of such a model
 *   https://HOST/…/FILE.gguf[#sha256=HEX]    one file; http: or a query require the hash
 *   s3://BUCKET/PREFIX                       a folder of a bucket, or one GGUF
 *   file:PATH                                the same as PATH
 * The text is untrusted. A parsed reference has no control characters, no "..", no user or
 * password, and a bounded length. The struct owns its strings. */
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
    bool is_plain; /* HUB: true = ORG/NAME without "hf:"; a path of that name wins */
    char *text; /* normalised text of the reference, without a URL's query, which may be a secret */
    char *path; /* PATH: the path, without "file:" */
    char *repo; /* HUB: "ORG/NAME"; "NAME" for some old models */
    char *revision; /* HUB: branch, tag or commit; default "main" */
    char *file;     /* HUB: the GGUF in the repository, or NULL; URL: name of the local file */
    char *url;      /* URL: the URL, without # and the text after it */
    char *sha256;   /* URL: hash as 64 lower-case hexadecimal digits, or NULL */
    /* S3: bucket and prefix; prefix has no slash at its ends, and "" = the whole bucket */
    char *bucket, *prefix;
    char *name;   /* default served name: the hub's ORG/NAME, else the last component */
    char *folder; /* HUB, URL, S3: folder of the model below the cache, "models/pulled/…" */
};

/* Parses a reference. Returns STATUS_INVALID, with the correct form of a reference, when the
 * text is malformed. *out is then empty. */
MUST_USE enum status model_ref_parse(const char *text, struct model_ref *out, struct error *err);
void model_ref_fini(struct model_ref *r);
/* Returns true when the model has a folder of its own in the cache after it was pulled. */
static inline bool model_ref_is_remote(const struct model_ref *r)
{
    return r->kind == MODEL_REF_HUB || r->kind == MODEL_REF_URL || r->kind == MODEL_REF_S3;
}
/* Returns true when the name that a server gives a file is safe. It must be relative and UTF-8
 * without control characters and backslashes. No component may be empty or have a leading dot,
 * and each has at most 255 bytes. The whole name has at most 512 bytes. */
bool model_ref_name_is_safe(const char *name);
/* Returns the last component of a path, without .gguf and without the number of a GGUF's part. */
struct str model_name_of(const char *path);

#pragma once
/* A model that `cox pull` has put into the cache: a folder below CACHE/models/pulled with a
 * manifest, cox-pull.json, that names each file with its size and SHA-256. The folder appears by
 * one rename when all of it is there; so a manifest is the proof, and no file is read to believe
 * it. Processes that only look need no right to write. */
#include <stdint.h>

#include "common/base/status.h"
#include "common/model/info/ref.h"

#define PULLED_MANIFEST  "cox-pull.json"
#define PULLED_MAX_FILES 10000

struct pulled_file {
    char *name; /* below the folder */
    uint64_t n_bytes;
    char sha256[65];
};
struct pulled {
    char *folder; /* of a cache folder that is absolute, absolute too */
    char *commit; /* what a hub's revision was when it was pulled; "" for others */
    struct pulled_file *files;
    uint32_t n_files;
    uint64_t n_bytes; /* of all files */
};

/* CACHE/models/pulled/… of a remote reference; the caller's to free. */
char *pulled_folder(const struct model_ref *r, const char *cache_dir);
/* Reads the manifest and asks each file for its size. NOT_FOUND: it is not there; INVALID: the
 * manifest is damaged, or a file is not as it says. Both texts say to pull it. */
MUST_USE enum status pulled_open(const struct model_ref *r, const char *cache_dir,
                                 struct pulled *out, struct error *err);
/* The same of a folder, whatever model it is. *reference: the manifest's own word for it, or NULL;
 * it and out are the caller's to free in any case. out has what could be read. */
MUST_USE enum status pulled_open_folder(const char *folder, struct pulled *out, char **reference,
                                        struct error *err);
/* The manifest into p->folder, on disk when this returns. */
MUST_USE enum status pulled_write(const struct model_ref *r, const struct pulled *p,
                                  struct error *err);
void pulled_fini(struct pulled *p);

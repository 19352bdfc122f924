#pragma once
/* Describes a model that `cox pull` has put into the cache. Such a model is a folder below
 * CACHE/models/pulled with a manifest, cox-pull.json, that lists each file with its size and
 * SHA-256. One rename creates the folder when all files are complete. So a manifest proves that
 * the model is complete, and no file has to be read again. Processes that only read the model
 * need no write permission. */
#include <stdint.h>

#include "common/base/status.h"
#include "common/model/info/ref.h"

#define PULLED_MANIFEST  "cox-pull.json"
#define PULLED_MAX_FILES 10000

struct pulled_file {
    char *name; /* path of the file below the folder */
    uint64_t n_bytes;
    char sha256[65];
};
struct pulled {
    char *folder; /* path of the folder; absolute if the cache folder's path is absolute */
    char *commit; /* HUB: commit of the revision when the model was pulled; "" for others */
    struct pulled_file *files;
    uint32_t n_files;
    uint64_t n_bytes; /* total size of all files */
};

/* Returns CACHE/models/pulled/… for a remote reference. The caller frees it with mem_free. */
char *pulled_folder(const struct model_ref *r, const char *cache_dir);
/* Reads the manifest and checks the size of each file. Returns STATUS_NOT_FOUND when the cache
 * does not have the model, and STATUS_INVALID when the manifest is damaged or a file differs.
 * Each error text asks the user to pull the model. */
MUST_USE enum status pulled_open(const struct model_ref *r, const char *cache_dir,
                                 struct pulled *out, struct error *err);
/* Opens any folder that `cox pull` made. *reference is the reference in the manifest, or NULL.
 * The caller frees *reference and `out` also after an error. `out` has the values that could be
 * read. */
MUST_USE enum status pulled_open_folder(const char *folder, struct pulled *out, char **reference,
                                        struct error *err);
/* Writes the manifest into p->folder and syncs it to disk. */
MUST_USE enum status pulled_write(const struct model_ref *r, const struct pulled *p,
                                  struct error *err);
void pulled_fini(struct pulled *p);

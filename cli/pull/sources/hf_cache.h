#pragma once
/* The cache of Python's huggingface_hub, shared: what it has is not fetched again, and what is
 * fetched it finds there. Its layout:
 *   FOLDER/models--ORG--NAME/blobs/ID             ID: SHA-256 of a file of LFS, git's id of others
 *                            snapshots/COMMIT/NAME  a link to ../../blobs/ID
 *                            refs/REVISION        a text, COMMIT
 * A file appears in it whole, by one link or rename, and links and refs after what they point to:
 * its locks keep two from fetching the same, and there is nothing to keep from here. */
#include "cli/pull/files/list.h"
#include "common/http/client/fetch.h"
#include "common/model/info/ref.h"

struct hf_cache {
    char *folder; /* NULL: none */
    bool writes;  /* what is fetched goes into it, */
    bool copies;  /* also where that takes as much room again */
};

/* The settings that say where it is; each may be NULL. */
struct hf_cache_places {
    const char *choice; /* "auto", "off" or a folder (--hf-cache, HF_HUB_CACHE) */
    const char *hf_home, *xdg_cache_home, *home;
};
/* A folder that is named is made and filled, by copies if need be. One that only exists gets what
 * costs no room: a hard link, or a clone of the file system's. */
void hf_cache_find(const struct hf_cache_places *places, struct hf_cache *out);
void hf_cache_fini(struct hf_cache *c);

/* If f lies there, of its size and with its hash: into folder, under its name. True: it is there.
 * *err: why not, when something is wrong with what lies there; else its text is empty. CLOSED: a
 * signal came. */
bool hf_cache_take(const struct hf_cache *c, const struct fetch_net *net, const char *repo,
                   struct pull_file *f, const char *folder, struct error *err);
/* All files of l, which lie whole in folder, into the cache; what lies there under a name of theirs
 * with other bytes is replaced. */
MUST_USE enum status hf_cache_give(const struct hf_cache *c, const struct fetch_net *net,
                                   const struct model_ref *r, const struct pull_list *l,
                                   const char *folder, struct error *err);

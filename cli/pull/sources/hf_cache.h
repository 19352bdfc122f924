#pragma once
/* Shares the cache of Python's huggingface_hub: files in it are not fetched again, and fetched
 * files are put into it. Its layout:
 *   FOLDER/models--ORG--NAME/blobs/ID               ID: SHA-256 of an LFS file, git's id of others
 *                            snapshots/COMMIT/NAME  a link to ../../blobs/ID
 *                            refs/REVISION          a text, COMMIT
 * A file is added by one link or rename, so it is complete; links and refs are made after the
 * files that they point to. No lock of huggingface_hub is needed: its locks only prevent double
 * fetches. */
#include "cli/pull/files/list.h"
#include "common/http/client/fetch.h"
#include "common/model/info/ref.h"

struct hf_cache {
    char *folder; /* folder of the cache; NULL = there is no such cache */
    bool writes;  /* fetched files are put into the cache */
    bool copies;  /* files are copied when a link or clone is not possible */
};

/* `hf_cache_places` holds the settings that give the cache's location. Each may be NULL. */
struct hf_cache_places {
    const char *choice; /* option --hf-cache or HF_HUB_CACHE: "auto", "off" or a folder */
    const char *hf_home, *xdg_cache_home, *home;
};
/* Finds the cache. When an option names the folder, the folder is made, and fetched files are
 * added, as copies if needed. An existing default folder only receives files that need no extra
 * disk space: hard links or clones. */
void hf_cache_find(const struct hf_cache_places *places, struct hf_cache *out);
void hf_cache_fini(struct hf_cache *c);

/* Takes file `f` from the cache into `folder` when size and hash are right. Returns true when
 * the file is in `folder`. *err has a text when the cached file is damaged. STATUS_CLOSED in
 * *err: a signal arrived. */
bool hf_cache_take(const struct hf_cache *c, const struct fetch_net *net, const char *repo,
                   struct pull_file *f, const char *folder, struct error *err);
/* Puts all files of list `l` into the cache. They are complete in `folder`. A cached file of the
 * same name with other bytes is replaced. */
MUST_USE enum status hf_cache_give(const struct hf_cache *c, const struct fetch_net *net,
                                   const struct model_ref *r, const struct pull_list *l,
                                   const char *folder, struct error *err);

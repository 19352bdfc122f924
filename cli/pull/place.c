#include "cli/pull/place.h"

#include <errno.h>
#include <fts.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "cli/pull/files/progress.h"
#include "common/base/mem.h"

enum { SPACE_LEFT = 16 << 20 };

char *pull_join(const char *a, const char *b, const char *c)
{
    size_t n = strlen(a) + strlen(b) + strlen(c) + 1;
    char *out = mem_alloc(n);
    snprintf(out, n, "%s%s%s", a, b, c);
    return out;
}

enum status pull_make_folders(const char *cache_dir, const char *below, struct error *err)
{
    char *path = pull_join(cache_dir, "/", below);
    enum status s = STATUS_OK;
    for (char *c = path + 1; s == STATUS_OK; c++) {
        char was = *c;
        if (was != '/' && was != '\0')
            continue;
        *c = '\0';
        if (mkdir(path, 0777) != 0 && errno != EEXIST) {
            int saved = errno;
            /* an existing folder is accepted, even when its parent is not writable */
            struct stat st;
            if (stat(path, &st) != 0 || !S_ISDIR(st.st_mode))
                s = error_set(err, STATUS_IO,
                              "cannot create the cache folder %s: %s. The model is not in the "
                              "cache, so it must be downloaded. Set COX_CACHE to a writable "
                              "folder, or run `cox pull` on a machine that can write there",
                              path, strerror(saved));
        }
        *c = was;
        if (was == '\0')
            break;
    }
    mem_free(path);
    return s;
}

enum status pull_check_space(const char *folder, uint64_t n_bytes, struct error *err)
{
    struct statvfs v;
    char wanted[24], left[24], is_free[24];
    if (statvfs(folder, &v) != 0)
        return error_set(err, STATUS_IO, "cannot read the free space of %s: %s", folder,
                         strerror(errno));
    uint64_t free_bytes = (uint64_t)v.f_bavail * v.f_frsize;
    if (n_bytes == 0 || free_bytes >= n_bytes + SPACE_LEFT)
        return STATUS_OK;
    pull_bytes_text(wanted, sizeof wanted, n_bytes);
    pull_bytes_text(left, sizeof left, SPACE_LEFT);
    pull_bytes_text(is_free, sizeof is_free, free_bytes);
    return error_set(err, STATUS_LIMIT,
                     "not enough disk space in %s: the download needs %s and %s must stay free, "
                     "but only %s are free. Free some space, or set COX_CACHE to another folder",
                     folder, wanted, left, is_free);
}

/* Removes a folder with everything below it. The permissions of each folder are changed first,
 * so that its files can be removed. */
void pull_remove_tree(const char *path)
{
    char *copy = mem_strdup(path), *const roots[] = {copy, NULL};
    FTS *tree = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    for (const FTSENT *e; tree && (e = fts_read(tree));) {
        if (e->fts_info != FTS_D)
            (void)remove(e->fts_path);
        else if ((e->fts_statp->st_mode & S_IRWXU) != S_IRWXU)
            (void)chmod(e->fts_path, S_IRWXU);
    }
    if (tree)
        (void)fts_close(tree);
    mem_free(copy);
}

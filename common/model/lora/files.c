/* Finds an adapter's files. A folder below --lora-root may contain links to any path, as the
 * folders of download caches do. So each file is resolved to its real path, which must be below
 * the root as well. */
#include "common/model/lora/files.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/path.h"

enum status lora_file_find(const char *folder, const char *root, const char *file,
                           char out[PATH_MAX], struct error *err)
{
    char path[PATH_MAX], real_root[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/%s", folder, file);
    if (n < 0 || (size_t)n >= sizeof path)
        return error_set(err, STATUS_INVALID,
                         "the path of the folder %s is too long. Use a shorter path", folder);
    if (!root) {
        memcpy(out, path, (size_t)n + 1);
        return STATUS_OK;
    }
    if (!realpath(root, real_root))
        return error_set(err, STATUS_NOT_FOUND, "cannot open --lora-root %s: %m", root);
    if (!realpath(path, out))
        return error_set(err,
                         errno == ENOENT   ? STATUS_NOT_FOUND
                         : errno == EACCES ? STATUS_DENIED
                                           : STATUS_IO,
                         "cannot open %s: %m", path);
    if (path_is_below(out, real_root))
        return STATUS_OK;
    return error_set(
        err, STATUS_DENIED,
        "%s is a link to a file outside of --lora-root %s. Copy the files into that folder", path,
        root);
}

#include "common/base/path.h"

#include <errno.h>
#include <string.h>

bool path_is_below(const char *path, const char *root)
{
    size_t n = strlen(root);
    if (n > 0 && root[n - 1] == '/') /* "/" is the only path that ends with a slash */
        n--;
    return strncmp(path, root, n) == 0 && path[n] == '/' && path[n + 1] != '\0';
}

bool path_is_wrong(int e)
{
    return e == ENOENT || e == ENOTDIR || e == EISDIR || e == EACCES || e == EPERM || e == ELOOP ||
           e == ENAMETOOLONG || e == EINVAL;
}

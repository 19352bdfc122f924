#include "common/base/path.h"

#include <string.h>

bool path_is_below(const char *path, const char *root)
{
    size_t n = strlen(root);
    if (n > 0 && root[n - 1] == '/') /* "/": the only one that ends so */
        n--;
    return strncmp(path, root, n) == 0 && path[n] == '/' && path[n + 1] != '\0';
}

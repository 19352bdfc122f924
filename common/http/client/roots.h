#pragma once
/* Finds the file with the certificate authorities of this system. The libcurl of a distribution
 * knows its file. The libcurl of the packages is for every Linux, so it has no such path. */

/* Returns the path of the first existing file of a list, or NULL. `root` is "", or a folder that
 * stands for / in tests; the result then is below it, in `path`. Any thread. */
enum { ROOTS_PATH_MAX = 4096 };
const char *roots_find(const char *root, char path[ROOTS_PATH_MAX]);

/* Returns NULL where libcurl has its own path or no file exists; otherwise the path, which stays
 * valid. Any thread. */
const char *roots_for_curl(void);

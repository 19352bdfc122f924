/* Writes a small file for a test, or a seed of a fuzzer's corpus. Tests include this file. The
 * function may run outside a test, where a failed assertion of cmocka would not end the program. */
#include <stdio.h>
#include <stdlib.h>

#include "common/base/str.h"

static void put_file(const char *folder, const char *name, struct str bytes)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(bytes.ptr, 1, bytes.len, f) != bytes.len || fclose(f) != 0) {
        perror(path);
        abort();
    }
}

#pragma once
/* Makes files below a folder that replaces /, for tests of code that reads /sys, /proc or /etc
 * below a root. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* Writes the file root + path, and makes the folders above it. `path` begins with a slash. */
static inline void fake_put(const char *root, const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *p = full + strlen(root) + 1; (p = strchr(p, '/')); p++) {
        *p = '\0';
        (void)mkdir(full, 0700);
        *p = '/';
    }
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

/* Removes the file if it exists. Also removes the folders between the file and root that are
 * empty then. */
static inline void fake_drop(const char *root, const char *path)
{
    char full[512];
    snprintf(full, sizeof full, "%s%s", root, path);
    (void)unlink(full);
    for (char *slash; (slash = strrchr(full, '/')) && slash > full + strlen(root);) {
        *slash = '\0';
        (void)rmdir(full);
    }
}

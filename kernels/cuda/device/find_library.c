/* Searches the places of find_library.h in their order. A folder of PATH that is not absolute is
 * skipped, because the current folder must not decide which library a worker loads. */
#include "kernels/cuda/device/find_library.h"

#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const python_folders[] = {
    "lib/python3*/site-packages/nvidia/cu13/lib",   "lib/python3*/site-packages/nvidia/cublas/lib",
    "lib/python3*/site-packages/nvidia/nccl/lib",   "lib/python3*/dist-packages/nvidia/cu13/lib",
    "lib/python3*/dist-packages/nvidia/cublas/lib", "lib/python3*/dist-packages/nvidia/nccl/lib",
};
static const char *const toolkit_folders[] = {"/usr/local/cuda/lib64",
                                              "/usr/local/cuda/targets/*-linux/lib"};

/* Opens the first file that matches the pattern and loads. Returns NULL when there is none. */
static void *open_matching(const char *pattern)
{
    glob_t found = {0};
    void *handle = NULL;
    if (glob(pattern, 0, NULL, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc && !handle; i++)
            handle = dlopen(found.gl_pathv[i], RTLD_NOW | RTLD_LOCAL);
    globfree(&found);
    return handle;
}

/* Searches the packages of the Python whose programs are in the folder bin. */
static void *open_of_python(const char *bin, size_t n_bin, const char *name)
{
    char pattern[PATH_MAX];
    void *handle = NULL;
    for (size_t i = 0; i < sizeof python_folders / sizeof *python_folders && !handle; i++) {
        int n = snprintf(pattern, sizeof pattern, "%.*s/../%s/%s", (int)n_bin, bin,
                         python_folders[i], name);
        if (n > 0 && (size_t)n < sizeof pattern)
            handle = open_matching(pattern);
    }
    return handle;
}

/* Searches beside the program itself: the folder of a package's own copies, and the packages of
 * the Python environment that the program was installed into. */
static void *open_of_program(const char *name)
{
    char bin[PATH_MAX], pattern[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", bin, sizeof bin);
    while (n > 0 && bin[n - 1] != '/')
        n--;
    if (n <= 1 || bin[0] != '/')
        return NULL;
    int m = snprintf(pattern, sizeof pattern, "%.*s../lib/coxswain/%s", (int)n, bin, name);
    void *handle = m > 0 && (size_t)m < sizeof pattern ? open_matching(pattern) : NULL;
    return handle ? handle : open_of_python(bin, (size_t)n - 1, name);
}

static void *open_of_path(const char *name)
{
    const char *at = getenv("PATH");
    void *handle = NULL;
    while (at && *at && !handle) {
        const size_t n = strcspn(at, ":");
        if (at[0] == '/' && n < PATH_MAX)
            handle = open_of_python(at, n, name);
        at += n + (at[n] == ':');
    }
    return handle;
}

static void *open_of_toolkit(const char *name)
{
    char pattern[PATH_MAX];
    void *handle = NULL;
    for (size_t i = 0; i < sizeof toolkit_folders / sizeof *toolkit_folders && !handle; i++) {
        int n = snprintf(pattern, sizeof pattern, "%s/%s", toolkit_folders[i], name);
        if (n > 0 && (size_t)n < sizeof pattern)
            handle = open_matching(pattern);
    }
    return handle;
}

enum status gpu_find_library(const char *name, void **handle, struct error *err)
{
    void *found = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    char text[256] = "";
    if (!found) { /* a later dlopen would overwrite the text */
        const char *why = dlerror();
        snprintf(text, sizeof text, "%s", why ? why : name);
        found = open_of_program(name);
    }
    if (!found)
        found = open_of_path(name);
    if (!found)
        found = open_of_toolkit(name);
    if (!found)
        return error_set(err, STATUS_UNSUPPORTED, "%s", text);
    *handle = found;
    return STATUS_OK;
}

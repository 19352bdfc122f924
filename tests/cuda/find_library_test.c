/* Tests that gpu_find_library finds a library of Python's packages by PATH and beside the program,
 * as a worker finds cuBLASLt and NCCL from wheels. The test copies itself into an environment to be
 * the program there. The libraries here are copies of libm under made-up names. The
 * test needs no device. */
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/cuda/device/find_library.h"

#define NAME "libcox_find_probe.so.7"

static char root[] = "/tmp/cox_find_XXXXXX", libm_path[PATH_MAX];
static unsigned n_failures;

static void check(bool holds, const char *what)
{
    printf("%-64s %s\n", what, holds ? "ok" : "FAILED");
    n_failures += !holds;
}

static void find_libm(void)
{
    struct link_map *map = NULL;
    void *libm = dlopen("libm.so.6", RTLD_NOW);
    if (!libm || dlinfo(libm, RTLD_DI_LINKMAP, &map) != 0)
        exit(fprintf(stderr, "find_library_test: no libm: %s\n", dlerror()) > 0);
    snprintf(libm_path, sizeof libm_path, "%s", map->l_name);
}

static void make(const char *folder, bool whole)
{
    char command[4 * PATH_MAX];
    snprintf(command, sizeof command, "mkdir -p '%s/%s' && head -c %s '%s' > '%s/%s/" NAME "'",
             root, folder, whole ? "100000000" : "100", libm_path, root, folder);
    if (system(command) != 0)
        exit(fprintf(stderr, "find_library_test: %s\n", command) > 0);
}

static void set_path(const char *before)
{
    char path[2 * PATH_MAX];
    snprintf(path, sizeof path, "%s%s/venv/bin:/usr/bin", before, root);
    setenv("PATH", path, 1);
}

/* Returns the folder of the library that is found, relative to the test's own folder. Returns ""
 * when no library is found. */
static const char *found_in(void)
{
    static char folder[PATH_MAX], real[PATH_MAX];
    void *handle = NULL;
    struct error err = {0};
    struct link_map *map = NULL;
    folder[0] = '\0';
    if (gpu_find_library(NAME, &handle, &err) != STATUS_OK) {
        if (err.status != STATUS_UNSUPPORTED || !strstr(err.text, NAME))
            snprintf(folder, sizeof folder, "an error that does not name it: %.200s", err.text);
        return folder;
    }
    if (dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && realpath(map->l_name, real) &&
        strncmp(real, root, strlen(root)) == 0)
        snprintf(folder, sizeof folder, "%s", real + strlen(root) + 1);
    dlclose(handle);
    return folder;
}

/* Prints what a copy of this test, run from root/bin by its path alone, finds. */
static const char *found_by_copy(const char *bin)
{
    static char line[PATH_MAX];
    char command[4 * PATH_MAX];
    snprintf(command, sizeof command,
             "mkdir -p '%s/%s' && cp -f /proc/%d/exe '%s/%s/probe' && PATH= '%s/%s/probe' '%s'",
             root, bin, (int)getpid(), root, bin, root, bin, root);
    FILE *f = popen(command, "r");
    line[0] = '\0';
    if (f && !fgets(line, sizeof line, f))
        line[0] = '\0';
    if (!f || pclose(f) != 0)
        snprintf(line, sizeof line, "the copy failed");
    line[strcspn(line, "\n")] = '\0';
    return line;
}

static void check_beside_the_program(void)
{
    if (access("/proc/self/exe", R_OK) != 0) { /* a bare root may have no /proc */
        printf("not checked here, without /proc: libraries beside the program\n");
        return;
    }
    check(found_by_copy("own/bin")[0] == '\0', "nothing beside the program");
    make("own/lib/python3.11/site-packages/nvidia/cu13/lib", true);
    check(strcmp(found_by_copy("own/bin"),
                 "own/lib/python3.11/site-packages/nvidia/cu13/lib/" NAME) == 0,
          "the wheel's environment, without PATH");
    make("own/lib/coxswain", true);
    check(strcmp(found_by_copy("own/bin"), "own/lib/coxswain/" NAME) == 0, "a package's own copy");
}

int main(int argc, char **argv)
{
    char command[sizeof root + 16];
    if (argc == 2) { /* this is the copy of found_by_copy */
        snprintf(root, sizeof root, "%s", argv[1]);
        printf("%s\n", found_in());
        return 0;
    }
    find_libm();
    if (!mkdtemp(root))
        return 1;
    make("venv/bin", false); /* the folder bin itself is never searched */
    set_path("");
    check(found_in()[0] == '\0', "a library that no place has");
    make("venv/lib/python3.11/site-packages/nvidia/nccl/lib", true);
    check(strstr(found_in(), "python3.11/site-packages/nvidia/nccl/lib/" NAME) != NULL,
          "NCCL's wheel");
    make("venv/lib/python3.11/dist-packages/nvidia/cublas/lib", true);
    make("venv/lib/python3.11/site-packages/nvidia/cublas/lib", true);
    check(strstr(found_in(), "site-packages/nvidia/cublas/lib/" NAME) != NULL, "cuBLAS 12's way");
    make("venv/lib/python3.12/site-packages/nvidia/cu13/lib", false);
    check(strstr(found_in(), "site-packages/nvidia/cublas/lib/" NAME) != NULL,
          "a file that does not load is passed over");
    make("venv/lib/python3.12/site-packages/nvidia/cu13/lib", true);
    check(strstr(found_in(), "python3.12/site-packages/nvidia/cu13/lib/" NAME) != NULL,
          "CUDA 13's wheels");
    make("other/lib/python3.9/site-packages/nvidia/cu13/lib", true);
    make("other/bin", false);
    if (chdir(root) != 0)
        return 1;
    set_path("other/bin::");
    check(strncmp(found_in(), "venv/", 5) == 0, "folders of PATH that are not absolute");
    check_beside_the_program();
    snprintf(command, sizeof command, "rm -r '%s'", root);
    check(system(command) == 0, "cleaned up");
    return n_failures ? 1 : 0;
}

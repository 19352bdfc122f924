/* Runs a fuzz target over the files of a corpus folder: how the fuzzers are tests in every build.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int run_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        return -1;
    static uint8_t buf[1 << 20];
    size_t n = fread(buf, 1, sizeof buf, f);
    fclose(f);
    uint8_t *exact = malloc(n ? n : 1); /* exact size: a sanitizer sees a read past the end */
    if (!exact)
        return -1;
    for (size_t i = 0; i < n; i++)
        exact[i] = buf[i];
    LLVMFuzzerTestOneInput(exact, n);
    free(exact);
    return 0;
}

int main(int argc, char **argv)
{
    int n = 0;
    LLVMFuzzerTestOneInput((const uint8_t *)"", 0);
    DIR *d = argc > 1 ? opendir(argv[1]) : NULL;
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[4096];
        if (e->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", argv[1], e->d_name);
        n += run_file(path) == 0;
    }
    if (d)
        closedir(d);
    printf("%d corpus files\n", n);
    return n > 0 ? 0 : 1;
}

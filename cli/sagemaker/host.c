#include "cli/sagemaker/host.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_BYTES = 4096 };

static const char *visible(char *const *environ_)
{
    static const char name[] = "CUDA_VISIBLE_DEVICES=";
    for (; *environ_; environ_++)
        if (strncmp(*environ_, name, sizeof name - 1) == 0)
            return *environ_ + sizeof name - 1;
    return NULL;
}

uint32_t sagemaker_gpus(char *const *environ_)
{
    const char *list = visible(environ_);
    char path[32];
    uint32_t n = 0;
    for (snprintf(path, sizeof path, "/dev/nvidia0"); access(path, F_OK) == 0;)
        snprintf(path, sizeof path, "/dev/nvidia%u", ++n);
    if (n == 0 || !list)
        return n;
    uint32_t named = 0;
    for (const char *at = list; *at && *at != '-'; at += strcspn(at, ","), at += *at == ',')
        named++;
    return named;
}

void sagemaker_gpu_name(char *const *environ_, uint32_t i, struct strbuf *out)
{
    const char *at = visible(environ_);
    if (!at) {
        strbuf_printf(out, "%u", i);
        return;
    }
    for (; i > 0 && *at; i--) {
        at += strcspn(at, ",");
        at += *at == ',';
    }
    strbuf_append(out, at, strcspn(at, ","));
}

struct str sagemaker_properties(const char *folder, char out[SAGEMAKER_PROPERTIES_MAX])
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/serving.properties", folder);
    FILE *f = fopen(path, "re");
    size_t n = f ? fread(out, 1, SAGEMAKER_PROPERTIES_MAX, f) : 0;
    if (f)
        (void)fclose(f);
    return (struct str){out, n};
}

bool sagemaker_has_weights(const char *folder)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/config.json", folder);
    return access(path, F_OK) == 0;
}

static bool is_weights(const char *name)
{
    static const char *const ends[] = {".safetensors", ".gguf", ".bin", ".pt", ".pth"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        size_t n = strlen(ends[i]), len = strlen(name);
        if (len > n && strcmp(name + len - n, ends[i]) == 0)
            return true;
    }
    return false;
}

uint64_t sagemaker_weight_bytes(const char *folder)
{
    uint64_t sum = 0;
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));) {
        struct stat st;
        if (is_weights(e->d_name) && fstatat(dirfd(d), e->d_name, &st, 0) == 0 &&
            S_ISREG(st.st_mode))
            sum += (uint64_t)st.st_size;
    }
    if (d)
        closedir(d);
    return sum;
}

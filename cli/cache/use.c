#include "cli/cache/use.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/base/str.h"
#include "common/model/info/info.h"
#include "common/model/info/open.h"
#include "common/model/info/ref.h"

enum { WORDS_MAX_BYTES = 1 << 18, MAPS_MAX_BYTES = 32 << 20 };

/* Reads the file `name` of process `pid` in /proc and appends a zero byte. */
static bool read_proc(const char *pid, const char *name, size_t limit, struct strbuf *out)
{
    char path[PATH_MAX], block[16384];
    snprintf(path, sizeof path, "/proc/%s/%s", pid, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n;
    strbuf_init(out, limit);
    while (fd >= 0 && (n = read(fd, block, sizeof block)) > 0 &&
           strbuf_append(out, block, (size_t)n))
        continue;
    if (fd >= 0)
        (void)close(fd);
    return out->len > 0;
}

static const char *next_word(const struct strbuf *b, const char *at)
{
    at += strlen(at) + 1;
    return at < b->ptr + b->len ? at : NULL;
}

/* Returns the value of NAME=… in a process's environment. Returns NULL when the variable is not
 * set. */
static const char *variable(const struct strbuf *b, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = b->len > 0 ? b->ptr : NULL; at; at = next_word(b, at))
        if (strncmp(at, name, n) == 0 && at[n] == '=' && at[n + 1])
            return at + n + 1;
    return NULL;
}

static bool is_same_folder(const char *a, const char *b)
{
    char *x = realpath(a, NULL), *y = realpath(b, NULL);
    bool is = x && y && strcmp(x, y) == 0;
    free(x);
    free(y);
    return is;
}

/* Returns true when a program with this command line uses the cache folder `cache_dir`. */
static bool has_cache(const char *pid, const struct strbuf *words, const char *cache_dir)
{
    struct strbuf env;
    char own[PATH_MAX];
    const char *flag = NULL;
    for (const char *at = words->ptr; at; at = next_word(words, at)) {
        if (strncmp(at, "--cache-dir=", 12) == 0)
            flag = at + 12;
        else if (strcmp(at, "--cache-dir") == 0)
            flag = next_word(words, at);
    }
    bool has_env = read_proc(pid, "environ", WORDS_MAX_BYTES, &env);
    const char *said = flag ? flag : has_env ? variable(&env, "COX_CACHE_DIR") : NULL;
    if (!said && has_env)
        said = variable(&env, "COX_CACHE");
    model_cache_dir(said, has_env ? variable(&env, "HOME") : NULL, own, sizeof own);
    bool is = is_same_folder(own, cache_dir);
    strbuf_fini(&env);
    return is;
}

/* Returns true when the word names the reference in any spelling: "org/tiny" means
 * "hf:org/tiny@main". */
static bool is_named(const char *word, const char *reference)
{
    struct model_ref r;
    struct error err;
    if (strncmp(word, "--model=", 8) == 0)
        word += 8;
    if (*word == '-' || model_ref_parse(word, &r, &err) != STATUS_OK)
        return false;
    bool is =
        (model_ref_is_remote(&r) || r.kind == MODEL_REF_DEMO) && strcmp(r.text, reference) == 0;
    model_ref_fini(&r);
    return is;
}

/* Returns true when the word is the path of the model's folder, or a path below it, as in `cox
 * up $(cox pull MODEL)`. */
static bool is_path_of(const char *pid, const char *word, const char *real_folder)
{
    char path[PATH_MAX];
    if (strncmp(word, "--model=", 8) == 0)
        word += 8;
    if (*word == '-' || !strchr(word, '/'))
        return false;
    int n = *word == '/' ? snprintf(path, sizeof path, "%s", word)
                         : snprintf(path, sizeof path, "/proc/%s/cwd/%s", pid, word);
    char *real = n > 0 && n < (int)sizeof path ? realpath(path, NULL) : NULL;
    size_t n_folder = strlen(real_folder);
    bool is = real && strncmp(real, real_folder, n_folder) == 0 &&
              (real[n_folder] == '\0' || real[n_folder] == '/');
    free(real);
    return is;
}

static bool names_it(const char *pid, const char *program, const char *cache_dir,
                     const char *real_folder, const char *reference)
{
    static const char *const commands[] = {"up",     "serve",   "pull",    "run-batch",
                                           "worker", "workers", "gateway", "bench"};
    struct strbuf words;
    bool is = false, is_path = false, is_one = strcmp(program, "cox") != 0;
    if (!read_proc(pid, "cmdline", WORDS_MAX_BYTES, &words) || words.ptr[words.len - 1] != '\0') {
        strbuf_fini(&words);
        return false;
    }
    const char *command = next_word(&words, words.ptr);
    for (size_t i = 0; command && i < sizeof commands / sizeof *commands; i++)
        is_one = is_one || strcmp(command, commands[i]) == 0;
    for (const char *at = is_one ? command : NULL; at && !is && !is_path;
         at = next_word(&words, at)) {
        is = reference && is_named(at, reference);
        is_path = real_folder && is_path_of(pid, at, real_folder);
    }
    is = is_path || (is && has_cache(pid, &words, cache_dir));
    strbuf_fini(&words);
    return is;
}

static bool maps_it(const char *pid, const char *folder)
{
    struct strbuf maps;
    char *below = mem_alloc(strlen(folder) + 3);
    snprintf(below, strlen(folder) + 3, " %s/", folder);
    bool is = read_proc(pid, "maps", MAPS_MAX_BYTES, &maps) && strstr(maps.ptr, below);
    mem_free(below);
    strbuf_fini(&maps);
    return is;
}

bool cache_is_in_use(const char *cache_dir, const char *folder, const char *reference, char *who,
                     size_t size)
{
    char exe[PATH_MAX], path[64], own[16];
    bool is = false;
    char *real = realpath(folder, NULL);
    DIR *d = opendir("/proc");
    snprintf(own, sizeof own, "%d", (int)getpid());
    for (const struct dirent *e; d && !is && (e = readdir(d));) {
        if (!isdigit((unsigned char)e->d_name[0]) || strcmp(e->d_name, own) == 0 ||
            strlen(e->d_name) > 10)
            continue;
        snprintf(path, sizeof path, "/proc/%.10s/exe", e->d_name);
        ssize_t n = readlink(path, exe, sizeof exe - 1);
        exe[n > 0 ? n : 0] = '\0';
        const char *program = strrchr(exe, '/') ? strrchr(exe, '/') + 1 : exe;
        bool is_ours = strcmp(program, "cox") == 0 || strncmp(program, "cox-", 4) == 0;
        is = (real && maps_it(e->d_name, real)) ||
             (is_ours && names_it(e->d_name, program, cache_dir, real, reference));
        if (is)
            snprintf(who, size, "%.40s, process %s", program[0] ? program : "a program", e->d_name);
    }
    if (d)
        closedir(d);
    free(real);
    return is;
}

/* Fuzzes the readers of the option table. The bytes are read as a YAML file, and their lines
 * also as an argv and an environment. Accepted options must print as YAML that is accepted
 * again. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/userinfo.h"
#include "common/config/config.h"
#include "common/config/print.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct sample {
    int64_t number;
    double share;
    const char *text, *object;
    bool flag;
    int choice;
    struct option_list list;
};

static const struct option_spec specs[] = {
    OPT_INT(sample, number, "number", -100, 1 << 30, "5", "a number"),
    OPT_FLOAT(sample, share, "share", 0, 1, "0.5", "a share"),
    OPT_STRING(sample, text, "text", NULL, "a text"),
    {.name = "object",
     .type = OPTION_STRING,
     .offset = offsetof(struct sample, object),
     .json = true},
    OPT_BOOL(sample, flag, "flag", "true", "a flag"),
    OPT_ENUM(sample, choice, "choice", "one|two|three", "two", "a choice"),
    OPT_LIST(sample, list, "list", "a list"),
    OPT_IGNORED("ignored", TAKES_MANY, "nothing"),
    OPT_IGNORED("O", TAKES_ONE, NULL),
    OPT_REFUSED("refused", TAKES_NOTHING, NULL, "another"),
    {.name = "argument", .type = OPTION_ARGUMENT},
};
enum { N_SPECS = sizeof specs / sizeof *specs, N_WORDS = 16 };

static enum status parse_file(const void *bytes, size_t n, struct sample *out,
                              struct config_result *res)
{
    char path[64];
    struct error err;
    int fd = memfd_create("yaml", MFD_CLOEXEC);
    if (fd < 0 || write(fd, bytes, n) != (ssize_t)n)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    char *argv[] = {(char *)"fuzz", (char *)"--config", path, NULL};
    enum status s = config_parse(specs, N_SPECS, 3, argv, NULL, out, res, &err);
    close(fd);
    return s;
}

/* Compares a text that was read with its printed form, in which URLs have no user. */
static bool is_same(const char *read, const char *back)
{
    char *shown = read ? strdup(read) : NULL;
    if (shown)
        userinfo_hide(shown);
    bool same = !shown || (back && strcmp(shown, back) == 0);
    free(shown);
    return same;
}

static void parse_words(const uint8_t *data, size_t size)
{
    char *copy = malloc(size + 1), *save = NULL, *words[N_WORDS + 2] = {(char *)"fuzz"};
    struct sample out = {0};
    struct config_result res;
    struct error err;
    int n = 1;
    if (!copy)
        return;
    memcpy(copy, data, size);
    copy[size] = '\0';
    for (char *w = strtok_r(copy, "\n", &save); w && n < N_WORDS; w = strtok_r(NULL, "\n", &save))
        /* --config is left out, so that no file of the fuzzing machine is read */
        if (strncmp(w, "--config", 8) != 0)
            words[n++] = w;
    if (config_parse(specs, N_SPECS, n, words, NULL, &out, &res, &err) == STATUS_OK)
        config_fini(&res);
    struct sample from_env = {0};
    char *none[] = {(char *)"fuzz", NULL};
    char **environment = words + 1;
    for (int i = 1; i < n; i++)
        if (strncmp(words[i], "COX_CONFIG", 10) == 0)
            words[i] = (char *)"X=y";
    if (config_parse(specs, N_SPECS, 1, none, environment, &from_env, &res, &err) == STATUS_OK)
        config_fini(&res);
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sample first = {0}, second = {0};
    struct config_result res, again;
    parse_words(data, size);
    if (parse_file(data, size, &first, &res) != STATUS_OK)
        return 0;
    struct strbuf b;
    strbuf_init(&b, 0);
    config_print_yaml(&b, specs, N_SPECS, &first);
    if (first.number < -100 || first.choice < 0 || first.choice > 2 || !(first.share <= 1))
        abort();
    /* YAML contains only UTF-8 text, so every accepted text can be printed and read back */
    if (parse_file(b.ptr, b.len, &second, &again) != STATUS_OK || second.number != first.number ||
        second.list.n_items != first.list.n_items || !is_same(first.text, second.text) ||
        !is_same(first.object, second.object))
        abort();
    config_fini(&res);
    config_fini(&again);
    strbuf_fini(&b);
    return 0;
}

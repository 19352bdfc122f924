#include "cli/up/local/name.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "cli/up/local/find.h"
#include "common/base/mem.h"
#include "common/model/info/info.h"
#include "common/model/info/ref.h"

enum { LOOK_MS = 1000, TRIES = 1000, STEM_MAX = 40 };

void up_name_of_model(const char *model, char out[UP_NAME_BYTES])
{
    struct str name = model_name_of(model);
    size_t n = 0;
    for (size_t i = 0; i < name.len && n < STEM_MAX; i++) {
        unsigned char c = (unsigned char)name.ptr[i];
        bool plain = c < 0x80 && (isalnum(c) || c == '.' || c == '_');
        if (plain)
            out[n++] = (char)tolower(c);
        else if (n > 0 && out[n - 1] != '-')
            out[n++] = '-';
    }
    while (n > 0 && (out[n - 1] == '-' || out[n - 1] == '.'))
        n--;
    out[n] = '\0';
    if (n == 0 || !isalnum((unsigned char)out[0]))
        snprintf(out, UP_NAME_BYTES, "model");
}

static bool is_usable(const char *name)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    return name[0] && isalnum((unsigned char)name[0]) && strlen(name) < UP_NAME_BYTES &&
           name[strspn(name, letters)] == '\0';
}

static const struct local_cluster *taken_by(const struct local_cluster *all, size_t n,
                                            const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(all[i].name, name) == 0)
            return &all[i];
    return NULL;
}

enum status up_name_choose(const char *wanted, const char *model, char out[UP_NAME_BYTES],
                           bool *is_only, struct error *err)
{
    struct local_cluster *all;
    char stem[UP_NAME_BYTES];
    if (wanted && !is_usable(wanted))
        return error_set(err, STATUS_INVALID,
                         "--name %s is invalid: use 1 to %d letters, digits, '.', '_' and '-', and "
                         "begin with a letter or a digit",
                         wanted, UP_NAME_BYTES - 1);
    size_t n = local_cluster_list(LOOK_MS, &all);
    const struct local_cluster *other = wanted ? taken_by(all, n, wanted) : NULL;
    enum status s = STATUS_OK;
    *is_only = n == 0;
    if (other)
        s = error_set(err, STATUS_EXISTS,
                      "--name %s is in use: a cluster with this name runs on this machine (process "
                      "%lld, %s). Choose another name, or stop it with `cox stop %s`",
                      wanted, other->pid, other->url, wanted);
    up_name_of_model(model, stem);
    snprintf(out, UP_NAME_BYTES, "%s", wanted ? wanted : stem);
    for (unsigned i = 2; !wanted && i < TRIES && taken_by(all, n, out); i++)
        snprintf(out, UP_NAME_BYTES, "%.*s-%u", STEM_MAX, stem, i);
    mem_free(all);
    return s;
}

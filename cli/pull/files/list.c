#include "cli/pull/files/list.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/base/str.h"
#include "common/http/client/fetch.h"
#include "common/keys/digest.h"
#include "common/model/info/pulled.h"
#include "common/model/info/ref.h"

#define MAX_ALL_BYTES (UINT64_C(1) << 44)

bool pull_is_weights(const char *name)
{
    static const char *const ends[] = {".safetensors", ".gguf", ".bin"};
    size_t n = strlen(name);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        size_t m = strlen(ends[i]);
        if (n > m && strcmp(name + n - m, ends[i]) == 0)
            return true;
    }
    return false;
}

/* Returns true for a name that ends in "-DDDDD-of-DDDDD.gguf". *number is set to the index of
 * the first five digits. */
static bool is_part(const char *name, size_t *number)
{
    static const char form[] = "-00000-of-00000.gguf";
    size_t n = strlen(name), m = strlen(form);
    if (n <= m)
        return false;
    for (size_t i = 0; i < m; i++) {
        char c = name[n - m + i];
        if (form[i] == '0' ? c < '0' || c > '9' : c != form[i])
            return false;
    }
    *number = n - m + 1;
    return true;
}

bool pull_is_of_gguf(const char *name, const char *wanted)
{
    size_t a, b;
    if (strcmp(name, wanted) == 0)
        return true;
    return is_part(name, &a) && is_part(wanted, &b) && a == b && strncmp(name, wanted, a) == 0 &&
           strcmp(name + a + 5, wanted + b + 5) == 0;
}

uint64_t pull_list_bytes(const struct pull_list *l)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < l->n_files; i++)
        n += l->files[i].n_bytes == FETCH_UNKNOWN ? 0 : l->files[i].n_bytes;
    return n;
}

/* Returns true when one of the two names is a folder above the other name. */
static bool clash(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b), least = n < m ? n : m;
    return strncmp(a, b, least) == 0 && (n == m || (n < m ? b : a)[least] == '/');
}

static enum status check(const struct pull_list *l, const char *name, uint64_t n_bytes,
                         struct error *err)
{
    if (!model_ref_name_is_safe(name) || strcmp(name, PULLED_MANIFEST) == 0)
        return error_set(err, STATUS_PROTOCOL,
                         "cannot download the model: the server lists a file with an unsafe name, "
                         "which leads out of the folder, is hidden or has control characters");
    if (n_bytes != FETCH_UNKNOWN &&
        (n_bytes > PULL_MAX_FILE_BYTES || pull_list_bytes(l) + n_bytes > MAX_ALL_BYTES))
        return error_set(
            err, STATUS_LIMIT,
            "%s is too large to download: the server reports %llu bytes. Use a smaller model", name,
            (unsigned long long)n_bytes);
    if (l->n_files == PULLED_MAX_FILES)
        return error_set(err, STATUS_LIMIT,
                         "cannot download the model: it has more than %d files, the limit",
                         PULLED_MAX_FILES);
    for (uint32_t i = 0; i < l->n_files; i++)
        if (clash(l->files[i].name, name))
            return error_set(err, STATUS_PROTOCOL,
                             "cannot download the model: the server lists the file %s twice", name);
    return STATUS_OK;
}

enum status pull_list_add(struct pull_list *l, const char *name, char *owned_url, uint64_t n_bytes,
                          struct error *err)
{
    enum status s = check(l, name, n_bytes, err);
    if (s != STATUS_OK) {
        mem_free(owned_url);
        return s;
    }
    if (l->n_files == l->cap) {
        l->cap = l->cap ? l->cap * 2 : 16;
        l->files = mem_realloc(l->files, l->cap * sizeof *l->files);
    }
    l->files[l->n_files++] =
        (struct pull_file){.name = mem_strdup(name), .url = owned_url, .n_bytes = n_bytes};
    return STATUS_OK;
}

static int compare(const void *a, const void *b)
{
    const struct pull_file *x = a, *y = b;
    int by_kind = (int)pull_is_weights(x->name) - (int)pull_is_weights(y->name);
    return by_kind ? by_kind : strcmp(x->name, y->name);
}

void pull_list_finish(struct pull_list *l)
{
    struct strbuf b;
    if (l->n_files > 0)
        qsort(l->files, l->n_files, sizeof *l->files, compare);
    strbuf_init(&b, 0);
    strbuf_append_c(&b, l->commit);
    for (uint32_t i = 0; i < l->n_files; i++) {
        const struct pull_file *f = &l->files[i];
        strbuf_printf(&b, "\n%s\n%llu %s %s %s", f->name, (unsigned long long)f->n_bytes, f->sha256,
                      f->git_id, f->etag);
    }
    struct digest *d = digest_new(DIGEST_SHA256);
    if (!d || !digest_add(d, b.ptr, b.len))
        abort(); /* this OpenSSL has no SHA-256 */
    digest_end(d, l->identity);
    digest_free(d);
    strbuf_fini(&b);
}

void pull_list_fini(struct pull_list *l)
{
    for (uint32_t i = 0; i < l->n_files; i++) {
        mem_free(l->files[i].name);
        mem_free(l->files[i].url);
        mem_free(l->files[i].hub_name);
    }
    mem_free(l->files);
    *l = (struct pull_list){0};
}

/* Lists the files of a model in an S3 bucket, or at a server with S3's API.
 * `pull_s3_list` requests pages of ListObjectsV2, signed when there are keys, and parses each
 * with s3_xml.h. `on_object` adds the files that a model needs.
 * Invariants: the server is not trusted. The number of pages is bounded and `pull_list_add`
 * checks each name. URLs are percent-encoded as the signature requires. The caller owns the
 * list. Calls block the caller's thread, and only one thread makes them. */
#include "cli/pull/sources/s3.h"

#include <stdio.h>
#include <string.h>

#include "cli/pull/files/list.h"
#include "cli/pull/files/source.h"
#include "cli/pull/request/aws_credentials.h"
#include "cli/pull/request/retry.h"
#include "cli/pull/sources/hub.h"
#include "cli/pull/sources/s3_xml.h"
#include "common/base/mem.h"
#include "common/model/info/info.h"

enum { PAGE_MAX_BYTES = 8 << 20, MAX_PAGES = 100 };

struct listing {
    const struct model_ref *r;
    struct pull_list *l;
    char *base;      /* URL of the bucket, without a slash at its end */
    char *prefix;    /* prefix of the keys that are requested */
    size_t n_folder; /* length in bytes of the part of a key in front of the file's name */
    bool has_config, has_safetensors, has_torch;
    unsigned folders; /* mask of the folders in the bucket; bit i = pull_folders[i] exists */
    int n_pages;
};

/* Returns the URL of the bucket. A bucket name with a dot is put into the path, because
 * certificates do not cover it as a host name. */
static char *base_of(const struct model_ref *r, const char *endpoint, const char *region)
{
    struct strbuf b;
    strbuf_init(&b, 0);
    if (endpoint)
        strbuf_printf(&b, "%s/%s", endpoint, r->bucket);
    else if (strchr(r->bucket, '.'))
        strbuf_printf(&b, "https://s3.%s.%s/%s", region, aws_domain(region), r->bucket);
    else
        strbuf_printf(&b, "https://%s.s3.%s.%s", r->bucket, region, aws_domain(region));
    char *out = mem_strdup(strbuf_str(&b).ptr);
    strbuf_fini(&b);
    return out;
}

static bool is_one_gguf(const struct model_ref *r)
{
    size_t n = strlen(r->prefix);
    return n > 5 && strcmp(r->prefix + n - 5, ".gguf") == 0;
}

/* Sets the prefix that all parts of a GGUF share. */
static void set_prefix(struct listing *g)
{
    const char *prefix = g->r->prefix;
    if (is_one_gguf(g->r)) {
        struct str name = model_name_of(prefix);
        g->n_folder = (size_t)(name.ptr - prefix);
        g->prefix = mem_strndup(prefix, g->n_folder + name.len);
        return;
    }
    g->n_folder = prefix[0] ? strlen(prefix) + 1 : 0;
    g->prefix = mem_zalloc(g->n_folder + 1);
    snprintf(g->prefix, g->n_folder + 1, "%s%s", prefix, prefix[0] ? "/" : "");
}

static bool is_wanted(struct listing *g, const char *name)
{
    int kind;
    if (is_one_gguf(g->r))
        return pull_is_of_gguf(name, g->r->prefix + g->n_folder);
    if (!pull_is_wanted(name, &kind))
        return false;
    g->has_config = g->has_config || strcmp(name, "config.json") == 0;
    g->has_safetensors = g->has_safetensors || kind == 1;
    g->has_torch = g->has_torch || kind == 2;
    return true;
}

static bool is_wanted_here(struct listing *g, const char *name)
{
    return is_one_gguf(g->r) ? !strchr(name, '/') && is_wanted(g, name) : is_wanted(g, name);
}

/* Records a folder whose files may be needed, so that a later request lists it. Other folders
 * are not listed. */
static void on_folder(struct listing *g, const char *name)
{
    for (unsigned i = 0; pull_folders[i]; i++)
        if (!is_one_gguf(g->r) && strcmp(name, pull_folders[i]) == 0)
            g->folders |= 1u << i;
}

static enum status on_object(void *ctx, const struct s3_object *o, struct error *err)
{
    struct listing *g = ctx;
    struct strbuf url;
    if (strncmp(o->key, g->prefix, strlen(g->prefix)) != 0)
        return error_set(err, STATUS_PROTOCOL,
                         "cannot download the model: the bucket's list contains keys outside the "
                         "requested folder. Check the endpoint");
    const char *name = o->key + g->n_folder;
    if (o->is_folder)
        on_folder(g, name);
    if (o->is_folder || !is_wanted_here(g, name))
        return STATUS_OK;
    strbuf_init(&url, 0);
    strbuf_printf(&url, "%s/", g->base);
    fetch_append_encoded(&url, o->key, "/");
    char *owned_url = mem_strdup(strbuf_str(&url).ptr);
    strbuf_fini(&url);
    TRY(pull_list_add(g->l, name, owned_url, o->n_bytes, err));
    struct pull_file *f = &g->l->files[g->l->n_files - 1];
    size_t n = strlen(o->etag);
    if (n > 2 && n < sizeof f->etag && o->etag[0] == '"' && !strpbrk(o->etag, "\r\n"))
        memcpy(f->etag, o->etag, n + 1);
    return STATUS_OK;
}

/* Writes the page's URL, with parameters in the order and encoding that the signature requires. */
static void page_url(const struct listing *g, const char *token, struct strbuf *b)
{
    strbuf_reset(b);
    strbuf_printf(b, "%s%s?", g->base, strchr(strstr(g->base, "://") + 3, '/') ? "" : "/");
    if (token[0]) {
        strbuf_append_c(b, "continuation-token=");
        fetch_append_encoded(b, token, "");
        strbuf_append_c(b, "&");
    }
    strbuf_append_c(b, "delimiter=%2F&list-type=2&max-keys=1000&prefix=");
    fetch_append_encoded(b, g->prefix, "");
}

static enum status read_pages(const struct pull_source *source, struct listing *g,
                              struct error *err)
{
    struct s3_page page = {true, ""};
    struct strbuf url, answer;
    enum status s = STATUS_OK;
    strbuf_init(&url, 0);
    strbuf_init(&answer, PAGE_MAX_BYTES);
    for (; s == STATUS_OK && page.is_truncated; g->n_pages++) {
        page_url(g, page.next_token, &url);
        struct aws_keys keys;
        const struct fetch_call call = {.url = strbuf_str(&url).ptr,
                                        .keys = source->aws ? &keys : NULL};
        if (source->aws && (s = aws_credentials_keys(source->aws, &keys, err)) != STATUS_OK)
            break;
        s = g->n_pages == MAX_PAGES
                ? error_set(err, STATUS_LIMIT,
                            "%s: the bucket's list has more than %d pages, the most that cox "
                            "reads. Name a smaller folder",
                            g->r->text, MAX_PAGES)
                : pull_get_text(source->net, &call, &source->words, &answer, err);
        if (s == STATUS_OK) {
            s = s3_xml_read(strbuf_str(&answer), on_object, g, &page, err);
            if (s != STATUS_OK)
                (void)error_prefix(err, s, "%s", g->r->text);
        }
    }
    strbuf_fini(&url);
    strbuf_fini(&answer);
    return s;
}

static enum status read_folders(const struct pull_source *source, struct listing *g,
                                struct error *err)
{
    char *above = g->prefix;
    const unsigned folders = g->folders;
    enum status s = STATUS_OK;
    for (unsigned i = 0; s == STATUS_OK && pull_folders[i]; i++) {
        const size_t size = strlen(above) + strlen(pull_folders[i]) + 1;
        if (!(folders & 1u << i))
            continue;
        g->prefix = mem_zalloc(size);
        snprintf(g->prefix, size, "%s%s", above, pull_folders[i]);
        s = read_pages(source, g, err);
        mem_free(g->prefix);
    }
    g->prefix = above;
    return s;
}

/* Removes the PyTorch files from the list. The caller does this when the bucket also has
 * safetensors files. */
static void drop_torch(struct pull_list *l)
{
    uint32_t kept = 0;
    int kind;
    for (uint32_t i = 0; i < l->n_files; i++) {
        (void)pull_is_wanted(l->files[i].name, &kind);
        if (kind == 2 || strcmp(l->files[i].name, "pytorch_model.bin.index.json") == 0) {
            mem_free(l->files[i].name);
            mem_free(l->files[i].url);
        } else {
            l->files[kept++] = l->files[i];
        }
    }
    l->n_files = kept;
}

enum status pull_s3_list(const struct pull_source *source, const struct model_ref *r,
                         const char *endpoint, const char *region, struct pull_list *l,
                         struct error *err)
{
    struct listing g = {.r = r, .l = l, .base = base_of(r, endpoint, region)};
    set_prefix(&g);
    enum status s = read_pages(source, &g, err);
    if (s == STATUS_OK)
        s = read_folders(source, &g, err);
    mem_free(g.base);
    mem_free(g.prefix);
    TRY(s);
    if (is_one_gguf(r))
        return l->n_files > 0
                   ? STATUS_OK
                   : error_set(err, STATUS_INVALID,
                               "%s: the bucket has no object with this name. Correct the name",
                               r->text);
    if (!g.has_config || (!g.has_safetensors && !g.has_torch))
        return error_set(err, STATUS_INVALID,
                         "%s is not a model folder: it does not directly contain config.json and "
                         "safetensors files. For a GGUF model, name the file",
                         r->text);
    if (g.has_safetensors && g.has_torch)
        drop_torch(l);
    return STATUS_OK;
}

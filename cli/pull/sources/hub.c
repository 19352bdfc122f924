/* Lists the files of a model at Hugging Face's hub, or another server with its API.
 * `pull_hub_list` requests /api/models/REPO and calls `pull_hub_read`. That function parses the
 * JSON, chooses the files that a model needs and adds them to the list. hf_snapshot.c and s3.c
 * share the rules for names.
 * Invariants: the server is not trusted. Names are checked by `pull_list_add`, and hashes and
 * commit must be hexadecimal. The list pins one commit, so files of two revisions are never
 * mixed. The caller owns the list. */
#include "cli/pull/sources/hub.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "cli/pull/files/list.h"
#include "cli/pull/files/source.h"
#include "cli/pull/request/retry.h"
#include "common/base/mem.h"

enum { ANSWER_MAX = 8 << 20, NAMED_GGUFS = 6 };
enum { WEIGHTS_NONE, WEIGHTS_SAFETENSORS, WEIGHTS_TORCH };

static bool has_end(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n > m && strcmp(s + n - m, end) == 0;
}

/* folder of chat templates for tools and retrieval */
#define ADDITIONAL "additional_chat_templates/"
/* folder with an embedding model's pooling settings */
#define POOLING "1_Pooling/"

static const char pooling_config[] = POOLING "config.json";

const char *const pull_folders[] = {ADDITIONAL, POOLING, NULL};

/* Returns false for files called "consolidated.*", because they are a second copy of the weights
 * with another project's names. */
bool pull_is_wanted(const char *name, int *kind)
{
    static const char *const names[] = {"config.json",
                                        "generation_config.json",
                                        "tokenizer.json",
                                        "tokenizer_config.json",
                                        "tokenizer.model",
                                        "special_tokens_map.json",
                                        "vocab.json",
                                        "merges.txt",
                                        "vocab.txt",
                                        "added_tokens.json",
                                        "modules.json",
                                        pooling_config,
                                        "chat_template.jinja",
                                        "chat_template.json",
                                        "model.safetensors.index.json",
                                        "pytorch_model.bin.index.json"};
    *kind = WEIGHTS_NONE;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    if (strncmp(name, ADDITIONAL, sizeof ADDITIONAL - 1) == 0)
        return has_end(name, ".jinja") && !strchr(name + sizeof ADDITIONAL - 1, '/');
    if (strchr(name, '/') || strncmp(name, "consolidated", 12) == 0 ||
        strncmp(name, "adapter_", 8) == 0)
        return false;
    if (has_end(name, ".safetensors"))
        *kind = WEIGHTS_SAFETENSORS;
    else if (has_end(name, ".bin") && strncmp(name, "pytorch_model", 13) == 0)
        *kind = WEIGHTS_TORCH;
    return *kind != WEIGHTS_NONE;
}

/* ---- one file of the answer ---- */

static bool is_hex(const char *s, size_t n)
{
    return s && strlen(s) == n && strspn(s, "0123456789abcdef") == n;
}

static uint64_t size_of(const json_t *o)
{
    const json_t *v = json_object_get(o, "size");
    return json_is_integer(v) && json_integer_value(v) >= 0 ? (uint64_t)json_integer_value(v)
                                                            : FETCH_UNKNOWN;
}

static enum status add(const json_t *o, const char *name, const struct model_ref *r,
                       const char *endpoint, struct pull_list *l, struct error *err)
{
    const json_t *lfs = json_object_get(o, "lfs");
    const char *sha256 = json_string_value(json_object_get(lfs, "sha256")),
               *git_id = json_string_value(json_object_get(o, "blobId"));
    uint64_t n_bytes = size_of(json_is_object(lfs) ? lfs : o);
    /* a GGUF is stored here without its folder at the hub */
    const char *local = strrchr(name, '/');
    struct strbuf url;
    strbuf_init(&url, 0);
    strbuf_printf(&url, "%s/%s/resolve/%s/", endpoint, r->repo, l->commit);
    fetch_append_encoded(&url, name, "/");
    char *owned_url = mem_strdup(strbuf_str(&url).ptr);
    strbuf_fini(&url);
    TRY(pull_list_add(l, r->file && local ? local + 1 : name, owned_url, n_bytes, err));
    struct pull_file *f = &l->files[l->n_files - 1];
    f->hub_name = mem_strdup(name);
    if (json_is_object(lfs)) {
        if (sha256 && !is_hex(sha256, 64))
            return error_set(err, STATUS_PROTOCOL,
                             "cannot download %s: the hub sent an invalid SHA-256 for it. Check "
                             "HF_ENDPOINT, or try again later",
                             f->name);
        memcpy(f->sha256, sha256 ? sha256 : "", sha256 ? 65 : 1);
    } else if (is_hex(git_id, 40) && n_bytes != FETCH_UNKNOWN) {
        memcpy(f->git_id, git_id, 41);
    }
    return STATUS_OK;
}

/* ---- choice of the files ---- */

static const char *name_at(const json_t *siblings, size_t i)
{
    const char *name = json_string_value(json_object_get(json_array_get(siblings, i), "rfilename"));
    return name ? name : "";
}

static int weights_there(const json_t *siblings)
{
    int best = WEIGHTS_NONE, kind;
    for (size_t i = 0; i < json_array_size(siblings); i++)
        if (pull_is_wanted(name_at(siblings, i), &kind) && kind && (!best || kind < best))
            best = kind;
    return best;
}

/* Makes the error for a repository without config.json and safetensors files. The text names
 * GGUF files of the repository, if it has any. */
static enum status no_folder(const json_t *siblings, const struct model_ref *r, struct error *err)
{
    struct strbuf b;
    size_t n_named = 0;
    strbuf_init(&b, 0);
    for (size_t i = 0; i < json_array_size(siblings); i++) {
        const char *name = name_at(siblings, i);
        if (has_end(name, ".gguf") && model_ref_name_is_safe(name) && n_named++ < NAMED_GGUFS)
            strbuf_printf(&b, "%s hf:%s/%s", n_named > 1 ? "," : "", r->repo, name);
    }
    enum status s =
        n_named > 0
            ? error_set(err, STATUS_INVALID,
                        "%s is a collection of GGUF files. Name one of them:%s%s", r->repo, b.ptr,
                        n_named > NAMED_GGUFS ? ", ..." : "")
            : error_set(err, STATUS_INVALID,
                        "%s cannot be served: it has neither config.json with safetensors files "
                        "nor a GGUF file. It is not a language model, or has another format",
                        r->repo);
    strbuf_fini(&b);
    return s;
}

static bool is_chosen(const char *name, const struct model_ref *r, int weights)
{
    int kind;
    if (r->file)
        return pull_is_of_gguf(name, r->file);
    if (!pull_is_wanted(name, &kind) || (kind && kind != weights))
        return false;
    return strcmp(name, weights == WEIGHTS_TORCH ? "model.safetensors.index.json"
                                                 : "pytorch_model.bin.index.json") != 0;
}

static enum status choose(const json_t *siblings, const struct model_ref *r, const char *endpoint,
                          struct pull_list *l, struct error *err)
{
    int weights = weights_there(siblings);
    bool has_config = false;
    for (size_t i = 0; i < json_array_size(siblings); i++) {
        const char *name = name_at(siblings, i);
        has_config = has_config || strcmp(name, "config.json") == 0;
        if (is_chosen(name, r, weights))
            TRY(add(json_array_get(siblings, i), name, r, endpoint, l, err));
    }
    if (r->file && l->n_files == 0)
        return error_set(err, STATUS_INVALID,
                         "%s has no file %s at revision %s. Check the file's name and --revision",
                         r->repo, r->file, r->revision);
    return r->file || (has_config && weights) ? STATUS_OK : no_folder(siblings, r, err);
}

enum status pull_hub_read(struct str json, const struct model_ref *r, const char *endpoint,
                          struct pull_list *l, struct error *err)
{
    json_t *root = json_loadb(json.ptr, json.len, JSON_REJECT_DUPLICATES, NULL);
    const json_t *siblings = json_object_get(root, "siblings");
    const char *commit = json_string_value(json_object_get(root, "sha"));
    enum status s;
    if (!json_is_array(siblings) || !commit || (!is_hex(commit, 40) && !is_hex(commit, 64))) {
        s = error_set(err, STATUS_PROTOCOL,
                      "%s: the hub's answer has no \"sha\" and \"siblings\", so it is not from a "
                      "hub's API. Check HF_ENDPOINT",
                      r->repo);
    } else {
        memcpy(l->commit, commit, strlen(commit) + 1);
        s = choose(siblings, r, endpoint, l, err);
    }
    json_decref(root);
    return s;
}

/* Requests the missing sizes from the server, because some mirrors of the API leave sizes out. */
static enum status ask_sizes(const struct pull_source *source, struct pull_list *l,
                             struct error *err)
{
    for (uint32_t i = 0; i < l->n_files; i++) {
        struct pull_file *f = &l->files[i];
        const struct fetch_call call = {.url = f->url, .bearer = source->bearer};
        struct fetch_answer a;
        if (f->n_bytes != FETCH_UNKNOWN)
            continue;
        TRY(pull_get_size(source->net, &call, &source->words, &a, err));
        if (a.total == FETCH_UNKNOWN || a.total > PULL_MAX_FILE_BYTES)
            return error_set(
                err, STATUS_PROTOCOL,
                "cannot download %s: %s does not report a valid size for the file. Try again later",
                f->name, a.host);
        f->n_bytes = a.total;
    }
    return STATUS_OK;
}

enum status pull_hub_list(const struct pull_source *source, const struct model_ref *r,
                          const char *endpoint, struct pull_list *l, struct error *err)
{
    struct strbuf url, answer;
    strbuf_init(&url, 0);
    strbuf_init(&answer, ANSWER_MAX);
    strbuf_printf(&url, "%s/api/models/%s/revision/", endpoint, r->repo);
    fetch_append_encoded(&url, r->revision, "");
    strbuf_append_c(&url, "?blobs=true");
    const struct fetch_call call = {
        .url = strbuf_str(&url).ptr, .bearer = source->bearer, .accept = "application/json"};
    enum status s = pull_get_text(source->net, &call, &source->words, &answer, err);
    if (s == STATUS_OK)
        s = pull_hub_read(strbuf_str(&answer), r, endpoint, l, err);
    strbuf_fini(&url);
    strbuf_fini(&answer);
    return s == STATUS_OK ? ask_sizes(source, l, err) : s;
}

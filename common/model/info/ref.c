/* Parses the text of --model into a reference. model_ref_parse tries each kind in turn (hub,
 * page of the hub, URL, bucket, demo model, "null", path). The parser of a kind fills the struct
 * and chooses the folder in the cache. The folder's name has a readable part and 48 bits of SHA-256
 * over the normalised reference, so that two references never share a folder. A URL's query is not
 * part of the name and is never shown, because the query may be a secret signature that changes
 * daily. Such a file must be identified by its hash. The text is not trusted: it is checked for
 * length, control characters and "..". The struct owns all strings; on an error it is empty. */
#include "common/model/info/ref.h"

#include <ctype.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/base/str.h"
#include "common/model/gguf/names.h"
#include "common/model/info/demo.h"

enum { NAME_MAX_BYTES = 255, PATH_MAX_BYTES = 512, READABLE_MAX = 64, REPO_PART_MAX = 96 };
static const char gguf[] = ".gguf", sha256_mark[] = "#sha256=";

void model_ref_fini(struct model_ref *r)
{
    char *const owned[] = {r->text, r->path,   r->repo,   r->revision, r->file,  r->url,
                           r->name, r->sha256, r->bucket, r->prefix,   r->folder};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        mem_free(owned[i]);
    *r = (struct model_ref){0};
}

static char *join(const char *a, const char *b, const char *c, const char *d)
{
    struct strbuf s;
    strbuf_init(&s, 0);
    const char *const parts[] = {a, b, c, d};
    for (size_t i = 0; i < 4; i++)
        if (parts[i])
            strbuf_append_c(&s, parts[i]);
    char *out = mem_strndup(s.ptr ? s.ptr : "", s.len);
    strbuf_fini(&s);
    return out;
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n > m && strcmp(s + n - m, end) == 0;
}

static bool is_printable(const char *s)
{
    struct str text = str_from(s);
    for (size_t i = 0; i < text.len; i++)
        if ((unsigned char)s[i] < 0x20 || s[i] == 0x7F ||
            /* the bytes are a C1 control character */
            ((unsigned char)s[i] == 0xC2 && (unsigned char)s[i + 1] < 0xA0))
            return false;
    return str_utf8_valid(text) == text.len;
}

bool model_ref_name_is_safe(const char *name)
{
    size_t n = strlen(name);
    if (n == 0 || n > PATH_MAX_BYTES || !is_printable(name) || strchr(name, '\\'))
        return false;
    for (const char *at = name;; at++) {
        size_t len = strcspn(at, "/");
        if (len == 0 || len > NAME_MAX_BYTES || at[0] == '.')
            return false;
        at += len;
        if (!*at)
            return true;
    }
}

/* ---- the folder in the cache ---- */

static void set_folder(struct model_ref *r, const char *identity)
{
    unsigned char digest[crypto_hash_sha256_BYTES];
    char readable[READABLE_MAX + 1], hex[13];
    size_t n = 0;
    crypto_hash_sha256(digest, (const unsigned char *)identity, strlen(identity));
    (void)sodium_bin2hex(hex, sizeof hex, digest, 6);
    for (const char *c = r->name; *c && n < READABLE_MAX; c++)
        readable[n++] = (char)(isalnum((unsigned char)*c) || strchr("._-", *c) ? *c : '-');
    readable[n] = '\0';
    r->folder = join("models/pulled/", readable[0] == '.' ? "model" : "", readable, NULL);
    char *whole = join(r->folder, "-", hex, NULL);
    mem_free(r->folder);
    r->folder = whole;
}

struct str model_name_of(const char *path)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    size_t begin = n;
    while (begin > 0 && path[begin - 1] != '/')
        begin--;
    struct str base = {path + begin, n - begin};
    return (struct str){base.ptr, gguf_name_length(base)};
}

static char *name_of(const char *path)
{
    struct str name = model_name_of(path);
    return mem_strndup(name.ptr, name.len);
}

/* ---- kinds of references ---- */

/* Accepts one part of ORG/NAME: letters, digits and . _ - without a leading dot or dash. */
static bool is_repo_part(const char *s, size_t n)
{
    if (n == 0 || n > REPO_PART_MAX || s[0] == '.' || s[0] == '-')
        return false;
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)s[i]) && !strchr("._-", s[i]))
            return false;
    return true;
}

static bool is_revision(const char *s)
{
    size_t n = strlen(s);
    if (n == 0 || n > 200 || s[0] == '/' || s[n - 1] == '/' || strstr(s, "..") || strstr(s, "//"))
        return false;
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)s[i]) && !strchr("._-/", s[i]))
            return false;
    return true;
}

/* Accepts exactly ORG/NAME (with @REVISION), which may name a hub's model without "hf:". */
static bool is_plain_hub(const char *text)
{
    const char *at = strchr(text, '@'), *slash = strchr(text, '/');
    size_t n = at ? (size_t)(at - text) : strlen(text);
    if (!slash || (size_t)(slash - text) >= n || (at && !is_revision(at + 1)))
        return false;
    return is_repo_part(text, (size_t)(slash - text)) &&
           is_repo_part(slash + 1, n - (size_t)(slash - text) - 1) && !ends_with(text, gguf);
}

static enum status parse_hub(const char *text, struct model_ref *r, struct error *err)
{
    static const char form[] = "hf:ORG/NAME, hf:ORG/NAME@REVISION or hf:ORG/NAME/FILE.gguf";
    const char *at = strrchr(text, '@');
    char *path = at ? mem_strndup(text, (size_t)(at - text)) : mem_strdup(text);
    char *slash = strchr(path, '/'), *second = slash ? strchr(slash + 1, '/') : NULL;
    bool ok = !at || is_revision(at + 1);
    if (second) {
        *second = '\0';
        r->file = mem_strdup(second + 1);
        ok = ok && model_ref_name_is_safe(r->file) && ends_with(r->file, gguf);
    }
    if (slash)
        ok = ok && is_repo_part(path, (size_t)(slash - path)) &&
             is_repo_part(slash + 1, strlen(slash + 1));
    else
        ok = ok && is_repo_part(path, strlen(path));
    if (ok) {
        r->kind = MODEL_REF_HUB;
        r->repo = mem_strdup(path);
        r->revision = mem_strdup(at ? at + 1 : "main");
        r->name = r->file ? name_of(r->file) : mem_strdup(r->repo);
        char *front = join("hf:", r->repo, r->file ? "/" : NULL, r->file);
        r->text = join(front, "@", r->revision, NULL);
        mem_free(front);
        set_folder(r, r->text);
    }
    mem_free(path);
    return ok ? STATUS_OK
              : error_set(err, STATUS_INVALID,
                          "the model \"hf:%s\" is not valid; a model on the hub has the form %s",
                          text, form);
}

/* Returns the path in the URL of a model's page on the hub, which people copy from a browser.
 * Returns NULL for any other URL. */
static const char *hub_page_path(const char *text)
{
    static const char *const hosts[] = {"https://huggingface.co/", "https://www.huggingface.co/",
                                        "https://hf.co/"};
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++)
        if (strncmp(text, hosts[i], strlen(hosts[i])) == 0)
            return text + strlen(hosts[i]);
    return NULL;
}

/* Converts ORG/NAME, ORG/NAME.git, ORG/NAME/tree/REVISION and ORG/NAME/blob/REVISION/FILE.gguf
 * to the form of parse_hub. The caller frees the result with mem_free. Returns NULL for any
 * other page. */
static char *hub_page_reference(const char *path)
{
    char *copy = mem_strdup(path), *out = NULL;
    size_t n = strcspn(copy, "?#");
    while (n > 0 && copy[n - 1] == '/')
        n--;
    copy[n] = '\0';
    if (ends_with(copy, ".git"))
        copy[n - 4] = '\0';
    char *slash = strchr(copy, '/'), *verb = slash ? strchr(slash + 1, '/') : NULL;
    char *revision = verb ? strchr(verb + 1, '/') : NULL;
    char *file = revision ? strchr(revision + 1, '/') : NULL;
    if (slash && !verb && !ends_with(copy, gguf)) {
        out = mem_strdup(copy);
    } else if (revision && strncmp(verb, "/tree/", 6) == 0) {
        *verb = '\0';
        out = join(copy, "@", revision + 1, NULL);
    } else if (file && strncmp(verb, "/blob/", 6) == 0 && ends_with(file, gguf)) {
        *verb = *file = '\0';
        char *front = join(copy, "/", file + 1, "@");
        out = join(front, revision + 1, NULL, NULL);
        mem_free(front);
    }
    mem_free(copy);
    return out;
}

/* Returns the HEX after #sha256= in lower case, or NULL when the HEX is not valid. */
static char *take_sha256(const char *hex)
{
    char *out = mem_strdup(hex);
    size_t n = 0;
    for (; out[n]; n++)
        out[n] = (char)tolower((unsigned char)out[n]);
    if (n == 64 && strspn(out, "0123456789abcdef") == 64)
        return out;
    mem_free(out);
    return NULL;
}

static enum status parse_url(const char *text, struct model_ref *r, struct error *err)
{
    const char *mark = strchr(text, '#');
    char *url = mark ? mem_strndup(text, (size_t)(mark - text)) : mem_strdup(text);
    /* the query is not shown, because it may be a signature */
    char *shown = mem_strndup(url, strcspn(url, "?"));
    char *path = strchr(strstr(shown, "://") + 3, '/');
    const char *why = NULL;
    if (mark && strncmp(mark, sha256_mark, strlen(sha256_mark)) == 0)
        r->sha256 = take_sha256(mark + strlen(sha256_mark));
    if (mark && !r->sha256)
        why = "# must be followed by sha256= and 64 hexadecimal digits";
    else if (memchr(shown, '@', path ? (size_t)(path - shown) : strlen(shown)))
        why = "a URL must not contain a user or a password, because URLs appear in logs";
    else if (!path || path[-1] == '/' || strpbrk(url, " \"<>\\^`{|}"))
        why = "this is not the URL of a file";
    else if (!ends_with(path, gguf) || !model_ref_name_is_safe(strrchr(path, '/') + 1))
        why = "the URL must name a GGUF file (its path ends in .gguf) or the page of a model on "
              "the hub (https://huggingface.co/ORG/NAME)";
    else if (strncmp(text, "http:", 5) == 0 && !r->sha256)
        why = "a file from http: can be changed on the way. Add #sha256=HEX or use https:";
    else if (strchr(url, '?') && !r->sha256)
        why = "a URL with a query may return different files at different times. Add #sha256=HEX";
    if (!why) {
        r->kind = MODEL_REF_URL;
        r->file = mem_strdup(strrchr(path, '/') + 1);
        r->name = name_of(r->file);
        char *identity = join(shown, mark ? sha256_mark : NULL, r->sha256, NULL);
        set_folder(r, identity);
        mem_free(identity);
        r->url = url;
        r->text = shown;
        return STATUS_OK;
    }
    enum status s =
        error_set(err, STATUS_INVALID, "the model \"%.200s\" is not valid: %s", shown, why);
    mem_free(url);
    mem_free(shown);
    return s;
}

static enum status parse_s3(const char *text, struct model_ref *r, struct error *err)
{
    const char *begin = text + strlen("s3://"), *slash = strchr(begin, '/');
    size_t n = slash ? (size_t)(slash - begin) : strlen(begin);
    size_t n_prefix = slash ? strlen(slash + 1) : 0;
    while (n_prefix > 0 && slash[n_prefix] == '/')
        n_prefix--;
    char *prefix = n_prefix ? mem_strndup(slash + 1, n_prefix) : mem_strdup("");
    if (n < 3 || n > 63 || !is_repo_part(begin, n) ||
        (n_prefix > 0 && !model_ref_name_is_safe(prefix))) {
        mem_free(prefix);
        return error_set(err, STATUS_INVALID,
                         "the model \"%.200s\" is not valid; a model in a bucket has the form "
                         "s3://BUCKET/FOLDER or s3://BUCKET/FOLDER/FILE.gguf",
                         text);
    }
    r->kind = MODEL_REF_S3;
    r->bucket = mem_strndup(begin, n);
    r->prefix = prefix;
    r->name = name_of(n_prefix ? prefix : r->bucket);
    char *front = join("s3://", r->bucket, n_prefix ? "/" : NULL, prefix);
    r->text = front;
    set_folder(r, front);
    return STATUS_OK;
}

static enum status parse_known(const char *text, struct model_ref *r, struct error *err)
{
    if (strncmp(text, "hf:", 3) == 0)
        return parse_hub(text + 3, r, err);
    char *page = hub_page_path(text) ? hub_page_reference(hub_page_path(text)) : NULL;
    if (page) {
        enum status s = parse_hub(page, r, err);
        mem_free(page);
        return s;
    }
    if (strncmp(text, "https://", 8) == 0 || strncmp(text, "http://", 7) == 0)
        return parse_url(text, r, err);
    if (strncmp(text, "s3://", 5) == 0)
        return parse_s3(text, r, err);
    if (strcmp(text, "null") == 0 || demo_model_find(text)) {
        r->kind = *text == 'n' ? MODEL_REF_NULL : MODEL_REF_DEMO;
        r->text = mem_strdup(text);
        r->name = mem_strdup(text);
        return STATUS_OK;
    }
    if (is_plain_hub(text)) {
        r->is_plain = true;
        return parse_hub(text, r, err);
    }
    if (strncmp(text, "file://", 7) == 0 && text[7] != '/')
        return error_set(err, STATUS_INVALID,
                         "the model \"%.200s\" is not valid; a file of this machine has the form "
                         "file:PATH or file:///PATH",
                         text);
    if (strncmp(text, "file:", 5) == 0)
        text += strncmp(text, "file://", 7) == 0 ? 7 : 5;
    r->kind = MODEL_REF_PATH;
    r->path = mem_strdup(text);
    r->text = mem_strdup(text);
    r->name = name_of(text);
    return *text ? STATUS_OK
                 : error_set(err, STATUS_INVALID, "the name of the model is empty. Give a name");
}

enum status model_ref_parse(const char *text, struct model_ref *out, struct error *err)
{
    *out = (struct model_ref){0};
    bool is_remote = strncmp(text, "hf:", 3) == 0 || strstr(text, "://") != NULL;
    if (is_remote && strlen(text) > MODEL_REF_MAX_BYTES)
        return error_set(
            err, STATUS_INVALID,
            "the name of the model is longer than %d bytes, the limit. Use a shorter name",
            MODEL_REF_MAX_BYTES);
    if (is_remote && !is_printable(text))
        return error_set(
            err, STATUS_INVALID,
            "the name of the model contains control characters or is not UTF-8. Correct the name");
    enum status s = parse_known(text, out, err);
    if (s != STATUS_OK)
        model_ref_fini(out);
    return s;
}

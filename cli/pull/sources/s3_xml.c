/* Reads pages of S3's ListObjectsV2 with a strict XML reader (s3_xml.h has the format).
 * `s3_xml_read` walks the document once. At the end of each object or folder it calls
 * `on_object`. The token of the next page is stored in `struct s3_page`.
 * Invariants: the server is not trusted. Depth, names, texts and numbers are bounded by arrays
 * in `struct reader`, and anything outside the accepted subset of XML ends the read with
 * STATUS_PROTOCOL. It allocates nothing. All functions are pure, except for the callback. */
#include "cli/pull/sources/s3_xml.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { MAX_DEPTH = 6, MAX_NAME = 48, MAX_TEXT = 2047, MAX_ATTRIBUTES = 8 };

struct reader {
    const char *at, *end;
    char names[MAX_DEPTH][MAX_NAME + 1];
    int depth;
    /* text of the innermost element after its start tag or its last child */
    char text[MAX_TEXT + 1];
    size_t n_text;
    /* values of the current Contents element */
    char key[S3_KEY_MAX + 1], etag[136];
    uint64_t n_bytes;
    bool has_key, has_size;
    struct s3_page *page;
    enum status (*on_object)(void *ctx, const struct s3_object *o, struct error *err);
    void *ctx;
    struct error *err;
};

static enum status wrong(struct reader *r, const char *what)
{
    return error_set(r->err, STATUS_PROTOCOL, "cannot read the bucket's list (XML): %s", what);
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static void skip_space(struct reader *r)
{
    while (r->at < r->end && is_space(*r->at))
        r->at++;
}

static bool take(struct reader *r, const char *text)
{
    size_t n = strlen(text);
    if ((size_t)(r->end - r->at) < n || memcmp(r->at, text, n) != 0)
        return false;
    r->at += n;
    return true;
}

/* ---- text ---- */

static enum status put(struct reader *r, const char *bytes, size_t n)
{
    if (n > MAX_TEXT - r->n_text)
        return wrong(r, "a text is too long");
    memcpy(r->text + r->n_text, bytes, n);
    r->n_text += n;
    return STATUS_OK;
}

/* Appends the code point of a numeric entity as UTF-8. XML allows neither zero nor surrogates. */
static enum status put_code_point(struct reader *r, uint32_t c)
{
    char u[4];
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    if (c == 0 || c > 0x10FFFF || (c >= 0xD800 && c < 0xE000))
        return wrong(r, "an entity is not a valid character");
    static const unsigned char lead[] = {0, 0, 0xC0, 0xE0, 0xF0};
    for (size_t i = n; i > 1; i--, c >>= 6)
        u[i - 1] = (char)(0x80 | (c & 0x3F));
    u[0] = (char)(lead[n] | c);
    return put(r, u, n);
}

static enum status read_entity(struct reader *r)
{
    static const struct {
        const char *name, *text;
    } named[] = {{"amp;", "&"}, {"lt;", "<"}, {"gt;", ">"}, {"quot;", "\""}, {"apos;", "'"}};
    for (size_t i = 0; i < sizeof named / sizeof *named; i++)
        if (take(r, named[i].name))
            return put(r, named[i].text, 1);
    if (!take(r, "#"))
        return wrong(r, "an entity is unknown");
    uint32_t base = take(r, "x") ? 16 : 10, c = 0;
    const char *begin = r->at;
    for (; r->at < r->end && isxdigit((unsigned char)*r->at) && r->at - begin < 8; r->at++) {
        uint32_t digit =
            (uint32_t)(isdigit((unsigned char)*r->at) ? *r->at - '0'
                                                      : tolower((unsigned char)*r->at) - 'a' + 10);
        if (digit >= base || c > 0x10FFFF)
            return wrong(r, "an entity is not a valid character");
        c = c * base + digit;
    }
    if (r->at == begin || !take(r, ";"))
        return wrong(r, "an entity does not end");
    return put_code_point(r, c);
}

static enum status read_text(struct reader *r)
{
    while (r->at < r->end && *r->at != '<') {
        unsigned char c = (unsigned char)*r->at;
        if (c == '&') {
            r->at++;
            TRY(read_entity(r));
        } else if (c < 0x20 && !is_space((char)c)) {
            return wrong(r, "it contains a control character");
        } else {
            TRY(put(r, r->at++, 1));
        }
    }
    return STATUS_OK;
}

/* ---- meaning of the elements ---- */

static bool is_at(const struct reader *r, int depth, const char *name)
{
    return r->depth == depth && strcmp(r->names[depth - 1], name) == 0;
}

static bool in_contents(const struct reader *r)
{
    return r->depth == 3 && strcmp(r->names[1], "Contents") == 0;
}

static enum status end_of_child(struct reader *r)
{
    if (strcmp(r->names[2], "Key") == 0) {
        if (r->has_key || r->n_text == 0 || r->n_text > S3_KEY_MAX)
            return wrong(r, "a Key");
        memcpy(r->key, r->text, r->n_text + 1);
        r->has_key = true;
    } else if (strcmp(r->names[2], "Size") == 0) {
        if (r->has_size || str_to_u64((struct str){r->text, r->n_text}, &r->n_bytes) != STATUS_OK)
            return wrong(r, "a Size");
        r->has_size = true;
    } else if (strcmp(r->names[2], "ETag") == 0 && r->n_text < sizeof r->etag) {
        memcpy(r->etag, r->text, r->n_text + 1);
    }
    return STATUS_OK;
}

static enum status end_of_contents(struct reader *r)
{
    if (!r->has_key || !r->has_size)
        return wrong(r, "an object has no Key or no Size");
    const struct s3_object o = {.key = r->key, .etag = r->etag, .n_bytes = r->n_bytes};
    enum status s = r->on_object(r->ctx, &o, r->err);
    r->has_key = r->has_size = false;
    r->etag[0] = '\0';
    return s;
}

static enum status end_of_prefix(struct reader *r)
{
    if (r->n_text == 0 || r->n_text > S3_KEY_MAX)
        return wrong(r, "a Prefix");
    const struct s3_object o = {.key = r->text, .etag = "", .is_folder = true};
    return r->on_object(r->ctx, &o, r->err);
}

static enum status on_end(struct reader *r)
{
    r->text[r->n_text] = '\0';
    if (memchr(r->text, '\0', r->n_text))
        return wrong(r, "it contains a zero byte");
    if (is_at(r, 3, "Prefix") && strcmp(r->names[1], "CommonPrefixes") == 0)
        return end_of_prefix(r);
    if (in_contents(r))
        return end_of_child(r);
    if (is_at(r, 2, "Contents"))
        return end_of_contents(r);
    if (is_at(r, 2, "IsTruncated")) {
        r->page->is_truncated = strcmp(r->text, "true") == 0;
        return r->page->is_truncated || strcmp(r->text, "false") == 0
                   ? STATUS_OK
                   : wrong(r, "IsTruncated is neither true nor false");
    }
    if (is_at(r, 2, "NextContinuationToken"))
        memcpy(r->page->next_token, r->text, r->n_text + 1);
    return STATUS_OK;
}

/* ---- elements ---- */

static enum status read_name(struct reader *r, char *out)
{
    size_t n = 0;
    while (r->at < r->end && (isalnum((unsigned char)*r->at) || strchr("_:.-", *r->at)) && *r->at) {
        if (n == MAX_NAME)
            return wrong(r, "an element's name is too long");
        out[n++] = *r->at++;
    }
    out[n] = '\0';
    return n > 0 ? STATUS_OK : wrong(r, "an element has no name");
}

static enum status skip_attributes(struct reader *r)
{
    char name[MAX_NAME + 1];
    for (int i = 0;; i++) {
        skip_space(r);
        if (r->at == r->end || *r->at == '>' || *r->at == '/')
            return STATUS_OK;
        if (i == MAX_ATTRIBUTES)
            return wrong(r, "an element has too many attributes");
        TRY(read_name(r, name));
        int quote = r->end - r->at > 1 && *r->at == '=' ? r->at[1] : 0;
        if (quote != '"' && quote != '\'')
            return wrong(r, "an attribute has no value");
        const char *end = memchr(r->at + 2, quote, (size_t)(r->end - r->at - 2));
        if (!end || memchr(r->at, '<', (size_t)(end - r->at)))
            return wrong(r, "an attribute does not end");
        r->at = end + 1;
    }
}

static enum status read_end(struct reader *r)
{
    char name[MAX_NAME + 1];
    TRY(read_name(r, name));
    skip_space(r);
    if (!take(r, ">") || r->depth == 0 || strcmp(name, r->names[r->depth - 1]) != 0)
        return wrong(r, "an end tag has no start tag");
    TRY(on_end(r));
    r->depth--;
    r->n_text = 0;
    return STATUS_OK;
}

/* Reads the start tag of an element. The "<" has been read. */
static enum status read_begin(struct reader *r)
{
    if (r->depth == MAX_DEPTH)
        return wrong(r, "too deep");
    TRY(read_name(r, r->names[r->depth]));
    TRY(skip_attributes(r));
    r->depth++;
    r->n_text = 0;
    if (r->depth == 1 && strcmp(r->names[0], "ListBucketResult") != 0)
        return wrong(r, "the root element is not ListBucketResult");
    if (take(r, "/>")) {
        TRY(on_end(r));
        r->depth--;
    } else if (!take(r, ">")) {
        return wrong(r, "an element does not end");
    }
    return STATUS_OK;
}

static enum status read_document(struct reader *r)
{
    if (take(r, "<?xml ")) {
        const char *end = memmem(r->at, (size_t)(r->end - r->at), "?>", 2);
        if (!end)
            return wrong(r, "its first line does not end");
        r->at = end + 2;
    }
    skip_space(r);
    do {
        if (!take(r, "<"))
            return wrong(r, "the document ends before its last element is complete");
        TRY(take(r, "/") ? read_end(r) : read_begin(r));
        if (r->depth > 0)
            TRY(read_text(r));
    } while (r->depth > 0);
    skip_space(r);
    return r->at == r->end ? STATUS_OK : wrong(r, "there is more text after the root element");
}

enum status s3_xml_read(struct str xml,
                        enum status (*on_object)(void *ctx, const struct s3_object *o,
                                                 struct error *err),
                        void *ctx, struct s3_page *page, struct error *err)
{
    struct reader r = {.at = xml.ptr,
                       .end = xml.ptr + xml.len,
                       .page = page,
                       .on_object = on_object,
                       .ctx = ctx,
                       .err = err};
    *page = (struct s3_page){false, ""};
    if (str_utf8_valid(xml) != xml.len)
        return wrong(&r, "the document is not UTF-8");
    TRY(read_document(&r));
    return !page->is_truncated || page->next_token[0]
               ? STATUS_OK
               : wrong(&r, "the list is truncated but has no continuation token");
}

/* Makes the HTTP GETs of `cox pull`. fetch_get takes a URL with optional credentials and a byte
 * range. The caller's on_data gets the body piece by piece, and fetch_answer has the headers.
 * follow() performs the hops of a redirect, one libcurl transfer each.
 * Credentials are sent only to the origin of the first URL, and a redirect from https to http is
 * refused. Headers are bounded by MAX_HEADERS, redirects by MAX_REDIRECTS, an error's body by
 * PROBLEM_MAX. All state is on the caller's stack or in its fetch_session, so each thread needs
 * its own session. */
#include "common/http/client/fetch.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include <curl/curl.h>

#include "common/base/mem.h"
#include "common/base/version.h"
#include "common/http/client/roots.h"

enum { MAX_REDIRECTS = 8, MAX_HEADERS = 64 << 10, CONNECT_TIMEOUT_MS = 15000, PROBLEM_MAX = 4096 };

struct origin {
    char scheme[8], host[128], port[8];
};

struct fetch_session {
    CURL *curl;
};

/* `transfer` is the state of one hop: a request and its answer, which may be a redirect. */
struct transfer {
    const struct fetch_net *net;
    const struct fetch_call *call;
    struct fetch_answer *answer;
    CURL *curl;
    struct strbuf problem; /* body of an error answer, cut at PROBLEM_MAX */
    size_t header_bytes;
    bool has_begun, is_stopped;
};

void fetch_append_encoded(struct strbuf *b, const char *s, const char *keep)
{
    for (; *s; s++)
        if (isalnum((unsigned char)*s) || strchr("-._~", *s) || strchr(keep, *s))
            strbuf_append(b, s, 1);
        else
            strbuf_printf(b, "%%%02X", (unsigned char)*s);
}

struct fetch_session *fetch_session_new(void)
{
    CURL *curl = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK ? curl_easy_init() : NULL;
    if (!curl)
        return NULL;
    struct fetch_session *s = mem_zalloc(sizeof *s);
    s->curl = curl;
    return s;
}

void fetch_session_free(struct fetch_session *s)
{
    if (s)
        curl_easy_cleanup(s->curl);
    mem_free(s);
}

/* ---- URLs ---- */

static bool part_of(CURLU *u, CURLUPart part, unsigned flags, char *out, size_t size)
{
    char *text = NULL;
    if (curl_url_get(u, part, &text, flags) != CURLUE_OK)
        return false;
    bool fits = strlen(text) < size;
    if (fits)
        memcpy(out, text, strlen(text) + 1);
    curl_free(text);
    return fits;
}

static bool origin_of(const char *url, struct origin *o)
{
    CURLU *u = curl_url();
    char user[8];
    bool ok = u && curl_url_set(u, CURLUPART_URL, url, 0) == CURLUE_OK &&
              part_of(u, CURLUPART_SCHEME, 0, o->scheme, sizeof o->scheme) &&
              part_of(u, CURLUPART_HOST, 0, o->host, sizeof o->host) &&
              part_of(u, CURLUPART_PORT, CURLU_DEFAULT_PORT, o->port, sizeof o->port) &&
              (strcmp(o->scheme, "https") == 0 || strcmp(o->scheme, "http") == 0) &&
              !part_of(u, CURLUPART_USER, 0, user, sizeof user);
    curl_url_cleanup(u);
    for (char *c = o->host; ok && *c; c++)
        *c = (char)tolower((unsigned char)*c);
    return ok;
}

static bool same_origin(const struct origin *a, const struct origin *b)
{
    return strcmp(a->scheme, b->scheme) == 0 && strcmp(a->host, b->host) == 0 &&
           strcmp(a->port, b->port) == 0;
}

enum status fetch_check_endpoint(const char *option, const char *url, struct error *err)
{
    struct origin o;
    if (!origin_of(url, &o) || strpbrk(url, "?# \r\n"))
        return error_set(
            err, STATUS_INVALID,
            "%s must be https://HOST or https://HOST/PATH, without a user name or a query", option);
    return STATUS_OK;
}

bool fetch_same_origin(const char *url, const char *other)
{
    struct origin a, b;
    return origin_of(url, &a) && origin_of(other, &b) && same_origin(&a, &b);
}

char *fetch_take_user(char *url)
{
    char *begin = strstr(url, "://");
    char *host = begin ? begin + 3 : url, *at = host + strcspn(host, "/?#");
    while (at > host && *at != '@') /* the loop finds the last '@' of the authority */
        at--;
    if (*at != '@')
        return NULL;
    *at = '\0';
    int n = 0;
    char *decoded = curl_easy_unescape(NULL, host, 0, &n);
    char *user = decoded && (size_t)n == strlen(decoded) ? mem_strdup(decoded) : mem_strdup("");
    curl_free(decoded);
    memmove(host, at + 1, strlen(at + 1) + 1);
    return user;
}

char *fetch_resolve(const char *url, const char *link)
{
    CURLU *u = curl_url();
    char *text = NULL, *out = NULL;
    if (u && curl_url_set(u, CURLUPART_URL, url, 0) == CURLUE_OK &&
        curl_url_set(u, CURLUPART_URL, link, 0) == CURLUE_OK &&
        curl_url_get(u, CURLUPART_URL, &text, 0) == CURLUE_OK)
        out = mem_strdup(text);
    curl_free(text);
    curl_url_cleanup(u);
    return out;
}

/* ---- the answer's head and body ---- */

static bool header_is(struct str line, const char *name, struct str *value)
{
    size_t n = strlen(name);
    if (line.len <= n || line.ptr[n] != ':' || strncasecmp(line.ptr, name, n) != 0)
        return false;
    const char *at = line.ptr + n + 1, *end = line.ptr + line.len;
    while (at < end && (*at == ' ' || *at == '\t'))
        at++;
    while (end > at && (end[-1] == '\r' || end[-1] == '\n' || end[-1] == ' '))
        end--;
    *value = (struct str){at, (size_t)(end - at)};
    return true;
}

/* Reads a Content-Range such as "bytes 5-9/10". Any other value leaves the answer unchanged. */
static void read_range(struct str v, struct fetch_answer *a)
{
    char text[80];
    unsigned long long begin, end, total;
    int n = 0;
    snprintf(text, sizeof text, STR_FMT, STR_ARG(v));
    if (v.len < sizeof text &&
        sscanf(text, "bytes %llu-%llu/%llu%n", &begin, &end, &total, &n) == 3 && text[n] == '\0' &&
        begin <= end && end < total) {
        a->begin = begin;
        a->total = total;
    }
}

static size_t on_header(char *data, size_t size, size_t n, void *ctx)
{
    struct transfer *t = ctx;
    struct str line = {data, size * n}, v;
    t->header_bytes += line.len;
    if (t->header_bytes > MAX_HEADERS)
        return 0;
    /* a status line begins a new answer; an answer of a proxy or a 1xx may precede the final
     * answer */
    if (str_starts(line, STR("HTTP/"))) {
        t->answer->begin = 0;
        t->answer->total = FETCH_UNKNOWN;
        t->answer->etag[0] = '\0';
    } else if (header_is(line, "Content-Range", &v)) {
        read_range(v, t->answer);
    } else if (header_is(line, "ETag", &v) && v.len > 2 && v.ptr[0] == '"' &&
               v.len < sizeof t->answer->etag) {
        memcpy(t->answer->etag, v.ptr, v.len);
        t->answer->etag[v.len] = '\0';
    }
    return line.len;
}

static bool begin(struct transfer *t)
{
    struct fetch_answer *a = t->answer;
    curl_off_t length = -1;
    t->has_begun = true;
    (void)curl_easy_getinfo(t->curl, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    if (a->code == 200) {
        a->begin = 0;
        a->total = length >= 0 ? (uint64_t)length : FETCH_UNKNOWN;
    }
    return !t->call->on_begin || t->call->on_begin(t->call->ctx, a);
}

static int code_of(CURL *curl)
{
    long code = 0;
    (void)curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &code);
    return (int)code;
}

static size_t on_body(char *data, size_t size, size_t n, void *ctx)
{
    struct transfer *t = ctx;
    struct str piece = {data, size * n};
    t->answer->code = code_of(t->curl);
    if (t->answer->code != 200 && t->answer->code != 206) {
        if (t->problem.len < PROBLEM_MAX) /* the first bytes of an error's body are enough */
            strbuf_append(&t->problem, piece.ptr,
                          piece.len < PROBLEM_MAX ? piece.len : PROBLEM_MAX);
        return piece.len;
    }
    bool ok = (t->has_begun || begin(t)) && t->call->on_data(t->call->ctx, piece);
    t->is_stopped = !ok;
    return ok ? piece.len : 0;
}

static int on_progress(void *ctx, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
    struct transfer *t = ctx;
    t->is_stopped = t->is_stopped || fetch_is_stopped(t->net);
    return t->is_stopped;
}

/* Extracts the <Code> of an S3 error. Only letters and digits are accepted. */
static void read_problem(struct transfer *t)
{
    const char *at = t->problem.len ? strstr(t->problem.ptr, "<Code>") : NULL;
    size_t n =
        at ? strspn(at + 6, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789") : 0;
    t->answer->problem[0] = '\0';
    if (n > 0 && n < sizeof t->answer->problem && strncmp(at + 6 + n, "</Code>", 7) == 0)
        snprintf(t->answer->problem, sizeof t->answer->problem, "%.*s", (int)n, at + 6);
}

/* ---- one hop ---- */

/* Returns true when the host is this machine. The environment's proxy is only for other
 * machines. */
static bool is_local(const struct origin *o)
{
    return strncmp(o->host, "127.", 4) == 0 || strcmp(o->host, "localhost") == 0 ||
           strcmp(o->host, "[::1]") == 0;
}

static struct curl_slist *add(struct curl_slist *list, const char *name, const char *value)
{
    struct strbuf b;
    strbuf_init(&b, 0);
    strbuf_printf(&b, "%s: %s", name, value);
    list = curl_slist_append(list, strbuf_str(&b).ptr);
    strbuf_fini(&b);
    return list;
}

/* Adds an AWS signature, made with the current time. */
static struct curl_slist *add_signature(struct curl_slist *list, const char *url,
                                        const struct origin *o, const struct aws_keys *keys)
{
    struct strbuf path, host, value;
    char date[AWS_DATE_BYTES];
    struct tm tm;
    time_t now = time(NULL);
    strbuf_init(&path, 0);
    strbuf_init(&host, 0);
    strbuf_init(&value, 0);
    (void)strftime(date, sizeof date, "%Y%m%dT%H%M%SZ", gmtime_r(&now, &tm));
    const char *begin = strstr(url, "://") + 3, *query = strchr(url, '?');
    size_t n = strcspn(begin, "/?");
    strbuf_append(&path, begin + n, strcspn(begin + n, "?"));
    bool is_usual = strcmp(o->port, strcmp(o->scheme, "https") == 0 ? "443" : "80") == 0;
    strbuf_printf(&host, "%s%s%s", o->host, is_usual ? "" : ":", is_usual ? "" : o->port);
    aws_sign(keys, host.ptr, path.len ? path.ptr : "/", query ? query + 1 : "", date, &value);
    list = add(list, "Host", host.ptr);
    list = add(list, "Authorization", value.ptr);
    list = add(list, "x-amz-date", date);
    list = add(list, "x-amz-content-sha256", AWS_EMPTY_SHA256);
    if (keys->session)
        list = add(list, "x-amz-security-token", keys->session);
    strbuf_fini(&path);
    strbuf_fini(&host);
    strbuf_fini(&value);
    return list;
}

/* Sets the headers for `url`, with origin `o`. Credentials are added only when is_own_host says
 * that `o` is the origin of the call's own URL. */
static struct curl_slist *set_headers(const struct transfer *t, const char *url,
                                      const struct origin *o, bool is_own_host)
{
    const struct fetch_call *c = t->call;
    struct curl_slist *list = NULL;
    char range[48];
    if (c->accept)
        list = add(list, "Accept", c->accept);
    if (c->if_range)
        list = add(list, "If-Range", c->if_range);
    if (is_own_host && c->bearer) {
        struct strbuf b;
        strbuf_init(&b, 0);
        strbuf_printf(&b, "Bearer %s", c->bearer);
        list = add(list, "Authorization", strbuf_str(&b).ptr);
        strbuf_fini(&b);
    }
    if (is_own_host && c->user) {
        curl_easy_setopt(t->curl, CURLOPT_HTTPAUTH, (long)CURLAUTH_BASIC);
        curl_easy_setopt(t->curl, CURLOPT_USERPWD, c->user);
    }
    if (is_own_host && c->keys)
        list = add_signature(list, url, o, c->keys);
    if (c->first_byte_only || c->from > 0 || c->to > 0) {
        unsigned long long from = c->from, last = c->to > 0 ? c->to - 1 : 0;
        if (c->first_byte_only || c->to > 0)
            snprintf(range, sizeof range, "%llu-%llu", from, last);
        else
            snprintf(range, sizeof range, "%llu-", from);
        curl_easy_setopt(t->curl, CURLOPT_RANGE, range); /* libcurl copies the text */
    }
    curl_easy_setopt(t->curl, CURLOPT_HTTPHEADER, list);
    return list;
}

static void set_options(struct transfer *t, const char *url, const struct origin *o)
{
    CURL *curl = t->curl;
    long stall_s = t->net->stall_s < 1 ? 1 : (long)t->net->stall_s;
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_PATH_AS_IS, 1L); /* the signature covers the path unchanged */
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "cox/" COX_VERSION);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_BUFFERSIZE, 256L << 10);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_TIMEOUT_MS);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, stall_s);
    curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(curl, CURLOPT_HEADERDATA, t);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, t);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, t);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    const char *ca_file = t->net->ca_file ? t->net->ca_file : roots_for_curl();
    if (ca_file)
        curl_easy_setopt(curl, CURLOPT_CAINFO, ca_file);
    if (is_local(o))
        curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
}

static enum status describe(CURLcode rc, const struct transfer *t, const char *url,
                            struct error *err)
{
    const char *host = t->answer->host, *why = curl_easy_strerror(rc);
    if (t->is_stopped || rc == CURLE_ABORTED_BY_CALLBACK)
        return error_set(err, STATUS_CLOSED, "the transfer from %s was stopped", host);
    switch (rc) {
    case CURLE_OPERATION_TIMEDOUT:
        return error_set(
            err, STATUS_TIMEOUT,
            "%s sent no data for too long (%s). Check the network, then run the same command again",
            host, why);
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_CONNECT:
        return error_set(
            err, STATUS_IO,
            "cannot reach %s (%s). Check the network; if a proxy is needed, set HTTPS_PROXY", host,
            why);
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
        return error_set(err, STATUS_DENIED,
                         "the certificate of %s is not trusted (%s). Give the certificate of its "
                         "authority with --cacert FILE or SSL_CERT_FILE",
                         host, why);
    case CURLE_SSL_CONNECT_ERROR:
        return error_set(err, STATUS_IO,
                         "the TLS handshake with %s failed (%s). Check that the server uses https",
                         host, why);
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
        return error_set(err, STATUS_INVALID, "the URL %.*s is not valid (%s)",
                         (int)strcspn(url, "?"), url, why);
    default:
        return error_set(err, STATUS_IO, "the request to %s failed: %s", host, why);
    }
}

static bool is_redirect(int code)
{
    return code == 301 || code == 302 || code == 303 || code == 307 || code == 308;
}

/* Sends one request and reads its answer. *next is the target of a redirect (the caller frees it
 * with mem_free), or NULL when this was the final answer. */
static enum status hop(struct transfer *t, const char *url, const struct origin *o,
                       bool is_own_host, char **next, struct error *err)
{
    curl_off_t wait = 0;
    *next = NULL;
    t->curl = t->call->session ? t->call->session->curl : curl_easy_init();
    if (!t->curl)
        return error_set(err, STATUS_INTERNAL,
                         "cannot fetch files: there is not enough memory for libcurl");
    curl_easy_reset(t->curl); /* the reset keeps the open connections */
    t->has_begun = t->is_stopped = false;
    t->header_bytes = 0;
    strbuf_reset(&t->problem);
    snprintf(t->answer->host, sizeof t->answer->host, "%s", o->host);
    set_options(t, url, o);
    struct curl_slist *headers = set_headers(t, url, o, is_own_host);
    CURLcode rc = curl_easy_perform(t->curl);
    enum status s = rc == CURLE_OK ? STATUS_OK : describe(rc, t, url, err);
    t->answer->code = code_of(t->curl);
    (void)curl_easy_getinfo(t->curl, CURLINFO_RETRY_AFTER, &wait);
    t->answer->retry_after_s = wait > 0 && wait < 86400 ? (uint32_t)wait : 0;
    if (s == STATUS_OK && !t->has_begun && (t->answer->code == 200 || t->answer->code == 206) &&
        !begin(t)) /* the body is empty when on_body was not called */
        s = error_set(err, STATUS_CLOSED, "the transfer from %s was stopped", t->answer->host);
    char *to = NULL;
    if (s == STATUS_OK && is_redirect(t->answer->code) &&
        curl_easy_getinfo(t->curl, CURLINFO_REDIRECT_URL, &to) == CURLE_OK && to)
        *next = mem_strdup(to);
    read_problem(t);
    curl_easy_setopt(t->curl, CURLOPT_HTTPHEADER, NULL);
    curl_slist_free_all(headers);
    if (!t->call->session)
        curl_easy_cleanup(t->curl);
    return s;
}

static enum status follow(struct transfer *t, struct error *err)
{
    char *url = mem_strdup(t->call->url), *next = NULL;
    struct origin first, here;
    enum status s =
        origin_of(url, &first)
            ? STATUS_OK
            : error_set(err, STATUS_INVALID,
                        "the given URL is not a valid http:// or https:// URL. Correct it");
    here = first;
    for (int i = 0; s == STATUS_OK; i++) {
        s = hop(t, url, &here, same_origin(&here, &first), &next, err);
        if (s != STATUS_OK || !next)
            break;
        mem_free(url);
        url = next;
        next = NULL;
        char from_host[sizeof here.host];
        bool was_https = strcmp(here.scheme, "https") == 0;
        memcpy(from_host, here.host, sizeof from_host);
        if (!origin_of(url, &here))
            s = error_set(err, STATUS_INVALID,
                          "the request failed: %s redirects to an address that is not valid",
                          from_host);
        else if (was_https && strcmp(here.scheme, "https") != 0)
            s = error_set(err, STATUS_DENIED,
                          "the request failed: %s redirects from https to http, which is not "
                          "followed because it is not secure",
                          from_host);
        else if (i == MAX_REDIRECTS)
            s = error_set(err, STATUS_INVALID,
                          "the request failed: %s redirects more than %d times", from_host,
                          MAX_REDIRECTS);
    }
    mem_free(next);
    mem_free(url);
    return s;
}

static bool holds_line_break(const char *s)
{
    return s && strpbrk(s, "\r\n");
}

enum status fetch_get(const struct fetch_net *net, const struct fetch_call *c,
                      struct fetch_answer *out, struct error *err)
{
    struct transfer t = {.net = net, .call = c, .answer = out};
    *out = (struct fetch_answer){.total = FETCH_UNKNOWN};
    if (holds_line_break(c->bearer) || holds_line_break(c->user) ||
        (c->keys && (holds_line_break(c->keys->id) || holds_line_break(c->keys->secret) ||
                     holds_line_break(c->keys->session))))
        return error_set(err, STATUS_INVALID, "the token or key contains a line break; remove it");
    strbuf_init(&t.problem, (size_t)2 * PROBLEM_MAX);
    enum status s = follow(&t, err);
    strbuf_fini(&t.problem);
    return s;
}

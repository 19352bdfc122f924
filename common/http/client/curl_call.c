#include "common/http/client/curl_call.h"

#include <stdio.h>
#include <string.h>

#include "common/http/client/roots.h"

static void set_timeouts(CURL *curl, const struct http_call *c)
{
    long ms = c->timeout_ms ? (long)c->timeout_ms : 30000L;
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, ms < 10000L ? ms : 10000L);
    if (!c->on_data) {
        curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, ms);
        return;
    }
    /* a stream ends after a silence of timeout_ms */
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, (ms + 999) / 1000);
}

static struct curl_slist *make_headers(const struct http_call *c)
{
    struct curl_slist *headers = NULL;
    for (size_t i = 0; i < c->n_headers; i++)
        headers = curl_slist_append(headers, c->headers[i]);
    if (c->body.len || c->content_type) {
        struct strbuf type;
        strbuf_init(&type, 1024);
        strbuf_printf(&type, "Content-Type: %s",
                      c->content_type ? c->content_type : "application/json");
        headers = curl_slist_append(headers, strbuf_str(&type).ptr);
        strbuf_fini(&type);
    }
    /* an empty Expect header saves a round trip before a small body */
    headers = curl_slist_append(headers, "Expect:");
    if (c->bearer) {
        struct strbuf b;
        strbuf_init(&b, 64 << 10);
        strbuf_append_c(&b, "Authorization: Bearer ");
        strbuf_append_c(&b, c->bearer);
        headers = curl_slist_append(headers, strbuf_str(&b).ptr);
        strbuf_fini(&b);
    }
    return headers;
}

/* Returns true when the URL is on this machine. The environment's proxy is only for other
 * machines. */
static bool is_local(const char *url)
{
    static const char *const starts[] = {"127.", "localhost:", "localhost/", "[::1]"};
    const char *host = strstr(url, "://");
    for (size_t i = 0; host && i < sizeof starts / sizeof *starts; i++)
        if (strncmp(host + 3, starts[i], strlen(starts[i])) == 0)
            return true;
    return false;
}

static void set_way(CURL *curl, const struct http_call *c)
{
    if (c->uds || c->no_proxy || is_local(c->url))
        curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
    if (c->uds)
        curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, c->uds);
    const char *ca_file = c->ca_file ? c->ca_file : roots_for_curl();
    if (ca_file)
        curl_easy_setopt(curl, CURLOPT_CAINFO, ca_file);
    if (c->cert_file)
        curl_easy_setopt(curl, CURLOPT_SSLCERT, c->cert_file);
    if (c->key_file)
        curl_easy_setopt(curl, CURLOPT_SSLKEY, c->key_file);
    if (c->any_certificate) {
        curl_easy_setopt(curl, CURLOPT_SSL_VERIFYPEER, 0L);
        curl_easy_setopt(curl, CURLOPT_SSL_VERIFYHOST, 0L);
    }
}

enum status http_client_describe(CURLcode rc, const struct http_call *c, struct error *err)
{
    const char *why = curl_easy_strerror(rc);
    /* the query is left out, because it may contain a signature */
    const int n = (int)strcspn(c->url, "?#");
    switch (rc) {
    case CURLE_OPERATION_TIMEDOUT:
        return error_set(err, STATUS_TIMEOUT,
                         "%.*s did not answer in time (%s). Check that the server runs", n, c->url,
                         why);
    case CURLE_WRITE_ERROR: /* curl reports this error when on_data returned false */
        return c->on_data ? STATUS_OK
                          : error_set(err, STATUS_LIMIT,
                                      "the answer of %.*s is larger than the limit of %d MiB", n,
                                      c->url, HTTP_ANSWER_MAX_BYTES >> 20);
    case CURLE_COULDNT_CONNECT:
    case CURLE_COULDNT_RESOLVE_HOST:
        return error_set(
            err, STATUS_IO,
            "cannot connect to %.*s (%s). Check that the server runs and that the address is right",
            n, c->url, why);
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
        return error_set(err, STATUS_DENIED,
                         "the certificate of %.*s is not trusted (%s). Give the certificate of its "
                         "authority with --cacert FILE",
                         n, c->url, why);
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CONNECT_ERROR:
        return error_set(
            err, STATUS_DENIED,
            "the TLS handshake with %.*s failed (%s). Check that the server uses https "
            "and whether it requires a client certificate (--cert, --key)",
            n, c->url, why);
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
        return error_set(err, STATUS_INVALID, "%.*s is not a valid address (%s)", n, c->url, why);
    default:
        return error_set(err, STATUS_IO, "the request to %.*s failed: %s", n, c->url, why);
    }
}

enum status http_client_prepare(CURL *curl, const struct http_call *c, struct curl_slist **headers,
                                struct error *err)
{
    *headers = NULL;
    if (c->bearer && strpbrk(c->bearer, "\r\n"))
        return error_set(err, STATUS_INVALID,
                         "the API key or token contains a line break; remove it");
    for (size_t i = 0; i < c->n_headers; i++)
        if (strpbrk(c->headers[i], "\r\n"))
            return error_set(err, STATUS_INVALID,
                             "a request header contains a line break; remove it");
    *headers = make_headers(c);
    curl_easy_setopt(curl, CURLOPT_URL, c->url);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    if (c->connect_only)
        curl_easy_setopt(curl, CURLOPT_CONNECT_ONLY, 1L);
    set_way(curl, c);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, *headers);
    if (c->body.len || c->content_type) {
        curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)c->body.len);
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, c->body.ptr ? c->body.ptr : "");
    }
    if (c->method)
        curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, c->method);
    set_timeouts(curl, c);
    return STATUS_OK;
}

/* Finds the keys that sign requests to S3 and renews temporary ones (aws_credentials.h has the
 * order).
 * `aws_credentials_open` reads flags, environment and AWS's files and chooses one source.
 * `aws_credentials_keys` is called before each request and fetches keys through STS, a
 * container's agent or the instance's metadata service.
 * Invariants: `mutex` guards `newest`. Old generations of keys stay until the end, because
 * another thread may still sign with them. Answers are bounded and parsed by aws_answer.h.
 * Requests to a container's agent use plain HTTP only at an address of this machine. */
#include "cli/pull/request/aws_credentials.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli/pull/request/aws_answer.h"
#include "cli/pull/request/aws_profile.h"
#include "cli/pull/request/retry.h"
#include "common/base/mem.h"
#include "common/host/loopback.h"
#include "common/http/client/client.h"

enum {
    FILE_MAX = 1 << 20,
    ANSWER_MAX = 256 << 10,
    /* keys are renewed this many seconds before they expire, or after half their lifetime if that
     * is later */
    EARLY_S = 300,
    ROLE_TIMEOUT_MS = 20000
};

enum way { WAY_KEYS, WAY_WEB_IDENTITY, WAY_CONTAINER, WAY_INSTANCE };

/* `generation` holds one set of keys. Older sets are kept to the end, since another thread may
 * still sign with them. */
struct generation {
    struct aws_answer keys;
    int64_t fetched_s;
    struct generation *before;
};

struct aws_credentials {
    struct aws_setup setup;
    enum way way;
    char source[160];
    /* role_arn, token_file, session_name: settings of a web identity */
    char *region, *role_arn, *token_file, *session_name;
    pthread_mutex_t mutex;
    struct generation *newest;
};

/* ---- helpers ---- */

static const char *given(const char *s)
{
    return s && s[0] ? s : NULL;
}

static const char *env_of(const struct aws_credentials *c, const char *name)
{
    return given(c->setup.env(name));
}

/* Reads a file. STATUS_NOT_FOUND: the file does not exist. */
static enum status read_file(const char *path, size_t max, struct strbuf *out, struct error *err)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return error_set(err,
                         errno == ENOENT || errno == ENOTDIR ? STATUS_NOT_FOUND : STATUS_INVALID,
                         "cannot open %s: %s", path, strerror(errno));
    enum status s = STATUS_OK;
    char *room;
    bool is_there = fstat(fd, &st) == 0;
    if (is_there && S_ISCHR(st.st_mode)) /* /dev/null counts as empty */
        st.st_size = 0;
    else if (!is_there || !S_ISREG(st.st_mode) || (uint64_t)st.st_size > max)
        s = error_set(err, STATUS_INVALID,
                      "cannot read AWS settings: %s is not a regular file of at most %zu KiB", path,
                      max >> 10);
    else if (st.st_size > 0 && (!(room = strbuf_extend(out, (size_t)st.st_size)) ||
                                read(fd, room, (size_t)st.st_size) != st.st_size))
        s = error_set(err, STATUS_IO, "cannot read %s to its end. Run the same command again",
                      path);
    (void)close(fd);
    return s;
}

static void read_word(struct strbuf *b)
{
    while (b->len > 0 && strchr(" \t\r\n", b->ptr[b->len - 1]))
        b->ptr[--b->len] = '\0';
}

static void take(struct aws_credentials *c, struct aws_answer *owned)
{
    struct generation *g = mem_zalloc(sizeof *g);
    g->keys = *owned;
    g->fetched_s = (int64_t)time(NULL);
    g->before = c->newest;
    c->newest = g;
    *owned = (struct aws_answer){0};
}

/* Makes one HTTP call, and retries after temporary failures. */
static enum status call(const struct aws_credentials *c, struct http_call *h, int *code,
                        struct strbuf *out, struct error *err)
{
    struct pull_retry retry = {.net = c->setup.net};
    struct fetch_answer a = {0};
    enum status s;
    const char *host = strstr(h->url, "://");
    snprintf(a.host, sizeof a.host, "%.*s", (int)strcspn(host ? host + 3 : h->url, "/"),
             host ? host + 3 : h->url);
    h->ca_file = c->setup.net->ca_file;
    do {
        strbuf_reset(out);
        s = http_client_call(h, code, out, err);
        a.code = *code;
    } while (pull_retry_again(&retry, s, &a, err));
    return fetch_is_stopped(c->setup.net)
               ? error_set(err, STATUS_CLOSED, "the download was stopped by a signal")
               : s;
}

static enum status refused(const struct aws_credentials *c, const char *url, int code,
                           struct str body, struct error *err)
{
    char word[64];
    aws_answer_problem(body, word, sizeof word);
    return error_set(err, code >= 500 ? STATUS_IO : STATUS_DENIED,
                     "cannot get the keys %s: %s answered with status %d%s%s", c->source, url, code,
                     word[0] ? ", " : "", word);
}

/* ---- a web identity ---- */

static enum status ask_sts(struct aws_credentials *c, struct strbuf *form, struct strbuf *out,
                           struct aws_answer *a, struct error *err)
{
    char url[512];
    int code;
    const char *endpoint = env_of(c, "AWS_ENDPOINT_URL_STS");
    endpoint = endpoint ? endpoint : env_of(c, "AWS_ENDPOINT_URL");
    if (endpoint) {
        TRY(fetch_check_endpoint("AWS_ENDPOINT_URL_STS", endpoint, err));
        size_t n = strlen(endpoint);
        while (n > 0 && endpoint[n - 1] == '/')
            n--;
        snprintf(url, sizeof url, "%.*s/", (int)(n < 500 ? n : 500), endpoint);
    } else {
        snprintf(url, sizeof url, "https://sts.%s.%s/", c->region, aws_domain(c->region));
    }
    struct http_call h = {.method = "POST",
                          .url = url,
                          .body = strbuf_str(form),
                          .content_type = "application/x-www-form-urlencoded",
                          .timeout_ms = ROLE_TIMEOUT_MS};
    TRY(call(c, &h, &code, out, err));
    if (code != 200)
        return refused(c, url, code, strbuf_str(out), err);
    return aws_answer_read_xml(strbuf_str(out), a)
               ? STATUS_OK
               : error_set(
                     err, STATUS_PROTOCOL,
                     "cannot get AWS keys: the answer of %s contains none. Check AWS_ROLE_ARN",
                     url);
}

/* Fetches keys for a web identity. The token file is read each time, because Kubernetes writes a
 * new token before the old one expires. */
static enum status fetch_web_identity(struct aws_credentials *c, struct aws_answer *a,
                                      struct error *err)
{
    struct strbuf token, form, out;
    strbuf_init(&token, 64 << 10);
    strbuf_init(&form, 256 << 10);
    strbuf_init(&out, ANSWER_MAX);
    enum status s = read_file(c->token_file, 64 << 10, &token, err);
    if (s == STATUS_OK) {
        read_word(&token);
        strbuf_append_c(&form, "Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn=");
        fetch_append_encoded(&form, c->role_arn, "");
        strbuf_append_c(&form, "&RoleSessionName=");
        fetch_append_encoded(&form, c->session_name, "");
        strbuf_append_c(&form, "&WebIdentityToken=");
        fetch_append_encoded(&form, strbuf_str(&token).ptr, "");
        s = ask_sts(c, &form, &out, a, err);
    } else if (s == STATUS_NOT_FOUND) {
        s = STATUS_INVALID;
        err->status = s;
    }
    strbuf_fini(&token);
    strbuf_fini(&form);
    strbuf_fini(&out);
    return s;
}

/* ---- a container's role ---- */

/* Returns true when plain HTTP to this host stays inside the machine: loopback, or the literal
 * addresses of the agents. A host name that only begins like such an address may belong to any
 * server. */
static bool is_agent(const char *url)
{
    static const char *const hosts[] = {"169.254.170.2", "169.254.170.23", "[fd00:ec2::23]"};
    if (strncmp(url, "https://", 8) == 0)
        return true;
    if (strncmp(url, "http://", 7) != 0)
        return false;
    struct str host = authority_host((struct str){url + 7, strcspn(url + 7, "/?#")});
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++)
        if (str_eq_c(host, hosts[i]))
            return true;
    return host_is_loopback(host);
}

static enum status fetch_container(struct aws_credentials *c, struct aws_answer *a,
                                   struct error *err)
{
    const char *relative = env_of(c, "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"),
               *full = env_of(c, "AWS_CONTAINER_CREDENTIALS_FULL_URI"),
               *file = env_of(c, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"),
               *word = env_of(c, "AWS_CONTAINER_AUTHORIZATION_TOKEN");
    struct strbuf url, token, out;
    enum status s = STATUS_OK;
    int code;
    strbuf_init(&url, 4096);
    strbuf_init(&token, 64 << 10);
    strbuf_init(&out, ANSWER_MAX);
    strbuf_printf(&url, "%s%s", relative ? "http://169.254.170.2" : "", relative ? relative : full);
    if (!is_agent(strbuf_str(&url).ptr))
        s = error_set(err, STATUS_INVALID,
                      "AWS_CONTAINER_CREDENTIALS_FULL_URI is not allowed: it must use https, or be "
                      "the address of an agent on this machine");
    strbuf_append_c(&token, "Authorization: ");
    if (s == STATUS_OK && file)
        s = read_file(file, 60 << 10, &token, err);
    else if (word)
        strbuf_append_c(&token, word);
    read_word(&token);
    if (s == STATUS_OK) {
        const char *const headers[] = {strbuf_str(&token).ptr};
        struct http_call h = {.url = strbuf_str(&url).ptr,
                              .headers = headers,
                              .n_headers = file || word ? 1 : 0,
                              .timeout_ms = ROLE_TIMEOUT_MS,
                              .no_proxy = strncmp(strbuf_str(&url).ptr, "http:", 5) == 0};
        s = call(c, &h, &code, &out, err);
        if (s == STATUS_OK && code != 200)
            s = refused(c, h.url, code, strbuf_str(&out), err);
        else if (s == STATUS_OK && !aws_answer_read_json(strbuf_str(&out), a))
            s = error_set(err, STATUS_PROTOCOL,
                          "cannot get AWS keys: the answer of %s contains none. Check the "
                          "container's IAM role",
                          h.url);
    }
    strbuf_fini(&url);
    strbuf_fini(&token);
    strbuf_fini(&out);
    return s == STATUS_NOT_FOUND ? (err->status = STATUS_INVALID) : s;
}

/* ---- the instance's role ---- */

static uint32_t instance_timeout_ms(const struct aws_credentials *c)
{
    const char *said = env_of(c, "AWS_METADATA_SERVICE_TIMEOUT");
    double seconds = said ? strtod(said, NULL) : 1;
    return seconds > 0 && seconds <= 60 ? (uint32_t)(seconds * 1000) : 1000;
}

static enum status ask_instance(const struct aws_credentials *c, const char *method,
                                const char *path, const char *header, struct strbuf *out,
                                struct error *err)
{
    char url[600];
    int code;
    const char *endpoint = env_of(c, "AWS_EC2_METADATA_SERVICE_ENDPOINT");
    const char *const headers[] = {header};
    if (endpoint)
        TRY(fetch_check_endpoint("AWS_EC2_METADATA_SERVICE_ENDPOINT", endpoint, err));
    endpoint = endpoint ? endpoint : "http://169.254.169.254";
    size_t n = strlen(endpoint);
    while (n > 0 && endpoint[n - 1] == '/')
        n--;
    snprintf(url, sizeof url, "%.*s%s", (int)(n < 200 ? n : 200), endpoint, path);
    const struct http_call h = {.method = method,
                                .url = url,
                                .headers = headers,
                                .n_headers = 1,
                                .timeout_ms = instance_timeout_ms(c),
                                .no_proxy = true};
    strbuf_reset(out);
    TRY(http_client_call(&h, &code, out, err));
    read_word(out);
    return code == 200
               ? STATUS_OK
               : error_set(err, STATUS_NOT_FOUND,
                           "cannot get AWS keys from this instance: %s answered with status %d",
                           url, code);
}

/* Fetches the instance's keys with version 2 of the metadata service. Version 1 is not used,
 * because it also answers requests that a third party causes. */
static enum status fetch_instance(struct aws_credentials *c, struct aws_answer *a,
                                  struct error *err)
{
    static const char base[] = "/latest/meta-data/iam/security-credentials/";
    struct strbuf token, role, path, out;
    strbuf_init(&token, 4096);
    strbuf_init(&role, 256);
    strbuf_init(&path, 512);
    strbuf_init(&out, ANSWER_MAX);
    enum status s = ask_instance(c, "PUT", "/latest/api/token",
                                 "X-aws-ec2-metadata-token-ttl-seconds: 21600", &out, err);
    if (s == STATUS_OK) {
        strbuf_printf(&token, "X-aws-ec2-metadata-token: %s", strbuf_str(&out).ptr);
        s = ask_instance(c, "GET", base, strbuf_str(&token).ptr, &role, err);
    }
    if (s == STATUS_OK) {
        strbuf_append_c(&path, base);
        /* only the first role in the answer is used */
        role.len = strcspn(role.ptr ? role.ptr : "", "\r\n");
        if (role.ptr)
            role.ptr[role.len] = '\0';
        fetch_append_encoded(&path, strbuf_str(&role).ptr, "");
        s = role.len == 0
                ? error_set(err, STATUS_NOT_FOUND,
                            "cannot get AWS keys: this instance has no IAM role. Attach a role, or "
                            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
                : ask_instance(c, "GET", strbuf_str(&path).ptr, strbuf_str(&token).ptr, &out, err);
    }
    if (s == STATUS_OK && !aws_answer_read_json(strbuf_str(&out), a))
        s = error_set(err, STATUS_PROTOCOL,
                      "cannot get AWS keys: the answer of the instance's metadata service contains "
                      "none. Check the instance's IAM role");
    strbuf_fini(&token);
    strbuf_fini(&role);
    strbuf_fini(&path);
    strbuf_fini(&out);
    return s;
}

/* ---- choice of the way ---- */

static enum status fetch(struct aws_credentials *c, struct error *err)
{
    struct aws_answer a = {0};
    TRY(c->way == WAY_WEB_IDENTITY ? fetch_web_identity(c, &a, err)
        : c->way == WAY_CONTAINER  ? fetch_container(c, &a, err)
                                   : fetch_instance(c, &a, err));
    take(c, &a);
    return STATUS_OK;
}

static void set_keys(struct aws_credentials *c, const char *id, const char *secret,
                     const char *session)
{
    struct aws_answer a = {.id = mem_strdup(id),
                           .secret = mem_strdup(secret),
                           .session = given(session) ? mem_strdup(session) : NULL};
    take(c, &a);
    c->way = WAY_KEYS;
}

struct files {
    struct strbuf credentials, config;
    const char *profile;
};

static char *setting(const struct files *f, const char *key)
{
    char *out = aws_profile_get(strbuf_str(&f->credentials), AWS_FILE_CREDENTIALS, f->profile, key);
    return out ? out : aws_profile_get(strbuf_str(&f->config), AWS_FILE_CONFIG, f->profile, key);
}

/* Copies the keys from one file. Both parts of the key are copied, or none. */
static bool keys_of(struct aws_credentials *c, const struct strbuf *text, enum aws_file file,
                    const char *profile)
{
    struct str t = strbuf_str(text);
    char *id = aws_profile_get(t, file, profile, "aws_access_key_id"),
         *secret = aws_profile_get(t, file, profile, "aws_secret_access_key"),
         *session = aws_profile_get(t, file, profile, "aws_session_token");
    bool ok = id && secret;
    if (ok)
        set_keys(c, id, secret, session);
    mem_free(id);
    mem_free(secret);
    mem_free(session);
    return ok;
}

/* Refuses a profile whose source of keys is unsupported. No other source is tried then. */
static enum status refuse_others(const struct files *f, struct error *err)
{
    static const char *const keys[] = {"credential_process", "sso_session",       "sso_start_url",
                                       "source_profile",     "credential_source", "login_session"};
    enum status s = STATUS_OK;
    for (size_t i = 0; s == STATUS_OK && i < sizeof keys / sizeof *keys; i++) {
        char *there = setting(f, keys[i]);
        if (there)
            s = error_set(err, STATUS_UNSUPPORTED,
                          "the AWS profile %s uses %s, which cox does not support. First run `eval "
                          "\"$(aws configure export-credentials --profile %s --format env)\"`",
                          f->profile, keys[i], f->profile);
        mem_free(there);
    }
    return s;
}

static enum status read_files(const struct aws_credentials *c, struct files *f, struct error *err)
{
    static const struct {
        const char *variable, *usual;
    } names[] = {{"AWS_SHARED_CREDENTIALS_FILE", "credentials"}, {"AWS_CONFIG_FILE", "config"}};
    struct strbuf *const texts[] = {&f->credentials, &f->config};
    for (size_t i = 0; i < 2; i++) {
        char path[4096];
        const char *said = env_of(c, names[i].variable), *home = env_of(c, "HOME");
        if (said && said[0] == '~' && said[1] == '/' && home)
            snprintf(path, sizeof path, "%s%s", home, said + 1);
        else if (said)
            snprintf(path, sizeof path, "%s", said);
        else if (home)
            snprintf(path, sizeof path, "%s/.aws/%s", home, names[i].usual);
        else
            continue;
        enum status s = read_file(path, FILE_MAX, texts[i], err);
        if (s != STATUS_OK && s != STATUS_NOT_FOUND)
            return s;
    }
    const char *profile = env_of(c, "AWS_PROFILE");
    profile = profile ? profile : env_of(c, "AWS_DEFAULT_PROFILE");
    f->profile = profile ? profile : "default";
    if (profile &&
        !aws_profile_is_there(strbuf_str(&f->credentials), AWS_FILE_CREDENTIALS, profile) &&
        !aws_profile_is_there(strbuf_str(&f->config), AWS_FILE_CONFIG, profile))
        return error_set(err, STATUS_INVALID,
                         "the AWS profile %s (AWS_PROFILE, AWS_DEFAULT_PROFILE) is neither in "
                         "~/.aws/credentials nor in ~/.aws/config "
                         "(AWS_SHARED_CREDENTIALS_FILE, AWS_CONFIG_FILE). Correct the name",
                         profile);
    return STATUS_OK;
}

/* Reads a web identity's settings from the environment or the profile. */
static bool set_web_identity(struct aws_credentials *c, const struct files *f)
{
    const char *arn = env_of(c, "AWS_ROLE_ARN"), *file = env_of(c, "AWS_WEB_IDENTITY_TOKEN_FILE"),
               *name = env_of(c, "AWS_ROLE_SESSION_NAME");
    c->role_arn = arn && file ? mem_strdup(arn) : setting(f, "role_arn");
    c->token_file = arn && file ? mem_strdup(file) : setting(f, "web_identity_token_file");
    c->session_name = name ? mem_strdup(name) : setting(f, "role_session_name");
    if (!c->session_name)
        c->session_name = mem_strdup("cox-pull");
    return c->role_arn && c->token_file;
}

static void set_source(struct aws_credentials *c, enum way way, const char *text)
{
    c->way = way;
    snprintf(c->source, sizeof c->source, "%s", text);
}

/* Chooses the source of the keys. *none is set when no source is configured. */
static enum status find(struct aws_credentials *c, const struct files *f, bool *none,
                        struct error *err)
{
    const struct aws_setup *o = &c->setup;
    struct error why;
    *none = false;
    if (!given(o->id) != !given(o->secret))
        return error_set(
            err, STATUS_INVALID,
            "only one of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY is set. Set both");
    if (given(o->id)) {
        set_source(c, WAY_KEYS, "of AWS_ACCESS_KEY_ID");
        set_keys(c, o->id, o->secret, o->session);
        return STATUS_OK;
    }
    if (set_web_identity(c, f)) {
        set_source(c, WAY_WEB_IDENTITY, "of AWS_ROLE_ARN and AWS_WEB_IDENTITY_TOKEN_FILE");
        return fetch(c, err);
    }
    snprintf(c->source, sizeof c->source, "of the AWS profile %s", f->profile);
    if (keys_of(c, &f->credentials, AWS_FILE_CREDENTIALS, f->profile))
        return STATUS_OK;
    TRY(refuse_others(f, err));
    if (keys_of(c, &f->config, AWS_FILE_CONFIG, f->profile))
        return STATUS_OK;
    if (env_of(c, "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") ||
        env_of(c, "AWS_CONTAINER_CREDENTIALS_FULL_URI")) {
        set_source(c, WAY_CONTAINER, "of the container's role");
        return fetch(c, err);
    }
    const char *off = env_of(c, "AWS_EC2_METADATA_DISABLED");
    set_source(c, WAY_INSTANCE, "of the instance's role");
    *none = (off && strcmp(off, "true") == 0) || fetch(c, &why) != STATUS_OK;
    return STATUS_OK;
}

/* ---- public functions ---- */

const char *aws_domain(const char *region)
{
    return strncmp(region, "cn-", 3) == 0 ? "amazonaws.com.cn" : "amazonaws.com";
}

enum status aws_credentials_open(const struct aws_setup *setup, struct aws_credentials **out,
                                 char **region, char **endpoint, struct error *err)
{
    struct aws_credentials *c = mem_zalloc(sizeof *c);
    struct files f = {0};
    bool none = true;
    c->setup = *setup;
    (void)pthread_mutex_init(&c->mutex, NULL);
    strbuf_init(&f.credentials, FILE_MAX);
    strbuf_init(&f.config, FILE_MAX);
    *endpoint = NULL;
    enum status s = STATUS_OK;
    /* given keys need no files, so errors of the files do not matter */
    if (!given(setup->id) || !given(setup->region))
        s = read_files(c, &f, err);
    if (s != STATUS_OK && given(setup->id))
        s = STATUS_OK;
    if (!f.profile)
        f.profile = "default";
    c->region = given(setup->region) ? mem_strdup(setup->region) : setting(&f, "region");
    if (!c->region)
        c->region = mem_strdup("us-east-1");
    *endpoint = given(setup->endpoint) ? mem_strdup(setup->endpoint) : setting(&f, "endpoint_url");
    *region = mem_strdup(c->region);
    if (s == STATUS_OK &&
        (strspn(c->region, "abcdefghijklmnopqrstuvwxyz0123456789-") != strlen(c->region) ||
         strlen(c->region) > 40))
        s = error_set(err, STATUS_INVALID,
                      "AWS_REGION is invalid: give a region's name, for example us-east-1");
    if (s == STATUS_OK)
        s = find(c, &f, &none, err);
    strbuf_fini(&f.credentials);
    strbuf_fini(&f.config);
    if (s != STATUS_OK || none) {
        aws_credentials_close(c);
        c = NULL;
    }
    *out = c;
    return s;
}

/* Returns true when the keys expire soon, relative to their lifetime when they were fetched. */
static bool end_soon(const struct generation *g, int64_t now)
{
    int64_t life = g->keys.expires_s - g->fetched_s;
    int64_t early = life / 2 < EARLY_S ? life / 2 : EARLY_S;
    return g->keys.expires_s != 0 && now >= g->keys.expires_s - early;
}

enum status aws_credentials_keys(struct aws_credentials *c, struct aws_keys *out, struct error *err)
{
    enum status s = STATUS_OK;
    (void)pthread_mutex_lock(&c->mutex);
    int64_t now = (int64_t)time(NULL);
    if (c->way != WAY_KEYS && end_soon(c->newest, now)) {
        s = fetch(c, err);
        if (s != STATUS_OK && s != STATUS_CLOSED && now < c->newest->keys.expires_s)
            s = STATUS_OK; /* the old keys are still valid for a while */
    }
    const struct aws_answer *k = &c->newest->keys;
    *out = (struct aws_keys){k->id, k->secret, k->session, c->region};
    (void)pthread_mutex_unlock(&c->mutex);
    return s;
}

const char *aws_credentials_source(const struct aws_credentials *c)
{
    return c->source;
}

void aws_credentials_close(struct aws_credentials *c)
{
    if (!c)
        return;
    for (struct generation *g = c->newest, *before; g; g = before) {
        before = g->before;
        aws_answer_fini(&g->keys);
        mem_free(g);
    }
    (void)pthread_mutex_destroy(&c->mutex);
    mem_free(c->region);
    mem_free(c->role_arn);
    mem_free(c->token_file);
    mem_free(c->session_name);
    mem_free(c);
}

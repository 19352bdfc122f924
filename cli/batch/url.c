#include "cli/batch/url.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/config/config.h"
#include "common/config/hide.h"
#include "common/http/client/client.h"

#define FETCH_MAX_BYTES (8ull << 30)

struct sink {
    int fd; /* file that receives the data; -1 = the data is discarded */
    uint64_t n;
    int error; /* errno of a failed write; EFBIG = the data is larger than the limit */
};

bool batch_url_is(const char *path)
{
    return strncmp(path, "http://", 7) == 0 || strncmp(path, "https://", 8) == 0;
}

void batch_url_append(struct strbuf *b, const char *url)
{
    config_append_url(b, (struct str){url, strcspn(url, "?#")});
}

static bool on_data(void *ctx, struct str piece)
{
    struct sink *s = ctx;
    if (s->fd < 0)
        return true;
    s->n += piece.len;
    if (s->n > FETCH_MAX_BYTES)
        s->error = EFBIG;
    while (s->error == 0 && piece.len > 0) {
        ssize_t n = write(s->fd, piece.ptr, piece.len);
        if (n < 0 && errno != EINTR)
            s->error = errno;
        if (n > 0)
            piece = (struct str){piece.ptr + n, piece.len - (size_t)n};
    }
    return s->error == 0;
}

/* Makes one HTTP call to the URL. `what` is the option in error texts: "-i" or "-o". */
static enum status call(const char *method, const char *url, struct str body, struct sink *sink,
                        const char *what, struct error *err)
{
    const struct http_call c = {.method = method,
                                .url = url,
                                .body = body,
                                .content_type = body.ptr ? "application/x-ndjson" : NULL,
                                .timeout_ms = BATCH_URL_SILENCE_MS,
                                .on_data = on_data,
                                .ctx = sink};
    struct error why = {0};
    struct strbuf shown;
    int code = 0;
    enum status s = http_client_call(&c, &code, NULL, &why);
    strbuf_init(&shown, 0);
    batch_url_append(&shown, url);
    if (sink->error != 0)
        s = error_set(err, STATUS_IO, "%s " STR_FMT ": cannot write the received data: %s", what,
                      STR_ARG(strbuf_str(&shown)), strerror(sink->error));
    else if (s != STATUS_OK)
        (void)error_set(err, s, "cannot transfer the file of %s: %s", what, why.text);
    else if (code < 200 || code > 299)
        s = error_set(err, STATUS_IO,
                      "%s " STR_FMT ": the server answered with status %d to %s. Check that the "
                      "URL is valid and allows this method",
                      what, STR_ARG(strbuf_str(&shown)), code, method);
    strbuf_fini(&shown);
    return s;
}

enum status batch_url_make_file(const char *folder, char *path, struct error *err)
{
    int n = snprintf(path, PATH_MAX, "%s/cox-run-batch-XXXXXX", folder);
    if (n < 0 || n >= PATH_MAX)
        return error_set(err, STATUS_INVALID,
                         "cannot make a file in the folder %.200s: its path is too long. Choose a "
                         "folder with a shorter path",
                         folder);
    int fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0)
        return error_set(err, STATUS_IO, "cannot make a file in the folder %s: %s", folder,
                         strerror(errno));
    (void)close(fd);
    return STATUS_OK;
}

enum status batch_url_fetch(const char *url, const char *folder, int *fd, char *path,
                            struct error *err)
{
    char name[PATH_MAX];
    struct sink sink = {0};
    TRY(batch_url_make_file(folder, name, err));
    sink.fd = open(name, O_RDWR | O_CLOEXEC);
    (void)unlink(name);
    if (sink.fd < 0)
        return error_set(err, STATUS_IO, "cannot open the temporary file %s: %s", name,
                         strerror(errno));
    enum status s = call("GET", url, (struct str){0}, &sink, "-i", err);
    if (s != STATUS_OK) {
        (void)close(sink.fd);
        return s;
    }
    *fd = sink.fd;
    snprintf(path, 32, "/proc/self/fd/%d", sink.fd);
    return STATUS_OK;
}

enum status batch_url_send(const char *path, const char *url, struct error *err)
{
    struct stat st;
    struct sink none = {.fd = -1};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0) {
        if (fd >= 0)
            (void)close(fd);
        return error_set(err, STATUS_IO, "cannot read the output file %s: %s", path,
                         strerror(errno));
    }
    size_t n = (size_t)st.st_size;
    void *at = n > 0 ? mmap(NULL, n, PROT_READ, MAP_PRIVATE, fd, 0) : "";
    (void)close(fd);
    if (at == MAP_FAILED)
        return error_set(err, STATUS_IO, "cannot read the output file %s: %s", path,
                         strerror(errno));
    enum status s = call("PUT", url, (struct str){at, n}, &none, "-o", err);
    if (n > 0)
        (void)munmap(at, n);
    return s;
}

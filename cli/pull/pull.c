/* Implements `cox pull`, which fetches one model into the cache.
 * First the manifest is read without a lock. When the model is missing, the code takes the lock
 * and lists the files at the server. It fetches them into a staging folder next to the model,
 * writes the manifest, and renames the folder.
 * Invariants: the staging folder's name contains the list's identity, so parts of another
 * version are never continued. Nothing is written after the lock was lost. A published folder is
 * complete, because it appears by one rename. `struct pull` owns all its strings and lists. */
#include "cli/pull/pull.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/pull/demo.h"
#include "cli/pull/files/file.h"
#include "cli/pull/files/head.h"
#include "cli/pull/files/list.h"
#include "cli/pull/files/lock.h"
#include "cli/pull/files/parallel.h"
#include "cli/pull/files/part.h"
#include "cli/pull/files/progress.h"
#include "cli/pull/files/source.h"
#include "cli/pull/mark.h"
#include "cli/pull/options.h"
#include "cli/pull/place.h"
#include "cli/pull/request/aws_credentials.h"
#include "cli/pull/request/retry.h"
#include "cli/pull/sources/hf_cache.h"
#include "cli/pull/sources/hf_snapshot.h"
#include "cli/pull/sources/hub.h"
#include "cli/pull/sources/s3.h"
#include "common/base/mem.h"
#include "common/model/info/info.h"
#include "common/model/info/open.h"
#include "common/model/info/pulled.h"

enum { IDENTITY_SHOWN = 12 };

struct pull {
    const struct pull_options *o;
    const struct fetch_net *net;
    const struct model_ref *r;
    char *folder, *staging, *endpoint, *region;
    struct pull_list list;
    struct hf_cache hf_cache;
    struct pull_source source;
    struct pull_lock lock;
    char denied[320];
};

/* ---- folders ---- */

/* Removes parts of other versions of this model, and folders that a killed process had renamed. */
static void remove_leftovers(const struct pull *p)
{
    char *parent = mem_strndup(p->folder, (size_t)(strrchr(p->folder, '/') - p->folder));
    const char *own = strrchr(p->folder, '/') + 1, *staged = strrchr(p->staging, '/') + 1;
    size_t n = strlen(own);
    DIR *d = opendir(parent);
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d)) {
        if (strncmp(e->d_name, own, n) != 0 || strcmp(e->d_name, staged) == 0 ||
            (strncmp(e->d_name + n, ".part-", 6) != 0 && strncmp(e->d_name + n, ".old-", 5) != 0))
            continue;
        char *path = pull_join(parent, "/", e->d_name);
        pull_remove_tree(path);
        mem_free(path);
    }
    if (d)
        (void)closedir(d);
    mem_free(parent);
}

/* ---- sources ---- */

static enum status hub_source(struct pull *p, struct error *err)
{
    const struct pull_options *o = p->o;
    TRY(fetch_check_endpoint("--hf-endpoint", o->hf_endpoint, err));
    p->endpoint = mem_strdup(o->hf_endpoint);
    size_t n = strlen(p->endpoint);
    while (n > 0 && p->endpoint[n - 1] == '/')
        p->endpoint[--n] = '\0';
    const struct hf_cache_places places = {o->hf_cache, o->hf_home, o->xdg_cache_home, o->home};
    hf_cache_find(&places, &p->hf_cache);
    p->source.bearer = o->hf_token && o->hf_token[0] ? o->hf_token : NULL;
    snprintf(p->denied, sizeof p->denied,
             p->source.bearer ? "check the name, and that the owner of HF_TOKEN may read the model "
                                "(for a gated model, accept the terms on its page)"
                              : "check the name. For a private or gated model, set HF_TOKEN to a "
                                "token that may read it");
    if (p->source.bearer && strncmp(p->endpoint, "http:", 5) == 0)
        p->o->say(
            "warning: HF_ENDPOINT uses http: instead of https:, so HF_TOKEN is sent unencrypted");
    p->source.words = (struct pull_words){
        p->r->repo, p->denied, "check the name, the revision and the file on the hub's page"};
    return STATUS_OK;
}

static enum status s3_source(struct pull *p, struct error *err)
{
    const struct pull_options *o = p->o;
    const struct aws_setup setup = {.net = p->net,
                                    .env = o->env,
                                    .id = o->aws_id,
                                    .secret = o->aws_secret,
                                    .session = o->aws_session,
                                    .region = o->aws_region,
                                    .endpoint = o->aws_endpoint};
    TRY(aws_credentials_open(&setup, &p->source.aws, &p->region, &p->endpoint, err));
    if (p->endpoint) {
        TRY(fetch_check_endpoint("--aws-endpoint-url", p->endpoint, err));
        size_t n = strlen(p->endpoint);
        while (n > 0 && p->endpoint[n - 1] == '/')
            p->endpoint[--n] = '\0';
    }
    if (p->source.aws)
        snprintf(p->denied, sizeof p->denied,
                 "check that the keys %s may list and read the bucket, and that AWS_REGION (%s) is "
                 "the bucket's region",
                 aws_credentials_source(p->source.aws), p->region);
    else
        snprintf(p->denied, sizeof p->denied,
                 "the bucket is not public and no AWS keys are set. Set AWS_ACCESS_KEY_ID and "
                 "AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or give this machine a role");
    p->source.words = (struct pull_words){p->r->text, p->denied, "check the bucket's name"};
    return STATUS_OK;
}

static enum status url_source(struct pull *p, struct error *err)
{
    p->source.words = (struct pull_words){p->r->text,
                                          "cox sends no password to URLs: the file must be public, "
                                          "or the URL must be signed (with #sha256=)",
                                          "check the URL"};
    return STATUS_OK;
}

static enum status find_source(struct pull *p, struct error *err)
{
    p->source.net = p->net;
    p->source.n_parallel = (uint32_t)p->o->parallel;
    return p->r->kind == MODEL_REF_HUB  ? hub_source(p, err)
           : p->r->kind == MODEL_REF_S3 ? s3_source(p, err)
                                        : url_source(p, err);
}

static enum status list_url(struct pull *p, struct error *err)
{
    const struct fetch_call call = {.url = p->r->url};
    struct fetch_answer a;
    TRY(pull_get_size(p->net, &call, &p->source.words, &a, err));
    if (a.total == FETCH_UNKNOWN)
        return error_set(
            err, STATUS_PROTOCOL,
            "cannot download %s: %s does not report the size of the file. Use another URL",
            p->r->text, a.host);
    TRY(pull_list_add(&p->list, p->r->file, mem_strdup(p->r->url), a.total, err));
    struct pull_file *f = &p->list.files[0];
    memcpy(f->etag, a.etag, sizeof f->etag);
    if (p->r->sha256)
        memcpy(f->sha256, p->r->sha256, sizeof f->sha256);
    return STATUS_OK;
}

static enum status make_list(struct pull *p, struct error *err)
{
    enum status s;
    if (p->o->offline)
        s = hf_cache_list(&p->hf_cache, p->r, &p->list, err);
    else if (p->r->kind == MODEL_REF_HUB)
        s = pull_hub_list(&p->source, p->r, p->endpoint, &p->list, err);
    else if (p->r->kind == MODEL_REF_S3)
        s = pull_s3_list(&p->source, p->r, p->endpoint, p->region, &p->list, err);
    else
        s = list_url(p, err);
    if (s == STATUS_OK)
        pull_list_finish(&p->list);
    return s;
}

/* ---- fetching ---- */

/* Checks that the files are a model that can run here. For a folder, config.json and the
 * tokenizer are enough. */
static enum status check_model(const struct pull *p, struct error *err)
{
    struct model_info info;
    enum status s = model_info_open(p->staging, p->o->cache_dir, &info, err);
    model_info_fini(&info);
    return s == STATUS_OK ? s : error_prefix(err, s, "%s", p->r->text);
}

static enum status fetch_files(struct pull *p, struct pulled *out, struct pull_progress *progress,
                               struct error *err)
{
    const struct pull_list *l = &p->list;
    /* number of files that show whether the model can run here; 0 for a GGUF */
    uint32_t n_small = 0;
    while (n_small < l->n_files && !pull_is_weights(l->files[n_small].name))
        n_small++;
    char(*sha256)[65] = mem_array(l->n_files, sizeof *sha256);
    enum status s =
        pull_files_fetch(&p->source, l->files, n_small, p->staging, progress, sha256, err);
    if (s == STATUS_OK && n_small > 0 && n_small < l->n_files)
        s = check_model(p, err);
    if (s == STATUS_OK)
        s = pull_files_fetch(&p->source, l->files + n_small, l->n_files - n_small, p->staging,
                             progress, sha256 + n_small, err);
    for (; s == STATUS_OK && out->n_files < l->n_files; out->n_files++) {
        struct pulled_file *f = &out->files[out->n_files];
        f->name = mem_strdup(l->files[out->n_files].name);
        f->n_bytes = l->files[out->n_files].n_bytes;
        memcpy(f->sha256, sha256[out->n_files], sizeof f->sha256);
    }
    mem_free(sha256);
    TRY(s);
    TRY(check_model(p, err));
    return p->source.lock && pull_lock_is_lost(&p->lock)
               ? error_set(
                     err, STATUS_CLOSED,
                     "%s: another process has taken over the download. Run the same command again",
                     p->r->text)
               : STATUS_OK;
}

/* Takes the files that huggingface_hub's cache already has, so that they are not fetched. */
static enum status take_files(const struct pull *p, struct error *err)
{
    uint32_t n_taken = 0;
    uint64_t n_bytes = 0;
    char text[256], size[24];
    for (uint32_t i = 0; i < p->list.n_files; i++) {
        struct pull_file *f = &p->list.files[i];
        if (pull_file_have(f, p->staging) == f->n_bytes)
            continue;
        if (hf_cache_take(&p->hf_cache, p->net, p->r->repo, f, p->staging, err)) {
            n_taken++;
            n_bytes += f->n_bytes;
        } else if (err->status == STATUS_CLOSED) {
            return err->status;
        } else if (err->text[0]) {
            p->o->say(err->text);
        }
    }
    if (n_taken > 0 && !p->o->quiet) {
        snprintf(text, sizeof text, "%u of %u files (%s) were in huggingface_hub's cache", n_taken,
                 p->list.n_files, pull_bytes_text(size, sizeof size, n_bytes));
        p->o->say(text);
    }
    return STATUS_OK;
}

/* Puts the files into huggingface_hub's cache. A failure is only a warning, because the model is
 * complete here. */
static void give_files(const struct pull *p)
{
    struct error err;
    char text[sizeof err.text + 200];
    if (hf_cache_give(&p->hf_cache, p->net, p->r, &p->list, p->staging, &err) == STATUS_OK)
        return;
    snprintf(text, sizeof text,
             "the model was not added to huggingface_hub's cache: %s. Use --hf-cache DIR for "
             "another folder, or --hf-cache off to leave that cache alone",
             err.text);
    p->o->say(text);
}

/* Returns STATUS_OK when the model is complete. With --verify, its hashes must match too. */
static enum status look(const struct pull *p, struct error *err);

/* Publishes the model. The replacement of a damaged model takes two renames. Between the two
 * renames, another process finds no model, and pulls or waits.
 * A complete model may have appeared meanwhile, because the file system shows new files late or
 * because the lock was lost. Such a model is kept: its files may be in use, and on NFS their
 * readers would lose them. */
static enum status publish(const struct pull *p, struct error *err)
{
    struct error why;
    if (!p->o->verify && look(p, &why) == STATUS_OK) {
        pull_remove_tree(p->staging);
        return STATUS_OK;
    }
    char *old = pull_join(p->folder, ".old-", p->list.identity);
    enum status s = STATUS_OK;
    if ((rename(p->folder, old) != 0 && errno != ENOENT) || rename(p->staging, p->folder) != 0)
        s = error_set(err, STATUS_IO, "cannot move the fetched model to %s: %s", p->folder,
                      strerror(errno));
    else
        pull_remove_tree(old);
    mem_free(old);
    return s;
}

static enum status fetch(struct pull *p, struct pull_result *out, struct error *err)
{
    uint64_t have = 0, room = 0, all;
    TRY(make_list(p, err));
    all = pull_list_bytes(&p->list);
    char *end = mem_strndup(p->list.identity, IDENTITY_SHOWN);
    p->staging = pull_join(p->folder, ".part-", end);
    mem_free(end);
    remove_leftovers(p);
    if (mkdir(p->staging, 0777) != 0 && errno != EEXIST)
        return error_set(err, STATUS_IO, "cannot create the folder %s: %s", p->staging,
                         strerror(errno));
    pull_mark_write(p->staging, p->r->text);
    TRY(take_files(p, err));
    for (uint32_t i = 0; i < p->list.n_files; i++) {
        have += pull_file_have(&p->list.files[i], p->staging);
        room += pull_file_room(&p->list.files[i], p->staging);
    }
    TRY(pull_check_space(p->staging, all - room, err));
    if (p->o->offline && have < all)
        return error_set(err, STATUS_NOT_FOUND,
                         "model %s is incomplete in huggingface_hub's cache (%s) and cannot be "
                         "downloaded offline: " PULL_ONLINE,
                         p->r->text, p->hf_cache.folder, p->r->text);
    struct pulled done = {.folder = mem_strdup(p->staging),
                          .commit = mem_strdup(p->list.commit),
                          .files = mem_array(p->list.n_files, sizeof *done.files)};
    struct pull_progress progress;
    pull_progress_start(&progress, p->o->command, p->o->quiet, have, all);
    enum status s = fetch_files(p, &done, &progress, err);
    pull_progress_clear(&progress);
    out->fetched_bytes = progress.fetched;
    if (s == STATUS_OK)
        s = pulled_write(p->r, &done, err);
    if (s == STATUS_OK) {
        if (!p->o->offline)
            give_files(p);
        pull_mark_remove(p->staging);
        s = publish(p, err);
    }
    pulled_fini(&done);
    return s;
}

/* ---- the model in the cache ---- */

static enum status verify(const struct pull *p, const struct pulled *there, struct error *err)
{
    for (uint32_t i = 0; i < there->n_files; i++) {
        char sha256[65], *path = pull_join(there->folder, "/", there->files[i].name);
        enum status s = pull_file_hash(p->net, path, sha256, err);
        if (s == STATUS_OK && strcmp(sha256, there->files[i].sha256) != 0)
            s = error_set(err, STATUS_PROTOCOL,
                          "%s is damaged: its SHA-256 is %s, but it was %s after the download. "
                          "Fetch the file again",
                          path, sha256, there->files[i].sha256);
        mem_free(path);
        TRY(s);
    }
    return STATUS_OK;
}

static enum status look(const struct pull *p, struct error *err)
{
    struct pulled there;
    TRY(pulled_open(p->r, p->o->cache_dir, &there, err));
    enum status s = p->o->verify ? verify(p, &there, err) : STATUS_OK;
    pulled_fini(&there);
    return s;
}

static bool is_done(void *ctx)
{
    struct error err;
    return look(ctx, &err) == STATUS_OK;
}

/* Finds the model without a network: a hub's model may be in huggingface_hub's cache. */
static enum status look_offline(struct pull *p, struct error *err)
{
    struct error why = {0};
    struct pull_list there = {0};
    char where[sizeof why.text + 128] = "";
    if (p->r->kind == MODEL_REF_HUB) {
        const struct pull_options *o = p->o;
        const struct hf_cache_places places = {o->hf_cache, o->hf_home, o->xdg_cache_home, o->home};
        hf_cache_find(&places, &p->hf_cache);
        enum status s = hf_cache_list(&p->hf_cache, p->r, &there, &why);
        pull_list_fini(&there);
        if (s == STATUS_OK)
            return s;
    }
    if (p->hf_cache.folder)
        snprintf(where, sizeof where, ", nor complete in huggingface_hub's (%s: %s),",
                 p->hf_cache.folder, why.text);
    return error_set(
        err, STATUS_NOT_FOUND,
        "model %s is not in the cache (%s)%s and cannot be downloaded offline: " PULL_ONLINE,
        p->r->text, p->folder, where, p->r->text);
}

static enum status find_what_there_is(struct pull *p, struct error *err)
{
    if (!p->o->offline)
        return find_source(p, err);
    TRY(look_offline(p, err));
    p->source.net = p->net;
    p->source.n_parallel = 1;
    return STATUS_OK;
}

static enum status pull_remote(struct pull *p, struct pull_result *out, struct error *err)
{
    p->folder = pulled_folder(p->r, p->o->cache_dir);
    out->path = mem_strdup(p->folder);
    enum status s = look(p, err);
    out->was_there = s == STATUS_OK;
    if (s == STATUS_OK || s == STATUS_CLOSED)
        return s;
    if (p->o->check) /* a damaged model counts as missing */
        return s == STATUS_INVALID ? (err->status = STATUS_NOT_FOUND) : s;
    if (s != STATUS_NOT_FOUND)
        p->o->say(err->text);
    p->source.lock = &p->lock;
    TRY(find_what_there_is(p, err));
    TRY(pull_make_folders(p->o->cache_dir, "models/pulled", err));
    const struct pull_lock_wait wait = {p->o->lock_silence_s, p->o->is_stopped, p->o->say, is_done,
                                        p};
    char *path = pull_join(p->folder, ".lock", "");
    s = pull_lock_acquire(&p->lock, path, &wait, err);
    mem_free(path);
    if (s == STATUS_EXISTS) {
        out->was_there = true;
        return STATUS_OK;
    }
    TRY(s);
    s = fetch(p, out, err);
    pull_lock_release(&p->lock);
    return s;
}

/* ---- all kinds ---- */

static enum status check_local(const char *model, const struct pull_options *o,
                               struct pull_result *out, struct error *err)
{
    struct model_info info;
    enum status s = model_info_open(model, o->cache_dir, &info, err);
    if (s == STATUS_OK)
        out->path = mem_strdup(info.path);
    out->was_there = true;
    model_info_fini(&info);
    return s;
}

static struct fetch_net net_of(const struct pull_options *o)
{
    return (struct fetch_net){.ca_file = o->ca_file && o->ca_file[0] ? o->ca_file : NULL,
                              .stall_s = o->stall_s,
                              .retry_wait_s = o->retry_wait_s,
                              .max_retries = (uint32_t)o->retries,
                              .is_stopped = o->is_stopped,
                              .say = o->say};
}

static void fini(struct pull *p)
{
    pull_list_fini(&p->list);
    mem_free(p->folder);
    mem_free(p->staging);
    mem_free(p->endpoint);
    mem_free(p->region);
    aws_credentials_close(p->source.aws);
    hf_cache_fini(&p->hf_cache);
}

/* Fetches the heads of a GGUF in one or several files. */
static enum status fetch_heads(const struct pull *p, struct error *err)
{
    for (uint32_t i = 0; i < p->list.n_files; i++)
        TRY(pull_head_fetch(&p->source, &p->list.files[i], p->staging, err));
    return check_model(p, err);
}

enum status pull_into(const struct pull_options *o, const struct model_ref *r,
                      const struct pull_sink *sink, struct error *err)
{
    const struct fetch_net net = net_of(o);
    struct pull p = {.o = o, .net = &net, .r = r, .staging = mem_strdup(sink->folder)};
    struct pulled done = {0};
    struct pull_progress progress;
    p.source.follows_links = true;
    enum status s = find_source(&p, err);
    if (s == STATUS_OK)
        s = make_list(&p, err);
    if (s == STATUS_OK && sink->only_heads)
        pull_heads_choose(&p.list);
    if (s == STATUS_OK)
        s = sink->prepare(sink->ctx, &p.list, err);
    if (s == STATUS_OK && sink->only_heads && pull_is_weights(p.list.files[0].name)) {
        s = fetch_heads(&p, err);
    } else if (s == STATUS_OK) {
        done.files = mem_array(p.list.n_files, sizeof *done.files);
        pull_progress_start(&progress, o->command, o->quiet, 0, pull_list_bytes(&p.list));
        s = fetch_files(&p, &done, &progress, err);
        pull_progress_clear(&progress);
    }
    pulled_fini(&done);
    fini(&p);
    return s;
}

enum status pull_model(const struct pull_options *o, const char *model, struct pull_result *out,
                       struct error *err)
{
    const struct fetch_net net = net_of(o);
    struct model_ref r;
    enum status s;
    *out = (struct pull_result){0};
    TRY(model_ref_parse(model, &r, err));
    if (r.kind == MODEL_REF_DEMO) {
        s = pull_demo(o, demo_model_find(r.text), &net, out, err);
    } else if (!model_ref_is_remote(&r) || (r.is_plain && access(model, F_OK) == 0)) {
        s = check_local(model, o, out, err);
    } else {
        struct pull p = {.o = o, .net = &net, .r = &r};
        s = pull_remote(&p, out, err);
        fini(&p);
    }
    model_ref_fini(&r);
    return s;
}

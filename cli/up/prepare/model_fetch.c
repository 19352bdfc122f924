#include "cli/up/prepare/model_fetch.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/base/command_line.h"
#include "cli/pull/ensure.h"
#include "cli/pull/options.h"
#include "cli/up/plan/options.h"
#include "common/base/arena.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/model/info/ref.h"
#include "common/options/gateway.h"
#include "common/options/worker.h"

extern char **environ;

enum status model_fetch(const struct pull_ensure *e, const char *model,
                        const struct speculation_options *o, bool *was_fetched, struct error *err)
{
    struct speculation draft = {0};
    struct error unread;
    bool was_draft_fetched = false;
    *was_fetched = false;
    if (model)
        TRY(pull_ensure(e, model, was_fetched, err));
    if (o && speculation_read(o, &draft, &unread) == STATUS_OK && draft.n_tokens > 0 &&
        draft.model[0])
        TRY(pull_ensure(e, draft.model, &was_draft_fetched, err));
    *was_fetched = *was_fetched || was_draft_fetched;
    return STATUS_OK;
}

enum status model_with_revision(const char *model, const char *revision, struct arena *arena,
                                const char **out, struct error *err)
{
    struct model_ref r;
    *out = model;
    if (!revision || !revision[0])
        return STATUS_OK;
    TRY(model_ref_parse(model, &r, err));
    bool is_hub = r.kind == MODEL_REF_HUB && !(r.is_plain && access(model, F_OK) == 0);
    const char *at = is_hub ? strrchr(model, '@') : NULL;
    enum status s = STATUS_OK;
    if (!is_hub && strcmp(revision, "main") != 0)
        s = error_set(
            err, STATUS_INVALID,
            "--revision %.100s cannot be used: model %s is not from a hub and has no revisions. "
            "Remove --revision, or name the folder of that revision as the model",
            revision, r.text);
    else if (at && strcmp(at + 1, revision) != 0)
        s = error_set(err, STATUS_INVALID,
                      "--revision %.100s differs from the revision in the model's name %s. Give "
                      "only one of the two",
                      revision, r.text);
    else if (is_hub && !at) {
        size_t n = strlen(model) + strlen(revision) + 5;
        char *text = arena_try_alloc(arena, n);
        if (text)
            snprintf(text, n, "%s%s@%s", r.is_plain ? "hf:" : "", model, revision);
        *out = text ? text : model;
    }
    model_ref_fini(&r);
    return s;
}

static int end(const char *command, enum status s, const struct error *err)
{
    if (s != STATUS_OK && log_is_json())
        log_error("start_failed", "status=%s error=%s", status_name(s), log_quote(err->text));
    else if (s != STATUS_OK)
        fprintf(stderr, "cox %s: %s\n", command, err->text);
    return pull_exit_code(s);
}

int model_fetch_for_workers(const struct worker_options *o)
{
    const struct pull_ensure e = {
        .command = "workers", .cache_dir = o->cache_dir, .offline = o->offline};
    struct error err = {0};
    bool was_fetched;
    return end(e.command, model_fetch(&e, o->model, &o->speculation, &was_fetched, &err), &err);
}

int model_fetch_for_worker(int argc, char **argv)
{
    struct worker_options *o = mem_zalloc(sizeof *o);
    struct config_result res = {0};
    struct error err = {0};
    enum status s = STATUS_OK;
    bool was_fetched;
    if (config_parse(worker_option_specs, worker_n_option_specs, argc, argv, environ, o, &res,
                     &err) == STATUS_OK &&
        !res.help && !res.version) {
        const struct pull_ensure e = {
            .command = "worker", .cache_dir = o->cache_dir, .offline = o->offline};
        log_init("worker", (enum log_level)o->log_level, (enum log_format)o->log_format);
        s = model_fetch(&e, o->model, &o->speculation, &was_fetched, &err);
    }
    config_fini(&res);
    mem_free(o);
    return end("worker", s, &err);
}

int model_fetch_for_gateway(int argc, char **argv)
{
    struct gateway_config *o = mem_zalloc(sizeof *o);
    struct config_result res = {0};
    struct error err = {0};
    enum status s = STATUS_OK;
    bool was_fetched;
    if (config_parse(gateway_options, n_gateway_options, argc, argv, environ, o, &res, &err) ==
            STATUS_OK &&
        !res.help && !res.version) {
        const struct pull_ensure e = {
            .command = "gateway", .cache_dir = o->cache_dir, .offline = o->offline};
        log_init("gateway", (enum log_level)o->log_level, (enum log_format)o->log_format);
        s = model_fetch(&e, o->model, NULL, &was_fetched, &err);
    }
    config_fini(&res);
    mem_free(o);
    return end("gateway", s, &err);
}

enum status model_fetch_for_up(const char *command, const char *model, const char *const *args,
                               size_t n_args, struct error *err)
{
    struct up_options *o = mem_zalloc(sizeof *o);
    struct config_result res = {0};
    struct error unread;
    enum status s = STATUS_OK;
    bool was_fetched;
    struct arena texts;
    arena_init(&texts, 0);
    char name[] = "up", **argv = mem_array(n_args + 2, sizeof *argv);
    argv[0] = name;
    for (size_t i = 0; i < n_args; i++)
        argv[i + 1] = (char *)args[i];
    if (config_parse(up_specs, up_n_specs, (int)n_args + 1, argv, environ, o, &res, &unread) ==
            STATUS_OK &&
        o->load_format < UP_LOAD_STREAM) {
        const struct pull_ensure e = {
            .command = command, .cache_dir = o->cache_dir, .offline = o->offline};
        s = model_with_revision(model, o->revision, &texts, &model, err);
        if (s == STATUS_OK)
            s = model_fetch(&e, model, &o->speculation, &was_fetched, err);
    }
    config_fini(&res);
    mem_free(argv);
    mem_free(o);
    arena_fini(&texts);
    return s;
}

#pragma once
/* `cox pull`: brings what a reference names (common/model/info/ref.h) into the cache, whole or not
 * at all. What is unfinished lies beside it and is gone on with by the next run; many runs on one
 * volume fetch once. When all is there nothing is written and nobody is asked. */
#include "cli/pull/files/files.h"
#include "cli/pull/files/lock.h"
#include "cli/pull/sources/hf_cache.h"
#include "common/config/config.h"
#include "common/model/info/ref.h"

struct pull_options {
    const char *cache_dir, *ca_file;
    const char *hf_endpoint, *hf_token, *hf_cache, *index;
    const char *aws_id, *aws_secret, *aws_session, *aws_region, *aws_endpoint;
    bool check, verify, quiet, offline;
    int64_t retries, parallel;
    double retry_wait_s, stall_s, lock_silence_s;
    /* set by who calls, never by an option */
    const char *command;                  /* in front of lines of progress; NULL: "pull" */
    const char *(*env)(const char *name); /* getenv */
    const char *hf_home, *xdg_cache_home, *home;
    bool (*is_stopped)(void);
    void (*say)(const char *text);
};

struct pull_result {
    char *path; /* the model's folder or file; for mem_free */
    bool was_there;
    uint64_t fetched_bytes;
};
MUST_USE enum status pull_model(const struct pull_options *o, const char *model,
                                struct pull_result *out, struct error *err);

/* The options as environment and defaults have them, without COX_CONFIG, COX_CHECK and COX_VERIFY,
 * which are of other commands; res owns their texts (config_fini). */
MUST_USE enum status pull_options_read(struct pull_options *o, struct config_result *res,
                                       struct error *err);
/* Of a fetch that ended so: 1 where trying again may help, 2 where something has to be changed
 * first; also of the commands that fetch by themselves. */
int pull_exit_code(enum status s);

/* ---- shared with pull_stream.c ---- */

/* Where the files go: prepare makes NAME.part of each in folder, links or files. */
struct pull_sink {
    const char *folder;
    enum status (*prepare)(void *ctx, const struct pull_list *l, struct error *err);
    void *ctx;
    bool only_heads; /* what it is planned from (pull_head.h) */
};
/* The files of a remote reference, checked as by cox pull, into the sink; no cache, no lock. */
MUST_USE enum status pull_into(const struct pull_options *o, const struct model_ref *r,
                               const struct pull_sink *sink, struct error *err);

/* ---- shared with pull_demo.c ---- */

/* The end of an error of a model that is missing offline; takes the model's name. */
#define PULL_ONLINE                                                                                \
    "`cox pull %s` where there is a network, or leave out --offline (COX_OFFLINE, "                \
    "HF_HUB_OFFLINE, "                                                                             \
    "TRANSFORMERS_OFFLINE)"

MUST_USE enum status pull_demo(const struct pull_options *o, const struct fetch_net *net,
                               struct pull_result *out, struct error *err);
/* CACHE/below, and the folders above it. */
MUST_USE enum status pull_make_folders(const char *cache_dir, const char *below, struct error *err);
MUST_USE enum status pull_check_space(const char *folder, uint64_t n_bytes, struct error *err);
void pull_remove_tree(const char *path);
char *pull_join(const char *a, const char *b, const char *c); /* for mem_free */

#pragma once
/* Defines the options of a fetch, for `cox pull` and for the commands that fetch a missing
 * model, and the result of a fetch. */
#include <stdint.h>

#include "common/config/config.h"

struct pull_options {
    const char *cache_dir, *ca_file;
    const char *hf_endpoint, *hf_token, *hf_cache, *index;
    const char *aws_id, *aws_secret, *aws_session, *aws_region, *aws_endpoint;
    bool check, verify, quiet, offline;
    int64_t retries, parallel;
    double retry_wait_s, stall_s, lock_silence_s;
    /* the caller sets the fields below; no option sets them */
    const char *command; /* command's name in front of lines of progress; NULL = "pull" */
    const char *(*env)(const char *name); /* getenv, or a test's function */
    const char *hf_home, *xdg_cache_home, *home;
    bool (*is_stopped)(void);
    void (*say)(const char *text);
};

extern const struct option_spec pull_specs[];
extern const size_t pull_n_specs;

struct pull_result {
    char *path; /* path of the model's folder or file; the owner frees it with `mem_free` */
    bool was_there;
    uint64_t fetched_bytes;
};

/* Reads the options from the environment and the defaults. COX_CONFIG, COX_CHECK, COX_VERIFY and
 * COX_MODEL belong to other commands and are ignored. `res` owns the strings (config_fini). */
MUST_USE enum status pull_options_read(struct pull_options *o, struct config_result *res,
                                       struct error *err);
/* Fills options that were not given, from the environment. Returns false when the cache folder's
 * path is too long. */
bool pull_options_complete(struct pull_options *o);
/* Returns the exit code for the status of a fetch. The code is 1 when a retry may succeed, and 2
 * when the user must change something first. Commands that fetch a missing model use this
 * function too. */
int pull_exit_code(enum status s);

/* Ends the error text for a model that is missing offline. The %s in the text is the model's
 * name. */
#define PULL_ONLINE                                                                                \
    "`cox pull %s` where there is a network, or leave out --offline (COX_OFFLINE, "                \
    "HF_HUB_OFFLINE, "                                                                             \
    "TRANSFORMERS_OFFLINE)"

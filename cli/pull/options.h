#pragma once
/* The options of a fetch, for `cox pull` and for the commands that fetch by themselves; and what a
 * fetch gives. */
#include <stdint.h>

#include "common/config/config.h"

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

extern const struct option_spec pull_specs[];
extern const size_t pull_n_specs;

struct pull_result {
    char *path; /* the model's folder or file; for mem_free */
    bool was_there;
    uint64_t fetched_bytes;
};

/* The options as environment and defaults have them, without COX_CONFIG, COX_CHECK and COX_VERIFY,
 * which are of other commands; res owns their texts (config_fini). */
MUST_USE enum status pull_options_read(struct pull_options *o, struct config_result *res,
                                       struct error *err);
/* Fills in what no option says, from the environment. False: the cache folder's path is too long.
 */
bool pull_options_complete(struct pull_options *o);
/* The exit code of a fetch that ended so: 1 where trying again may help, 2 where something has to
 * be changed first; also of the commands that fetch by themselves. */
int pull_exit_code(enum status s);

/* The end of an error of a model that is missing offline; takes the model's name. */
#define PULL_ONLINE                                                                                \
    "`cox pull %s` where there is a network, or leave out --offline (COX_OFFLINE, "                \
    "HF_HUB_OFFLINE, "                                                                             \
    "TRANSFORMERS_OFFLINE)"

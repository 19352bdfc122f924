#pragma once
/* Defines the parsed form of a run file (docs/reference/runs.md). All strings are on the arena
 * of the caller of the parser. */
#include "cli/up/plan/options.h"
#include "common/config/config.h"
#include "common/config/yaml_tree.h"

enum { RUN_FILE_MAX_BYTES = 256 << 10 };

struct run_text {
    const char *s; /* text of a value; NULL = not given */
    struct yaml_mark at;
};

struct run_command {
    const char *command, *workdir; /* command and its folder; workdir NULL = the run's folder */
    struct yaml_mark at;
};

enum run_import_kind { RUN_IMPORT_GIT, RUN_IMPORT_MODEL, RUN_IMPORT_FILE, RUN_IMPORT_ARTIFACT };
struct run_import {
    const char *path; /* place, such as "/code", without a slash at its end */
    struct yaml_mark at;
    enum run_import_kind kind;
    /* source of the import. git: a URL for `git`; model: a reference; file: an absolute path;
     * artifact: the volume's name "ORG/PROJECT/NAME" */
    const char *what;
    const char *ref; /* git ref, only for git; NULL = the remote's HEAD */
};

enum run_volume_kind { RUN_VOLUME_HOST, RUN_VOLUME_CLAIM, RUN_VOLUME_SIZE };
struct run_volume {
    const char *path;
    struct yaml_mark at;
    enum run_volume_kind kind;
    const char *what; /* source of the volume: a folder, the name of a claim, or a quantity */
};

struct run_port {
    const char *name;
    bool is_http;
    uint16_t port;
    struct yaml_mark at;
};

struct run_env {
    const char *name, *value;
    /* the value equals the name, so the variable's value is taken from the environment of the
     * command that starts the run */
    bool is_taken;
    bool is_secret; /* the name contains a word for secrets */
    struct yaml_mark at;
};

struct run_option { /* Holds an option of `cox up`. */
    const char *name, *json;
    struct yaml_mark at;
};

struct run_resources {
    struct run_text cpu, memory; /* amounts in Kubernetes' notation: "2", "10Gi" */
    int64_t gpus;                /* number of GPUs; -1 = not given */
    struct yaml_mark at;
};

#define RUN_LIST(type)                                                                             \
    struct {                                                                                       \
        type *items;                                                                               \
        size_t n, cap;                                                                             \
    }

struct run_file {
    struct run_text name, description, image, model;
    RUN_LIST(const char *) tags;
    RUN_LIST(struct run_command) commands;
    RUN_LIST(struct run_import) imports;
    RUN_LIST(struct run_import) exports; /* exports; only of the kinds FILE and ARTIFACT */
    RUN_LIST(struct run_volume) volumes;
    RUN_LIST(struct run_port) ports;
    RUN_LIST(struct run_env) env;
    /* options of `cox up`, with those from `resources` and `ports` */
    RUN_LIST(struct run_option) options;
    struct run_resources resources;
    bool monitoring;
    struct up_options up; /* parsed options, if there is a model; up_owned owns their strings */
    struct config_result up_owned;
};

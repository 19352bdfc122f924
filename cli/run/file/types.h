#pragma once
/* A run file (docs/reference/runs.md) as a struct: what is to be started, with what. Every text
 * lives on the arena of the one who parsed it. */
#include "cli/up/plan/options.h"
#include "common/config/config.h"
#include "common/config/yaml_tree.h"

enum { RUN_FILE_MAX_BYTES = 256 << 10 };

struct run_text {
    const char *s; /* NULL: not given */
    struct yaml_mark at;
};

struct run_command {
    const char *command, *workdir; /* workdir NULL: the run's folder */
    struct yaml_mark at;
};

enum run_import_kind { RUN_IMPORT_GIT, RUN_IMPORT_MODEL, RUN_IMPORT_FILE, RUN_IMPORT_ARTIFACT };
struct run_import {
    const char *path; /* "/code", without a slash at its end */
    struct yaml_mark at;
    enum run_import_kind kind;
    /* git: a URL that `git` takes; model: a reference; file: an absolute path; artifact: the name
     * of a volume, "ORG/PROJECT/NAME" */
    const char *what;
    const char *ref; /* git; NULL: the remote's HEAD */
};

enum run_volume_kind { RUN_VOLUME_HOST, RUN_VOLUME_CLAIM, RUN_VOLUME_SIZE };
struct run_volume {
    const char *path;
    struct yaml_mark at;
    enum run_volume_kind kind;
    const char *what; /* a folder, a claim's name, a quantity */
};

struct run_port {
    const char *name;
    bool is_http;
    uint16_t port;
    struct yaml_mark at;
};

struct run_env {
    const char *name, *value;
    bool is_taken;  /* the value is its own name: of the environment of who starts it */
    bool is_secret; /* by its name */
    struct yaml_mark at;
};

struct run_option { /* of `cox up` */
    const char *name, *json;
    struct yaml_mark at;
};

struct run_resources {
    struct run_text cpu, memory; /* Kubernetes' quantities */
    int64_t gpus;                /* -1: not given */
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
    RUN_LIST(struct run_import) exports; /* kinds FILE and ARTIFACT alone */
    RUN_LIST(struct run_volume) volumes;
    RUN_LIST(struct run_port) ports;
    RUN_LIST(struct run_env) env;
    RUN_LIST(struct run_option) options; /* those of resources and ports among them */
    struct run_resources resources;
    bool monitoring;
    struct up_options up; /* with a model: what options say; its texts are of up_owned */
    struct config_result up_owned;
};

#pragma once
/* A run file (docs/runs.md) as a struct: what is to be started, with what. Read from its text
 * alone: no file, no process, no environment, so that what is checked is what another machine would
 * check. Every text lives on the arena that the caller gave; single thread. */
#include "cli/run/file/problems.h"
#include "cli/up/plan/options.h"
#include "common/base/arena.h"
#include "common/model/info/ref.h"

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

/* Problems in *p: none, and *out is whole. run_file_fini either way; arena is the caller's. */
void run_file_parse(struct str text, struct arena *arena, struct run_file *out,
                    struct run_problems *p);
void run_file_fini(struct run_file *f);
/* The text of a file, with its bound. */
MUST_USE enum status run_file_read(const char *path, struct strbuf *text, struct error *err);
/* The options as a --config file of `cox up`: a member a line. */
void run_file_options(const struct run_file *f, struct strbuf *out);
/* The gateway's port, or that of a run's `monitoring`: 0 none. */
uint16_t run_file_prometheus_port(const struct run_file *f);
/* Is that model fetched into the cache before `cox up`? Not one that it streams. */
bool run_file_pulls(const struct run_file *f, const struct model_ref *ref);
/* Whether an artifact is imported and exported at one path: then the place is the volume itself. */
bool run_file_keeps(const struct run_file *f, const struct run_import *im);
/* The place where Hugging Face's programs of a container look for models (~/.cache/huggingface),
 * where the file brings or keeps one. NULL: it does not, or says itself what HF_HOME is. */
const char *run_file_hf_home(const struct run_file *f);
/* Does path lie at or below an import or a volume? */
bool run_file_brings(const struct run_file *f, const char *path);

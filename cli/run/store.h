#pragma once
/* The folders of runs: RUNS/ID/ with run.yaml (its copy), state.json, env.json (what was taken of
 * the starter's environment), up.yaml, log, root/. state.json is written whole and renamed, by the
 * run's keeper alone; everybody else reads. A keeper is known by its pid and by when that process
 * began: a pid alone may be another one's by now. */
#include <jansson.h>
#include <sys/types.h>

#include "common/config/config.h"

enum { RUN_ID_DIGITS = 12, RUN_PATH_BYTES = 4096 };

enum run_status {
    RUN_PENDING,
    RUN_IMPORTING,
    RUN_RUNNING,
    RUN_TERMINATED,
    RUN_COMPLETED,
    RUN_FAILED,
    RUN_STATUS_COUNT
};
const char *run_status_name(enum run_status s);

struct run_process {
    pid_t pid;      /* 0: none */
    uint64_t began; /* clock ticks since the machine's start */
    char boot[40];  /* which start of the machine */
};
/* False: there is no such process. */
bool run_process_read(pid_t pid, struct run_process *out);
json_t *run_process_json(const struct run_process *p); /* as state.json has it; a new reference */
bool run_process_lives(const struct run_process *p);

struct run_store {
    char dir[RUN_PATH_BYTES - 64]; /* RUNS, absolute */
};

/* dir: --runs-dir, or NULL. Makes the folder, 0700, where there is none. */
MUST_USE enum status run_store_open(struct run_store *s, const char *dir, struct error *err);
/* A new ID and its folder; path gets RUNS/ID. */
MUST_USE enum status run_store_new(const struct run_store *s, char id[RUN_ID_DIGITS + 1],
                                   char path[RUN_PATH_BYTES], struct error *err);
/* "RUNS/ID" or "RUNS/ID/name". */
void run_store_path(const struct run_store *s, const char *id, const char *name,
                    char path[RUN_PATH_BYTES]);
/* A file of a run, written whole and renamed, 0600. */
MUST_USE enum status run_store_write(const char *folder, const char *name, struct str text,
                                     struct error *err);
MUST_USE enum status run_store_write_json(const char *folder, const char *name, const json_t *j,
                                          struct error *err);
/* state.json, with room reserved for the next one: a disk that fills up keeps the run's end. The
 * last one is written in place when it must be. */
MUST_USE enum status run_store_write_state(const char *folder, const json_t *state, bool is_last,
                                           struct error *err);
/* NULL: it is not there, or no JSON object. For json_decref. */
json_t *run_store_read_json(const char *folder, const char *name);

struct run_record {
    char id[RUN_ID_DIGITS + 1];
    enum run_status status; /* as it is: one whose keeper was killed is RUN_FAILED */
    bool is_live, was_killed;
    struct run_process keeper;
    json_t *state; /* owned */
};
bool run_store_read(const struct run_store *s, const char *id, struct run_record *out);
void run_record_fini(struct run_record *r);
/* The oldest first; *owned_records is for run_records_free. */
MUST_USE enum status run_store_list(const struct run_store *s, struct run_record **owned_records,
                                    size_t *n, struct error *err);
void run_records_free(struct run_record *owned_records, size_t n);
/* By its ID, the first digits of one, or a name; of runs of one name that one that lives.
 * STATUS_NOT_FOUND, STATUS_INVALID: several, which the text names. */
MUST_USE enum status run_store_find(const struct run_store *s, const char *who,
                                    struct run_record *out, struct error *err);
const char *run_record_text(const struct run_record *r, const char *key); /* "" without it */

#pragma once
/* Keeps the folders of runs: RUNS/ID/ with run.yaml, state.json, env.json, up.yaml, log and
 * root/. run.yaml is a copy of the run file. env.json has values from the environment of the
 * command that started the run.
 * Only the run's keeper writes state.json, under a temporary name that is then renamed. All
 * other processes read. A keeper is identified by its process number and start time, because the
 * number alone may belong to a newer process. */
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
    pid_t pid;      /* process number; 0 = none */
    uint64_t began; /* start time in clock ticks since the machine's boot */
    char boot[40];  /* boot id of the machine */
};
/* Reads the number, start time and boot id of a process. Returns false when there is no such
 * process. */
bool run_process_read(pid_t pid, struct run_process *out);
/* Returns a new reference, in the form of state.json. */
json_t *run_process_json(const struct run_process *p);
bool run_process_lives(const struct run_process *p);

struct run_store {
    char dir[RUN_PATH_BYTES - 64]; /* absolute path of the folder RUNS */
};

/* Opens the store. `dir` is --runs-dir, or NULL for the default. A missing folder is made with
 * mode 0700. */
MUST_USE enum status run_store_open(struct run_store *s, const char *dir, struct error *err);
/* Makes a new ID and its folder. `path` receives RUNS/ID. */
MUST_USE enum status run_store_new(const struct run_store *s, char id[RUN_ID_DIGITS + 1],
                                   char path[RUN_PATH_BYTES], struct error *err);
/* Writes "RUNS/ID", or "RUNS/ID/name", to `path`. */
void run_store_path(const struct run_store *s, const char *id, const char *name,
                    char path[RUN_PATH_BYTES]);
/* Writes a file of a run with mode 0600, under a temporary name that is then renamed. */
MUST_USE enum status run_store_write(const char *folder, const char *name, struct str text,
                                     struct error *err);
MUST_USE enum status run_store_write_json(const char *folder, const char *name, const json_t *j,
                                          struct error *err);
/* Writes state.json and reserves disk space for the next state, so that the run's end is
 * recorded even on a full disk. As a last resort, the state is written in place. */
MUST_USE enum status run_store_write_state(const char *folder, const json_t *state, bool is_last,
                                           struct error *err);
/* Reads a JSON file of a run and returns a new reference. Returns NULL when the file is missing
 * or does not contain a JSON object. */
json_t *run_store_read_json(const char *folder, const char *name);

struct run_record {
    char id[RUN_ID_DIGITS + 1];
    enum run_status status; /* actual status of the run; RUN_FAILED when the keeper was killed */
    bool is_live, was_killed;
    struct run_process keeper;
    json_t *state; /* content of state.json, owned */
};
bool run_store_read(const struct run_store *s, const char *id, struct run_record *out);
void run_record_fini(struct run_record *r);
/* Lists the runs, oldest first. The caller frees *owned_records with run_records_free. */
MUST_USE enum status run_store_list(const struct run_store *s, struct run_record **owned_records,
                                    size_t *n, struct error *err);
void run_records_free(struct run_record *owned_records, size_t n);
/* Finds a run by its ID, the first digits of an ID, or its name. When several runs have the
 * name, the only live run among them is chosen. STATUS_NOT_FOUND: there is no such run.
 * STATUS_INVALID: several runs match; the text names them. */
MUST_USE enum status run_store_find(const struct run_store *s, const char *who,
                                    struct run_record *out, struct error *err);
/* Returns the text of a member; "" = missing. */
const char *run_record_text(const struct run_record *r, const char *key);

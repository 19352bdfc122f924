#pragma once
/* Keeps uploaded files, batches and their lines in one SQLite file in --state-dir. Each call is
 * one transaction and blocks on the disk. All calls run on the store's own thread, never on the
 * loop, and must not overlap. The file is locked while it is open, so one folder serves one
 * gateway. A tenant sees only its own rows. A call for any other row returns STATUS_NOT_FOUND.
 *   line: WAITING ──take──▶ TAKEN ──answer──▶ ANSWERED
 *            ▲── release, open ──┘
 * A disk that is full, read-only or missing does not stop the gateway. Calls that need the disk
 * fail with STATUS_NO_MEMORY (full) or STATUS_CLOSED (the database cannot be opened; a retry
 * follows every 1 to 30 s). Reads and deletions work while the database can be read.
 * The last answer of a batch, its cancellation or its expiry writes the output and error files
 * and deletes the lines in the same transaction. Each line is therefore in the files once or not
 * at all. */
#include "common/base/str.h"

enum {
    STATE_ID_BYTES = 48,
    STATE_NAME_BYTES = 256,
    STATE_PURPOSE_BYTES = 24,
    STATE_MAX_LINES = 50000 /* most lines of a batch, as in OpenAI's API */
};

struct state_store;

struct stored_file {
    char id[STATE_ID_BYTES]; /* id of the file: "file-" and 32 hex digits */
    uint64_t tenant;
    /* texts of the client; both are valid UTF-8 */
    char filename[STATE_NAME_BYTES], purpose[STATE_PURPOSE_BYTES];
    uint64_t created_s, bytes;
};

enum batch_state {
    BATCH_IN_PROGRESS,
    BATCH_COMPLETED,
    BATCH_FAILED, /* the input file is invalid, and no line was run */
    BATCH_CANCELLED,
    BATCH_EXPIRED,
    BATCH_STATE_COUNT
};

/* `STATE_OWN_TENANT` is the tenant of the gateway's own jobs on the store's thread: taking lines
 * and checking the store. */
#define STATE_OWN_TENANT UINT64_MAX

struct stored_batch {
    char id[STATE_ID_BYTES]; /* id of the batch: "batch_" and 32 hex digits */
    uint64_t tenant;
    char endpoint[64];
    char input_file[STATE_ID_BYTES], output_file[STATE_ID_BYTES], error_file[STATE_ID_BYTES];
    enum batch_state state;
    uint64_t created_s, expires_s, ended_s; /* `ended_s`: 0 = the batch is still open */
    uint32_t n_lines, n_completed, n_failed;
    char *owned_metadata;       /* JSON object of the client; NULL = none */
    char failure[200];          /* reason of the failure, in BATCH_FAILED */
    uint32_t i_line_of_failure; /* number of the line at fault, from 1; 0 = none */
};

/* `STATE_TAKE_BYTES` limits the bytes of bodies that one call takes. */
#define STATE_TAKE_BYTES ((size_t)32 << 20) /* the last line taken may exceed this limit */

struct taken_line {
    int64_t batch_no;
    uint32_t i_line; /* index of the line, from 0 */
    uint64_t tenant;
    char endpoint[64];
    char *owned_body; /* JSON of the request */
    size_t model_at;  /* offset of the model's name there, if the runner looks for it; else 0 */
};

struct state_query {
    uint64_t tenant;
    struct str after;   /* id after which the list starts; "" = from the start */
    struct str purpose; /* purpose of the listed files; "" = any */
    uint32_t limit;
    bool oldest_first;
};

/* Opens the store and creates `dir` when it is missing. `max_bytes` limits the SQLite file. A
 * write that does not fit gets STATUS_LIMIT. A write that leaves too little space for other
 * tenants gets STATUS_DENIED (share.c).
 * Returns STATUS_EXISTS when another process uses the folder, and STATUS_INVALID when the path
 * cannot be a folder. Otherwise returns STATUS_OK, even when the database cannot be opened now:
 * each call then gets the reason. Lines that an earlier process took wait again. */
MUST_USE enum status state_open(const char *dir, uint64_t max_bytes, struct state_store **out,
                                struct error *err);
void state_close(struct state_store *s); /* closes the store; `s` may be NULL */

struct state_health {
    bool is_open, disk_full;
    /* more pages can be returned to the disk: call state_look again after the waiting calls */
    bool has_more;
    uint32_t n_lost; /* times that the database was found broken or could not be opened */
};
/* Opens a lost database again when a retry is due, and returns some unused pages to the disk.
 * The gateway calls this function about every second. */
struct state_health state_look(struct state_store *s);

/* Adds a file, and sets `f->id` and `f->bytes`. This function and `state_add_batch` return
 * STATUS_AGAIN when the disk was full and some space was freed. The caller must then repeat the
 * call, after other waiting calls. */
MUST_USE enum status state_add_file(struct state_store *s, struct stored_file *f,
                                    struct str content, struct error *err);
/* Finds a file and appends its content to `content`. When `content` is NULL, only `out` is set. */
MUST_USE enum status state_get_file(struct state_store *s, uint64_t tenant, struct str id,
                                    struct stored_file *out, struct strbuf *content,
                                    struct error *err);
/* Reads n bytes of a file's content from `offset`. The range must be within the content. */
MUST_USE enum status state_read_file(struct state_store *s, uint64_t tenant, struct str id,
                                     uint64_t offset, char *out, size_t n, struct error *err);
/* Deletes a file, which is invisible at once. The content of a large file is removed later, one
 * piece in each `state_look`. */
MUST_USE enum status state_delete_file(struct state_store *s, uint64_t tenant, struct str id,
                                       struct error *err);
/* Calls `each` for each of the tenant's files. The file is borrowed for that call. `each`
 * returns false to stop the list. *more is true when other files follow. */
MUST_USE enum status state_list_files(struct state_store *s, const struct state_query *q,
                                      bool (*each)(void *ctx, const struct stored_file *f),
                                      void *ctx, bool *more, struct error *err);

/* Creates a batch. The caller sets tenant, endpoint, input_file, created_s, expires_s and
 * metadata. This function sets the other fields. An input file that is invalid for the endpoint
 * gives a batch in BATCH_FAILED and STATUS_OK. */
MUST_USE enum status state_add_batch(struct state_store *s, struct stored_batch *b,
                                     struct error *err);
MUST_USE enum status state_get_batch(struct state_store *s, uint64_t tenant, struct str id,
                                     struct stored_batch *out, struct error *err);
MUST_USE enum status state_list_batches(struct state_store *s, const struct state_query *q,
                                        bool (*each)(void *ctx, const struct stored_batch *b),
                                        void *ctx, bool *more, struct error *err);
/* Cancels a batch. Answered lines become the output, and all other lines become errors.
 * *batch_no is the batch whose running lines must be cancelled. Returns STATUS_INVALID when the
 * batch has already ended. */
MUST_USE enum status state_cancel_batch(struct state_store *s, uint64_t tenant, struct str id,
                                        uint64_t now_s, struct stored_batch *out, int64_t *batch_no,
                                        struct error *err);
void stored_batch_fini(struct stored_batch *b);

/* Takes at most `max` waiting lines, from tenants in turn (turns.c) and from each tenant's
 * oldest batch first. Taking stops at STATE_TAKE_BYTES. Expired batches are ended first. *n_open
 * is the number of batches in progress. */
MUST_USE enum status state_take_lines(struct state_store *s, uint32_t max, uint64_t now_s,
                                      struct taken_line *out, uint32_t *n, uint32_t *n_open,
                                      struct error *err);
/* Makes a taken line wait again. When the batch has ended, nothing changes and the function
 * returns STATUS_OK too. */
MUST_USE enum status state_release_line(struct state_store *s, int64_t batch_no, uint32_t i_line,
                                        struct error *err);
/* Stores an answer, the JSON body of the response. An answer that does not fit ends its batch.
 * Returns STATUS_AGAIN when some space was freed. The caller must then repeat the call. */
MUST_USE enum status state_answer_line(struct state_store *s, int64_t batch_no, uint32_t i_line,
                                       int http_status, struct str answer, uint64_t now_s,
                                       struct error *err);

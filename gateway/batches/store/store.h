#pragma once
/* What outlives this process: uploaded files, batches and their lines, in one SQLite file below
 * --state-dir. Every call is one transaction, blocks on the disk, and belongs on the store's own
 * thread (never the loop's); calls of one store must not overlap. The file is locked as long as it
 * is open: one gateway per folder. A tenant sees its own rows and no other's: whoever asks for
 * another's is told STATUS_NOT_FOUND.
 *
 *   line: WAITING ──take──▶ TAKEN ──answer──▶ ANSWERED
 *            ▲── release, open ──┘
 *
 * A disk that is full, refuses writes or is gone ends nothing: calls that need it fail with
 * STATUS_NO_MEMORY (full) or STATUS_CLOSED (the database cannot be opened; it is tried again at
 * intervals of 1 to 30 s), reads and deletions go on as long as the database can be read.
 *
 * The batch's last answer, its cancellation or its expiry writes the output and error files and
 * drops the lines in the same transaction, so that a line is in them once or not at all. */
#include "common/base/str.h"

enum {
    STATE_ID_BYTES = 48,
    STATE_NAME_BYTES = 256,
    STATE_PURPOSE_BYTES = 24,
    STATE_MAX_LINES = 50000 /* of a batch, as OpenAI's */
};

struct state_store;

struct stored_file {
    char id[STATE_ID_BYTES]; /* "file-" and 32 hex digits */
    uint64_t tenant;
    char filename[STATE_NAME_BYTES], purpose[STATE_PURPOSE_BYTES]; /* UTF-8 */
    uint64_t created_s, bytes;
};

enum batch_state {
    BATCH_IN_PROGRESS,
    BATCH_COMPLETED,
    BATCH_FAILED, /* its file is not one of lines for it: nothing was run */
    BATCH_CANCELLED,
    BATCH_EXPIRED,
    BATCH_STATE_COUNT
};

/* The tenant in whose name the gateway's own work waits for the store's thread: taking batches'
 * lines, and looking after the store. */
#define STATE_OWN_TENANT UINT64_MAX

struct stored_batch {
    char id[STATE_ID_BYTES]; /* "batch_" and 32 hex digits */
    uint64_t tenant;
    char endpoint[64];
    char input_file[STATE_ID_BYTES], output_file[STATE_ID_BYTES], error_file[STATE_ID_BYTES];
    enum batch_state state;
    uint64_t created_s, expires_s, ended_s; /* ended_s 0: not yet */
    uint32_t n_lines, n_completed, n_failed;
    char *owned_metadata;       /* a JSON object; NULL: none */
    char failure[200];          /* of BATCH_FAILED: why, */
    uint32_t i_line_of_failure; /* and where, from 1; 0: nowhere */
};

/* A line on its way. */
#define STATE_TAKE_BYTES ((size_t)32 << 20) /* read at once, but for the rest of the last line */

struct taken_line {
    int64_t batch_no;
    uint32_t i_line; /* from 0 */
    uint64_t tenant;
    char endpoint[64];
    char *owned_body; /* the request's JSON */
};

struct state_query {
    uint64_t tenant;
    struct str after;   /* an id; "": from the start */
    struct str purpose; /* of files; "": any */
    uint32_t limit;
    bool oldest_first;
};

/* dir is made when it is missing. max_bytes: of the SQLite file; what does not fit is STATUS_LIMIT,
 * and what leaves too little of it to other tenants STATUS_DENIED (share.c).
 * STATUS_EXISTS: another process has it; STATUS_INVALID: the path can be no folder. Any other
 * reason why the database cannot be opened is STATUS_OK, and every call is told of it until it can.
 * Lines that were taken wait again. */
MUST_USE enum status state_open(const char *dir, uint64_t max_bytes, struct state_store **out,
                                struct error *err);
void state_close(struct state_store *s); /* NULL is fine */

struct state_health {
    bool is_open, disk_full;
    bool has_more;   /* there is more to give back: look again, behind the calls that wait */
    uint32_t n_lost; /* times that the database was found broken, or could not be opened */
};
/* Once a second or so: opens a lost database again when its time has come, gives some room back. */
struct state_health state_look(struct state_store *s);

/* f->id and f->bytes are filled in. STATUS_AGAIN, of this and of state_add_batch: there was no
 * room, and a little was made; the call is to be made again, behind those of others. */
MUST_USE enum status state_add_file(struct state_store *s, struct stored_file *f,
                                    struct str content, struct error *err);
/* content: appended to; NULL: not wanted. */
MUST_USE enum status state_get_file(struct state_store *s, uint64_t tenant, struct str id,
                                    struct stored_file *out, struct strbuf *content,
                                    struct error *err);
/* n bytes of a file's content from offset, all within it. */
MUST_USE enum status state_read_file(struct state_store *s, uint64_t tenant, struct str id,
                                     uint64_t offset, char *out, size_t n, struct error *err);
/* Nobody sees it any more. A large one's content goes later, a piece in each state_look. */
MUST_USE enum status state_delete_file(struct state_store *s, uint64_t tenant, struct str id,
                                       struct error *err);
/* each: borrows f for the call; false: no more after it. *more: there are others behind. */
MUST_USE enum status state_list_files(struct state_store *s, const struct state_query *q,
                                      bool (*each)(void *ctx, const struct stored_file *f),
                                      void *ctx, bool *more, struct error *err);

/* b: tenant, endpoint, input_file, created_s, expires_s and metadata are given, the rest is filled
 * in. A file that is no batch of this endpoint makes a BATCH_FAILED one: STATUS_OK all the same. */
MUST_USE enum status state_add_batch(struct state_store *s, struct stored_batch *b,
                                     struct error *err);
MUST_USE enum status state_get_batch(struct state_store *s, uint64_t tenant, struct str id,
                                     struct stored_batch *out, struct error *err);
MUST_USE enum status state_list_batches(struct state_store *s, const struct state_query *q,
                                        bool (*each)(void *ctx, const struct stored_batch *b),
                                        void *ctx, bool *more, struct error *err);
/* What is answered becomes the output, the other lines errors. *batch_no: whose lines not to run
 * on. One that has ended: STATUS_INVALID. */
MUST_USE enum status state_cancel_batch(struct state_store *s, uint64_t tenant, struct str id,
                                        uint64_t now_s, struct stored_batch *out, int64_t *batch_no,
                                        struct error *err);
void stored_batch_fini(struct stored_batch *b);

/* Up to max waiting lines, of tenants in turn (turns.c), a tenant's oldest batch first, and
 * fewer when they have more than STATE_TAKE_BYTES; batches that are past their time expire first.
 * *n_open: batches in progress. */
MUST_USE enum status state_take_lines(struct state_store *s, uint32_t max, uint64_t now_s,
                                      struct taken_line *out, uint32_t *n, uint32_t *n_open,
                                      struct error *err);
/* STATUS_OK too when the batch has ended meanwhile: then nothing changes. */
MUST_USE enum status state_release_line(struct state_store *s, int64_t batch_no, uint32_t i_line,
                                        struct error *err);
/* answer: the response's JSON body. One that does not fit ends its batch. STATUS_AGAIN: a little
 * room was made; the call is to be made again. */
MUST_USE enum status state_answer_line(struct state_store *s, int64_t batch_no, uint32_t i_line,
                                       int http_status, struct str answer, uint64_t now_s,
                                       struct error *err);

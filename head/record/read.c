/* Reads a step log event by event; read.h has the interface. replay.c and the fuzzers call
 * `step_log_next`. It checks a chunk's sums before it reads the events, then decodes one event
 * onto the arena. `step_log_get_plan` decodes a plan. Invariants: the file is not trusted. Sums
 * detect damage but not malice, so every number is checked too. A list takes at least one byte
 * per element, which bounds memory. After a bad number `bad` is set and reads return 0. */
#include "head/record/read.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "head/kv/blocks.h"
#include "proto/limits.h"

enum { MAX_SEQS = 1 << 16, MAX_BLOCKS = 1 << 26, MAX_STOP_IDS = 1 << 16 };

struct step_log_reader {
    struct str file;
    void *mapped; /* mapped file; NULL = the caller owns the bytes */
    size_t at, n_cut;
    uint64_t i_chunk, last_ns;
    const uint8_t *p, *end; /* unread part of the current chunk */
    struct arena arena;
    bool bad; /* an event ended too early, or a number is out of range */
};

/* ---- numbers ---- */

static uint64_t get_varint(struct step_log_reader *r)
{
    uint64_t v = 0;
    for (unsigned shift = 0; r->p < r->end && shift < 64; shift += 7) {
        uint8_t byte = *r->p++;
        v |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80)
            return v;
    }
    r->bad = true;
    return 0;
}

static uint64_t get_at_most(struct step_log_reader *r, uint64_t max)
{
    uint64_t v = get_varint(r);
    if (v > max)
        r->bad = true;
    return v > max ? 0 : v;
}

static uint32_t get_u32(struct step_log_reader *r)
{
    return (uint32_t)get_at_most(r, UINT32_MAX);
}

static int32_t get_i32(struct step_log_reader *r)
{
    int64_t v = step_log_unzigzag(get_varint(r));
    if (v < INT32_MIN || v > INT32_MAX)
        r->bad = true;
    return (int32_t)v;
}

static bool get_bytes(struct step_log_reader *r, void *out, size_t n)
{
    if ((size_t)(r->end - r->p) < n) {
        r->bad = true;
        memset(out, 0, n);
        return false;
    }
    memcpy(out, r->p, n);
    r->p += n;
    return true;
}

static uint64_t get_u64(struct step_log_reader *r)
{
    uint64_t v;
    (void)get_bytes(r, &v, sizeof v);
    return v;
}

static struct str get_text(struct step_log_reader *r, size_t max)
{
    size_t n = (size_t)get_at_most(r, max);
    if ((size_t)(r->end - r->p) < n)
        r->bad = true;
    if (r->bad)
        return (struct str){"", 0};
    r->p += n;
    return (struct str){(const char *)r->p - n, n};
}

static uint64_t get_time(struct step_log_reader *r)
{
    r->last_ns += (uint64_t)step_log_unzigzag(get_varint(r));
    return r->last_ns;
}

/* Reads the length of a list. Each element takes at least one byte, so the number of remaining
 * bytes bounds the list's memory. */
static uint32_t get_count(struct step_log_reader *r, uint32_t max)
{
    uint32_t n = (uint32_t)get_at_most(r, max);
    if (n > (size_t)(r->end - r->p)) {
        r->bad = true;
        return 0;
    }
    return n;
}

static void *get_room(struct step_log_reader *r, uint32_t n, size_t size)
{
    void *room = n > 0 ? arena_try_array(&r->arena, n, size) : NULL;
    if (n > 0 && !room)
        r->bad = true;
    return room;
}

/* Reads a pair. Returns false when another kind of entry follows; *v is that kind. */
static bool get_pair(struct step_log_reader *r, uint32_t *slot, uint32_t *v)
{
    uint8_t kind, bytes[5] = {0};
    (void)get_bytes(r, &kind, 1);
    if (kind >= STEP_LOG_OTHER) {
        r->bad = r->bad || kind > STEP_LOG_MASKED;
        *v = kind;
        return false;
    }
    (void)get_bytes(r, bytes, kind == STEP_LOG_PAIR_WIDE ? 5 : 4);
    *slot = bytes[0] | (uint32_t)bytes[1] << 8;
    *v = bytes[2] | (uint32_t)bytes[3] << 8 | (uint32_t)bytes[4] << 16;
    return true;
}

static struct u32_span get_ids(struct step_log_reader *r, uint32_t max)
{
    uint32_t n = get_count(r, max);
    uint32_t *ids = get_room(r, n, sizeof *ids);
    if (!ids)
        return (struct u32_span){0};
    for (uint32_t i = 0; i < n; i++)
        ids[i] = get_u32(r);
    return (struct u32_span){ids, n};
}

/* ---- events ---- */

static void get_config(struct step_log_reader *r, struct scheduler_config *c)
{
    struct error ignored;
    uint32_t *const fields[] = {&c->max_num_batched_tokens,
                                &c->max_num_seqs,
                                &c->max_waiting,
                                &c->long_prefill_token_threshold,
                                &c->max_partial_prefills,
                                &c->max_model_len,
                                &c->depth,
                                &c->n_draft,
                                &c->draft_max_seqs};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        *fields[i] = get_u32(r);
    c->step_target_ns = get_varint(r);
    c->enable_prefix_caching = get_at_most(r, STEP_LOG_PREFIX_CACHING) != 0;
    c->n_kv_groups = (uint32_t)get_at_most(r, SCHEDULER_MAX_KV_GROUPS);
    for (uint32_t i = 0; i < c->n_kv_groups && !r->bad; i++) {
        struct kv_group *k = &c->kv_groups[i];
        k->kind = (enum kv_kind)get_at_most(r, KV_KIND_COUNT - 1);
        k->window_tokens = get_u32(r);
        k->block_tokens = get_u32(r);
        k->bytes_per_block = get_varint(r);
        k->n_blocks = (uint32_t)get_at_most(r, MAX_BLOCKS);
        if (!r->bad)
            r->bad = blocks_check_group(k, i, &ignored) != STATUS_OK;
    }
    r->bad = r->bad || c->max_num_seqs > MAX_SEQS || c->n_draft > PROTO_MAX_DRAFT;
}

/* Reads the text that put_adapter of step_log.c wrote. */
static uint64_t take_lora_id(struct str *name)
{
    char digits[STEP_LOG_LORA_ID_BYTES];
    size_t n =
        name->len - (name->len < STEP_LOG_LORA_ID_BYTES ? name->len : STEP_LOG_LORA_ID_BYTES);
    if (n == 0 || name->ptr[n] != '\n')
        return 0;
    memcpy(digits, name->ptr + n + 1, sizeof digits - 1);
    digits[sizeof digits - 1] = '\0';
    name->len = n;
    return strtoull(digits, NULL, 16);
}

static void get_sampling(struct step_log_reader *r, struct sampling_params *s)
{
    float floats[6];
    (void)get_bytes(r, floats, sizeof floats);
    s->temperature = floats[0];
    s->top_p = floats[1];
    s->min_p = floats[2];
    s->presence_penalty = floats[3];
    s->frequency_penalty = floats[4];
    s->repetition_penalty = floats[5];
    s->seed = get_u64(r);
    s->top_k = get_i32(r);
    s->i_prompt = get_u32(r);
    s->i_choice = get_u32(r);
    s->n_logprobs = get_i32(r);
    s->n_prompt_logprobs = get_i32(r);
    s->max_tokens = get_u32(r);
    s->min_tokens = get_u32(r);
    s->grammar_kind = (enum grammar_kind)get_at_most(r, GRAMMAR_COUNT - 1);
    s->eos_ids = get_ids(r, MAX_STOP_IDS);
    s->stop_ids = get_ids(r, MAX_STOP_IDS);
    s->lora = get_text(r, STEP_LOG_MAX_NAME);
    s->lora_id = take_lora_id(&s->lora);
}

static void get_request(struct step_log_reader *r, struct request *x)
{
    *x = (struct request){0};
    x->id.hi = get_u64(r);
    x->id.lo = get_u64(r);
    x->tenant = get_u64(r);
    x->salt.lo = get_u64(r);
    x->salt.hi = get_u64(r);
    x->arrival_seq = get_varint(r);
    x->i_choice = get_u32(r);
    x->priority = get_i32(r);
    uint64_t flags = get_at_most(r, STEP_LOG_RESUBMITTED | STEP_LOG_PREEMPTED);
    x->resubmitted = flags & STEP_LOG_RESUBMITTED;
    x->state = flags & STEP_LOG_PREEMPTED ? REQUEST_PREEMPTED : REQUEST_QUEUED;
    x->arrival_ns = get_varint(r);
    x->deadline_ns = get_varint(r);
    x->first_token_ns = get_varint(r);
    x->scheduled_ns = get_varint(r);
    x->n_prompt = get_u32(r);
    /* the limit is one above the model length, for the one id of a pooling request */
    x->ids_cap = (uint32_t)get_at_most(r, BLOCKS_MAX_MODEL_LEN + 1);
    x->n_cached = get_u32(r);
    x->finish = (enum finish_reason)get_at_most(r, FINISH_REASON_COUNT - 1);
    x->stop_id = get_u32(r);
    x->n_logged_bytes = get_varint(r);
    struct u32_span ids = get_ids(r, x->ids_cap);
    x->ids = (uint32_t *)ids.ptr;
    x->n_ids = ids.n;
    get_sampling(r, &x->sampling);
    bool has_room = x->finish != FINISH_NONE || x->n_ids < x->ids_cap;
    r->bad = r->bad || x->n_prompt == 0 || x->n_prompt > x->n_ids || !has_room;
}

/* Reads an entry that is not a pair. The log does not have the score distances (`gaps`) of an
 * item, only the way in which the answer ends. It becomes the last gap; every other gap is 0. */
static void get_other(struct step_log_reader *r, bool masked, struct result_item *x)
{
    uint8_t end = 0;
    if (masked) {
        x->mask_units = get_u32(r);
        end = (uint8_t)get_at_most(r, 2);
    }
    x->slot = get_u32(r);
    x->ids = get_ids(r, MAX_SEQS);
    float *gaps = end > 0 ? get_room(r, x->ids.n, sizeof *gaps) : NULL;
    if (!gaps)
        return;
    memset(gaps, 0, x->ids.n * sizeof *gaps);
    gaps[x->ids.n - 1] = end == 1 ? RESULT_DEAD_END : RESULT_MASK_COST;
    x->gaps = (struct f32_span){gaps, x->ids.n};
}

static void get_result(struct step_log_reader *r, struct msg_result *m)
{
    *m = (struct msg_result){0};
    m->term_epoch = get_varint(r);
    m->step = get_varint(r);
    m->execute_ns = get_varint(r);
    m->wait_ns = get_varint(r);
    m->n_drafted = get_u32(r);
    uint32_t n = get_count(r, MAX_SEQS);
    struct result_item *items = get_room(r, n, sizeof *items);
    uint32_t *plain_ids = get_room(r, n, sizeof *plain_ids);
    for (uint32_t i = 0; i < n && !r->bad; i++) {
        if (get_pair(r, &items[i].slot, &plain_ids[i])) {
            items[i].ids = (struct u32_span){&plain_ids[i], 1};
        } else {
            get_other(r, plain_ids[i] == STEP_LOG_MASKED, &items[i]);
        }
    }
    m->items = items;
    m->n_items = n;
}

static void get_fields(struct step_log_reader *r, struct step_log_event *e)
{
    uint32_t n = 0;
    switch (e->kind) {
    case STEP_LOG_REPLICA:
        e->id = get_varint(r);
        e->term_epoch = get_varint(r);
        get_config(r, &e->config);
        break;
    case STEP_LOG_ADD:
        e->now_ns = get_time(r);
        get_request(r, &e->request);
        break;
    case STEP_LOG_REFUSED:
        e->status = (enum status)get_at_most(r, STATUS_COUNT - 1);
        break;
    case STEP_LOG_REMOVE:
        e->arrival_seq = get_varint(r);
        break;
    case STEP_LOG_IDLE:
        e->n_idle = get_varint(r);
        e->now_ns = get_time(r);
        break;
    case STEP_LOG_STEP:
        e->now_ns = get_time(r);
        break;
    case STEP_LOG_PLAN:
        (void)get_bytes(r, &n, sizeof n);
        r->bad = r->bad || n > (size_t)(r->end - r->p);
        e->plan = (struct str){(const char *)r->p, r->bad ? 0 : n};
        r->p += e->plan.len;
        break;
    case STEP_LOG_RESULT:
        e->now_ns = get_time(r);
        get_result(r, &e->result);
        break;
    case STEP_LOG_DONE:
        e->status = (enum status)get_at_most(r, STATUS_COUNT - 1);
        e->n_events = get_u32(r);
        e->n_ended = get_u32(r);
        break;
    case STEP_LOG_ENDED:
        e->arrival_seq = get_varint(r);
        e->finish = (enum finish_reason)get_at_most(r, FINISH_REASON_COUNT - 1);
        break;
    case STEP_LOG_DOWN:
        break;
    case STEP_LOG_HOLD:
        e->id = get_varint(r);
        e->n_tokens = get_u32(r);
        e->arrival_seq = get_varint(r);
        break;
    case STEP_LOG_IMPORT:
        e->id = get_varint(r);
        e->n_tokens = get_u32(r);
        get_request(r, &e->request);
        break;
    case STEP_LOG_IMPORTED:
    case STEP_LOG_LET_GO:
        e->id = get_varint(r);
        break;
    case STEP_LOG_LEAVE:
        e->arrival_seq = get_varint(r);
        break;
    default:
        r->bad = true;
    }
}

static void get_event(struct step_log_reader *r, struct step_log_event *e)
{
    e->kind = (enum step_log_kind) * r->p++;
    if (e->kind == STEP_LOG_START) {
        e->version = get_text(r, STEP_LOG_MAX_NAME);
        e->wall_offset_ns = get_varint(r);
        return;
    }
    e->i_replica = (uint32_t)get_at_most(r, STEP_LOG_MAX_REPLICAS - 1);
    get_fields(r, e);
}

/* ---- chunks ---- */

/* Checks the next chunk and begins to read it. Returns STATUS_CLOSED when no complete chunk is
 * left. */
static enum status next_chunk(struct step_log_reader *r, struct error *err)
{
    const uint8_t *head = (const uint8_t *)r->file.ptr + r->at;
    size_t left = r->file.len - r->at;
    uint32_t n, head_sum, sum;
    r->n_cut = left;
    if (left < STEP_LOG_HEAD_BYTES)
        return STATUS_CLOSED;
    memcpy(&n, head, 4);
    memcpy(&head_sum, head + 4, 4);
    memcpy(&sum, head + 8, 4);
    if (head_sum != (step_log_sum(head, 4, r->i_chunk) ^ sum) || n > STEP_LOG_CHUNK_MAX)
        return error_set(err, STATUS_INVALID,
                         "cannot read the step log: it is damaged at byte %zu, in the header of "
                         "chunk %llu. Record a new log",
                         r->at, (unsigned long long)r->i_chunk);
    if (left - STEP_LOG_HEAD_BYTES < n)
        return STATUS_CLOSED;
    if (sum != step_log_sum(head + STEP_LOG_HEAD_BYTES, n, r->i_chunk))
        return error_set(err, STATUS_INVALID,
                         "cannot read the step log: it is damaged between bytes %zu and %zu, in "
                         "chunk %llu. Record a new log",
                         r->at, r->at + STEP_LOG_HEAD_BYTES + n, (unsigned long long)r->i_chunk);
    r->p = head + STEP_LOG_HEAD_BYTES;
    r->end = r->p + n;
    r->at += STEP_LOG_HEAD_BYTES + n;
    r->i_chunk++;
    return STATUS_OK;
}

enum status step_log_next(struct step_log_reader *r, struct step_log_event *e, struct error *err)
{
    arena_reset(&r->arena);
    while (r->p == r->end)
        TRY(next_chunk(r, err));
    memset(e, 0, sizeof *e);
    size_t at = (size_t)(r->p - (const uint8_t *)r->file.ptr);
    get_event(r, e);
    if (r->bad)
        return error_set(err, STATUS_INVALID,
                         "cannot read the step log: it has an invalid event at byte %zu (kind %d). "
                         "Record a new log",
                         at, (int)e->kind);
    return STATUS_OK;
}

size_t step_log_n_cut(const struct step_log_reader *r)
{
    return r->n_cut;
}

/* Checks the magic. Its last byte is the version. */
static enum status check_magic(struct str bytes, struct error *err)
{
    const size_t at = STEP_LOG_MAGIC_BYTES - 1;
    if (bytes.len <= at || memcmp(bytes.ptr, STEP_LOG_MAGIC, at) != 0)
        return error_set(err, STATUS_INVALID,
                         "the file is not a step log. Give a file that --step-log wrote");
    if (bytes.ptr[at] == STEP_LOG_MAGIC[at])
        return STATUS_OK;
    return error_set(err, STATUS_INVALID,
                     "the step log has version %u, but this program reads version %u: replay it "
                     "with the release that wrote it",
                     (uint8_t)bytes.ptr[at], (uint8_t)STEP_LOG_MAGIC[at]);
}

enum status step_log_open_bytes(struct str bytes, struct step_log_reader **out, struct error *err)
{
    *out = NULL;
    TRY(check_magic(bytes, err));
    struct step_log_reader *r = mem_zalloc(sizeof *r);
    r->file = bytes;
    r->at = STEP_LOG_MAGIC_BYTES;
    arena_init(&r->arena, STEP_LOG_CHUNK_MAX * 2ul);
    *out = r;
    return STATUS_OK;
}

enum status step_log_open(const char *path, struct step_log_reader **out, struct error *err)
{
    *out = NULL;
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return error_set(err, STATUS_IO, "cannot open the step log %s: %s", path, strerror(errno));
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size < (off_t)STEP_LOG_MAGIC_BYTES) {
        close(fd);
        return error_set(err, STATUS_INVALID,
                         "%s is not a step log. Give a file that --step-log wrote", path);
    }
    size_t n = (size_t)st.st_size;
    void *mapped = mmap(NULL, n, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (mapped == MAP_FAILED)
        return error_set(err, STATUS_IO, "cannot map the step log %s into memory: %s", path,
                         strerror(errno));
    enum status s = step_log_open_bytes((struct str){mapped, n}, out, err);
    if (s != STATUS_OK) {
        munmap(mapped, n);
        return error_prefix(err, s, "%s", path);
    }
    (*out)->mapped = mapped;
    return STATUS_OK;
}

void step_log_close(struct step_log_reader *r)
{
    if (!r)
        return;
    if (r->mapped)
        munmap(r->mapped, r->file.len);
    arena_fini(&r->arena);
    mem_free(r);
}

/* ---- plans ---- */

static void get_blocks(struct step_log_reader *r, struct plan_run *run)
{
    run->n_blocks = get_count(r, SCHEDULER_MAX_KV_GROUPS);
    struct plan_blocks *blocks = get_room(r, run->n_blocks, sizeof *blocks);
    for (uint32_t i = 0; i < run->n_blocks && !r->bad; i++) {
        blocks[i].i_group = get_u32(r);
        blocks[i].drop_leading = get_u32(r);
        uint32_t n = get_count(r, UINT32_MAX);
        uint32_t *ids = get_room(r, n, sizeof *ids);
        for (uint32_t k = 0; k < n && !r->bad; k++)
            ids[k] = (uint32_t)((k > 0 ? ids[k - 1] : -1ll) + 1 +
                                step_log_unzigzag(get_at_most(r, 1ull << 34)));
        blocks[i].ids = (struct u32_span){ids, n};
    }
    run->blocks = blocks;
}

static void get_runs(struct step_log_reader *r, struct msg_plan *plan)
{
    plan->n_runs = get_count(r, MAX_SEQS);
    struct plan_run *runs = get_room(r, plan->n_runs, sizeof *runs);
    for (uint32_t i = 0; i < plan->n_runs && !r->bad; i++) {
        runs[i] = (struct plan_run){.n_tokens = 1, .sample = true};
        if (get_pair(r, &runs[i].slot, &runs[i].start))
            continue;
        /* a masked entry is valid in results only */
        r->bad = r->bad || runs[i].start == STEP_LOG_MASKED;
        runs[i].slot = get_u32(r);
        runs[i].start = get_u32(r);
        uint64_t tokens = get_at_most(r, (uint64_t)UINT32_MAX << STEP_LOG_RUN_BITS | 3);
        runs[i].n_tokens = (uint32_t)(tokens >> STEP_LOG_RUN_BITS);
        runs[i].sample = tokens & STEP_LOG_SAMPLE;
        runs[i].follows = tokens & STEP_LOG_FOLLOWS;
        runs[i].n_draft = get_u32(r);
        get_blocks(r, &runs[i]);
    }
    plan->runs = runs;
}

static void get_copies_and_admits(struct step_log_reader *r, struct msg_plan *plan)
{
    plan->n_copies = get_count(r, UINT32_MAX);
    struct plan_copy *copies = get_room(r, plan->n_copies, sizeof *copies);
    for (uint32_t i = 0; i < plan->n_copies && !r->bad; i++) {
        copies[i].i_group = get_u32(r);
        copies[i].from = get_u32(r);
        copies[i].to = get_u32(r);
    }
    plan->copies = copies;
    plan->n_admits = get_count(r, MAX_SEQS);
    struct plan_admit *admits = get_room(r, plan->n_admits, sizeof *admits);
    for (uint32_t i = 0; i < plan->n_admits && !r->bad; i++) {
        uint32_t sum;
        admits[i].slot = get_u32(r);
        admits[i].n_prompt = get_u32(r);
        admits[i].n_computed = get_u32(r);
        admits[i].ids.n = get_u32(r);
        (void)get_bytes(r, &sum, sizeof sum);
    }
    plan->admits = admits;
}

enum status step_log_get_plan(struct str bytes, struct arena *arena, struct msg_plan *out,
                              struct error *err)
{
    const uint8_t *p = (const uint8_t *)bytes.ptr;
    struct step_log_reader r = {.p = p, .end = p + bytes.len, .arena = *arena};
    *out = (struct msg_plan){.step = get_varint(&r)};
    uint64_t flags = get_at_most(&r, STEP_LOG_FULL | STEP_LOG_DIGEST);
    out->full = flags & STEP_LOG_FULL;
    out->digest = flags & STEP_LOG_DIGEST ? get_u64(&r) : 0;
    out->finished = get_ids(&r, MAX_SEQS);
    get_copies_and_admits(&r, out);
    get_runs(&r, out);
    *arena = r.arena;
    if (r.bad || r.p != r.end)
        return error_set(
            err, STATUS_INVALID,
            "cannot read the step log: a plan of %zu bytes in it is invalid. Record a new log",
            bytes.len);
    return STATUS_OK;
}

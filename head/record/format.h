#pragma once
/* Defines the step log's format, shared by its writer and its reader.
 *
 *   file    magic (8 bytes) chunk...
 *   chunk   n_bytes, sum of the header, sum of the payload (3 x u32), payload
 *   payload event...
 *     event  kind (1 byte) fields
 *
 * Numbers are little endian. "varint" is base 128, low bits first; "signed" is a varint of a
 * zigzag. A time is the signed difference to the previous time in the file. The sums are XXH3,
 * seeded with the chunk's number, so that a lost or doubled chunk is detected as well as a
 * flipped bit. A file that ends inside a chunk was cut off by a crash and is valid up to that
 * chunk. The comment behind each kind lists its fields. A replica is identified by its index i,
 * as varint; a request by its arrival number. */
#include <string.h>
#include <xxhash.h>

#include "common/base/str.h"

#define STEP_LOG_MAGIC       "coxstep\x03"
#define STEP_LOG_MAGIC_BYTES 8u
#define STEP_LOG_HEAD_BYTES  12u
/* STEP_LOG_CHUNK_MAX limits a chunk, in bytes. It is far above the largest event. */
#define STEP_LOG_CHUNK_MAX    (256u << 20)
#define STEP_LOG_MAX_REPLICAS 4096u
#define STEP_LOG_VARINT_MAX   10u
/* STEP_LOG_MAX_NAME limits a name with the adapter's id ("NAME\n" and 16 digits), in bytes. */
#define STEP_LOG_MAX_NAME      4096u
#define STEP_LOG_LORA_ID_BYTES 17u

enum step_log_kind {
    STEP_LOG_START = 1, /* fields: writer's version, wall clock minus the log's clock */
    STEP_LOG_REPLICA,   /* fields: i, id, term_epoch, the scheduler's configuration */
    STEP_LOG_ADD,       /* fields: i, now, the request before the call */
    STEP_LOG_REFUSED,   /* fields: i, status; the last ADD was refused */
    STEP_LOG_REMOVE,    /* fields: i, arrival */
    STEP_LOG_IDLE,      /* fields: i, n, now; n steps without a plan, the last one at `now` */
    STEP_LOG_STEP,      /* fields: i, now; if no PLAN follows, the process died in the step */
    STEP_LOG_PLAN,      /* fields: i, n_bytes (u32), plan of the last STEP */
    STEP_LOG_RESULT,    /* fields: i, now, the result without log-probabilities */
    STEP_LOG_DONE,      /* fields: i, status, n_events, n_ended of the last RESULT */
    STEP_LOG_ENDED,     /* fields: i, arrival, finish reason; the request ended without a result */
    STEP_LOG_DOWN,      /* fields: i */
    STEP_LOG_HOLD,      /* fields: i, id, n_tokens, arrival */
    STEP_LOG_IMPORT,    /* fields: i, id, n_tokens, another replica's request before the call */
    STEP_LOG_IMPORTED,  /* fields: i, id */
    STEP_LOG_LET_GO,    /* fields: i, id */
    STEP_LOG_LEAVE,     /* fields: i, arrival */
    STEP_LOG_KIND_COUNT
};

enum step_log_request_flags {
    STEP_LOG_RESUBMITTED = 1,
    STEP_LOG_PREEMPTED = 2, /* the sequence was preempted; without this flag it was queued */
};

enum step_log_replica_flags { STEP_LOG_PREFIX_CACHING = 1 };

/* The most frequent entry is a slot and a number: a decode in a plan, or its token in a result.
 * As a pair, the entry is one store of 8 bytes, of which 5 or 6 are kept. The first byte gives
 * this length, or says that varints follow instead (STEP_LOG_OTHER). With STEP_LOG_MASKED, the
 * mask's units and the mask's end precede the varints: 0 = none, 1 = dead end, 2 = the mask cost
 * too much. */
enum step_log_pair { STEP_LOG_PAIR, STEP_LOG_PAIR_WIDE, STEP_LOG_OTHER, STEP_LOG_MASKED };
#define STEP_LOG_PAIR_ROOM 8u

static inline bool step_log_is_pair(uint32_t slot, uint32_t v)
{
    return slot < 1u << 16 && v < 1u << 24;
}

static inline uint8_t *step_log_put_pair(uint8_t *p, uint32_t slot, uint32_t v)
{
    unsigned wide = v >= 1u << 16;
    uint64_t x = wide | slot << 8 | (uint64_t)v << 24;
    memcpy(p, &x, sizeof x);
    return p + 5 + wide;
}

enum step_log_run_flags { STEP_LOG_SAMPLE = 1, STEP_LOG_FOLLOWS = 2, STEP_LOG_RUN_BITS = 2 };

enum step_log_plan_flags { STEP_LOG_FULL = 1, STEP_LOG_DIGEST = 2 };

static inline uint8_t *step_log_put_varint(uint8_t *p, uint64_t v)
{
    for (; v >= 0x80; v >>= 7)
        *p++ = (uint8_t)(v | 0x80);
    *p++ = (uint8_t)v;
    return p;
}

static inline uint64_t step_log_zigzag(int64_t v)
{
    return (uint64_t)v << 1 ^ (uint64_t)(v >> 63);
}

static inline int64_t step_log_unzigzag(uint64_t v)
{
    return (int64_t)(v >> 1 ^ (0 - (v & 1)));
}

static inline uint32_t step_log_sum(const void *bytes, size_t n, uint64_t i_chunk)
{
    return (uint32_t)XXH3_64bits_withSeed(bytes, n, i_chunk);
}

/* Fills in a chunk's header. The payload must follow it in memory. */
static inline void step_log_seal(uint8_t *head, uint32_t n_payload, uint64_t i_chunk)
{
    uint32_t sum = step_log_sum(head + STEP_LOG_HEAD_BYTES, n_payload, i_chunk);
    memcpy(head, &n_payload, 4);
    memcpy(head + 8, &sum, 4);
    uint32_t head_sum = step_log_sum(head, 4, i_chunk) ^ sum;
    memcpy(head + 4, &head_sum, 4);
}

/* Returns a checksum of an admission's ids. The plan in the log has only this checksum, since
 * the request has the ids. */
static inline uint32_t step_log_ids_sum(const uint32_t *ids, uint32_t n)
{
    return (uint32_t)XXH3_64bits(ids, (size_t)n * sizeof *ids);
}

/* Holds a growing buffer for the events of one turn. */
struct step_log_out {
    uint8_t *bytes;
    size_t n, cap;
};
/* Returns a pointer at which n more bytes may be written. The caller advances out->n. */
uint8_t *step_log_room(struct step_log_out *out, size_t n);
void step_log_out_fini(struct step_log_out *out);

/* Appends a plan in the log's format. Equal plans have equal bytes. */
struct msg_plan;
void step_log_put_plan(struct step_log_out *out, const struct msg_plan *plan);

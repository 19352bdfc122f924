#pragma once
/* Defines every message as a plain struct; only codec.* uses protobuf. Spans are borrowed. In a
 * received message they are on the decoder's arena and valid until its reset. In a sent message
 * they belong to the caller. docs/develop/protocol.md says who sends which message when. */
#include <stdbool.h>
#include <stdint.h>

#include "common/base/str.h"
#include "proto/adapters.h"
#include "proto/cluster_load.h"
#include "proto/device_state.h"
#include "proto/grammars.h"
#include "proto/kv_transfers.h"
#include "proto/shapes.h"
#include "proto/spans.h"
#include "proto/vocabulary.h"
#include "proto/worker_orders.h"

#define PROTOCOL_MAJOR 2u
#define PROTOCOL_MINOR 6u

enum msg_type {
    MSG_NONE = 0,
    /* The types up to MSG_GOODBYE are sent on every link. */
    MSG_HELLO,     /* peer → head, first on a link */
    MSG_WELCOME,   /* head → peer: the session is open */
    MSG_REFUSED,   /* head → peer: the session is not open, and why; the link ends */
    MSG_HEARTBEAT, /* both ways, every 250 ms; more seldom on a quiet link of a gateway */
    MSG_CREDIT,    /* both ways: bytes consumed since the last Credit */
    MSG_GOODBYE,   /* both ways: orderly end of the session */
    /* The types up to MSG_CLUSTER are sent between gateway and head. */
    MSG_SUBMIT,
    MSG_CANCEL,
    MSG_FINISH, /* gateway → head */
    MSG_TOKENS,
    MSG_CLUSTER, /* head → gateway */
    /* The types from here on are sent between head and worker, unless they say otherwise. */
    MSG_FORM,
    MSG_JOIN,
    MSG_ABORT,
    MSG_RESET,
    MSG_PLAN,
    MSG_DRAIN, /* head → worker */
    MSG_COMM_ID,
    MSG_FORMED,
    MSG_ABORTED,
    MSG_RESULT,
    MSG_GAP,
    MSG_COMM_ERROR,     /* worker → head */
    MSG_DRAIN_WISH,     /* worker → head: SIGTERM arrived, drain this worker */
    MSG_ADAPTER,        /* head → worker */
    MSG_ADAPTER_DONE,   /* worker → head */
    MSG_ADAPTERS,       /* head → gateway: after Welcome and on every change */
    MSG_ADAPTER_ORDER,  /* gateway → head */
    MSG_ADAPTER_ANSWER, /* head → gateway */
    MSG_KV_TRANSFER,    /* head → worker */
    MSG_KV_TRANSFERRED, /* worker → head */
    MSG_GRAMMAR,        /* head → worker, the sampling rank */
    MSG_GRAMMAR_DONE,   /* worker → head */
    MSG_SLEEP,          /* head → worker */
    MSG_SLEPT,          /* worker → head */
    MSG_TYPE_COUNT
};

enum peer_role { ROLE_NONE, ROLE_GATEWAY, ROLE_WORKER, ROLE_OPERATOR, ROLE_HEAD, ROLE_COUNT };
enum device_kind { DEVICE_NULL, DEVICE_CPU, DEVICE_CUDA, DEVICE_COUNT };
enum finish_reason {
    FINISH_NONE,
    FINISH_STOP,
    FINISH_LENGTH,
    FINISH_CANCELLED,
    FINISH_ERROR,
    FINISH_TIMEOUT,
    FINISH_REASON_COUNT
};

/* ---- every link ---- */

/* Describes a worker. The hashes are SHA-256 (protocol.md, "Configuration hash"). */
struct worker_info {
    enum device_kind device;
    struct str device_name, host, zone;
    uint64_t memory_bytes;
    uint32_t isa_level; /* step of the kernels' ISA ladder; a replica uses its ranks' lowest */
    uint8_t config_hash[32];
    uint8_t model_hash[32];          /* hash of the model alone; zeros = not known */
    int32_t ordinal;                 /* ordinal of the worker; -1 = none */
    uint32_t tp, pp;                 /* the shape that the worker was started for */
    int32_t shard_rank, shard_stage; /* weights held now; -1 = none */
    struct str comm_address;         /* "host:port" for the worker's collectives */
    struct str http_address;         /* "host:port" of /livez, /readyz and /metrics */
    struct str model;                /* name of the served model, for humans */
    uint32_t max_model_len, vocab_size;
    uint32_t n_draft;           /* draft tokens per sequence and step; 0 = no speculation */
    uint32_t draft_max_seqs;    /* most sequences in a step in which drafts are made; 0 = any */
    bool gives_prompt_logprobs; /* the worker accepts n_prompt_logprobs */
    const struct kv_group *kv_groups;
    uint32_t n_kv_groups;
    /* State for adoption by a restarted head; term_epoch 0 = the worker was in no epoch. */
    uint64_t term_epoch, replica_id, step_received, step_executed;
    uint32_t rank, stage;
    const struct msg_adapter *adapters; /* adapters that the worker holds */
    uint32_t n_adapters;
    struct str kv_address; /* "host:port" of the KV cache for other replicas' ranks; "" = none */
    enum replica_role replica_role;
    const struct elastic_shape *elastic; /* shapes, falling in tp; empty = only `tp` */
    uint32_t n_elastic;
    uint32_t shard_tp, replica_tp; /* TP of the shard held, and of the replica; 0 = `tp` */
    enum sleep_level sleep_level;
};

struct msg_hello {
    struct str node;   /* host name or pod name */
    uint64_t instance; /* random number, drawn at process start */
    enum peer_role role;
    struct str version;    /* software version, for humans */
    uint64_t credit_bytes; /* bytes that the sender can receive without a MSG_CREDIT */
    uint64_t term_seen;    /* highest term that this peer has seen */
    bool has_worker;
    struct worker_info worker; /* set for role worker */
    bool has_vocabulary;       /* set for role gateway */
    struct vocabulary vocabulary;
    struct str model; /* name of the model that a gateway serves, for humans */
};

struct msg_welcome {
    uint64_t session; /* every later frame of this link has this number, both ways */
    uint64_t head_instance, term, credit_bytes;
    uint32_t heartbeat_ms, suspect_ms;
    struct str version;
    bool keeps_grammar; /* a gateway may set same_grammar */
    uint32_t quiet_ms;  /* longest next_in_ms that a gateway may announce; 0 = none */
};
struct msg_refused {
    enum status status;
    struct str text;
};

/* A worker sends all fields except serves, spare and next_in_ms. The head sends a worker time_ns
 * and serves and spare, for /readyz (protocol.md, "Readiness"). Between head and gateways only
 * time_ns is sent, and next_in_ms by a gateway. */
struct msg_heartbeat {
    uint64_t time_ns;  /* sender's monotonic clock, for humans */
    uint64_t progress; /* counts operators, to distinguish a stuck worker from a slow one */
    uint64_t term_epoch, step_received, step_executed;
    bool busy;              /* a step is executing now */
    uint32_t load_permille; /* progress of the shard that is being read, 1 to 1000; 0 = none */
    struct gpu_state gpu;
    uint64_t own_ns, own_steps; /* own steps: time without waits, number; 0 = not measured */
    struct host_state host;
    bool serves, spare;  /* serves: its replica serves; spare: no replica needs it now */
    bool has_vocabulary; /* true in every eighth message, once the worker has read the tokens */
    struct vocabulary vocabulary;
    uint32_t next_in_ms; /* time to the next heartbeat of a quiet gateway; 0 = the usual time */
};
struct msg_credit {
    uint64_t bytes;
};
struct msg_goodbye {
    struct str text;
    bool planned; /* a worker leaves on a signal, and nothing has failed */
};

/* ---- gateway ⇄ head ---- */

struct request_id {
    uint64_t hi, lo;
}; /* a request's id is a random number made by the gateway; all choices of the request share it */

struct logit_bias {
    uint32_t token;
    float bias;
};
/* Selects a vector of the prompt's hidden states after the final norm, instead of tokens. */
enum pooling_kind { POOLING_NONE, POOLING_LAST, POOLING_MEAN, POOLING_COUNT };

struct sampling_params {
    float temperature;                                             /* 0 = greedy sampling */
    float top_p, min_p;                                            /* 1 and 0 = off */
    int32_t top_k;                                                 /* <= 0 = off */
    float presence_penalty, frequency_penalty, repetition_penalty; /* 0, 0, 1 = off */
    uint64_t seed; /* always set: the gateway draws a seed when the client gives none */
    uint32_t i_prompt, i_choice; /* with seed: the key of the random draws */
    int32_t n_logprobs;          /* -1 = none; 0 = the chosen token's; k = also the k best */
    int32_t n_prompt_logprobs;   /* like n_logprobs, for the prompt's own ids */
    uint32_t max_tokens, min_tokens;
    struct u32_span eos_ids;  /* ids that end the output and are not shown; empty with ignore_eos */
    struct u32_span stop_ids; /* ids of the client's stop_token_ids */
    struct u32_span allowed_ids; /* ids that may be sampled; empty = all */
    struct u32_span bad_words;   /* token sequences, each ended by UINT32_MAX */
    const struct logit_bias *logit_bias;
    uint32_t n_logit_bias;
    enum grammar_kind grammar_kind;
    struct str grammar;
    struct str lora;           /* adapter's name; empty = none */
    uint64_t lora_id;          /* the head's id of the loaded adapter; 0 = not chosen yet */
    enum pooling_kind pooling; /* not NONE: the request ends with its prompt, and has no ids */
    bool pooling_normalise;    /* the vector is scaled to length 1 */
};

struct msg_submit {
    struct request_id id;
    uint32_t i_choice, attempt; /* a Submit with a higher attempt replaces one with a lower one */
    uint64_t tenant; /* number from the key file; with cache_salt, it salts the prefix cache */
    struct str cache_salt;
    int32_t priority;                    /* a lower number runs sooner, as in vLLM */
    uint32_t n_prompt, n_known_logprobs; /* n_known_logprobs: rows that the gateway has */
    struct u32_span ids;  /* [0, n_prompt): the prompt; then the tokens that the gateway has */
    uint64_t deadline_ms; /* deadline in milliseconds from now; 0 = none */
    struct sampling_params sampling;
    bool same_grammar;      /* use the grammar of the session's last Submit with a grammar */
    bool asks_usage;        /* each Tokens item has block_ms and step_ns */
    struct str tenant_name; /* name of the API key, for people; empty = not known */
    uint32_t slo_ttft_ms;   /* promised milliseconds from now to the first token; 0 = no promise */
};

struct msg_cancel {
    struct request_id id;
    uint32_t i_choice, attempt;
};
/* Ends a choice at a stop string that the gateway saw: n_tokens of the generated tokens count,
 * and the rest is dropped. */
struct msg_finish {
    struct request_id id;
    uint32_t i_choice, attempt, n_tokens;
};

/* Holds log-probabilities of one position: the chosen token first, then the k best, best first. */
struct logprob_row {
    struct u32_span ids;
    struct f32_span values;
    uint32_t chosen_rank;
};

/* Holds new tokens of one choice. `start` is the index of ids[0] among the generated tokens, so
 * that overlaps are dropped and gaps are reported. */
struct tokens_item {
    struct request_id id;
    uint32_t i_choice, attempt, start;
    struct u32_span ids;
    const struct logprob_row *logprobs; /* one row per id, or NULL */
    uint32_t n_logprobs;
    const struct logprob_row *prompt_logprobs; /* rows of the ids from prompt_start + 1 on */
    uint32_t n_prompt_logprobs, prompt_start;
    enum finish_reason finish;
    uint32_t stop_id;   /* id of a FINISH_STOP; UINT32_MAX = an EOS id ended it */
    uint32_t n_cached;  /* prompt tokens found in the prefix cache */
    enum status status; /* FINISH_ERROR: STATUS_LIMIT = 429/503, STATUS_INVALID = 400 */
    uint32_t retry_after_s, predicted_ttft_ms; /* predicted: if promised, from the Submit on */
    struct str text;                           /* reason of a FINISH_ERROR */
    struct f32_span vector;     /* vector of a pooling request, sent with its end and without ids */
    uint64_t queue_us;          /* sent with the first ids: time from Submit to the first step */
    uint64_t block_ms, step_ns; /* if asked: blocks held times ms; part of the steps' time */
};
struct msg_tokens {
    uint64_t term_epoch;
    const struct tokens_item *items;
    uint32_t n_items;
};

/* Sends a gateway the cluster's state, after Welcome and on every change. */
struct msg_cluster {
    uint64_t term;
    uint32_t n_replicas_ready, n_replicas, n_workers;
    struct str model;
    uint32_t max_model_len, vocab_size;
    uint32_t running, waiting;
    bool draining, gives_prompt_logprobs, one_class; /* one_class: the policy is fcfs */
    uint32_t start_s; /* seconds until a replica serves, when none need serve; else 0 */
    struct cluster_load load;
};

/* ---- head ⇄ worker: formation ---- */
/* Prepares a rank for a replica. Every rank drops the state of an older epoch and keeps its
 * weights. The rank with make_id answers CommId, the head sends this id to all ranks in Join,
 * and each rank answers Formed. */
struct msg_form {
    uint64_t term_epoch, replica_id;
    uint32_t tp, pp, rank, stage; /* rank: 0 to tp - 1 inside the stage */
    uint32_t isa_level;
    bool make_id;
    const struct str *comm_addresses; /* tp * pp addresses, stage-major */
    uint32_t n_comm_addresses;
    struct u32_span n_blocks; /* blocks per KV group: the minimum over the ranks */
};
struct msg_comm_id {
    uint64_t term_epoch;
    struct bytes id;
};
struct msg_join {
    uint64_t term_epoch;
    struct bytes id;
};
struct msg_formed {
    uint64_t term_epoch;
    enum status status;
    struct str text;
};
struct msg_abort {
    uint64_t term_epoch;
    struct str text;
}; /* Abort ends the epoch; the worker keeps its weights */
struct msg_aborted {
    uint64_t term_epoch;
};
/* Adopts a replica: the same replica and communicator in a new epoch. Sequences are dropped, all
 * blocks are free, steps start from 1. The rank answers Formed. */
struct msg_reset {
    uint64_t old_term_epoch, term_epoch;
};
struct msg_comm_error {
    uint64_t term_epoch, step;
    struct str text;
};

/* ---- head ⇄ worker: steps ---- */

/* Changes the blocks of one KV group of a sequence: drop_leading blocks left the window, and ids
 * are appended. Table entry i holds block n_dropped + i of the sequence, with the positions from
 * (n_dropped + i) * block_tokens on. In the plan that admits a sequence the table is empty, and
 * drop_leading counts the first blocks that the sequence never had (a prefix hit in a window
 * group). In later plans it is at most the table's length. Where a run begins beyond the table
 * (a later prefix hit), it counts the blocks wholly before `start`. All drops of a plan precede
 * all appends, so a block may change its sequence. A run names each group at most once. */
struct plan_blocks {
    uint32_t i_group, drop_leading;
    struct u32_span ids;
};

/* Admits a sequence. `slot` names it until the slot is in `finished`; `ids` are the prompt and
 * the tokens generated so far. */
struct plan_admit {
    uint32_t slot;
    uint32_t n_prompt;   /* penalties, min_tokens and grammar are computed again from here */
    uint32_t n_computed; /* KV of ids[0..n_computed) is already in the blocks (prefix cache) */
    struct u32_span ids;
    struct sampling_params sampling;
};

/* Runs n_tokens positions of one sequence from `start`. With `sample`, the rank samples the
 * token at position start + n_tokens. It uses its last sampled token where the head does not
 * know it yet. `start` may be beyond the positions that the rank has computed. Other sequences
 * computed them, or do so earlier in this plan (a later prefix hit). Their blocks are in the
 * table or in this run. n_draft (with `sample` and n_tokens 1) lets the rank draft that many
 * more tokens, run them, and keep those that it samples itself. The table has blocks for them. */
struct plan_run {
    uint32_t slot;
    uint32_t start, n_tokens;
    uint32_t n_draft; /* draft tokens that the rank may run */
    bool sample;
    bool follows; /* drafts are in flight: `start` is a lower bound; run the rank's last id */
    const struct plan_blocks *blocks; /* new blocks only */
    uint32_t n_blocks;
};

struct plan_copy {
    uint32_t i_group, from, to;
}; /* a block copy, made before any run */

struct msg_plan {
    uint64_t term_epoch, step; /* steps of an epoch are contiguous from 1 */
    bool full;                 /* the rank drops all its sequences first */
    struct u32_span finished;  /* slots of sequences that leave; freed first */
    const struct plan_copy *copies;
    uint32_t n_copies;
    const struct plan_admit *admits;
    uint32_t n_admits;
    const struct plan_run *runs;
    uint32_t n_runs;
    uint64_t digest; /* set in each 256th step without drafts in flight, else 0 (plan_digest.h) */
};

/* RESULT_DEAD_END is the gap of a position at which the sequence's grammar allows no token. */
#define RESULT_DEAD_END (-1.0f)
/* RESULT_MASK_COST is the gap when finding the allowed tokens would cost too much (text/text.h). */
#define RESULT_MASK_COST   (-2.0f)
#define PROTO_MASK_UNIT_NS 100u /* nanoseconds of one mask unit */
/* Holds one sequence's result: 1 to n_draft + 1 ids; none without `sample`, or when a run with
 * `follows` found its end. prompt_logprobs has a row per position that a prompt's id follows. */
struct result_item {
    uint32_t slot;
    struct u32_span ids;
    const struct logprob_row *logprobs;
    uint32_t n_logprobs;
    const struct logprob_row *prompt_logprobs;
    uint32_t n_prompt_logprobs;
    struct f32_span gaps;   /* a gap per id: distance of the two best scores, or a RESULT_ value */
    struct f32_span vector; /* hidden state of a pooling request */
    uint32_t mask_units, matcher_kib; /* time of the masks; memory of the matcher */
};
struct msg_result {
    uint64_t term_epoch, step;
    const struct result_item *items; /* items of runs that sample or have prompt_logprobs */
    uint32_t n_items;
    uint64_t execute_ns, wait_ns; /* step's time on the device; rank's wait for its plan */
    uint32_t n_drafted;           /* draft tokens run in this step, accepted or not */
};
/* Reports that a plan does not follow the rank's step `last_step`, so it was not executed. */
struct msg_gap {
    uint64_t term_epoch, last_step, got_step;
    struct str text;
};

struct msg {
    enum msg_type type;
    union {
        struct msg_hello hello;
        struct msg_welcome welcome;
        struct msg_refused refused;
        struct msg_heartbeat heartbeat;
        struct msg_credit credit;
        struct msg_goodbye goodbye;
        struct msg_submit submit;
        struct msg_cancel cancel;
        struct msg_finish finish;
        struct msg_tokens tokens;
        struct msg_cluster cluster;
        struct msg_form form;
        struct msg_join join;
        struct msg_abort abort_;
        struct msg_reset reset;
        struct msg_plan plan;
        struct msg_drain drain;
        struct msg_comm_id comm_id;
        struct msg_formed formed;
        struct msg_aborted aborted;
        struct msg_result result;
        struct msg_gap gap;
        struct msg_comm_error comm_error;
        struct msg_drain_wish drain_wish;
        struct msg_adapter adapter;
        struct msg_adapter_done adapter_done;
        struct msg_adapters adapters;
        struct msg_adapter_order adapter_order;
        struct msg_adapter_answer adapter_answer;
        struct msg_kv_transfer kv_transfer;
        struct msg_kv_transferred kv_transferred;
        struct msg_grammar grammar;
        struct msg_grammar_done grammar_done;
        struct msg_sleep sleep;
        struct msg_slept slept;
    };
};

const char *msg_type_name(enum msg_type t);
const char *peer_role_name(enum peer_role r);
const char *finish_reason_name(enum finish_reason f); /* OpenAI's words: "stop", "length" */
/* Returns whether this role may send this type to the head. The head checks each frame. */
bool msg_allowed_from(enum msg_type t, enum peer_role from);
unsigned msg_since_minor(enum msg_type t); /* returns the first minor version with this type */

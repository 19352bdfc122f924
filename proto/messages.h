#pragma once
/* Every message as a plain struct: what head, worker and gateway logic sees. codec.* is the only
 * place that knows protobuf. Spans are borrowed: from the arena of the decoder on the way in (valid
 * until it is reset), from the caller on the way out. Fields that later issues need are here from
 * the start and travel today; docs/develop/protocol.md says who sends what when. */
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

#define PROTOCOL_MAJOR 2u
#define PROTOCOL_MINOR 4u

enum msg_type {
    MSG_NONE = 0,
    /* every link */
    MSG_HELLO,     /* peer → head, first on a link */
    MSG_WELCOME,   /* head → peer: the session is open */
    MSG_REFUSED,   /* head → peer: it is not, and why; the link is dead */
    MSG_HEARTBEAT, /* both ways, every 250 ms */
    MSG_CREDIT,    /* both ways: bytes consumed since the last one */
    MSG_GOODBYE,   /* both ways: orderly end of the session */
    /* gateway ⇄ head */
    MSG_SUBMIT,
    MSG_CANCEL,
    MSG_FINISH, /* gateway → head */
    MSG_TOKENS,
    MSG_CLUSTER, /* head → gateway */
    /* head ⇄ worker */
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
    MSG_DRAIN_WISH,     /* worker → head: SIGTERM came, take my work away */
    MSG_ADAPTER,        /* head → worker */
    MSG_ADAPTER_DONE,   /* worker → head */
    MSG_ADAPTERS,       /* head → gateway: after Welcome and on every change */
    MSG_ADAPTER_ORDER,  /* gateway → head */
    MSG_ADAPTER_ANSWER, /* head → gateway */
    MSG_KV_TRANSFER,    /* head → worker */
    MSG_KV_TRANSFERRED, /* worker → head */
    MSG_GRAMMAR,        /* head → worker, the sampling rank */
    MSG_GRAMMAR_DONE,   /* worker → head */
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

/* A worker describes itself. hash: SHA-256, protocol.md "Configuration hash". */
struct worker_info {
    enum device_kind device;
    struct str device_name, host, zone;
    uint64_t memory_bytes;
    uint32_t isa_level; /* kernels' ISA ladder; a replica runs the lowest of its ranks */
    uint8_t config_hash[32];
    uint8_t model_hash[32];          /* the model alone; zeros: it does not say */
    int32_t ordinal;                 /* -1: none */
    uint32_t tp, pp;                 /* what it was started for */
    int32_t shard_rank, shard_stage; /* weights held now; -1: none */
    struct str comm_address;         /* where its collectives can be reached, "host:port" */
    struct str http_address;         /* /livez /readyz /metrics */
    struct str model;                /* served model's name, for humans */
    uint32_t max_model_len, vocab_size;
    uint32_t n_draft;           /* tokens it can draft per sequence and step; 0: no speculation */
    uint32_t draft_max_seqs;    /* and with how many sequences in a step it pays; 0: always */
    bool gives_prompt_logprobs; /* it takes n_prompt_logprobs */
    const struct kv_group *kv_groups;
    uint32_t n_kv_groups;
    /* what it was doing, for adoption by a restarted head; term_epoch 0: nothing */
    uint64_t term_epoch, replica_id, step_received, step_executed;
    uint32_t rank, stage;
    const struct msg_adapter *adapters; /* that it holds */
    uint32_t n_adapters;
    struct str kv_address; /* where other replicas' ranks reach its KV cache; "": they can not */
    enum replica_role replica_role;
    const struct elastic_shape *elastic; /* tp falling; none: it serves at `tp` alone */
    uint32_t n_elastic;
    uint32_t shard_tp, replica_tp; /* of the shard it holds, and of the replica it is in; 0: tp */
};

struct msg_hello {
    struct str node;   /* host name or pod name */
    uint64_t instance; /* random, drawn at process start */
    enum peer_role role;
    struct str version;    /* software version, for humans */
    uint64_t credit_bytes; /* what the sender is ready to receive without a MSG_CREDIT */
    uint64_t term_seen;    /* the highest term this peer has seen */
    bool has_worker;
    struct worker_info worker; /* role worker */
    bool has_vocabulary;       /* role gateway: it says what its tokens are, */
    struct vocabulary vocabulary;
    struct str model; /* and what it serves, for humans */
};

struct msg_welcome {
    uint64_t session; /* every later frame of this link carries it, both ways */
    uint64_t head_instance;
    uint64_t term;
    uint64_t credit_bytes;
    uint32_t heartbeat_ms, suspect_ms;
    struct str version;
    bool keeps_grammar; /* a gateway may say same_grammar */
};

struct msg_refused {
    enum status status;
    struct str text;
};

/* Worker → head carries all fields but serves and spare; the other directions only time_ns and, to
 * a worker, those two: what /readyz says (protocol.md, "Readiness"). */
struct msg_heartbeat {
    uint64_t time_ns;  /* sender's monotonic clock, for humans */
    uint64_t progress; /* bumped per operator: "alive but stuck" differs from "slow" */
    uint64_t term_epoch, step_received, step_executed;
    bool busy;              /* a step is executing now */
    uint32_t load_permille; /* of the shard that is being read, 1 .. 1000; 0: none is */
    struct gpu_state gpu;
    uint64_t own_ns, own_steps; /* its life's work, no waiting for others; 0: not measured */
    struct host_state host;
    bool serves, spare;  /* its replica does; no replica can have it with the workers here */
    bool has_vocabulary; /* in every eighth, once the worker knows its model's tokens */
    struct vocabulary vocabulary;
};
struct msg_credit {
    uint64_t bytes;
};
struct msg_goodbye {
    struct str text;
    bool planned; /* a worker's: it was told to end, nothing has failed */
};

/* ---- gateway ⇄ head ---- */

struct request_id {
    uint64_t hi, lo;
}; /* random, made by the gateway; all choices share it */

struct logit_bias {
    uint32_t token;
    float bias;
};
/* A prompt as one vector of the model's hidden states behind the final norm, instead of tokens. */
enum pooling_kind { POOLING_NONE, POOLING_LAST, POOLING_MEAN, POOLING_COUNT };

struct sampling_params {
    float temperature;                                             /* 0: greedy */
    float top_p, min_p;                                            /* 1, 0: off */
    int32_t top_k;                                                 /* <= 0: off */
    float presence_penalty, frequency_penalty, repetition_penalty; /* 0, 0, 1: off */
    uint64_t seed;               /* always set: the gateway draws it when the client gives none */
    uint32_t i_prompt, i_choice; /* with seed: the key of the random draws */
    int32_t n_logprobs;          /* -1: none; 0: the chosen token's; k: and the top k */
    int32_t n_prompt_logprobs;   /* the same of the prompt's own ids */
    uint32_t max_tokens, min_tokens;
    struct u32_span eos_ids;     /* empty with ignore_eos; a stop that is not shown */
    struct u32_span stop_ids;    /* stop_token_ids */
    struct u32_span allowed_ids; /* empty: all */
    struct u32_span bad_words;   /* token sequences, each ended by UINT32_MAX */
    const struct logit_bias *logit_bias;
    uint32_t n_logit_bias;
    enum grammar_kind grammar_kind;
    struct str grammar;
    struct str lora;  /* adapter's name; empty: none */
    uint64_t lora_id; /* of what is loaded under that name: the head's word; 0: none yet */
    /* Not NONE: the request ends with its prompt. The id beside the vector means nothing. */
    enum pooling_kind pooling;
    bool pooling_normalise; /* to length 1 */
};

struct msg_submit {
    struct request_id id;
    uint32_t i_choice;
    uint32_t attempt; /* a newer attempt replaces an older one */
    uint64_t tenant;  /* from the key file; salts the prefix cache with cache_salt */
    struct str cache_salt;
    int32_t priority;                    /* lower is sooner, as in vLLM */
    uint32_t n_prompt, n_known_logprobs; /* rows of prompt_logprobs that the gateway has */
    struct u32_span ids;  /* [0, n_prompt): the prompt; then the tokens that the gateway has */
    uint64_t deadline_ms; /* from now; 0: none */
    struct sampling_params sampling;
    bool same_grammar; /* that of the session's last Submit with one; sampling has none */
};

struct msg_cancel {
    struct request_id id;
    uint32_t i_choice, attempt;
};
/* The gateway saw a stop string: n_tokens generated tokens count, the rest is dropped. */
struct msg_finish {
    struct request_id id;
    uint32_t i_choice, attempt, n_tokens;
};

/* Log-probabilities of one position: the chosen token first, then the top k, best first. */
struct logprob_row {
    struct u32_span ids;
    struct f32_span values;
    uint32_t chosen_rank;
};

/* New tokens of one choice. start is the index of ids[0] among the generated tokens, so that
 * overlaps are dropped and gaps reported. */
struct tokens_item {
    struct request_id id;
    uint32_t i_choice, attempt;
    uint32_t start;
    struct u32_span ids;
    const struct logprob_row *logprobs; /* one per id, or NULL */
    uint32_t n_logprobs;
    const struct logprob_row *prompt_logprobs; /* of its ids prompt_start + 1 .., before tokens */
    uint32_t n_prompt_logprobs, prompt_start;
    enum finish_reason finish;
    uint32_t stop_id;   /* FINISH_STOP by a stop id: which; UINT32_MAX: by EOS */
    uint32_t n_cached;  /* prompt tokens found in the prefix cache */
    enum status status; /* FINISH_ERROR: STATUS_LIMIT = 429/503, STATUS_INVALID = 400 */
    uint32_t retry_after_s;
    struct str text;        /* why, for FINISH_ERROR */
    struct f32_span vector; /* of a pooling request, with its end, and no ids */
    uint64_t queue_us;      /* with the first ids: from its Submit to its first step; 0: so short */
};
struct msg_tokens {
    uint64_t term_epoch;
    const struct tokens_item *items;
    uint32_t n_items;
};

/* Sent after Welcome and on every change. */
struct msg_cluster {
    uint64_t term;
    uint32_t n_replicas_ready, n_replicas, n_workers;
    struct str model;
    uint32_t max_model_len, vocab_size;
    uint32_t running, waiting;
    bool draining, gives_prompt_logprobs, one_class; /* of head and ranks; fcfs */
    uint32_t start_s; /* no replica serves, and none has to: until one would; 0: else */
    struct cluster_load load;
};

/* ---- head ⇄ worker: formation ---- */

/* Prepare for a replica. Every rank drops what it had (older epoch) and keeps its weights; the rank
 * with make_id answers CommId, the head passes it on with Join, each rank answers Formed. */
struct msg_form {
    uint64_t term_epoch, replica_id;
    uint32_t tp, pp, rank, stage; /* rank: 0 .. tp-1 inside the stage */
    uint32_t isa_level;
    bool make_id;
    const struct str *comm_addresses; /* stage-major, tp * pp of them */
    uint32_t n_comm_addresses;
    struct u32_span n_blocks; /* per KV group: the minimum over the ranks */
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
}; /* this epoch ends; keep the weights */
struct msg_aborted {
    uint64_t term_epoch;
};
/* Adoption: same replica, same communicator, new epoch; sequences dropped, blocks free, steps
 * from 1. Answered by Formed. */
struct msg_reset {
    uint64_t old_term_epoch, term_epoch;
};
struct msg_comm_error {
    uint64_t term_epoch, step;
    struct str text;
};
struct msg_drain {
    bool on;
};
struct msg_drain_wish {
    struct str text;
};

/* ---- head ⇄ worker: steps ---- */

/* Blocks of one KV group of a sequence: drop_leading blocks fell out of the window, ids are
 * appended. Table entry i holds block n_dropped + i of the sequence, i.e. positions (n_dropped + i)
 * * block_tokens and on. In the plan that admits a sequence the table is empty and drop_leading
 * says how many blocks in front were never there (a prefix hit in a window group). Elsewhere it is
 * at most the table's length or, where a run begins beyond what the table covers (a hit on the
 * way), as many as lie wholly before start. The drops of all runs of a plan come before the appends
 * of any, so a block may go from one sequence to another; a run names each group at most once. */
struct plan_blocks {
    uint32_t i_group, drop_leading;
    struct u32_span ids;
};

/* A sequence enters. slot names it until it is in finished; ids are prompt + tokens made so far. */
struct plan_admit {
    uint32_t slot;
    uint32_t n_prompt;   /* penalties, min_tokens and grammar are rebuilt from here on */
    uint32_t n_computed; /* KV of ids[0..n_computed) is already in the blocks (prefix cache) */
    struct u32_span ids;
    struct sampling_params sampling;
};

/* One sequence's work in this step: run n_tokens positions from start; with sample, sample the
 * token at position start + n_tokens. A token not yet known to the head is the one the rank sampled
 * last. start may be beyond what the rank has computed: other sequences have, or do earlier in this
 * plan, and the blocks up to it are in the table or come with this run (a prefix hit on the way).
 * n_draft (with sample and n_tokens 1): the rank may draft up to so many tokens that follow, run
 * them too, and keep those that it samples itself; there is room for them in the table. */
struct plan_run {
    uint32_t slot;
    uint32_t start, n_tokens;
    uint32_t n_draft; /* speculative slots granted */
    bool sample;
    bool follows; /* drafts of this sequence are in flight, so start is only the least place: run
                     the last id the rank has; where max_tokens is reached already, nothing */
    const struct plan_blocks *blocks; /* new ones only */
    uint32_t n_blocks;
};

struct plan_copy {
    uint32_t i_group, from, to;
}; /* block copies, before anything runs */

struct msg_plan {
    uint64_t term_epoch, step; /* steps are contiguous from 1 in an epoch */
    bool full;                 /* the rank drops all sequences first */
    struct u32_span finished;  /* slots that leave (finished, preempted, cancelled), freed first */
    const struct plan_copy *copies;
    uint32_t n_copies;
    const struct plan_admit *admits;
    uint32_t n_admits;
    const struct plan_run *runs;
    uint32_t n_runs;
    uint64_t digest; /* each 256th step (plan_digest.h), never with drafts in flight; else 0 */
};

/* A gap: the sequence's grammar allows nothing there, and the id is none of its text. */
#define RESULT_DEAD_END (-1.0f)
/* A gap: to find what the grammar allows there costs more than it may (text/text.h). */
#define RESULT_MASK_COST (-2.0f)
/* One sequence got 1 .. n_draft + 1 ids; none without `sample`, or at the end that a run
 * which `follows` found. prompt_logprobs: of the run's positions, each that a prompt's id follows.
 */
#define PROTO_MASK_UNIT_NS 100u
struct result_item {
    uint32_t slot;
    struct u32_span ids;
    const struct logprob_row *logprobs;
    uint32_t n_logprobs;
    const struct logprob_row *prompt_logprobs;
    uint32_t n_prompt_logprobs;
    struct f32_span gaps;   /* one per id: the distance of the two best scores at its place, or: */
    struct f32_span vector; /* of a pooling request: [hidden] */
    uint32_t mask_units, matcher_kib; /* its masks' time (PROTO_MASK_UNIT_NS), matcher's memory */
};
struct msg_result {
    uint64_t term_epoch, step;
    const struct result_item *items; /* of runs that sample or have prompt_logprobs, in order */
    uint32_t n_items;
    uint64_t execute_ns, wait_ns; /* device time of the step; time it waited for its plan */
    uint32_t n_drafted;           /* draft tokens run in this step, accepted or not */
};
/* "I hold step last; what you sent does not follow": nothing was executed. */
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
    };
};

const char *msg_type_name(enum msg_type t);
const char *peer_role_name(enum peer_role r);
const char *finish_reason_name(enum finish_reason f); /* OpenAI's words: "stop", "length", ... */
/* May this role send this type to the head? Checked for each frame. */
bool msg_allowed_from(enum msg_type t, enum peer_role from);
unsigned msg_since_minor(enum msg_type t); /* the first minor that has it */

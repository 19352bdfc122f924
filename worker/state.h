#pragma once
/* Declares the state of one rank's worker, shared by the files of this folder. The state belongs
 * to the loop thread. */
#include "common/base/arena.h"
#include "common/host/own_address.h"
#include "worker/compute.h"
#include "worker/grammar/vocabulary_reader.h"
#include "worker/grammar_orders.h"
#include "worker/kv_orders.h"
#include "worker/link/held_adapters.h"
#include "worker/monitor/gpu_metrics.h"
#include "worker/monitor/host_meter.h"
#include "worker/worker_setup.h"

struct worker_metrics {
    struct metric *steps, *tokens_run, *tokens_sampled, *drafted, *accepted, *step_seconds,
        *wait_seconds, *gaps, *stale, *busy, *queue, *reconnects, *epochs, *aborts_kept,
        *aborts_lost;
};

struct worker_process {
    struct worker_setup s;
    struct head_link *link;
    struct compute *compute;
    struct rank_state rank;
    uint64_t instance;
    struct arena form_arena; /* arena that holds `form`, the newest accepted Form */
    struct msg form;
    uint8_t join_id[COMM_ID_MAX_BYTES]; /* id from the newest Join for `form` */
    uint32_t n_join_id;
    /* last epoch whose failure was reported: one Gap or CommError per epoch */
    uint64_t failed_epoch;
    bool draining, stopping, drained_by_head;
    bool had_place; /* the worker has served in a replica or been a spare; never reset */
    uint64_t drain_deadline_ns;
    char told[48];     /* cause of the drain such as "told to end (SIGTERM)"; "" = no drain */
    char refusal[256]; /* reason why the head refuses this worker for good; "" = not refused */
    char failure[256]; /* reason why the process must end; "" = none */
    bool failed_for_good;
    struct loop_timer *drain_timer, *check_timer;
    struct held_adapters held;
    /* smaller TPs for Hello; block counts are owned by the executor */
    struct elastic_shape elastic[PROTO_MAX_ELASTIC];
    /* found address on which other ranks reach this rank; "" = not found, or not needed */
    char comm_host[OWN_ADDRESS_MAX];
    struct kv_orders_setup kv_setup;
    struct grammar_orders *grammars;
    struct kv_orders *kv; /* KV transfers; NULL = none */
    bool comm_host_warned;
    /* reader of the vocabulary; NULL = the model has no tokenizer */
    struct vocabulary_reader *vocabulary;
    struct gpu_metrics gpu;
    struct host_meter host;
    struct worker_metrics m;
};

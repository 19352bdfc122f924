#pragma once
/* One rank's worker: what its rooms share. Loop's thread. */
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
    struct arena form_arena; /* of the newest Form accepted */
    struct msg form;
    uint8_t join_id[COMM_ID_MAX_BYTES]; /* of the newest Join for that Form */
    uint32_t n_join_id;
    uint64_t failed_epoch; /* an epoch whose trouble has been told: Gap or CommError go out once */
    bool draining, stopping, drained_by_head;
    bool had_place; /* its replica served, or it was a spare: once is enough */
    uint64_t drain_deadline_ns;
    char told[48];     /* "told to end (SIGTERM)", once it was */
    char refusal[256]; /* why the head takes this worker never; "": it may */
    char failure[256]; /* why the process has to end; "": it has not */
    bool failed_for_good;
    struct loop_timer *drain_timer, *check_timer;
    struct held_adapters held;
    struct elastic_shape elastic[PROTO_MAX_ELASTIC]; /* of Hello; blocks: the executor's */
    char comm_host[OWN_ADDRESS_MAX];                 /* found out; "": not yet, or not to be */
    struct kv_orders_setup kv_setup;
    struct grammar_orders *grammars;
    struct kv_orders *kv; /* NULL: its KV cache is moved nowhere */
    bool comm_host_warned;
    struct vocabulary_reader *vocabulary; /* NULL: the model has no tokenizer */
    struct gpu_metrics gpu;
    struct host_meter host;
    struct worker_metrics m;
};

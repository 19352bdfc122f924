"""Runs vLLM's own scheduler with the trace of bench/scheduling/trace.c. It calls schedule() and update_from_output() on config
objects, without a model, as vLLM's unit tests do. bench/scheduler runs this script in the peer's venv.
  scheduler_peer.py STEPS SEED ASYNC COUNT...     a line of JSON per count; large counts run fewer steps
ASYNC 1: the AsyncScheduler, with a step in flight. Requests are made and hashed outside of a step, as in bench/scheduler. Times
are the thread's CPU time: vLLM's steps are so long that the OS may interrupt them, and interruptions must not count."""
import gc
import json
import os
import random
import sys
import tempfile
import time
from collections import deque
from pathlib import Path

os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"

import torch  # noqa: E402
from vllm.config import CacheConfig, ModelConfig, SchedulerConfig, VllmConfig  # noqa: E402
from vllm.sampling_params import SamplingParams  # noqa: E402
from vllm.utils.hashing import sha256  # noqa: E402
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash  # noqa: E402
from vllm.v1.core.sched.async_scheduler import AsyncScheduler  # noqa: E402
from vllm.v1.core.sched.scheduler import Scheduler  # noqa: E402
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec  # noqa: E402
from vllm.v1.outputs import ModelRunnerOutput  # noqa: E402
from vllm.v1.request import Request, RequestStatus  # noqa: E402
from vllm.v1.structured_output import StructuredOutputManager  # noqa: E402

BLOCK, MODEL_LEN, VOCABULARY, SPECIAL, STOP = 16, 16384, 128256, 128000, 128001
PREFIXES, PREFIX, SHORTEST, LONGEST, MAX_TOKENS, END_SHARE = 16, 512, 1024, 8192 - 128, 4096, 0.02
WINDOW_STEPS, UNCOUNTED_STEPS, WARM_WINDOWS, MAX_SETTLE_STEPS = 16, 6, 1, 1 << 16
CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 64,
          "num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1, "vocab_size": VOCABULARY,
          "max_position_embeddings": MODEL_LEN, "torch_dtype": "bfloat16"}


def new_scheduler(n, is_async, folder):
    scheduling = SchedulerConfig(max_num_seqs=n, max_num_batched_tokens=8192 if n <= 512 else 16 * n,
                                 max_model_len=MODEL_LEN, enable_chunked_prefill=True, is_encoder_decoder=False,
                                 async_scheduling=is_async)
    model = ModelConfig(model=folder, dtype="bfloat16", seed=1, skip_tokenizer_init=True)
    cache = CacheConfig(block_size=BLOCK, enable_prefix_caching=True)
    cache.num_gpu_blocks = 400 * n + 1024
    config = VllmConfig(scheduler_config=scheduling, model_config=model, cache_config=cache)
    spec = FullAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=1, dtype=torch.float32)
    blocks = KVCacheConfig(num_blocks=cache.num_gpu_blocks, kv_cache_tensors=[],
                           kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)])
    kind = AsyncScheduler if is_async else Scheduler
    return kind(vllm_config=config, kv_cache_config=blocks, block_size=BLOCK, log_stats=True,
                structured_output_manager=StructuredOutputManager(config))


class Run:
    def __init__(self, n, is_async, seed, folder):
        self.n, self.rng = n, random.Random(seed)
        self.scheduler = new_scheduler(n, is_async, folder)
        self.hasher = get_request_block_hasher(BLOCK, sha256)
        self.prefixes = [self.random_ids(PREFIX) for _ in range(PREFIXES)]
        self.depth, self.in_flight = 2 if is_async else 1, deque()
        self.slots = [None] * n  # slots: for each slot (id of its request, whether this request is new)
        self.n_made, self.owed_ends, self.ends, self.ending = 0, 0.0, False, set()
        self.arrivals, self.seconds = [], []  # seconds: (schedule, update) of each step
        self.counts, self.n_runs, self.hits = False, 0, []  # figures of the measured steps; hits: cached tokens of each admission

    def random_ids(self, n):
        return self.rng.choices(range(SPECIAL), k=n)

    def arrive(self, slot, newcomer):
        own = (2 * slot + 1) * (LONGEST - SHORTEST) // (2 * self.n)
        n = SHORTEST + slot % BLOCK + (0 if newcomer else own)
        prefix = self.rng.choice(self.prefixes[:self.n]) if newcomer else self.prefixes[slot % PREFIXES]
        ids = prefix + self.random_ids(n - PREFIX)
        self.n_made += 1
        name = f"{slot}.{self.n_made}"
        self.slots[slot] = (name, newcomer)
        params = SamplingParams(temperature=1.0, max_tokens=MAX_TOKENS, stop_token_ids=[STOP, 128009])
        begin = time.thread_time()
        self.scheduler.add_request(Request(request_id=name, prompt_token_ids=ids, sampling_params=params,
                                           pooling_params=None, block_hasher=self.hasher))
        if newcomer:
            self.arrivals.append(time.thread_time() - begin)

    def answer(self, plan):
        """Makes the model runner's answer, with a token for each sequence whose prompt has been computed."""
        names = list(plan.num_scheduled_tokens)
        requests = self.scheduler.requests
        drawn = [[self.rng.randrange(SPECIAL)] if requests[x].num_computed_tokens >= requests[x].num_prompt_tokens
                 else [] for x in names]
        if self.ends:
            self.owed_ends += END_SHARE * self.n
        for _ in range(4 * len(names)):
            i = self.rng.randrange(len(names))
            if self.owed_ends < 1 or not self.ends:
                break
            if drawn[i] and names[i] not in self.ending:
                self.ending.add(names[i])
                drawn[i] = [STOP]
                self.owed_ends -= 1
        return ModelRunnerOutput(req_ids=names, req_id_to_index={x: i for i, x in enumerate(names)},
                                 sampled_token_ids=drawn), sum(map(len, drawn))

    def step(self):
        """Runs a step. Returns the number of sequences that sampled a token."""
        begin = time.thread_time()
        plan = self.scheduler.schedule()
        scheduled = time.thread_time() - begin
        if self.counts:
            self.n_runs += len(plan.num_scheduled_tokens)
            self.hits += [x.num_computed_tokens for x in plan.scheduled_new_reqs]
        n = 0
        if plan.total_num_scheduled_tokens > 0:
            result, n = self.answer(plan)
            self.in_flight.append((plan, result))
        if len(self.in_flight) < self.depth and plan.total_num_scheduled_tokens > 0:
            return n
        begin = time.thread_time()
        outputs = self.scheduler.update_from_output(*self.in_flight.popleft())
        self.last = scheduled, time.thread_time() - begin
        for client in outputs.values():
            for x in client.outputs:
                if x.finish_reason is not None:
                    self.ending.remove(x.request_id)
                    self.arrive(int(x.request_id.split(".")[0]), True)
        return n

    def settle(self):
        self.ends, full = False, 0
        for _ in range(MAX_SETTLE_STEPS):
            full = full + 1 if self.step() == self.n else 0
            if full == UNCOUNTED_STEPS:
                return
        sys.exit("scheduler_peer: the sequences do not all decode")

    def replace_newcomers(self):
        for slot, (name, newcomer) in enumerate(self.slots):
            if newcomer:
                self.scheduler.finish_requests(name, RequestStatus.FINISHED_ABORTED)
                self.ending.discard(name)
                self.arrive(slot, False)
        self.settle()

    def window(self, counts):
        self.ends = True
        for i in range(UNCOUNTED_STEPS + WINDOW_STEPS):
            self.counts = counts and i >= UNCOUNTED_STEPS
            self.step()
            if self.counts:
                self.seconds.append(self.last)
        self.counts = False
        self.replace_newcomers()


def at(values, share):
    return sorted(values)[int(share * (len(values) - 1))] * 1e6


def measure(n, n_steps, is_async, seed, folder):
    run = Run(n, is_async, seed, folder)
    for slot in range(n):
        run.arrive(slot, False)
    run.settle()
    for _ in range(WARM_WINDOWS):
        run.window(False)
    gc.collect()
    gc.freeze()  # vLLM's engine does this before it serves
    run.arrivals.clear()
    while len(run.seconds) < n_steps:
        run.window(True)
    steps = [a + b for a, b in run.seconds]
    print(json.dumps({"count": n, "median": at(steps, 0.5), "p99": at(steps, 0.99),
                      "schedule": at([a for a, _ in run.seconds], 0.5), "update": at([b for _, b in run.seconds], 0.5),
                      "arrival": at(run.arrivals, 0.5), "steps": len(steps), "runs": run.n_runs / len(steps), "admits": len(run.hits) / len(steps),
                      "hit": sum(run.hits) / max(1, len(run.hits))}), flush=True)
    gc.unfreeze()


def main():
    n_steps, seed, is_async, *counts = [int(x) for x in sys.argv[1:]]
    init_none_hash(sha256)
    with tempfile.TemporaryDirectory(prefix="coxbench-") as folder:
        (Path(folder) / "config.json").write_text(json.dumps(CONFIG))
        for n in counts:
            measure(n, min(n_steps, max(2 * WINDOW_STEPS, (1 << 14) // n)), bool(is_async), seed, folder)


if __name__ == "__main__":
    main()

"""Runs llama.cpp by the same commands as bench_cpu_model (listed in bench/cpu/model.c), for bench/cpu-peers. Batches are passed
directly to llama_decode. The context has llama.cpp's defaults, except for threads and sequences.
  cpu_llama.py serve MODEL THREADS
  cpu_llama.py quantize FROM TO FTYPE"""
import ctypes
import json
import sys
import time

import llama_cpp.llama_cpp as L
import numpy as np

MAX_IDS = 2048
kept = L.llama_log_callback(lambda level, text, data: None)


class Batches:
    """Makes a context for n sequences of n_ids tokens each."""

    def __init__(self, model, threads, n, n_ids):
        p = L.llama_context_default_params()
        n_ids = -(-n_ids // 256) * 256
        p.n_ctx, p.n_batch, p.n_seq_max = n * n_ids, MAX_IDS, n
        p.n_threads = p.n_threads_batch = threads
        self.context = L.llama_init_from_model(model, p) or sys.exit("llama.cpp: no context")
        self.n_vocab = L.llama_vocab_n_tokens(L.llama_model_get_vocab(model))
        self.batch, self.flash, self.n_ubatch = L.llama_batch_init(MAX_IDS, 0, 1), p.flash_attn_type, p.n_ubatch
        self.kv = p.type_k

    def clear(self):
        L.llama_memory_clear(L.llama_get_memory(self.context), True)

    def step(self, rows, n_drawn):
        """Decodes rows [(sequence, position, id, is sampled)]. Returns the ids with the best scores, in the order of the rows."""
        b = self.batch
        b.n_tokens = len(rows)
        for i, (sequence, position, token, drawn) in enumerate(rows):
            b.token[i], b.pos[i], b.n_seq_id[i], b.logits[i] = token, position, 1, drawn
            b.seq_id[i][0] = sequence
        if L.llama_decode(self.context, b) != 0:
            sys.exit("llama.cpp: llama_decode failed")
        logits = ctypes.cast(L.llama_get_logits(self.context), ctypes.POINTER(ctypes.c_float))
        return [int(row.argmax()) for row in np.ctypeslib.as_array(logits, (n_drawn, self.n_vocab))]


class Program:
    def __init__(self, path, threads):
        L.llama_backend_init()
        self.model = L.llama_model_load_from_file(path.encode(), L.llama_model_default_params()) or \
            sys.exit(f"llama.cpp: cannot load {path}")
        self.threads, self.contexts = threads, {}

    def batches(self, n, n_ids):
        key = n, -(-n_ids // 256)
        if key not in self.contexts:
            self.contexts[key] = Batches(self.model, self.threads, n, n_ids)
        self.contexts[key].clear()
        return self.contexts[key]

    def ids(self, stream, n):
        n_vocab = L.llama_vocab_n_tokens(L.llama_model_get_vocab(self.model))
        return [(k * 7919 + stream * 104729 + 13) % n_vocab for k in range(n)]

    def info(self):
        b = self.batches(1, 16)
        system = L.llama_print_system_info().decode()
        return {"device": system, "kv": {0: "f32", 1: "f16"}.get(b.kv, str(b.kv)), "flash_attn": b.flash, "ubatch": b.n_ubatch}

    def prompt(self, n):
        b = self.batches(1, n)
        rows = [(0, k, token, k == n - 1) for k, token in enumerate(self.ids(0, n))]
        begin = time.perf_counter()
        b.step(rows, 1)
        return {"seconds": time.perf_counter() - begin, "tokens": n}

    def decode(self, n_streams, n_steps, n_prompt):
        b = self.batches(n_streams, n_prompt + n_steps + 2)
        ids = [b.step([(i, k, token, k == n_prompt - 1) for k, token in enumerate(self.ids(i, n_prompt))], 1)[0]
               for i in range(n_streams)]
        for step in range(n_steps + 1):
            if step == 1:  # the first step of each kind allocates buffers, so it is not measured
                begin = time.perf_counter()
            ids = b.step([(i, n_prompt + step, token, True) for i, token in enumerate(ids)], n_streams)
        return {"seconds": time.perf_counter() - begin, "tokens": n_streams * n_steps}

    def tokenize(self, text):
        data, room = text.encode(), (L.llama_token * MAX_IDS)()
        n = L.llama_tokenize(L.llama_model_get_vocab(self.model), data, len(data), room, MAX_IDS, True, False)
        return {"ids": list(room[:n])}

    def greedy(self, n, *ids):
        b = self.batches(1, len(ids) + n)
        found = b.step([(0, k, token, k == len(ids) - 1) for k, token in enumerate(ids)], 1)
        for k in range(n - 1):
            found += b.step([(0, len(ids) + k, found[-1], True)], 1)
        return {"ids": found}

    def answer(self, line):
        name, _, rest = line.strip().partition(" ")
        if name == "tokenize":
            return self.tokenize(rest)
        return {"info": self.info, "prompt": self.prompt, "decode": self.decode,
                "greedy": self.greedy}[name](*(int(word) for word in rest.split()))


def main():
    L.llama_log_set(kept, None)
    if sys.argv[1] == "quantize":
        p = L.llama_model_quantize_default_params()
        p.ftype, p.nthread = int(sys.argv[4]), 2
        return L.llama_model_quantize(sys.argv[2].encode(), sys.argv[3].encode(), p)
    program = Program(sys.argv[2], int(sys.argv[3]))
    for line in sys.stdin:
        print(json.dumps(program.answer(line)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

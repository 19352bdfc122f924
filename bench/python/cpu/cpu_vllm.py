"""Runs vLLM's CPU engine by the same commands as bench_cpu_model (listed in bench/cpu/model.c), through its LLM class, for
bench/cpu-peers. vLLM has no call for a single step, so the time of a prompt is measured apart and subtracted. Runs in the venv of
bench/scheduler --setup-peer.
  cpu_vllm.py FOLDER THREADS"""
import json
import os
import sys
import time

os.environ |= {"VLLM_LOGGING_LEVEL": "ERROR", "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "",
               "VLLM_CPU_OMP_THREADS_BIND": ",".join(str(n) for n in range(int(sys.argv[2]))), "VLLM_CPU_KVCACHE_SPACE": "2"}


class Program:
    def __init__(self, path):
        from vllm import LLM, SamplingParams
        self.sampling = SamplingParams
        # Prefix caching is off, because every round repeats its prompts. There is no tokenizer.
        self.llm = LLM(model=path, dtype="bfloat16", skip_tokenizer_init=True, max_model_len=2048, max_num_seqs=32,
                       enable_prefix_caching=False, seed=0)
        self.n_vocab = self.llm.llm_engine.model_config.get_vocab_size()

    def run(self, n_streams, n_prompt, n_tokens):
        """Returns the seconds of n tokens in each stream. The time of the first token includes the prompt."""
        prompts = [{"prompt_token_ids": [(k * 7919 + i * 104729 + 13) % self.n_vocab for k in range(n_prompt)]}
                   for i in range(n_streams)]
        sampling = self.sampling(temperature=0, max_tokens=n_tokens, ignore_eos=True, detokenize=False)
        begin = time.perf_counter()
        found = self.llm.generate(prompts, sampling, use_tqdm=False)
        seconds = time.perf_counter() - begin
        if any(len(one.outputs[0].token_ids) != n_tokens for one in found):
            sys.exit("vLLM: an answer ended early")
        return seconds

    def answer(self, line):
        name, *words = line.split()
        numbers = [int(word) for word in words]
        if name == "info":
            return {"device": "vLLM"}
        if name == "prompt":
            return {"seconds": self.run(1, numbers[0], 1), "tokens": numbers[0]}
        n_streams, n_steps, n_prompt = numbers
        first = self.run(n_streams, n_prompt, 1)
        return {"seconds": self.run(n_streams, n_prompt, n_steps + 1) - first, "tokens": n_streams * n_steps}


def main():
    program = Program(sys.argv[1])
    for line in sys.stdin:
        print(json.dumps(program.answer(line)), flush=True)


if __name__ == "__main__":  # vLLM's engine is a process that imports this file
    main()

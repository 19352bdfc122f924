"""vLLM's CPU engine, told what to run line by line as bench_cpu_model is (bench/cpu/model.c has the commands), through
its LLM class. It has no call for a step alone: what a prompt takes is measured beside and taken off. Run by
bench/cpu-peers in the venv of bench/scheduler --setup-peer.
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
        # Prefixes would be found again in every round, and it has no tokenizer to ask.
        self.llm = LLM(model=path, dtype="bfloat16", skip_tokenizer_init=True, max_model_len=2048, max_num_seqs=32,
                       enable_prefix_caching=False, seed=0)
        self.n_vocab = self.llm.llm_engine.model_config.get_vocab_size()

    def run(self, n_streams, n_prompt, n_tokens):
        """Seconds of so many tokens of each stream, the first one with its prompt."""
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


if __name__ == "__main__":  # its engine is a process that imports this file
    main()

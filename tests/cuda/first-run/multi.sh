# shellcheck shell=bash Runs the part of first-run for several GPUs of one host: NCCL itself, models over two and four ranks, one-shot sums beside
# NCCL's, and a rank killed under streams. With one device, it writes one row with that reason. first-run sources this file.

golden_ranks() { # golden_ranks NAME RANKS OPTIONS...: runs small models over RANKS devices, with NCCL
    local name=$1 ranks=$2 folders=() name_of
    shift 2
    [ "$(n_devices)" -ge "$ranks" ] || { row "$name" skipped 0 "needs $ranks devices, this host has $(n_devices)" && return; }
    for name_of in "${golden_models[@]}"; do [ ! -e "$name_of/expected.json" ] || folders+=("$name_of"); done
    bench "$name" 60 tests/model_golden --device cuda --longest 45 "$@" "${folders[@]}"
}
newest_worker() { # prints the newest worker of the processes that serve_start began; head and gateway are not killed
    local stat found=
    for stat in /proc/[0-9]*/stat; do # a line of /proc/PID/stat is: PID (NAME) STATE PARENT GROUP SESSION ...
        [[ $(cat "$stat" 2>/dev/null) =~ ^([0-9]+)\ \(cox-worker\)\ [^ZX]\ [0-9]+\ [0-9]+\ ([0-9]+)\  ]] || continue
        [ "${BASH_REMATCH[2]}" != "$up" ] || [ "${BASH_REMATCH[1]}" -le "${found:-0}" ] || found=${BASH_REMATCH[1]}
    done
    echo "$found"
}
killed_rank() { # kills one of two ranks with signal 9 under 16 streams: each stream must end with all of its tokens
    local name=multi-killed-rank from=$SECONDS f="$LOG/multi-killed-rank.txt" loader victim rc=0 done_ids want=$((32 * 200))
    if [ "$(left)" -lt 60 ]; then
        row $name "no time left" 0 ""
        return
    fi
    if ! serve_start tp2 llama31_8b --workers 2 --tp 2 --max-model-len 4096; then
        serve_stop
        row $name "FAILED: two ranks gave no answer" $((SECONDS - from)) "$(last_line "$LOG/up-tp2.txt")"
        return
    fi
    ours timeout 90 bin/cox bench serve --base-url http://127.0.0.1:$port --model m --tokenizer "$T/model-llama31_8b" --num-prompts 32 \
        --max-concurrency 16 --random-input-len 128 --random-output-len 200 --ignore-eos --disable-tqdm >"$f" 2>&1 &
    loader=$!
    sleep 4
    victim=$(newest_worker)
    if [ -n "$victim" ]; then kill -KILL "$victim"; fi
    wait $loader || rc=$?
    for _ in $(seq 50); do grep -aq collective_aborted "$LOG/up-tp2.txt" && break; sleep 0.1; done
    serve_stop
    done_ids=$(number_of "$f" 'Total generated tokens')
    grep -aoE 'collective_aborted.*ms=[0-9]+' "$LOG/up-tp2.txt" | tail -n 1 >>"$f"
    if [ -n "$victim" ] && [ $rc -eq 0 ] && [ "${done_ids:-0}" = $want ] && grep -aq collective_aborted "$LOG/up-tp2.txt"; then
        row $name passed $((SECONDS - from)) "$done_ids tokens of $want; $(last_line "$f")"
    else
        row $name FAILED $((SECONDS - from)) "killed ${victim:-no worker}; ${done_ids:-0} tokens of $want; exit status $rc; $(last_line "$f")"
    fi
}
multi_part() {
    local golden_models=(goldens/few/llama_tiny goldens/few/llama_tiny_gguf_q4_k goldens/few/gemma3_caps goldens/few/deepseek_v2_lite)
    if [ "$(n_devices)" -lt 2 ]; then
        row multi skipped 0 "needs 2 devices, this host has $(n_devices)"
        return
    fi
    bench multi-nccl 60 tests/cuda_nccl_test
    golden_ranks multi-golden-tp2 2 --tp 2
    golden_ranks multi-golden-tp4 4 --tp 4
    golden_models=(goldens/few/llama_tiny goldens/few/llama_tiny_gguf_q4_k goldens/few/gemma3_caps) # experts of another stage are not compared
    golden_ranks multi-golden-tp2-pp2 4 --tp 2 --pp 2
    bench multi-oneshot 60 tests/cuda_oneshot_bench
    killed_rank
}

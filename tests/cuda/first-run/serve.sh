# shellcheck shell=bash
# Runs the part of first-run for serving: `cox up` with dummy weights of real shapes, and loads over HTTP by `cox bench serve`. Two answers to one
# prompt, with and without early launches, and with and without graphs, must have the same ids; a difference is a race. first-run sources this file.

port=18400 up=
up_to() { # up_to SECONDS: prints at most SECONDS, at most the time that is left for all parts, and at least 1
    local n=$1
    [ "$n" -le "$(left)" ] || n=$(left)
    echo $((n > 1 ? n : 1))
}
serve_start() { # serve_start NAME SHAPE FLAGS...: starts `cox up` in a separate session and waits for an answer
    local name=$1 shape=$2
    shift 2
    port=$((port + 10))
    [ -d "$T/model-$shape" ] ||
        python3 make_model.py "bench/models/$shape/config.json" tokenizer "$T/model-$shape" >>"$LOG/serve-$name.txt" 2>&1
    (exec env HOME="$T/home" LD_LIBRARY_PATH="$OURS" setsid "$pack/bin/cox" up "$T/model-$shape" --device "${COX_FIRST_RUN_DEVICE:-cuda}" \
        --load-format dummy --served-model-name m --host 127.0.0.1 --port $port --head-port $((port + 1)) --admin-port $((port + 2)) \
        --worker-http-port $((port + 3)) "$@" >"$LOG/up-$name.txt" 2>&1 </dev/null) &
    up=$!
    python3 "$HERE/ask.py" $port "$(up_to 60)" 64 $up >"$LOG/ask-$name.txt" 2>&1
}
serve_stop() {
    kill -TERM -- "-$up" 2>/dev/null
    for _ in $(seq 60); do kill -0 -- "-$up" 2>/dev/null || break; sleep 0.1; done
    kill -KILL -- "-$up" 2>/dev/null
    kill -KILL "$up" 2>/dev/null
    wait "$up" 2>/dev/null
    up=
}
number_of() { # number_of FILE LABEL: prints a figure of the table from cox bench serve
    sed -n "s/^$2: *\([0-9.]*\) *$/\1/p" "$1" | head -n 1
}
load() { # load NAME SHAPE STREAMS PROMPTS IN OUT: measures one figure
    local f="$LOG/load-$1-$3-$5.txt" rate
    ours timeout "$(up_to 60)" bin/cox bench serve --base-url http://127.0.0.1:$port --model m --tokenizer "$T/model-$2" --num-prompts "$4" --max-concurrency "$3" \
        --random-input-len "$5" --random-output-len "$6" --ignore-eos --disable-tqdm --num-warmups "$3" --percentile-metrics ttft,tpot,itl >"$f" 2>&1
    rate=$(number_of "$f" 'Output token throughput (tok\/s)')
    echo "| serve | $1: $3 streams, $5 in, $6 out | ${rate:-FAILED} tok/s out, $(number_of "$f" 'Total token throughput (tok\/s)') all," \
        "TTFT $(number_of "$f" 'Median TTFT (ms)') ms, TPOT $(number_of "$f" 'Median TPOT (ms)') ms | | |" | tee -a "$FIGURES"
    [ -n "$rate" ]
}
serve() { # serve NAME SHAPE MOST_SECONDS LOADS FLAGS...: measures the loads; LOADS: STREAMS:PROMPTS:IN:OUT,..
    local name=$1 shape=$2 most=$3 loads=$4 from=$SECONDS result=passed l a b c d
    shift 4
    case ,${COX_FIRST_RUN_SERVE:-$name}, in *",$name,"*) ;; *) return ;; esac # COX_FIRST_RUN_SERVE selects names, for a trial without a device
    if [ "$(left)" -lt "$most" ]; then
        row "serve-$name" "no time left" 0 ""
        return
    fi
    if serve_start "$name" "$shape" --workers 1 --tp 1 "$@"; then
        echo "| serve | $name: start to the end of an answer of 64 tokens | $(head -n 1 "$LOG/ask-$name.txt") s | | |" | tee -a "$FIGURES"
        for l in ${loads//,/ }; do
            { [ $((SECONDS - from)) -lt "$most" ] && [ "$(left)" -gt 3 ]; } || { echo "        no time left for the load $l" && continue; }
            IFS=: read -r a b c d <<<"$l"
            load "$name" "$shape" "$a" "$b" "$c" "$d" || result="FAILED: a load had no result"
        done
    else
        result=FAILED
        grep -aE 'error|failed|warn' "$LOG/up-$name.txt" | tail -n 4 | cut -c 1-200 | sed 's/^/        /'
    fi
    serve_stop
    row "serve-$name" "$result" $((SECONDS - from)) "$(grep -aE 'graphs_captured|graphs_refused' "$LOG/up-$name.txt" | tail -n 1 | cut -c 1-150)"
}
same_ids() { # same_ids KEY NAME NAME: compares two answers to one prompt
    local a b
    { [ -e "$LOG/ask-$2.txt" ] && [ -e "$LOG/ask-$3.txt" ]; } || return 0
    a=$(tail -n +2 "$LOG/ask-$2.txt" | tr -d '\n') b=$(tail -n +2 "$LOG/ask-$3.txt" | tr -d '\n')
    if [ -n "$a" ] && [ "$a" = "$b" ]; then
        row "$1" passed 0 "the same ids"
    elif [ -z "$a" ] || [ -z "$b" ]; then
        row "$1" "FAILED: no answer" 0 ""
    else
        row "$1" "DIFFERENT IDS" 0 "$(python3 -c 'import sys
a, b = sys.argv[1].split(), sys.argv[2].split()
print(next((f"from token {i} of {len(a)}" for i, (x, y) in enumerate(zip(a, b)) if x != y), f"{len(a)} and {len(b)} tokens"))' "$a" "$b")"
    fi
}
serve_part() {
    serve llama31_8b llama31_8b 75 1:3:128:256,64:128:512:128,1:2:8000:8,16:32:1000:200 --max-model-len 16384
    serve llama31_8b_awq llama31_8b_awq 45 1:3:128:256,64:128:512:128 --max-model-len 16384
    serve gemma3_270m gemma3_270m 30 1:3:64:512,64:128:128:128 --max-model-len 4096
    serve gemma3_no_early gemma3_270m 20 1:2:64:512 --max-model-len 4096 --no-early-launch
    serve gemma3_eager gemma3_270m 20 1:1:64:512 --max-model-len 4096 --enforce-eager --no-early-launch
    same_ids same-ids-early-launches gemma3_270m gemma3_no_early
    same_ids same-ids-graphs gemma3_no_early gemma3_eager
    serve deepseek_lite deepseek_coder_v2_lite 60 1:3:128:256,64:128:512:128,1:2:8000:8 --max-model-len 16384
    serve deepseek_lite_awq deepseek_coder_v2_lite_awq 45 1:3:128:256,64:128:512:128 --max-model-len 16384
}

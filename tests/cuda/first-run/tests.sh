# shellcheck shell=bash
# Runs the part of first-run for tests. Several programs run at once, since nothing here is timed. first-run sources this file.

declare -A running=() # maps a process to its name
limit=30
reap() { # waits for one program to end and writes its row
    local pid rc=0 name result
    wait -n -p pid "${!running[@]}" || rc=$?
    name=${running[$pid]}
    unset "running[$pid]"
    result=$(result_of $rc "$limit" "$(last_line "$LOG/$name.txt")")
    row "$name" "$result" "$(($(date +%s) - $(cat "$T/began-$name")))" "$(last_line "$LOG/$name.txt")"
    case $result in
    passed | skipped) ;;
    *)
        failed_tests+=("$name")
        complaints "$name"
        ;;
    esac
}
start() { # start NAME COMMAND...: starts a test in the background when fewer than `jobs` run
    local name=$1
    shift
    while [ ${#running[@]} -ge "$jobs" ]; do reap; done
    if [ "$(left)" -lt 3 ]; then
        row "$name" "no time left" 0 ""
        return
    fi
    date +%s >"$T/began-$name"
    ours timeout --kill-after=3 "$limit" "$@" >"$LOG/$name.txt" 2>&1 </dev/null &
    running[$!]=$name
}
reap_all() { while [ ${#running[@]} -gt 0 ]; do reap; done; }
at_most() { # at_most SECONDS: sets the limit of the next programs, cut to the time that is left
    limit=$1
    [ "$limit" -le "$(left)" ] || limit=$(left)
}
goldens() { # goldens NAME OPTIONS... -- FOLDER...: runs the models that are in the pack; without such models it writes no row
    local name=$1 options=() folders=()
    shift
    while [ "$1" != -- ]; do options+=("$1") && shift; done
    for folder in "${@:2}"; do [ ! -e "$folder/expected.json" ] || folders+=("$folder"); done
    [ ${#folders[@]} -eq 0 ] || start "$name" tests/model_golden --device cuda "${options[@]}" "${folders[@]}"
}
tests_part() {
    local name
    at_most 30
    start cuda_copy_test tests/cuda_copy_test # this test runs alone and first, to check that the device works
    reap_all
    for name in norm route elementwise linear attention latent moe sample products runner steps pack; do
        [ ! -x "tests/cuda_${name}_test" ] || start "small-$name" "tests/cuda_${name}_test" --small
    done
    reap_all
    at_most 110
    goldens golden-few --longest 45 -- goldens/few/*/
    for name in comm attention latent linear elementwise moe norm products sample route runner steps copies pack oneshot nccl libraries find_library; do
        case " ${failed_tests[*]-} " in *" small-$name "*) continue ;; esac # the small cases of this test have already failed
        [ ! -x "tests/cuda_${name}_test" ] || start "cuda_${name}_test" "tests/cuda_${name}_test"
    done
    goldens golden-more --longest 20 -- goldens/more/*/
    goldens golden-fp8kv --longest 45 --kv fp8 -- goldens/few/llama*/ goldens/few/deepseek_v2_lite
    goldens golden-tp2 --longest 20 --tp 2 --nccl "$pack/tests/libfakenccl.so" -- goldens/few/llama*/
    reap_all
}
bisect() { # runs failed tests again with CUDA_LAUNCH_BLOCKING: no early launches, no overlap
    local name small
    for name in "${failed_tests[@]:0:4}"; do
        small=
        case $name in small-*) name=cuda_${name#small-}_test small=--small ;; cuda_*) ;; *) continue ;; esac
        run "$name-blocking" 40 env CUDA_LAUNCH_BLOCKING=1 bash -c "ours tests/$name $small"
    done
}

# ---- the profiler and the checkers
ncu_part() { # profiles the most important kernels: attention of decode and of a prompt, products of one row
    local metrics=gpu__time_duration.sum,dram__throughput.avg.pct_of_peak_sustained_elapsed
    metrics+=,sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active
    metrics+=,l1tex__data_pipe_lsu_wavefronts_mem_shared.avg.pct_of_peak_sustained_elapsed
    metrics+=,smsp__issue_active.avg.pct_of_peak_sustained_active,launch__occupancy_limit_registers
    if ! command -v ncu >/dev/null; then
        row ncu skipped 0 "ncu is not in PATH"
        return
    fi
    bench ncu-attention 35 ncu --clock-control none --metrics $metrics -k regex:attention_tile --launch-skip 4 --launch-count 2 tests/cuda_attention_bench --seconds 10
    # The shape for many rows has four warps side by side (kernels/cuda/attention/many.cu): tile_shape<128, 4, 1, ...>; ncu writes (int)4.
    bench ncu-prefill 45 ncu --clock-control none --metrics $metrics --kernel-name-base demangled -k 'regex:tile_shape<[^,]*128, [^,]*4, [^,]*1,' \
        --launch-count 1 tests/cuda_attention_bench --seconds 20
    bench ncu-linear 35 ncu --clock-control none --metrics $metrics -k regex:gemm_kernel --launch-skip 20 --launch-count 3 tests/cuda_linear_bench 1 --seconds 8
}
sanitize() { # sanitize TOOL NAME: runs the small cases of one test under a checker
    run "$1-$2" 45 bash -c "ours compute-sanitizer --tool $1 --error-exitcode 99 --print-limit 5 tests/$2 --small"
}
sanitize_part() {
    local name
    if ! command -v compute-sanitizer >/dev/null; then
        row sanitize skipped 0 "compute-sanitizer is not in PATH"
        return
    fi
    for name in "${failed_tests[@]:0:2}"; do
        case $name in small-*) sanitize memcheck "cuda_${name#small-}_test" ;; cuda_*) sanitize memcheck "$name" ;; esac
    done
    for name in cuda_linear_test cuda_attention_test cuda_moe_test cuda_steps_test cuda_sample_test; do
        case " ${failed_tests[*]:0:2} " in *" $name "* | *" small-${name:5:-5} "*) ;; *) [ "$(left)" -lt 15 ] || sanitize memcheck $name ;; esac
        [ "$(left)" -lt 15 ] || sanitize racecheck $name
    done
}

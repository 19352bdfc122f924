# The other scripts source this file. It defines steps with elapsed time, a log for each step, and advice when a step fails. It needs COX_ROOT (the
# repository). Logs go to build/log/, which is never committed.
: "${COX_ROOT:?}"
COX_LOGS="$COX_ROOT/build/log"
mkdir -p "$COX_LOGS"
# A script and the scripts that it calls share one clock.
export STEPS_STARTED=${STEPS_STARTED:-$EPOCHSECONDS}

elapsed() { printf '%3d:%02d' $(((EPOCHSECONDS - STEPS_STARTED) / 60)) $(((EPOCHSECONDS - STEPS_STARTED) % 60)); }
say() { printf '[%s] %s\n' "$(elapsed)" "$*"; }
die() { # die WHAT [WHAT TO DO]: prints the failure and ends the script
    printf '[%s] FAILED: %s\n' "$(elapsed)" "$1" >&2
    [ -z "${2:-}" ] || printf '        what to do: %s\n' "$2" >&2
    exit 1
}

# step TITLE HINT COMMAND...: runs a command quietly (a line with a dot every 20 s). It prints the end of the command's log when the command fails.
step() {
    local title=$1 hint=$2 log pid tick=0 from=$SECONDS rc=0
    shift 2
    log="$COX_LOGS/$(printf '%s' "$title" | tr -cs 'a-zA-Z0-9' '-' | sed 's/-$//').log"
    say "$title ..."
    # The command has its own process group, which a Ctrl-C also ends. Otherwise, a build would continue beside the next build.
    set -m
    "$@" >"$log" 2>&1 </dev/null &
    pid=$!
    set +m
    trap 'say "$title: stopped by Ctrl-C"; kill -TERM -- -$pid 2>/dev/null; trap - INT; kill -INT $$' INT
    while kill -0 $pid 2>/dev/null; do
        sleep 0.2
        tick=$((tick + 1))
        if [ $((tick % 100)) -eq 0 ]; then
            say "$title: $((SECONDS - from)) s so far: $(tail -n 1 "$log" | cut -c 1-90)"
        fi
    done
    wait $pid || rc=$?
    trap - INT
    if [ $rc -ne 0 ]; then
        # With several jobs at once the error is rarely among the last lines.
        if grep -qE '^FAILED: |: (fatal )?error( #[0-9-]+)?: ' "$log"; then
            printf -- '---- errors in %s\n' "${log#"$COX_ROOT"/}" >&2
            grep -E '^FAILED: |: (fatal )?error( #[0-9-]+)?: ' "$log" | cut -c 1-300 | head -n 30 >&2
        fi
        printf -- '---- last lines of %s\n' "${log#"$COX_ROOT"/}" >&2
        tail -n 40 "$log" >&2
        printf -- '----\n' >&2
        die "$title: exit status $rc after $((SECONDS - from)) s" "$hint"
    fi
    say "$title: done in $((SECONDS - from)) s"
}

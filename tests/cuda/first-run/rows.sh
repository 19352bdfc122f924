# shellcheck shell=bash
# Defines functions for the rows of first-run's table: a program's name, result, time and last line. first-run sources this file and sets LOG,
# ROWS and FIGURES and the functions left, has_device and ours.

# A program that skips on a host with a device has failed, unless it needs more devices than there are.
skipped() { # skipped LAST_LINE: prints the result of a program that skipped
    if has_device && ! [[ $1 =~ needs\ [0-9]+\ devices ]]; then echo "FAILED: skipped"; else echo skipped; fi
}
result_of() { # result_of STATUS LIMIT LAST_LINE: prints the result of a row
    case $1 in
    0) echo passed ;;
    75) echo "cut short" ;;
    77) skipped "$3" ;;
    124 | 137) echo "NOT DONE in $2 s" ;;
    1) if [[ $3 =~ ^[0-9]+\ of\ [0-9]+\ bars\ held ]]; then echo "BELOW A BAR"; else echo "FAILED (1)"; fi ;;
    *) echo "FAILED ($1)" ;;
    esac
}
last_line() { # last_line FILE: prints the file's last non-empty line as one cell's text
    grep -av '^ *$' "$1" 2>/dev/null | tail -n 1 | tr -d '\000-\010\013-\037' | cut -c 1-180
}
row() { # row NAME RESULT SECONDS TEXT: writes a row
    printf '| `%s` | %s | %s s | %s |\n' "$1" "$2" "$3" "${4//|/\\|}" >>"$ROWS"
    printf '%4d s  %-34s %-20s %4s s  %s\n' "$SECONDS" "$1" "$2" "$3" "${4:0:120}"
}
complaints() { # complaints NAME: prints a few lines that give the reason
    grep -aiE 'fail|error|hazard|invalid|illegal|misaligned|not within|beyond' "$LOG/$1.txt" | head -n 6 | cut -c 1-200 | sed 's/^/        /'
}
run() { # run NAME LIMIT COMMAND...: runs it, with a log of its output. The log's last line is the row's text; rows of benches are kept.
    local name=$1 limit=$2 from=$SECONDS rc=0
    shift 2
    [ "$limit" -le "$(left)" ] || limit=$(left)
    if [ "$limit" -lt 3 ]; then
        row "$name" "no time left" 0 ""
        return 0
    fi
    timeout --kill-after=3 "$limit" "$@" >"$LOG/$name.txt" 2>&1 </dev/null || rc=$?
    row "$name" "$(result_of $rc "$limit" "$(last_line "$LOG/$name.txt")")" $((SECONDS - from)) "$(last_line "$LOG/$name.txt")"
    case $rc in 0 | 75 | 77) ;; *) complaints "$name" ;; esac
    grep -ahE '^\| (cuda_[a-z_]+|torch|serve) \|' "$LOG/$name.txt" >>"$FIGURES" 2>/dev/null
    return $rc
}
bench() { # bench NAME LIMIT PROGRAM ARGUMENTS...: runs one of the pack's programs with the pack's libraries
    local name=$1 limit=$2
    shift 2
    run "$name" "$limit" bash -c 'ours "$@"' _ "$@"
}

# shellcheck shell=bash
# Makes and enters a minimal root of a Debian or Ubuntu release. scripts/clean-root and packaging/try read this file. They set:
#   SUITE, MIRROR, KEYRING   the release, the mirror of its distribution, and a keyring file or ""
#   ROOT, HOME_INSIDE        the folder of the root, and the home folder in it
#   CACHE                    the host's model cache, which mount_system mounts in the root, or ""
#   FOREIGN                  Debian's name of another architecture, whose packages are only unpacked; unset or "": this machine's
#   die, which prints a failure and ends the script
# All functions except distribution_of and host_mirror run in mount and process namespaces that the script made.

distribution_of() { # distribution_of SUITE: prints debian or ubuntu
    case $1 in
    bionic | focal | jammy | noble) echo ubuntu ;;
    *) echo debian ;;
    esac
}
# host_mirror prints this host's mirror, when the host has the same distribution.
host_mirror() { # host_mirror debian|ubuntu: prints this host's mirror, or nothing
    cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null | grep -E '^(deb |URIs:)' |
        grep -oE "https?://[^ ]+/$1/?( |\$)" | tr -d ' ' | head -n 1 || true
}

# bootstrap: runs debootstrap, with the log in $ROOT.log until it succeeds.
bootstrap() {
    local options=(--variant=minbase --include=ca-certificates) script=""
    [ -z "$KEYRING" ] || options+=(--keyring="$KEYRING")
    [ -z "${FOREIGN:-}" ] || options+=(--foreign --arch="$FOREIGN")
    # An old debootstrap may not know the release. The script of the same distribution's other releases works as well.
    if [ ! -e "/usr/share/debootstrap/scripts/$SUITE" ]; then
        script=/usr/share/debootstrap/scripts/sid
        [ "$(distribution_of "$SUITE")" != ubuntu ] || script=/usr/share/debootstrap/scripts/gutsy
    fi
    debootstrap "${options[@]}" "$SUITE" "$ROOT" "$MIRROR" ${script:+"$script"} >"$ROOT.log" 2>&1 || {
        tail -n 15 "$ROOT.log" >&2
        die "debootstrap could not make the root of $SUITE" "read the lines above and check that $MIRROR is reachable; --mirror URL names another mirror"
    }
    if [ -L "$ROOT/proc" ]; then # debootstrap --foreign leaves a link to this machine's /proc
        rm "$ROOT/proc" && mkdir "$ROOT/proc"
    fi
    mv "$ROOT.log" "$ROOT/var/log/bare-root.log"
}

# write_sources: writes apt's sources: release, updates and security.
write_sources() {
    local components=main security=${MIRROR%/}-security pocket=$SUITE-security signed
    signed=/usr/share/keyrings/debian-archive-keyring.gpg
    if [ "$(distribution_of "$SUITE")" = ubuntu ]; then
        components="main universe" security=$MIRROR signed=/usr/share/keyrings/ubuntu-archive-keyring.gpg
    fi
    rm -f "$ROOT"/etc/apt/sources.list
    cat >"$ROOT/etc/apt/sources.list.d/bare-root.sources" <<TEXT
Types: deb
URIs: $MIRROR
Suites: $SUITE $SUITE-updates
Components: $components
Signed-By: $signed

Types: deb
URIs: $security
Suites: $pocket
Components: $components
Signed-By: $signed
TEXT
    apt-config dump 2>/dev/null | grep -iE '^Acquire::(https?::proxy|https?::timeout|https::ca|check-|retries)' \
        >"$ROOT/etc/apt/apt.conf.d/80bare-root" || true
}

# Copies the settings with which this machine reaches its package indexes: name servers, certificates, pip's and cargo's configuration.
write_network() {
    local from to
    cat /etc/resolv.conf >"$ROOT/etc/resolv.conf"
    cat /etc/hosts >"$ROOT/etc/hosts"
    for from in /usr/local/share/ca-certificates/*.crt; do
        [ ! -f "$from" ] || install -D -m 644 "$from" "$ROOT$from"
    done
    run_in / update-ca-certificates >/dev/null
    for from in /etc/pip.conf "${HOME:-/root}/.config/pip/pip.conf" "${PIP_CONFIG_FILE:-/none}"; do
        [ ! -f "$from" ] || install -D -m 644 "$from" "$ROOT/etc/pip.conf"
    done
    for from in "${CARGO_HOME:-${HOME:-/root}/.cargo}"/config.toml; do
        [ ! -f "$from" ] || install -D -m 600 "$from" "$ROOT$HOME_INSIDE/.cargo/config.toml"
    done
    to=${PIP_FIND_LINKS:-}
    if [ -d "$to" ]; then
        mkdir -p "$ROOT$to"
        mount --bind -o ro "$to" "$ROOT$to"
    fi
}

mount_system() {
    local node
    mount -t proc proc "$ROOT/proc"
    mount -t sysfs -o ro,nosuid,nodev,noexec sysfs "$ROOT/sys"
    mount -t tmpfs -o mode=755,nosuid dev "$ROOT/dev"
    mkdir "$ROOT/dev/pts" "$ROOT/dev/shm"
    for node in null zero full random urandom tty; do
        : >"$ROOT/dev/$node"
        mount --bind "/dev/$node" "$ROOT/dev/$node"
    done
    ln -s /proc/self/fd "$ROOT/dev/fd"
    ln -s pts/ptmx "$ROOT/dev/ptmx"
    mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts "$ROOT/dev/pts"
    mount -t tmpfs -o mode=1777,nosuid,nodev shm "$ROOT/dev/shm"
    if [ -n "$CACHE" ]; then
        mkdir -p "$ROOT$HOME_INSIDE/.cache/coxswain"
        mount --bind "$CACHE" "$ROOT$HOME_INSIDE/.cache/coxswain"
    fi
}

# run_in FOLDER COMMAND...: runs a command in the root. The command gets only the network settings of this environment.
run_in() {
    local folder=$1 name keep=()
    shift
    for name in $(compgen -e); do
        case $name in
        PIP_CONFIG_FILE | PIP_CACHE_DIR | CARGO_HOME | CARGO_TARGET_DIR | CARGO_INSTALL_ROOT) ;;
        PIP_* | CARGO_* | *_proxy | *_PROXY | SSL_CERT_* | CURL_CA_BUNDLE | REQUESTS_CA_BUNDLE) keep+=("$name=${!name}") ;;
        COX_HEAD_PORT | COX_ADMIN_PORT | COX_WORKER_HTTP_PORT) keep+=("$name=${!name}") ;;
        esac
    done
    [ -z "${PREBUILT:-}" ] || keep+=("COX_PREBUILT_TEXT=$PREBUILT_INSIDE") # scripts/clean-root --prebuilt-text
    env -i HOME=$HOME_INSIDE USER=root LC_ALL=C.UTF-8 TERM="${TERM:-dumb}" "${keep[@]}" \
        PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        chroot "$ROOT" /bin/sh -c 'cd "$0" && exec "$@"' "$folder" "$@"
}

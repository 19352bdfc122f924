# shellcheck shell=bash
# Tests the units of a .deb with systemd itself: packaging/try reads this file for the kind "service". systemd runs as the first process of
# namespaces in the root, with a network of its own and an empty cgroup v2 below this machine's.
# It needs a mounted cgroup2 and Debian 11 or later, Ubuntu 22.04 or later.

prepare_service() { apt -qq install -y --no-install-recommends systemd dbus >/dev/null; }

# mount_for_systemd: replaces the mounts of mount_system by those that systemd expects in a container.
mount_for_systemd() {
    mount -t proc proc "$ROOT/proc" # that of systemd's own process namespace
    umount "$ROOT/sys"
    mount -t sysfs sysfs "$ROOT/sys"
    mount -t cgroup2 cgroup2 "$ROOT/sys/fs/cgroup"
    mount -t tmpfs -o mode=755 run "$ROOT/run"
    ip link set lo up
}

# booted COMMAND...: runs a command beside the systemd of the root.
booted() {
    nsenter -t "$init" -m -p -n -i -u --root="/proc/$init/root" --wd=/ \
        env -i LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"
}
until_true() { # until_true WHAT COMMAND...: waits until the command succeeds, for at most 120 s
    local what=$1 end=$(($(now_ms) + 120000))
    shift
    until "$@" >/dev/null 2>&1; do
        [ "$(now_ms)" -lt $end ] || die "$what did not happen within 120 s" "$(booted journalctl -u coxswain --no-pager -o cat | tail -n 15)"
        sleep 0.25
    done
}
answers() { nsenter -t "$init" -n curl -sf --max-time 60 "http://127.0.0.1:8000/v1/completions" -d '{"model": "demo", "prompt": "Once", "max_tokens": 4}'; }
pids() { booted cat /run/coxswain/pids; }
not() { ! "$@"; }

# service_init: becomes systemd, in the namespaces and the cgroup that `boot` made.
service_init() {
    mount_for_systemd
    exec env -i container=lxc PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot "$ROOT" /lib/systemd/systemd systemd.unit=multi-user.target
}

# boot: starts systemd, and sets init to its process id.
boot() {
    local end=$(($(now_ms) + 60000)) unified=/sys/fs/cgroup holder
    [ "$(stat -fc %T $unified)" = cgroup2fs ] || unified=/sys/fs/cgroup/unified
    [ "$(stat -fc %T $unified 2>/dev/null)" = cgroup2fs ] || die "this machine has no cgroup v2 at /sys/fs/cgroup" "run this kind on another machine"
    GROUP=$unified/${WORK##*/} # packaging/try removes it at its end
    mkdir "$GROUP"
    export GROUP
    mount -t proc proc /proc # the process ids of this namespace
    # shellcheck disable=SC2016 # the inner shell expands these
    TRY_STAGE=service_init sh -c 'echo $$ >"$GROUP/cgroup.procs" && exec unshare --cgroup --net --ipc --uts --mount --pid --fork --kill-child "$0"' "$0" \
        >"$ROOT/tmp/systemd.log" 2>&1 &
    holder=$! init=""
    until [ -n "$init" ] && [ "$(booted systemctl is-system-running 2>/dev/null)" = running ]; do
        if ! kill -0 $holder 2>/dev/null || [ "$(now_ms)" -gt $end ]; then
            die "systemd does not run, or its start takes more than 60 s" "read its last lines: $(tail -n 5 "$ROOT/tmp/systemd.log")"
        fi
        sleep 0.25
        read -r init _ <"/proc/$holder/task/$holder/children" 2>/dev/null || true
    done
}
shut_down() { kill -KILL "$init"; }

# try_service: installs the package, starts the service, reloads and restarts it, and removes the package from the running system.
try_service() {
    local deb before
    deb=$(package_file "$(newest service)")
    cp "$ROOT$deb" "$ROOT/root/cox.deb"
    apt install -y --download-only "$deb" >/dev/null 2>&1 # adduser, if the root has none: the booted system has no network
    boot
    booted apt-get install -y /root/cox.deb >"$ROOT/root/install.log" 2>&1 || die "the installation failed" "$(tail -n 5 "$ROOT/root/install.log")"
    not booted systemctl is-enabled --quiet coxswain || die "the service is enabled after the installation"
    booted install -d -o coxswain /var/cache/coxswain/models
    cp -R "$MODELS"/demo* "$ROOT/var/cache/coxswain/models/"
    echo 'gateways: 2' >>"$ROOT/etc/coxswain/up.yaml"
    booted systemctl enable --now --quiet coxswain
    until_true "an answer of the service" answers
    before=$(pids)
    booted systemctl reload coxswain || die "the reload failed" "$(booted journalctl -u coxswain --no-pager -o cat | tail -n 5)"
    [ "$(printf '%s\n' "$before" "$(pids)" | sort | uniq -d)" = "" ] || die "the reload left processes: $before" "$(pids)"
    until_true "an answer after the reload" answers
    booted systemctl restart coxswain
    until_true "an answer after the restart" answers
    booted systemctl enable --quiet coxswain-worker@3
    booted apt-get -qq purge -y coxswain >/dev/null
    booted sh -c '! ls -d /sys/fs/cgroup/system.slice/coxswain.service' 2>/dev/null || die "the service still runs after the removal"
    gone /usr/bin/cox /etc/coxswain /var/lib/coxswain /var/cache/coxswain \
        /etc/systemd/system/multi-user.target.wants/coxswain.service /etc/systemd/system/multi-user.target.wants/coxswain-worker@3.service
    shut_down
    say "installed, started, reloaded, restarted and removed by systemd $(run_in / dpkg-query -W -f '${Version}' systemd)"
}

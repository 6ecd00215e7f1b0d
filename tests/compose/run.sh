#!/usr/bin/env bash
# Run docker-compose.yml for real, on a machine that need not have Docker: `make compose-test`.
#
# Needs: Debian or a relative of it, root, Python 3, a Debian mirror and PyPI; no registry of images.
# It unpacks Docker's engine and compose from Debian's packages into a temporary folder (nothing is
# installed), starts that engine there with its own data, socket and pid file, makes a base image with
# debootstrap, builds the application's image on it, and stand-ins for Postgres and Redis. scenario.py then
# does what a person would do, and looks. At the end, also after a failure, the engine and the folder go.
#
# `run.sh config` fetches compose only and runs the checks of tests/unit/test_compose.py with it: no root, no
# engine, a few seconds.
#
#   COMPOSE_TEST_CACHE=folder   keep Debian's packages and the base system there, for the next time
#   COMPOSE_TEST_SUBNETS=cidr   where the engine takes its networks from (10.213.0.0/16)
#   DEBIAN_MIRROR=url           instead of the mirror that this machine's apt is set up with
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
mirror=${DEBIAN_MIRROR:-}
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
# bookworm has an old compose; the next release's needs nothing but the C library
engine_packages="docker.io containerd runc tini debootstrap iptables libip4tc2 libip6tc2 libxtables12 libmnl0
    libnfnetlink0 libnetfilter-conntrack3 libnftnl11 libdevmapper1.02.1"
compose_package=docker-compose/trixie

say() { printf '\n== %s\n' "$*"; }
cannot() {
    printf 'make compose-test cannot run here: %s\n' "$*" >&2
    exit 1
}

mode=${1:-all}
[ "$mode" = all ] || [ "$mode" = config ] || cannot "run.sh takes nothing, or the word config."
[ "$mode" = config ] || [ "$(id -u)" = 0 ] || cannot "it starts a Docker engine of its own, which takes root."
for tool in apt-get dpkg-deb python3 tar unshare; do
    command -v "$tool" > /dev/null || cannot "there is no $tool."
done
[ -n "$mirror" ] || mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' |
    grep -E '/debian/?$' | sort -u | head -n 1)
[ -n "$mirror" ] || cannot "apt has no Debian mirror; name one with DEBIAN_MIRROR."
[ -r "$keyring" ] || cannot "$keyring is missing (package debian-archive-keyring)."

work=$(mktemp -d /tmp/cragline-compose.XXXXXX)
chmod 755 "$work"
cache=${COMPOSE_TEST_CACHE:-$work/cache}
mkdir -p "$cache" "$work/bin" "$work/tools" "$work/engine" "$work/client/cli-plugins"
cache=$(cd "$cache" && pwd)
had_plugins_folder=$([ -d /run/docker ] && echo yes || echo no)
engine=
engine_started=

engine_docker() { docker --host "unix://$work/engine/sock" "$@"; }

# Ends what was started here, by its own id, and nothing else.
stop_engine() {
    [ -n "$engine" ] && kill -0 "$engine" 2> /dev/null || return 0
    if [ -n "$engine_started" ]; then
        engine_docker ps -aq | xargs -r docker --host "unix://$work/engine/sock" rm -f > /dev/null || true
        engine_docker network prune -f > /dev/null || true # takes the bridges away
    fi
    kill "$engine" || true
    for _ in $(seq 120); do
        kill -0 "$engine" 2> /dev/null || break
        sleep 0.5
    done
    kill -0 "$engine" 2> /dev/null && kill -KILL "$engine"
    wait "$engine" 2> /dev/null || true
}

clean_up() {
    local code=$?
    trap - EXIT
    trap '' INT TERM
    set +e
    say "taking everything down"
    [ "$code" = 0 ] || tail -n 20 "$work/engine/log" 2> /dev/null
    stop_engine
    # deepest first; the engine leaves its network namespace mounted
    awk -v at="$work/" 'index($2, at) == 1 { print $2 }' /proc/mounts | sort -r | while read -r mounted; do
        umount "$mounted"
    done
    if grep -q " $work/" /proc/mounts; then
        echo "something is still mounted below $work; it is left there" >&2
        code=1
    else
        rm -rf --one-file-system "$work"
    fi
    [ "$had_plugins_folder" = yes ] || rmdir /run/docker/plugins /run/docker 2> /dev/null
    if [ "$code" = 0 ]; then say "compose test passed"; else say "compose test FAILED"; fi
    exit "$code"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Debian's packages, with lists of our own, so that the machine's apt keeps its state.
apt_here() {
    apt-get -qq -o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts=/nonexistent \
        -o Dir::State::lists="$work/lists" -o Dir::Cache="$work/apt" -o APT::Sandbox::User=root "$@"
}

fetch() { # PACKAGE/RELEASE...
    mkdir -p "$cache/packages" "$work/lists/partial" "$work/apt/archives/partial"
    printf "deb [signed-by=$keyring] $mirror %s main\n" bookworm trixie > "$work/sources.list"
    apt_here update
    (cd "$cache/packages" && apt_here download "$@")
}

unpack() { # which packages of those that were fetched, by the beginning of their names
    local package
    for package in "$cache/packages/$1"*.deb; do
        dpkg-deb -x "$package" "$work/tools"
    done
}

have() { ls "$cache/packages/$1"_*.deb > /dev/null 2>&1; }

unpack_tools() {
    say "Docker's engine, compose and debootstrap, from Debian's packages"
    # shellcheck disable=SC2046,SC2086 # lists of words
    have docker.io && have docker-compose || fetch $(printf '%s/bookworm ' $engine_packages) "$compose_package"
    unpack ""
    ln -s "$work/tools/usr/libexec/docker/cli-plugins/docker-compose" "$work/client/cli-plugins/"
    export PATH="$work/bin:$work/tools/usr/sbin:$work/tools/usr/bin:$PATH"
    export DOCKER_CONFIG="$work/client"
    local triplet
    triplet=$(basename "$(dirname "$(find "$work/tools/usr/lib" -name 'libxtables.so.*' | head -n 1)")")
    tool_libraries=$work/tools/usr/lib/$triplet:$work/tools/lib/$triplet
}

check_config() {
    say "compose's own check of the file"
    have docker-compose || fetch "$compose_package"
    unpack docker-compose_
    PATH="$work/tools/usr/libexec/docker/cli-plugins:$PATH" docker-compose version
    PATH="$work/tools/usr/libexec/docker/cli-plugins:$PATH" \
        "$root/.venv/bin/python" -m pytest -q "$root/tests/unit/test_compose.py"
}

# The engine's name server redirects its port inside the containers' network namespace, with iptables.
choose_iptables() {
    local kind
    for kind in nft legacy; do
        ln -sf "$work/tools/usr/sbin/xtables-$kind-multi" "$work/bin/iptables"
        ln -sf "$work/tools/usr/sbin/xtables-$kind-multi" "$work/bin/ip6tables"
        if LD_LIBRARY_PATH=$tool_libraries XTABLES_LIBDIR=${tool_libraries%%:*}/xtables \
            unshare -n iptables -t nat -S > /dev/null 2>&1; then
            return
        fi
    done
    cannot "neither kind of iptables works with this kernel, so containers could not find each other by name."
}

start_engine() {
    say "an engine of our own"
    choose_iptables
    # The host's firewall and forwarding stay as they are: containers reach each other over a bridge, the
    # host reaches published ports, and builds use the host's network.
    # Not through a function, whose process id would be that of a shell in between.
    LD_LIBRARY_PATH=$tool_libraries XTABLES_LIBDIR=${tool_libraries%%:*}/xtables \
        dockerd --data-root "$work/engine/data" --exec-root "$work/engine/exec" \
        --pidfile "$work/engine/pid" --host "unix://$work/engine/sock" \
        --bridge=none --iptables=false --ip6tables=false --ip-forward=false \
        --default-address-pool "base=${COMPOSE_TEST_SUBNETS:-10.213.0.0/16},size=24" \
        --init-path "$work/tools/usr/bin/tini-static" > "$work/engine/log" 2>&1 &
    engine=$!
    for _ in $(seq 60); do
        if engine_docker version > /dev/null 2>&1; then
            engine_started=yes
            export DOCKER_HOST="unix://$work/engine/sock"
            docker info --format 'engine {{.ServerVersion}}, {{.Driver}}, cgroup v{{.CgroupVersion}}'
            docker compose version
            return
        fi
        kill -0 "$engine" 2> /dev/null || break
        sleep 0.5
    done
    cannot "the engine does not start; the end of its log follows."
}

# bookworm with Python and no more. The host's certificates go in, because builds use its network.
make_base() {
    say "a base image, with debootstrap"
    local certificates=/etc/ssl/certs/ca-certificates.crt
    if [ ! -s "$cache/base.tar" ]; then
        DEBOOTSTRAP_DIR="$work/tools/usr/share/debootstrap" debootstrap --variant=minbase \
            --keyring="$keyring" --include=python3,python3-venv,ca-certificates bookworm "$work/base" "$mirror" \
            > "$work/debootstrap.log" 2>&1 || { tail "$work/debootstrap.log" >&2; return 1; }
        rm -rf "$work"/base/var/cache/apt/archives/*.deb "$work"/base/var/lib/apt/lists/*
        [ ! -r "$certificates" ] || cp "$certificates" "$work/base$certificates"
        tar -C "$work/base" -c . > "$cache/base.tar.part"
        mv "$cache/base.tar.part" "$cache/base.tar"
        rm -rf --one-file-system "$work/base"
    fi
    docker import --change 'CMD ["bash"]' \
        --change "ENV SSL_CERT_FILE=$certificates PIP_CERT=$certificates" \
        "$cache/base.tar" cragline-test-base:bookworm
}

if [ "$mode" = config ]; then
    check_config
    exit 0
fi
unpack_tools
start_engine
make_base
say "the scenario"
# In the background, so that a signal is acted on at once and not when the scenario has ended
python3 "$here/scenario.py" --root "$root" --work "$work" &
scenario=$!
trap 'kill "$scenario" 2> /dev/null; exit 130' INT
trap 'kill "$scenario" 2> /dev/null; exit 143' TERM
wait "$scenario"

#!/usr/bin/env bash
# What a flow costs the traffic engine, in CPU time, beside the least that an epoll loop can do.
#
#   sudo benches/generator.sh [--offloads] [--flows N] [--bytes N] [--repeats N]
#                           [--rate N | --open N]
#
# Both tools keep --open flows (64) under way, or start them at a --rate. Clients and servers have a
# network namespace each; a third between them routes, with MTU 1500 and no meter. All of it is
# removed at the end. Without offloads every segment is a packet of its own,
# as in a lab, and packets cost most; with --offloads a file crosses as one or two large ones, and
# what the tools themselves cost shows best. The last line is one JSON object; `ratio` is the
# engine's cost over the minimal tool's.
set -euo pipefail
offloads=false
if [ "${1:-}" = --offloads ]; then
    offloads=true
    shift
fi
cd "$(dirname "$0")/.."

if [ "$(id -u)" != 0 ]; then
    echo "benches/generator.sh needs root to make network namespaces; run it with sudo" >&2
    exit 2
fi
cargo build --quiet --release -p nilometer-bench --example minimal_epoll --example engine_bench
bench=${CARGO_TARGET_DIR:-target}/release/examples/engine_bench

tag=nlg$$
client=$tag-c router=$tag-r server=$tag-s
clean_up() {
    for namespace in $client $router $server; do
        ip netns delete "$namespace" 2>/dev/null || true
    done
}
trap clean_up EXIT
trap 'exit 130' INT TERM

for namespace in $client $router $server; do
    ip netns add "$namespace"
    ip -n "$namespace" link set lo up
done
join() { # NAMESPACE, PORT OF THE ROUTER, THIRD OCTET, POOL
    ip -n "$router" link add "$2" type veth peer name port0 netns "$1"
    ip -n "$router" address add "198.19.255.$(($3 * 4 + 1))/30" dev "$2"
    ip -n "$1" address add "198.19.255.$(($3 * 4 + 2))/30" dev port0
    if ! $offloads; then
        ip netns exec "$router" "$bench" offloads-off "$2"
        ip netns exec "$1" "$bench" offloads-off port0
    fi
    ip -n "$router" link set "$2" up
    ip -n "$1" link set port0 up
    ip -n "$1" route add default via "198.19.255.$(($3 * 4 + 1))"
    ip -n "$1" route add local "$4" dev lo
    ip -n "$router" route add "$4" via "198.19.255.$(($3 * 4 + 2))"
}
join "$client" clients 1 198.18.0.0/16
join "$server" servers 2 198.19.0.0/17
ip netns exec "$router" sysctl -qw net.ipv4.ip_forward=1

irq_time=()
if { zcat /proc/config.gz || cat "/boot/config-$(uname -r)"; } 2>/dev/null |
    grep '^CONFIG_IRQ_TIME_ACCOUNTING=y' >/dev/null; then
    irq_time=(--irq-time)
fi
"$bench" compare --client-namespace "$client" --server-namespace "$server" "${irq_time[@]}" "$@"

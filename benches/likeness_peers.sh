#!/usr/bin/env bash
# What `nilometer compare` says of copies that other tools make of the embedded capture, and of Harpoon's own mode:
# laws that are expected to differ were named before the first run, below; one that is not named and differs, or
# is named and does not, makes the exit status 1.
#
#   sudo benches/likeness_peers.sh [DIR]
#
# tcpreplay sends the packets again as they were, so that nothing may differ; at twice the speed all times do.
# iperf3 makes one session of a hundred connections, of which nothing can be told. Harpoon's mode has one file of each
# connection, which its server sends, and draws sessions anew: it keeps gaps and the popularity of hosts, no more. Wants tcpreplay, tcpdump, iperf3, and a machine with nothing else to do: a replay that
# slips is no replay, and whether it did is said first. Takes four minutes; keeps its captures in DIR.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ "$(id -u)" != 0 ]; then
    echo "benches/likeness_peers.sh needs root to make network namespaces; run it with sudo" >&2
    exit 2
fi
for tool in tcpreplay tcprewrite tcpdump iperf3 python3; do
    command -v "$tool" >/dev/null || { echo "$tool is needed and not installed" >&2; exit 2; }
done
cargo build --quiet --release -p nilometer
nilometer=$PWD/${CARGO_TARGET_DIR:-target}/release/nilometer
folder=${1:-$(mktemp -d)}
mkdir -p "$folder"
original=$folder/original.pcap
gzip -dc examples/sample.pcap.gz >"$original"
# Its payload was not kept: replayed, each packet is as long as it was.
tcprewrite --fixlen=pad --infile="$original" --outfile="$folder/padded.pcap" >/dev/null

# captured FILE COMMAND...: keeps what arrives at port vb while the command runs, in this namespace.
captured() {
    local file=$1
    shift
    tcpdump -Z root -i vb -Q in -w "$file" -B 65536 -s 0 --immediate-mode 2>"$file.log" &
    local dump=$!
    sleep 1
    "$@"
    sleep 1
    kill "$dump"
    wait "$dump" || true
    grep -E "dropped" "$file.log" || true
}

ports() {
    ip link set lo up
    ip link add va type veth peer name vb
    sysctl -qw net.ipv6.conf.va.disable_ipv6=1 net.ipv6.conf.vb.disable_ipv6=1
    ip link set va up
    ip link set vb up
    sleep 1
}

replays() {
    ports
    for times in 1 2; do
        captured "$folder/replay$times.pcap" \
            tcpreplay --preload-pcap --multiplier="$times" -i va "$folder/padded.pcap" 2>&1 | grep -E "Actual|dropped"
    done
}

transfers() {
    ports
    unshare -n sleep 60 &
    local peer=$!
    sleep 0.2
    ip link set va netns "$peer"
    ip address add 198.18.0.2/24 dev vb
    nsenter -t "$peer" -n sh -c "ip link set lo up; ip link set va up; ip address add 198.18.0.1/24 dev va"
    iperf3 -s -1 >/dev/null 2>&1 &
    tcpdump -Z root -i vb -w "$folder/iperf3.pcap" -B 65536 -s 96 2>"$folder/iperf3.pcap.log" &
    local dump=$!
    sleep 1
    nsenter -t "$peer" -n iperf3 -c 198.18.0.2 -P 100 -t 20 -b 200K >/dev/null
    sleep 1
    kill "$dump" "$peer"
    wait || true
}
export -f captured ports replays transfers
export folder original

unshare -n bash -euc replays
unshare -n bash -euc transfers
"$nilometer" lab run --harpoon --input examples/sample.pcap.gz --duration 60 --dut linux --calibration 0 --pcap \
    -o "$folder/harpoon" --force >"$folder/harpoon.log" 2>&1

python3 - "$nilometer" "$folder" <<'PYTHON'
import json, subprocess, sys

nilometer, folder = sys.argv[1:]
TIMES = {"think_time", "duration", "gap", "session_arrivals", "packets_per_second", "bytes_per_second", "scaling"}
ALL = TIMES | {"size_asked", "size_asked_tail", "size_answered", "size_answered_tail", "bytes_by_size", "exchanges"}
ALL |= {"first_speaker", "gap_correlation", "sources", "destinations", "pairs", "bytes_by_host", "packet_size", "endings"}
# What each must make of the laws that are told; what may go either way is in neither.
EXPECTED = {
    "replay1.pcap": (set(), set()),
    "replay2.pcap": ({"think_time", "duration", "gap", "session_arrivals"}, TIMES),
    "iperf3.pcap": (set(), set()),
    "harpoon": ({"exchanges", "think_time", "endings"}, ALL - {"gap", "sources", "destinations"}),
}
wrong = 0
for name, (must, may) in EXPECTED.items():
    words = [nilometer, "compare", f"{folder}/original.pcap", f"{folder}/{name}", "--json"]
    laws = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)["likeness"]
    of = lambda verdict: {law["name"] for law in laws if law["verdict"] == verdict}
    differs, told = of("differs"), of("differs") | of("alike")
    missed = (must & told) - differs
    beyond = differs - may
    wrong += len(missed) + len(beyond)
    print(f"{name}: {len(told)} laws told, {len(differs)} differ: {', '.join(sorted(differs)) or 'none'}")
    if missed or beyond:
        print(f"  NOT AS EXPECTED: alike {sorted(missed)}, differing {sorted(beyond)}")
sys.exit(1 if wrong else 0)
PYTHON

#!/usr/bin/env bash
# A capture replayed before softflowd, whose active timeout splits its flows: is the model of its NetFlow v5
# that of the packets?
#
#   benches/softflowd.sh [--speed N] [--maxlife SECONDS] [CAPTURE]
#
# tcpreplay plays CAPTURE (without it composite_a of NILOMETER_DATA) N times as fast as it was (20) over a
# veth pair in a network namespace of its own, softflowd meters there with an active timeout of --maxlife
# (2) and exports to loopback, and tcpdump keeps both what softflowd saw and what it sent. Shown are the
# repairs, and the distances between the model of the packets and that of the export. Gaps that are N times
# shorter are N times nearer to version 5's milliseconds: their distance says what rounding does, too, and
# is to be read at --speed 1. Wants root, and Debian's softflowd, tcpreplay, tcpdump and iproute2.
set -euo pipefail
usage="benches/softflowd.sh [--speed N] [--maxlife SECONDS] [CAPTURE]"
speed=20
maxlife=2
capture=
while [ $# -gt 0 ]; do
    case $1 in
    --speed) speed=${2:?--speed needs a number}; shift ;;
    --maxlife) maxlife=${2:?--maxlife needs a number}; shift ;;
    -*) echo "$usage" >&2; exit 2 ;;
    *) capture=$(realpath "$1") ;;
    esac
    shift
done
for tool in softflowd tcpreplay tcprewrite tcpdump ip unshare; do
    command -v $tool >/dev/null || { echo "$tool is missing" >&2; exit 2; }
done
if [ -z "$capture" ]; then
    : "${NILOMETER_DATA:?name a capture, or set it to the folder of the data}"
    capture=$(realpath "$NILOMETER_DATA/pcap/composite/composite_a.pcap.gz")
fi
cd "$(dirname "$0")/.."
cargo build --quiet --release -p nilometer --bin nilometer
nilometer=$(realpath "${CARGO_TARGET_DIR:-target}/release/nilometer")
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
case $capture in
*.gz) gzip -dc "$capture" >"$room/whole.pcap" ;;
*) cp "$capture" "$room/whole.pcap" ;;
esac
# NetFlow v5 has no IPv6.
tcpdump -r "$room/whole.pcap" -w "$room/cut.pcap" 'ip or (vlan and ip)' 2>/dev/null
# What a snap length cut off is sent as zeros.
tcprewrite --fixlen=pad --infile="$room/cut.pcap" --outfile="$room/capture.pcap" 2>/dev/null

# In the namespace, which goes with the last process in it.
# shellcheck disable=SC2016
unshare --net bash -euc '
    room=$1 speed=$2 maxlife=$3
    echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6
    ip link set lo up
    ip link add sends type veth peer name meets
    ip link set sends mtu 65535 up
    ip link set meets mtu 65535 up
    tcpdump -i meets -Q in -w "$room/packets.pcap" -B 65536 2>/dev/null & packets=$!
    tcpdump -i lo -w "$room/export.pcap" udp port 9995 2>/dev/null & export=$!
    sleep 1
    timers="-t maxlife=$maxlife -t expint=1 -t tcp=15 -t tcp.rst=15 -t tcp.fin=15 -t udp=15 -t icmp=15"
    softflowd -i meets -d -N -v 5 -m 65536 $timers -t general=15 -n 127.0.0.1:9995 \
        -p "$room/pid" -c "$room/ctl" 2>/dev/null & softflowd=$!
    sleep 1
    tcpreplay -i sends --multiplier="$speed" "$room/capture.pcap" 2>&1 | grep -E "Actual|Rated" || true
    sleep 2
    kill -TERM $softflowd
    wait $softflowd || true
    sleep 1
    kill -INT $packets $export
    wait
' in "$room" "$speed" "$maxlife"

cd "$room"
"$nilometer" flows packets.pcap
"$nilometer" flows export.pcap
"$nilometer" model packets.pcap -o packets.json >/dev/null
"$nilometer" model export.pcap -o export.json >/dev/null
"$nilometer" model compare packets.json export.json

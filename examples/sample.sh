#!/usr/bin/env bash
# Makes sample.pcap.gz, the embedded sample, anew: examples/sample.sh
#
# The example `sample` of crate lab draws the sessions; hosts of Linux play them over a bare wire, and what the
# client's end sent and received is kept, headers alone. Wants root, and Debian's tshark (with editcap and mergecap).
set -euo pipefail
cd "$(dirname "$0")/.."
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
cargo run --quiet --release -p nilometer --example sample >"$room/sample.json"
cargo run --quiet --release -p nilometer --bin nilometer -- lab run --model "$room/sample.json" --exact \
    --dut wire --calibration 0 --pcap --out "$room/run"
# The headers of a SYN with all its options end after 74 bytes where they are in IPv4, after 94 in IPv6.
tshark -r "$room/run/client.pcapng" -Y ip -w "$room/4.pcapng"
tshark -r "$room/run/client.pcapng" -Y ipv6 -w "$room/6.pcapng"
editcap -s 74 "$room/4.pcapng" "$room/4.short"
editcap -s 94 "$room/6.pcapng" "$room/6.short"
mergecap -F nsecpcap -w "$room/sample.pcap" "$room/4.short" "$room/6.short"
gzip -9n <"$room/sample.pcap" >examples/sample.pcap.gz

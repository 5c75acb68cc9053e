#!/usr/bin/env bash
# What a packet-hop costs the simulator, in CPU time and instructions, beside ns-3 on the same case.
#
#   benches/simulator.sh [--ns3-seconds N] [--repeats N] [--tcp NAME]
#
# The case is `qsdrr` with tail drop: 100 greedy TCP flows, 500 Mb/s, 100 ms, 200 packets. Ours runs
# its 100 simulated seconds --repeats times (3) on one thread, and the median counts; --tcp sets the
# scenario's parameter (`sack` is nearest to what ns-3 has). ns-3 runs --ns3-seconds (5; 0 leaves it
# out; 100 takes a quarter of an hour) once. A packet-hop is one packet sent on one link, whatever
# simulates it; CPU time is that of the user and of the kernel.
# The instructions are those that valgrind counts in two simulated seconds. What is not installed is
# skipped, and said. The last line is one JSON object; `ratio` is ours over ns-3's.
set -euo pipefail
ns3_seconds=5
repeats=3
tcp=()
while [ $# -gt 0 ]; do
    case $1 in
    --ns3-seconds) ns3_seconds=${2:?--ns3-seconds needs a number} ;;
    --tcp) tcp=(--set "tcp=${2:?--tcp needs a name}") ;;
    --repeats) repeats=${2:?--repeats needs a number} ;;
    *)
        echo "benches/simulator.sh [--ns3-seconds N] [--repeats N] [--tcp NAME]" >&2
        exit 2
        ;;
    esac
    shift 2
done
if ! [[ $repeats =~ ^[1-9][0-9]*$ && $ns3_seconds =~ ^[0-9]+$ ]]; then
    echo "benches/simulator.sh: both numbers are whole, and --repeats at least 1" >&2
    exit 2
fi
cd "$(dirname "$0")/.."
folder=${CARGO_TARGET_DIR:-target}
nilometer=$folder/release/nilometer
if command -v cargo >/dev/null; then
    cargo build --quiet --release -p nilometer --bin nilometer
elif [ ! -x "$nilometer" ]; then
    echo "benches/simulator.sh: no $nilometer, and no cargo to build it with" >&2
    exit 2
fi

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT TERM

number() { # KEY, FILE: the first number under that key
    awk -v key="\"$1\"" '
        at = index($0, key) {
            rest = substr($0, at + length(key))
            if (match(rest, /^ *: *[-+0-9.eE]+/)) {
                rest = substr(rest, 1, RLENGTH)
                sub(/^ *: */, "", rest)
                print rest
                found = 1
                exit
            }
        }
        END { exit !found }' "$2" || {
        echo "benches/simulator.sh: no \"$1\" in what the simulator printed" >&2
        exit 1
    }
}
divide() { # NUMERATOR, DENOMINATOR, DIGITS
    awk -v a="$1" -v b="$2" -v digits="$3" 'BEGIN { printf "%.*f\n", digits, b ? a / b : 0 }'
}
median() { # of the numbers on standard input, one a line
    sort -g | awk '
        { a[NR] = $1 }
        END { printf "%.10g\n", (a[int((NR + 1) / 2)] + a[int(NR / 2) + 1]) / 2 }'
}
simulate=("$nilometer" simulate qsdrr --set discipline=tail_drop --set buffer_packets=200
    --set rtt_ms=100 "${tcp[@]}" --seeds 1 --threads 1 --json)

echo "+ ${simulate[*]}   ($repeats times)" >&2
for ((run = 1; run <= repeats; run++)); do
    "${simulate[@]}" >"$scratch/ours.json"
    hops=$(number packet_hops "$scratch/ours.json")
    cpu=$(number cpu_seconds "$scratch/ours.json")
    number peak_rss_bytes "$scratch/ours.json" >>"$scratch/memory"
    echo "$cpu" >>"$scratch/cpu"
    divide "$hops" "$cpu" 0 >>"$scratch/speed"
done
cpu=$(median <"$scratch/cpu")
speed=$(median <"$scratch/speed")
memory=$(median <"$scratch/memory")
echo "nilometer: $hops packet-hops in $cpu CPU-s (median of $repeats): $speed hops/CPU-s," \
    "$(divide "$memory" 1048576 1) MiB"

instructions=null
if command -v valgrind >/dev/null; then
    short=("${simulate[@]}" --set duration_s=2)
    echo "+ valgrind --tool=callgrind ${short[*]}" >&2
    valgrind --tool=callgrind --callgrind-out-file="$scratch/callgrind" "${short[@]}" \
        >"$scratch/short.json" 2>"$scratch/valgrind.txt"
    collected=$(awk '/Collected :/ { print $NF }' "$scratch/valgrind.txt")
    instructions=$(divide "$collected" "$(number packet_hops "$scratch/short.json")" 1)
    echo "nilometer: $instructions instructions a packet-hop"
else
    echo "instructions: skipped, install the Debian package valgrind"
fi

ns3_speed=null
ratio=null
if [ "$ns3_seconds" = 0 ]; then
    echo "ns-3: skipped, --ns3-seconds 0"
elif ! benches/ns3/run.sh --build-only; then
    echo "ns-3: skipped, it could not be built"
else
    benches/ns3/run.sh --queue=fifo --buffer=200 --rtt=100 --seconds="$ns3_seconds" \
        >"$scratch/ns3.json"
    ns3_hops=$(number packet_hops "$scratch/ns3.json")
    ns3_cpu=$(number cpu_seconds "$scratch/ns3.json")
    ns3_memory=$(number peak_rss_bytes "$scratch/ns3.json")
    ns3_speed=$(divide "$ns3_hops" "$ns3_cpu" 0)
    ratio=$(divide "$speed" "$ns3_speed" 1)
    echo "ns-3: $ns3_hops packet-hops in $ns3_cpu CPU-s ($ns3_seconds simulated seconds):" \
        "$ns3_speed hops/CPU-s, $(divide "$ns3_memory" 1048576 1) MiB"
    echo "ratio: $ratio"
fi
echo "{\"hops_per_cpu_second\":$speed,\"cpu_seconds\":$cpu,\"peak_rss_bytes\":$memory," \
    "\"instructions_per_hop\":$instructions,\"ns3_hops_per_cpu_second\":$ns3_speed," \
    "\"ns3_simulated_seconds\":$ns3_seconds,\"ratio\":$ratio}"

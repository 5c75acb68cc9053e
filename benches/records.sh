#!/usr/bin/env bash
# How fast flow records and packets are read, on one processor, beside Debian's nfdump, nfpcapd and
# softflowd; and how long ten million mixed records take to a model, on two.
#
#   benches/records.sh [--records N] [--packets N] [--repeats N] [--room FOLDER]
#
# Inputs are copies, with shifted addresses and times, of the flow files and the large capture of
# NILOMETER_DATA, or without it of the embedded records and the example's capture. Ours and the peer run
# in turns; shown are medians of their CPU time, user and system, and the ratio of records or packets a
# CPU second, ours over theirs. nfdump has no way to read NetFlow v5: it scans its own file of the same
# records. Without --json and -o nobody asks for a digest of the input, and none is made; a scan counts no
# connections either. Packets are metered and repaired, and metered alone (--decode-only), which is what both
# peers do; of copies one after the other, of all copies within a minute (together), whose flows live
# together, and of 200,000 flows that live at once, each packet of another one (many). The last line is one
# JSON object. Wants nfdump, softflowd and time, and 3 GB in the room.
set -euo pipefail
usage="benches/records.sh [--records N] [--packets N] [--repeats N] [--room FOLDER]"
records=10000000
packets=3000000
repeats=5
under=${TMPDIR:-/tmp}
while [ $# -gt 0 ]; do
    case $1 in
    --records) records=${2:?--records needs a number}; shift ;;
    --packets) packets=${2:?--packets needs a number}; shift ;;
    --repeats) repeats=${2:?--repeats needs a number}; shift ;;
    --room) under=${2:?--room needs a folder}; shift ;;
    *) echo "$usage" >&2; exit 2 ;;
    esac
    shift
done
if [ "$records" -lt 1000000 ] || [ "$packets" -lt 500000 ]; then
    echo "times are told in hundredths of a second: give a million records and half a million packets" >&2
    exit 2
fi
for tool in nfdump nfpcapd softflowd taskset; do
    command -v $tool >/dev/null || { echo "$tool is missing" >&2; exit 2; }
done
[ -x /usr/bin/time ] || { echo "/usr/bin/time is missing" >&2; exit 2; }
seeds=()
capture=$(realpath "$(dirname "$0")/../examples/small.pcapng.gz")
if [ -n "${NILOMETER_DATA:-}" ]; then
    capture=$(realpath "$NILOMETER_DATA/pcap/composite/composite_a.pcap.gz")
    flows=$(realpath "$NILOMETER_DATA/flows")
    seeds=("$flows/StratosphereLinuxIPS/test1-malicious.nfdump"
        "$flows/nfdump/devtestdata/nfcapd.sample" "$capture")
fi
cd "$(dirname "$0")/.."
cargo build --quiet --release -p nilometer --bin nilometer --example replicate
target=$(realpath "${CARGO_TARGET_DIR:-target}/release")
nilometer=$target/nilometer
replicate=$target/examples/replicate
room=$(mktemp -d "$under/records.XXXXXX")
trap 'rm -rf "$room"' EXIT
trap 'exit 130' INT TERM

echo "making $records records of each kind and $packets packets" >&2
"$replicate" records --format netflow5 --count "$records" -o "$room/v5" "${seeds[@]}"
"$replicate" records --format nfcapd2 --count "$records" -o "$room/nfcapd" "${seeds[@]}"
"$replicate" packets --count "$packets" -o "$room/packets" "$capture"
"$replicate" packets --count "$packets" --seconds 60 -o "$room/together" "$capture"
"$replicate" packets --count "$packets" --flows 200000 -o "$room/many" "$capture"
mixed=() begin=0
for format in netflow5 netflow9 ipfix nfcapd1 nfcapd2; do
    "$replicate" records --format $format --count $((records / 5)) --seconds 720 --begin $begin \
        -o "$room/mixed-$format" "${seeds[@]}"
    mixed+=("$room/mixed-$format")
    begin=$((begin + 720))
done
mkdir "$room/out"

# CPU seconds, wall seconds and KiB of one run, on these processors.
run() { # PROCESSORS COMMAND...
    local on=$1
    shift
    rm -rf "$room/out/"*
    /usr/bin/time -q -o "$room/time" -f '%U %S %e %M' taskset -c "$on" "$@" >/dev/null 2>"$room/said" ||
        { cat "$room/said" >&2; echo "$1 failed" >&2; exit 1; }
    awk '{ print $1 + $2, $3, $4 }' "$room/time"
}
median() { sort -n | awk '{ a[NR] = $1 } END { print (a[int((NR + 1) / 2)] + a[int(NR / 2) + 1]) / 2 }'; }

json=
printf '%-34s %12s %12s %8s\n' 'a CPU second' 'nilometer' 'peer' 'ratio'
compare() { # NAME COUNT OURS... -- THEIRS...
    local name=$1 count=$2 ours=() theirs=()
    shift 2
    while [ "$1" != -- ]; do ours+=("$1"); shift; done
    shift
    theirs=("$@")
    : >"$room/ours"; : >"$room/theirs"
    for _ in $(seq "$repeats"); do
        run 0 "${ours[@]}" >>"$room/ours"
        run 0 "${theirs[@]}" >>"$room/theirs"
    done
    local mine yours
    mine=$(cut -d' ' -f1 "$room/ours" | median)
    yours=$(cut -d' ' -f1 "$room/theirs" | median)
    row=$(awk -v n="$count" -v a="$mine" -v b="$yours" 'BEGIN { printf "%.0f %.0f %.2f", n / a, n / b, b / a }')
    # shellcheck disable=SC2086
    printf '%-34s %12d %12d %8s\n' "$name" $row
    json="$json\"$(printf %s "$name" | tr -cs '[:alnum:]' _)\":${row##* },"
}
compare 'scan nfcapd, nfdump' "$records" \
    "$nilometer" flows --decode-only "$room/nfcapd" -- nfdump -q -o null -r "$room/nfcapd"
compare 'scan NetFlow v5, nfdump' "$records" \
    "$nilometer" flows --decode-only "$room/v5" -- nfdump -q -o null -r "$room/nfcapd"
compare 'repair nfcapd, nfdump -a' "$records" \
    "$nilometer" flows "$room/nfcapd" -- nfdump -q -a -o null -r "$room/nfcapd"
compare 'repair NetFlow v5, nfdump -a' "$records" \
    "$nilometer" flows "$room/v5" -- nfdump -q -a -o null -r "$room/nfcapd"
for kind in packets together many; do
    for how in "" " --decode-only"; do
        # shellcheck disable=SC2086
        compare "$kind$how, nfpcapd" "$packets" \
            "$nilometer" flows $how "$room/$kind" -- nfpcapd -r "$room/$kind" -w "$room/out"
        # shellcheck disable=SC2086
        compare "$kind$how, softflowd" "$packets" \
            "$nilometer" flows $how "$room/$kind" -- softflowd -d -m 1048576 -r "$room/$kind"
    done
done

: >"$room/models"
for _ in $(seq "$repeats"); do
    rm -f "$room/model"
    run 0,1 "$nilometer" model -o "$room/model" "${mixed[@]}" >>"$room/models"
done
cpu=$(cut -d' ' -f1 "$room/models" | median)
wall=$(cut -d' ' -f2 "$room/models" | median)
memory=$(cut -d' ' -f3 "$room/models" | sort -n | tail -1)
echo "$((records / 5 * 5)) mixed records to a model: $wall s on two processors ($cpu CPU s), $((memory / 1024)) MiB"
echo "{$json\"model_s\":$wall,\"model_cpu_s\":$cpu,\"model_kib\":$memory}"

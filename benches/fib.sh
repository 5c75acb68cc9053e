#!/usr/bin/env bash
# Our forwarding tables beside DPDK's, on one table of prefixes, taking turns in one run.
#
#   benches/fib.sh [--family 6] [--rounds N] [--without-lpm] [--under-updates PAIRS] [--plot SVG] [TABLE]
#
# TABLE is a prefix a line, plain or gzip; without it the full table of NILOMETER_DATA. DPDK's rte_lpm and
# rte_fib (scalar, and AVX-512 where the processor has it; rte_lpm6 and rte_fib6 with --family 6) are asked
# what `nilometer route bench fib` asks ours: the same next hops, addresses, bursts of 64 and clock, pages
# of 2 MiB for all. A round (--rounds, 11) times every table once; medians count. rte_lpm takes a minute to
# be filled with a full table: --without-lpm. --under-updates adds lookups under 1,000, 10,000 and 100,000 updates a second, --plot a
# drawing of speed against bytes per prefix. DPDK needs gcc, pkg-config and libdpdk-dev (Debian); where one
# is missing its tables are skipped, and that is said. Checksums of all tables must be equal, else the
# status is 1. The last line is one JSON object: `ratio_random` and `ratio_prefix` are those of our `lines`
# over the best rte_fib, `result` what the command printed.
set -euo pipefail
usage="benches/fib.sh [--family 6] [--rounds N] [--without-lpm] [--under-updates PAIRS] [--plot SVG] [TABLE]"
rounds=11
family=4
table=
lpm=with-lpm
more=()
while [ $# -gt 0 ]; do
    case $1 in
    --family) family=${2:?--family needs 4 or 6}; shift ;;
    --rounds) rounds=${2:?--rounds needs a number}; shift ;;
    --under-updates) more+=(--under-updates "${2:?--under-updates needs a number}"); shift ;;
    --plot) more+=(--plot "$(realpath "${2:?--plot needs a file}")"); shift ;;
    --without-lpm) lpm=without-lpm ;;
    -*) echo "$usage" >&2; exit 2 ;;
    *) table=$(realpath "$1") ;;
    esac
    shift
done
if [ -z "$table" ]; then
    : "${NILOMETER_DATA:?name a table of prefixes, or set it to the folder of the data}"
    table=$(realpath "$NILOMETER_DATA/routing/bart/prefixes.txt.gz")
fi
cd "$(dirname "$0")/.."
nilometer=${CARGO_TARGET_DIR:-target}/release/nilometer
if command -v cargo >/dev/null; then
    cargo build --quiet --release -p nilometer --bin nilometer
elif [ ! -x "$nilometer" ]; then
    echo "benches/fib.sh: no $nilometer, and no cargo to build it with" >&2
    exit 2
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT TERM

if ! command -v gcc >/dev/null || ! pkg-config --exists libdpdk 2>/dev/null; then
    echo "DPDK: skipped, install the Debian packages gcc, pkg-config and libdpdk-dev"
else
    peer=benches/fib/peer.c
    [ "$family" = 4 ] || peer=benches/fib/peer6.c
    # shellcheck disable=SC2046
    gcc -O3 -march=native -o "$scratch/peer" "$peer" \
        $(pkg-config --cflags --libs libdpdk)
    printf '#!/bin/sh\nexec "%s" %s\n' "$scratch/peer" "$lpm" >"$scratch/peer.sh"
    chmod +x "$scratch/peer.sh"
    more+=(--peer "$scratch/peer.sh")
    [ "$lpm" = with-lpm ] || echo "rte_lpm: skipped, --without-lpm"
fi

status=0
echo "+ $nilometer route bench fib --table $table --family $family --rounds $rounds ${more[*]}" >&2
"$nilometer" route bench fib --table "$table" --family "$family" --rounds "$rounds" "${more[@]}" --json \
    >"$scratch/json" || status=$?
[ -s "$scratch/json" ] || exit "$status"

# A line for each table: name, bytes per prefix, both rates, updates.
grep -o '"engine":[^{}]*"checksum_prefix":[0-9]*' "$scratch/json" | sed 's/[",]/ /g; s/:/ /g' |
    awk '{ for (i = 1; i < NF; i++) if ($i ~ /^[a-z_]+$/) value[$i] = $(i + 1)
           print value["engine"], value["bytes_per_prefix"], value["mlookups_random"],
                 value["mlookups_prefix"], value["updates_per_second"],
                 value["checksum_random"] "/" value["checksum_prefix"] }' >"$scratch/rows"
awk 'BEGIN { printf "%-18s %12s %10s %10s %12s  %s\n", "table", "bytes/prefix", "M random/s",
                    "M drawn/s", "updates/s", "checksums" }
     { printf "%-18s %12.2f %10.1f %10.1f %12.0f  %s\n", $1, $2, $3, $4, $5, $6 }' "$scratch/rows"
ratios=$(awk '
    $1 == "lines" { random = $3; drawn = $4 }
    $1 ~ /^rte_fib/ { if ($3 > best_random) best_random = $3; if ($4 > best_drawn) best_drawn = $4 }
    END {
        if (best_random) printf "\"ratio_random\":%.2f,\"ratio_prefix\":%.2f", random / best_random,
                                drawn / best_drawn
        else printf "\"ratio_random\":null,\"ratio_prefix\":null"
    }' "$scratch/rows")
echo "lines over the best rte_fib: $ratios" | tr -d '"'
[ "$status" = 0 ] || echo "checksums: NOT EQUAL"
echo "{$ratios,\"checksums_equal\":$([ "$status" = 0 ] && echo true || echo false)," \
    "\"result\":$(cat "$scratch/json")}"
exit "$status"

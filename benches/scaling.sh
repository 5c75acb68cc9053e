#!/usr/bin/env bash
# How the simulator's speed and memory change with the number of flows.
#
#   benches/scaling.sh [SVG]
#
# `qsdrr` with tail drop and 5 Mb/s of bottleneck for each flow, from 100 flows to 100,000: four links
# and two ends of TCP for each. The buffer is two packets a flow, the simulated time such that every
# run is of some 5 to 60 million packet-hops. Packet-hops per CPU-second, medians of three runs on one
# thread (one run from 10,000 flows on), and the peak of memory. Prints a table; draws it when a file
# is named.
set -euo pipefail
cd "$(dirname "$0")/.."
svg=${1:-}
cargo build --quiet --release -p nilometer --bin nilometer
nilometer=${CARGO_TARGET_DIR:-target}/release/nilometer

# field NAME: a number of the JSON object on standard input, from its top level.
field() { grep -o "\"$1\": *[0-9.]*" | tail -1 | grep -o '[0-9.]*$'; }

rows=()
echo "flows    seconds  M hops   M hops/CPU-s  MB"
for case in 100:20:3 300:20:3 1000:10:3 3000:5:3 10000:3:1 30000:2:1 100000:2:1; do
    IFS=: read -r flows seconds repeats <<<"$case"
    speeds=()
    for _ in $(seq "$repeats"); do
        result=$("$nilometer" simulate qsdrr --set discipline=tail_drop --set flows="$flows" \
            --set buffer_packets=$((2 * flows)) --set duration_s="$seconds" --seeds 1 --threads 1 \
            --json 2>/dev/null)
        hops=$(field packet_hops <<<"$result")
        cpu=$(field cpu_seconds <<<"$result")
        rss=$(field peak_rss_bytes <<<"$result")
        speeds+=("$(awk -v h="$hops" -v c="$cpu" 'BEGIN { print h / c / 1e6 }')")
    done
    median=$(printf '%s\n' "${speeds[@]}" | sort -n | sed -n "$(((repeats + 1) / 2))p")
    awk -v f="$flows" -v s="$seconds" -v h="$hops" -v m="$median" -v r="$rss" \
        'BEGIN { printf "%-8d %-8d %-8.1f %-13.1f %.0f\n", f, s, h / 1e6, m, r / 1e6 }'
    rows+=("$flows $median")
done
[ -n "$svg" ] || exit 0
printf '%s\n' "${rows[@]}" | awk '
    { x[NR] = 60 + (log($1) / log(10) - 2) * 160; y[NR] = $2; n[NR] = $1; if ($2 > top) top = $2 }
    END {
        top = 5 * int(top / 5 + 1)
        print "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 620 300\" font-family=\"sans-serif\" font-size=\"12\">"
        print "<rect width=\"620\" height=\"300\" fill=\"#ffffff\"/>"
        print "<text x=\"60\" y=\"20\">Million packet-hops per CPU-second against flows: qsdrr, tail drop, one core</text>"
        for (v = 0; v <= top; v += 5) {
            h = 260 - v / top * 220
            printf "<path d=\"M60 %.1fH560\" stroke=\"#ddd\"/><text x=\"52\" y=\"%.1f\" text-anchor=\"end\">%d</text>\n", h, h + 4, v
        }
        for (i = 1; i <= NR; i++) {
            h = 260 - y[i] / top * 220
            path = path (i == 1 ? "M" : "L") sprintf("%.1f %.1f", x[i], h)
            printf "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"#0072b2\"/><text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%.1f</text><text x=\"%.1f\" y=\"278\" text-anchor=\"middle\">%d</text>\n", x[i], h, x[i], h - 8, y[i], x[i], n[i]
        }
        printf "<path d=\"%s\" fill=\"none\" stroke=\"#0072b2\" stroke-width=\"1.5\"/>\n", path
        print "</svg>"
    }' >"$svg.new"
mv "$svg.new" "$svg"

#!/bin/sh
# The packet classifier on ClassBench's sets of filters: a row for each, with its headers and updates a
# second of CPU time, and whether linear search gives the same answers. NILOMETER_DATA names the folder
# of the data; further words go to the benchmark, such as --without-flags or --rounds 31.
#
#   NILOMETER_DATA=... benches/classifier.sh [words]
set -eu
cd "$(dirname "$0")/.."
: "${NILOMETER_DATA:?set it to the folder of the data}"
cargo build --release -p nilometer
sets="$NILOMETER_DATA/classifier/neurocuts/classbench"
printf '%-10s %7s %9s %10s %13s %11s %9s %10s\n' \
    set rules headers ns/header Mheaders/s updates/s bytes answers
status=0
for set in acl1_1k acl2_1k acl3_1k acl4_1k acl5_1k fw1_1k fw2_1k fw3_1k fw4_1k fw5_1k ipc1_1k \
    ipc2_1k acl1_10k fw1_10k ipc1_10k; do
    answers=same
    result=$(target/release/nilometer route bench classify --rules "$sets/$set" --json "$@") ||
        { answers=DIFFER; status=1; }
    field() { printf '%s' "$result" | sed "s/.*\"$1\":\([^,}]*\).*/\1/"; }
    printf '%-10s %7d %9d %10.1f %13.2f %11.0f %9d %10s\n' "$set" "$(field rules)" \
        "$(field distinct_headers)" "$(field ns_per_header)" "$(field mheaders_per_second)" \
        "$(field updates_per_second)" "$(field bytes)" "$answers"
done
exit $status

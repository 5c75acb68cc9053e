#!/bin/sh
# `route bench forward` three times in a row: whether at least nine of ten points of each run are told, and
# whether the intervals of all differences between two runs' prices hold 0 (Bonferroni over all of them, as
# `--against` says; so each point has 100 rounds, however wide its interval). Exit status 0 if both, 1 if not.
# Further words go to each run, such as --duts linux. Needs root, and a machine that does nothing else, or
# NILOMETER_UNDER="chrt -r 1", which goes before each run, and --others-max 1. Results stay in the directory
# that NILOMETER_REPEAT names, or in a temporary one, which is said at the end.
#
#   benches/forward_repeat.sh [words]
set -u
cd "$(dirname "$0")/.."
cargo build --release -p nilometer || exit 2
directory="${NILOMETER_REPEAT:-$(mktemp -d)}"
mkdir -p "$directory" || exit 2
status=0
earlier=
for run in 1 2 3; do
    # The last run is held against both before it, so that all differences are judged once and together.
    against=
    [ "$run" -lt 3 ] || against=$earlier
    # (The words before it are words.)
    # shellcheck disable=SC2086
    ${NILOMETER_UNDER:-} target/release/nilometer route bench forward --json --rounds 100 --rounds-max 100 ${against:+--against "$against"} "$@" \
        >"$directory/run$run.json"
    ended=$?
    [ "$ended" -le 1 ] || exit "$ended"
    [ "$ended" -eq 0 ] || status=1
    told=$(sed 's/.*"points_told":\([0-9]*\).*/\1/' "$directory/run$run.json")
    points=$(grep -o '"asked_pps":' "$directory/run$run.json" | wc -l)
    echo "run $run: $told of $points points told (exit status $ended)"
    earlier="${earlier:+$earlier,}$directory/run$run.json"
done
echo "results: $directory"
exit $status

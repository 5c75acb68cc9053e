#!/usr/bin/env bash
# Builds dumbbell.cc against the installed ns-3, prints the command, and runs it as told.
#
#   benches/ns3/run.sh [--build-only] [--queue=fifo|red|fqcodel] [--seconds=100] [--help] ...
#
# Debian 12 or its like with g++, ns3 and libns3-dev; nothing is installed here. The program is kept
# in target/ns3 and built again when its source is newer. CXX and CXXFLAGS are heeded.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source=$here/dumbbell.cc
folder=${CARGO_TARGET_DIR:-${here%/benches/ns3}/target}/ns3
program=$folder/dumbbell
compiler=${CXX:-g++}
libraries=(-lns3-{core,network,internet,point-to-point,applications,traffic-control})

missing=()
command -v "$compiler" >/dev/null || missing+=("g++")
[ -e /usr/include/ns3/core-module.h ] || missing+=("libns3-dev")
if [ ${#missing[@]} -gt 0 ]; then
    echo "benches/ns3/run.sh: install these Debian packages first: ${missing[*]}" >&2
    exit 2
fi

build_only=false
if [ "${1:-}" = --build-only ]; then
    build_only=true
    shift
fi
if [ ! -x "$program" ] || [ "$source" -nt "$program" ]; then
    mkdir -p "$folder"
    # Without pkg-config: its files for ns-3 in Debian 12 name a folder that ends in a semicolon.
    build=("$compiler" -std=c++17 -O3 -DNDEBUG -Wall -Wextra)
    read -ra flags <<<"${CXXFLAGS:-}"
    build+=("${flags[@]}" "$source" -o "$program.new" "${libraries[@]}")
    echo "+ ${build[*]}" >&2
    "${build[@]}"
    mv "$program.new" "$program"
fi
if $build_only; then
    exit 0
fi
echo "+ $program $*" >&2
exec "$program" "$@"

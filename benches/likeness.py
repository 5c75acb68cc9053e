#!/usr/bin/env python3
"""Real captures played by `nilometer lab run`: is each copy like its original?

  benches/likeness.py [--seeds 1,2,3] [--exact] [--round-trips auto|never] [--dut DUT] [--virtual]
                        [--out FILE.ndjson] [CAPTURE...]
  benches/likeness.py --halves [--seeds 1,2,3] [--dut DUT] [CAPTURE...]

Each capture of likeness/expected.tsv (or each CAPTURE, below the folder of pcap files) is played once a
seed, through the kernel's forwarding (--dut) and without calibration, and its metered copy is judged
against the part that was played. A line a run: coverage of the part's TCP by bytes and by connections, the
ratio of volumes, how many of its packets the copy has to the original's, how many laws are told and which
of them differ. Below stand the runs in which other laws differ than likeness/expected.tsv says, and
whether coverage and volume keep their bounds (0.95; 0.95 to 1.05). Exit status 1 where one does not.

With --halves the first half of each (of two minutes at most) is learnt and played, and the copy is held
against the second half, which nothing was learnt from; beside it stands what the first half itself comes to
against the second. Exit status 1 where a copy differs in a law in which the first half does not.

--round-trips never leaves hosts microseconds apart. --virtual plays over a wire in virtual time, with simulated
hosts: no root, a second or two a run, and no machine is too busy for it.

Wants root, NILOMETER_DATA, Debian's tshark for --halves, and `cargo build --release` before. A run takes as long as its part, at most a
minute.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
COVERAGE_LEAST = 0.95
VOLUME = (0.95, 1.05)


def expectations():
    """Which laws are expected to differ, by capture."""
    lines = (HERE / "likeness/expected.tsv").read_text().splitlines()
    rows = (line.split("\t") for line in lines if line and not line.startswith("#"))
    return {name: set() if laws == "-" else set(laws.split(",")) for name, laws, _ in rows}


def play(nilometer, capture, seed, options):
    """The result of one run, or what was said in place of one."""
    with tempfile.TemporaryDirectory() as room:
        command = [nilometer, "lab", "run", capture, "--seed", str(seed), "--calibration", "0"]
        command += options + ["-o", f"{room}/run"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
        result = pathlib.Path(room, "run/result.json")
        if not result.exists():
            return None, done.stderr.strip().splitlines()[-1:]
        return json.loads(result.read_text()), []


def line(name, seed, result):
    laws = result["likeness"]
    by = {law["name"]: law for law in laws}
    of = lambda verdict: [law["name"] for law in laws if law["verdict"] == verdict]
    coverage, packets = result["coverage"], by["packet_size"]
    told = len(of("alike")) + len(of("differs"))
    return {
        "capture": name, "seed": seed, "seconds": result["part"]["seconds"],
        "connections": result["connections"], "bytes": coverage["bytes"],
        "flows": coverage["flows"], "volume": coverage["volume_ratio"],
        "packets": coverage["packets"], "told": told, "differs": of("differs"),
        "distances": {law["name"]: [law["distance"], law["floor_p95"]] for law in laws},
        "lost": result["packets"]["lost"], "samples": packets["samples_copy"],
    }


def complaints(run, expected):
    found = []
    if run["bytes"] < COVERAGE_LEAST or run["flows"] < COVERAGE_LEAST:
        found.append(f"coverage {run['bytes']:.3f} of bytes, {run['flows']:.3f} of connections")
    if not VOLUME[0] <= run["volume"] <= VOLUME[1]:
        found.append(f"volume {run['volume']:.3f}")
    unexpected = set(run["differs"]) - expected
    if unexpected:
        found.append("differs in " + ", ".join(sorted(unexpected)))
    return found


def differing(nilometer, original, copy):
    """The laws that are told of a copy, and those that differ."""
    command = [nilometer, "compare", original, copy, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode:
        return None
    laws = json.loads(done.stdout)["likeness"]
    of = lambda verdict: {law["name"] for law in laws if law["verdict"] == verdict}
    return of("alike") | of("differs"), of("differs")


def halves(nilometer, capture, seed, dut):
    """What the first half, and its copy, come to against the second."""
    with tempfile.TemporaryDirectory() as room:
        times = subprocess.run(["tshark", "-r", capture, "-T", "fields", "-e", "frame.time_relative"],
                               capture_output=True, text=True, check=True).stdout.split()
        seconds = min(max(map(float, times)), 120.0) / 2
        for name, low, high in [("first", 0, seconds), ("second", seconds, 2 * seconds)]:
            shown = f"frame.time_relative >= {low} && frame.time_relative < {high}"
            subprocess.run(["tshark", "-r", capture, "-Y", shown, "-w", f"{room}/{name}"],
                           capture_output=True, check=True)
        command = [nilometer, "lab", "run", f"{room}/first", "--seed", str(seed), "--calibration", "0",
                   "--dut", dut, "--pcap", "--out", f"{room}/run"]
        subprocess.run(command, capture_output=True, text=True, timeout=600)
        pairs = [(f"{room}/second", f"{room}/first"), (f"{room}/second", f"{room}/run")]
        return seconds, [differing(nilometer, *pair) for pair in pairs]


def generalise(nilometer, folder, names, seeds, dut):
    bad = []
    print(f"{'capture':38} seed  secs told: differs, of the first half | of its copy")
    for name in names:
        for seed in seeds:
            seconds, (first, copy) = halves(nilometer, folder / name, seed, dut)
            if first is None or copy is None:
                print(f"{name:38} {seed:4} {seconds:5.0f} nothing to compare", flush=True)
                continue
            told = f"{len(first[0])}: {' '.join(sorted(first[1]))} | {len(copy[0])}: {' '.join(sorted(copy[1]))}"
            print(f"{name:38} {seed:4} {seconds:5.0f} {told}", flush=True)
            if copy[1] - first[1]:
                bad.append(f"{name}, seed {seed}: the copy alone differs in {', '.join(copy[1] - first[1])}")
    return bad


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--exact", action="store_true")
    parser.add_argument("--round-trips", choices=["auto", "never"], default="auto")
    parser.add_argument("--virtual", action="store_true")
    parser.add_argument("--halves", action="store_true")
    parser.add_argument("--dut", default="linux")
    parser.add_argument("--out")
    parser.add_argument("captures", nargs="*")
    told = parser.parse_args()
    if "NILOMETER_DATA" not in os.environ:
        sys.exit("NILOMETER_DATA names no public captures")
    folder = pathlib.Path(os.environ["NILOMETER_DATA"], "pcap")
    target = os.environ.get("CARGO_TARGET_DIR", HERE.parent / "target")
    nilometer = pathlib.Path(target, "release/nilometer").resolve()
    expected = expectations()
    if told.halves:
        names = told.captures or [name for name, laws in expected.items() if "refused" not in laws]
        bad = generalise(nilometer, folder, names, [int(seed) for seed in told.seeds.split(",")], told.dut)
        print("\n".join(bad))
        sys.exit(1 if bad else 0)
    options = ["--clock", "virtual", "--dut", "wire"] if told.virtual else ["--dut", told.dut]
    options += ["--exact"] if told.exact else []
    options += [f"--round-trips={told.round_trips}"]
    keep = open(told.out, "w") if told.out else None
    bad = []
    print(f"{'capture':38} seed  secs conns bytes flows volume packets told differs")
    for name in told.captures or expected:
        for seed in map(int, told.seeds.split(",")):
            result, said = play(nilometer, folder / name, seed, options)
            if result is None:
                print(f"{name:38} {seed:4}  refused: {' '.join(said)}", flush=True)
                if "refused" not in expected.get(name, set()):
                    bad.append(f"{name}, seed {seed}: refused")
                continue
            run = line(name, seed, result)
            print(f"{name:38} {seed:4} {run['seconds']:5.0f} {run['connections']:5} "
                  f"{run['bytes']:5.3f} {run['flows']:5.3f} {run['volume']:6.3f} "
                  f"{run['packets']:7.3f} {run['told']:4} {' '.join(run['differs'])}", flush=True)
            if keep:
                print(json.dumps(run), file=keep, flush=True)
            found = complaints(run, expected.get(name, set()))
            bad += [f"{name}, seed {seed}: {what}" for what in found]
    for what in bad:
        print(what)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()

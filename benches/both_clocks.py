#!/usr/bin/env python3
"""The same plan live and in virtual time, through a fault box: do the devices and the transfers agree?

  benches/both_clocks.py [--seeds 1,2,3,4,5] [--fault FAULTS] [--congestion NAME] [--duration SECONDS]

Each seed is played by the machine's clock and by a virtual one, and `nilometer compare` puts both side by side. A line
a seed: completion times of connections (median, 90th percentile), loss, packets. Exit status 1 where, in the mean of
the seeds, the median differs by more than 5 % and 2 ms or the 90th percentile by more than 10 %, or where in one of
them the numbers of connections differ, or loss by more than two runs do by chance (twice `noise`). Of one seed alone
the median may be off by more: which packets are lost is another matter of chance in each run, and `noise` is 20 %.

Wants root, and `cargo build --release` before. A seed takes as long as it is played, and a few seconds.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent


def play(nilometer, room, clock, seed, options):
    to = f"{room}/{clock}-{seed}"
    command = [nilometer, "lab", "run", "--clock", clock, "--seed", str(seed), "--calibration", "0"]
    subprocess.run(command + options + ["-o", to], check=True, capture_output=True, text=True)
    return to


def figures(nilometer, one, other):
    done = subprocess.run([nilometer, "compare", one, other, "--json"], capture_output=True, text=True)
    return {row["name"]: row for row in json.loads(done.stdout)["figures"]}


def complaints(of):
    found = []
    off = lambda name: abs(of[name]["difference"])
    if off("connections"):
        found.append("the numbers of connections differ")
    if off("loss") > 2 * of["loss"]["noise"]:
        found.append("loss")
    return found


def in_the_mean(seeds):
    """What is off in the mean of the seeds."""
    mean = lambda name, which: sum(of[name][which] for of in seeds) / len(seeds)
    found = []
    for name, share, least in [("completion_p50_s", 0.05, 0.002), ("completion_p90_s", 0.1, 0)]:
        first, second = mean(name, "first"), mean(name, "second")
        print(f"{name} in the mean: {first:.4f} / {second:.4f}, off by {abs(second / first - 1):.1%}")
        if abs(second - first) > max(share * first, least):
            found.append(name)
    return found


def main():
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--seeds", default="1,2,3,4,5")
    ask.add_argument("--fault", default="rate=50Mbit,delay=20ms,loss=0.01")
    ask.add_argument("--congestion", default="reno")
    ask.add_argument("--duration", default="60")
    ask.add_argument("--nilometer", default=str(HERE.parent / "target/release/nilometer"))
    args = ask.parse_args()
    options = ["--fault", args.fault, "--congestion", args.congestion, "--duration", args.duration]
    names = ["completion_p50_s", "completion_p90_s", "loss", "packets", "received_bytes"]
    print("seed  " + "  ".join(f"{name:>28}" for name in names))
    wrong, all_seeds = [], []
    with tempfile.TemporaryDirectory() as room:
        for seed in args.seeds.split(","):
            made = [play(args.nilometer, room, clock, seed, options) for clock in ("virtual", "real")]
            of = figures(args.nilometer, *made)
            all_seeds.append(of)
            cells = (f"{of[name]['first']:.6g} / {of[name]['second']:.6g}" for name in names)
            print(f"{seed:>4}  " + "  ".join(f"{cell:>28}" for cell in cells), flush=True)
            wrong += [f"seed {seed}: {what}" for what in complaints(of)]
    wrong += in_the_mean(all_seeds)
    print("\n".join(wrong) or "virtual / live: within 5 % or 2 ms, 10 %, and the noise of loss")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""What stamps cost: the forwarding rate through a device at 64 bytes with the meter's stamps on and off, in turns.

Offers more than the device forwards (`stream run --pps 10000000`), so that sender, device and receiver take as many frames
as they can, once with stamps by programs in the driver (each frame stamped where it leaves and where it arrives, copied,
compared and accounted for) and once with none (`--stamps none`: frames are counted by the first instructions of XDP). Prints
both rates of each turn, their medians, and the cost: by how much the rate with stamps is lower.

    sudo benches/meter_cost.py NILOMETER [--dut linux,nilometer] [--turns 5] [--seconds 3] [--frame-bytes 64]
"""

import argparse
import json
import statistics
import subprocess
import sys


def rate(args, dut, stamps):
    """Frames a second that were received; the trial itself is overloaded, and so not valid."""
    command = [args.nilometer, "stream", "run", "--json", "--dut", dut, "--stamps", stamps, "--pps", "10000000"]
    command += ["--transmit", "socket", "--seconds", str(args.seconds), "--frame-bytes", str(args.frame_bytes)]
    command += ["--calibration", "0"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        sys.exit(done.stderr)
    result = json.loads(done.stdout)
    return sum(way["received_pps"] for way in result["directions"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("nilometer")
    parser.add_argument("--dut", default="linux,nilometer")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--frame-bytes", type=int, default=64)
    args = parser.parse_args()
    for dut in args.dut.split(","):
        rates = {"driver": [], "none": []}
        for turn in range(args.turns):
            # Who comes first changes from turn to turn.
            for stamps in ["driver", "none"][:: 1 if turn % 2 else -1]:
                rates[stamps].append(rate(args, dut, stamps))
            print(f"{dut}: {rates['driver'][-1] / 1e3:.1f} kpps with stamps, {rates['none'][-1] / 1e3:.1f} without", flush=True)
        on, off = (statistics.median(rates[stamps]) for stamps in ("driver", "none"))
        ratios = [1 - a / b for a, b in zip(rates["driver"], rates["none"])]
        print(f"{dut}: medians {on / 1e3:.1f} and {off / 1e3:.1f} kpps: stamps cost {100 * (1 - on / off):.1f} %")
        print(f"{dut}: by turns {', '.join(f'{100 * cost:.1f}' for cost in ratios)} %")


if __name__ == "__main__":
    main()

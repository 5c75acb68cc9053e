#!/usr/bin/env python3
"""How many packets simulated hosts carry, with how many connections open, and how late they are.

Writes a capture of CONNECTIONS long-lived connections, each of which is sent one segment every so often and acknowledges
each, plays it with `nilometer lab run --hosts simulated`, and prints packets a second where the hosts received them, how
many connections were open throughout, and the lateness of the hosts' events.

    benches/simulated_hosts.py NILOMETER [--connections 1200] [--kpps 220] [--seconds 12] [--bytes 128] [--dut wire] [--replay]
"""

import argparse
import json
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

SYN, ACK, PUSH, FIN = 2, 16, 8, 1
BEGIN_S = 1_700_000_000


def frame(client, number, flags, sequence, acknowledged, payload):
    """Headers of one packet of connection `number`; only these are kept. Returns them and the frame's length."""
    address = [0xC6120001 + number // 8, 0xC6130001 + number % 64]
    port = [40000 + number % 8, 80]
    way = 0 if client else 1
    total = 40 + payload
    ip = struct.pack(">BBHHHBBHII", 0x45, 0, total, 0, 0x4000, 64, 6, 0, address[way], address[1 - way])
    tcp = struct.pack(">HHIIBBHHH", port[way], port[1 - way], sequence, acknowledged, 0x50, flags, 65535, 0, 0)
    return b"\2" * 6 + b"\4" * 6 + b"\x08\x00" + ip + tcp, 14 + total


def connection(number, start, end, gap, payload):
    """Packets of one connection, with their times."""
    at = start
    yield at, frame(True, number, SYN, 0, 0, 0)
    yield at + 20e-6, frame(False, number, SYN | ACK, 0, 1, 0)
    yield at + 40e-6, frame(True, number, ACK, 1, 1, 0)
    yield at + 60e-6, frame(True, number, ACK | PUSH, 1, 1, 100)
    yield at + 80e-6, frame(False, number, ACK, 1, 101, 0)
    at, sequence = at + gap, 1
    while at < end:
        yield at, frame(False, number, ACK | PUSH, sequence, 101, payload)
        sequence += payload
        yield at + 20e-6, frame(True, number, ACK, 101, sequence, 0)
        at += gap


def write(path, args):
    chance = random.Random(1)
    gap = args.connections * 2 / (args.kpps * 1e3)
    packets = []
    for number in range(args.connections):
        start = chance.random() * 0.8
        packets.extend(connection(number, start, args.seconds, gap, args.bytes))
    packets.sort(key=lambda packet: packet[0])
    with open(path, "wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 65535, 1))
        for at, (headers, length) in packets:
            seconds = int(at)
            nanos = int((at - seconds) * 1e9)
            file.write(struct.pack("<IIII", BEGIN_S + seconds, nanos, len(headers), length) + headers)
    return len(packets)


def open_throughout(directory, from_s, until_s):
    """The least number of connections that were open at any time between the two."""
    changes = []
    for line in open(directory / "execution.ndjson"):
        done = json.loads(line)
        if done["outcome"] == "NotStarted":
            continue
        changes.append((done["started_ns"], 1))
        changes.append((done["finished_ns"] or 1 << 62, -1))
    count, least = 0, None
    for at, change in sorted(changes):
        if at > from_s * 1e9 and at <= until_s * 1e9:
            least = count if least is None else min(least, count)
        count += change
        if from_s * 1e9 < at <= until_s * 1e9:
            least = min(least, count)
    return least if least is not None else sum(1 for at, change in changes if change > 0 and at < from_s * 1e9)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("nilometer")
    parser.add_argument("--connections", type=int, default=1200)
    parser.add_argument("--kpps", type=float, default=220)
    parser.add_argument("--seconds", type=float, default=12)
    parser.add_argument("--bytes", type=int, default=128)
    parser.add_argument("--dut", default="wire")
    parser.add_argument("--congestion", default="cubic")
    parser.add_argument("--replay", action="store_true")
    args, more = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as room:
        room = pathlib.Path(room)
        planned = write(room / "long.pcap", args)
        words = [args.nilometer, "lab", "run", str(room / "long.pcap"), "--exact", "--duration", str(args.seconds)]
        words += ["--hosts", "simulated", "--dut", args.dut, "--congestion", args.congestion, "--calibration", "0", "--ring-mib", "256"]
        words += ["--out", str(room / "run"), "--json"] + (["--replay-hosts"] if args.replay else []) + more
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(done.stderr)
        result = json.loads(done.stdout)
        least = open_throughout(room / "run", 1.0, args.seconds - 0.5)
    simulated = result["simulated"]
    received = simulated["client"]["received"] + simulated["server"]["received"]
    print(f"packets       {planned} in the capture, {received} received by the hosts")
    print(f"rate          {received / args.seconds / 1e3:.1f} kpps over {args.seconds} s")
    print(f"open          {least} throughout from 1 s on, {result['open_max']} at most")
    print(f"lateness_ns   {result['lateness_ns']}, {result['late_events']} later than {simulated['late_bound_ns']}")
    print(f"lost          {result['packets']['lost']} by the device, {simulated['unheard']} unheard, "
          f"{result['packets']['meter_lost']} unseen by the meter")
    print(f"processors    {result['others_percent']:.0f} % used by others, {result['stolen_percent']:.0f} % stolen")
    if args.replay:
        print(f"replay        {simulated['replay']}")
    for warning in result["warnings"]:
        print(f"warning       {warning}")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Delay through devices by size and rate, beside the bare wire; and a run packet by packet beside tcpdump's reading.

For each device that is installed, each size and each rate: `stream run`, in turns with the same stream over the bare wire.
A trial that is not valid is repeated up to three times, and marked where it never was. Writes OUT/delays.json and OUT/delays.html,
one page with a table for each size. Devices that are not installed are named and left out, and any other device is given by
--external NAME:CLIENT_INTERFACE:SERVER_INTERFACE.

    sudo benches/device_delay.py NILOMETER OUT [--dut linux,nftables,frr,bridge,nilometer,ovs,testpmd] [--pps 10000,40000,150000]
        [--frame-bytes 64,512,1518] [--seconds 2] [--external ovs:tg0:tg1]
    sudo benches/device_delay.py NILOMETER OUT --tcpdump

With --tcpdump a device made by plain `ip` commands stands between two veths, tcpdump records at both of its ports, and the
delays that its stamps say are held against those of packets.parquet, packet by packet (needs pyarrow).
"""

import argparse
import html
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import time

TRIES = 3
DEVICES = ["linux", "nftables", "frr", "bridge", "nilometer", "ovs", "testpmd"]
NEEDS = {
    "nftables": ("nft", "nftables"),
    "frr": ("/usr/lib/frr/zebra", "frr"),
    "ovs": ("ovs-vswitchd", "openvswitch-switch"),
    "testpmd": ("dpdk-testpmd", "dpdk-dev"),
}
INTERFACES = ["--client-interface", "tgc", "--server-interface", "tgs"]


def stream(command, words):
    """The result of a stream, valid or not."""
    done = subprocess.run([*command, "stream", "run", "--json", "--calibration", "0", *words], capture_output=True, text=True)
    if done.returncode not in (0, 1):
        sys.exit(f"{' '.join(words)}: {done.stderr}")
    return json.loads(done.stdout)


def point(args, device, size, pps):
    """One device at one size and rate, repeated until it is valid."""
    for tries in range(1, TRIES + 1):
        words = [*device, "--frame-bytes", str(size), "--pps", str(pps), "--seconds", str(args.seconds)]
        result = stream([args.nilometer], words)
        if result["valid"]:
            break
    keys = {"delay_ns": result["delay_ns"], "valid": result["valid"], "why": result["why"], "warnings": result["warnings"]}
    return {"frame_bytes": size, "pps": pps, "tries": tries, "packets": result["packets"], **keys}


def time_of(ns):
    return f"{ns} ns" if ns < 10_000 else f"{ns / 1e3:.1f} µs" if ns < 10_000_000 else f"{ns / 1e6:.1f} ms"


def cell(one, wire):
    """p50 and p99, and what the device adds to the wire's median."""
    delay = one["delay_ns"]
    if not delay:
        return "nothing came"
    text = f"{time_of(delay['p50'])} <small>p99 {time_of(delay['p99'])}</small>"
    if wire and wire["delay_ns"] and wire is not one:
        text += f"<br><small>+{time_of(max(0, delay['p50'] - wire['delay_ns']['p50']))}</small>"
    lost = one["packets"]["lost"]
    text += f"<br><small>{lost} lost</small>" if lost else ""
    return text if one["valid"] else f"<span class=not>{text}<br><small>not valid</small></span>"


def page(all_points, args):
    """Tables by size: a row for each device, a column for each rate."""
    parts = []
    for size in args.frame_bytes:
        rates = "".join(f"<th>{pps:,} fps</th>" for pps in args.pps)
        parts.append(f"<h2>{size} bytes</h2><table><tr><th></th>{rates}</tr>")
        at = {(p["device"], p["pps"]): p for p in all_points if p["frame_bytes"] == size}
        for name in dict.fromkeys(p["device"] for p in all_points):
            cells = "".join(f"<td>{cell(at[name, pps], at.get(('wire', pps)))}</td>" for pps in args.pps)
            parts.append(f"<tr><th>{html.escape(name)}</th>{cells}</tr>")
        parts.append("</table>")
    style = (
        "body{font:15px system-ui;margin:2em auto;max-width:70em;padding:0 1em;color:#222;background:#fff}"
        "table{border-collapse:collapse}td,th{padding:.4em .9em;text-align:right;border-bottom:1px solid #ccc}"
        "th:first-child{text-align:left}small{color:#666}.not{color:#a40}"
    )
    about = (
        "Median and 99th percentile from the stamp at tc egress to the first instruction of XDP; beneath, what the device adds "
        f"to the median of the bare wire. {args.seconds} s each, constant spacing, in turns."
    )
    body = f"<h1>Delay through devices</h1><p>{html.escape(about)}</p>{''.join(parts)}"
    return f"<!doctype html><html lang=en><meta charset=utf-8><title>Delay through devices</title><style>{style}</style>{body}</html>"


def survey(args):
    devices = {"wire": ["--dut", "wire"]}
    for name in args.dut:
        need, package = NEEDS.get(name, (None, None))
        if need and not (tool(need) or pathlib.Path(need).exists()):
            print(f"skipped: {name}: needs Debian's {package}")
        else:
            devices[name] = ["--dut", name]
    for text in args.external:
        name, client, server = text.split(":")
        devices[name] = ["--client-interface", client, "--server-interface", server]
    points = measured(args, devices)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "delays.json").write_text(json.dumps(points, indent=1))
    (args.out / "delays.html").write_text(page(points, args))
    print(args.out / "delays.html")


def measured(args, devices):
    """All points, the devices in turns."""
    points = []
    for size in args.frame_bytes:
        for pps in args.pps:
            for name, device in devices.items():
                one = {"device": name, **point(args, device, size, pps)}
                points.append(one)
                delay = one["delay_ns"] or {"p50": 0, "p99": 0}
                state = "" if one["valid"] else "  not valid: " + "; ".join(one["why"])
                print(f"{name:10} {size:5} bytes {pps:8} fps  p50 {time_of(delay['p50']):>9}  p99 {time_of(delay['p99']):>9}{state}", flush=True)
    return points


def run(*words, **more):
    return subprocess.run(words, check=True, capture_output=True, text=True, **more).stdout


def captured(path, run):
    """Sequence numbers and times, ns, of the run's test frames in a capture with nanoseconds."""
    data = path.read_bytes()
    if struct.unpack("<I", data[:4])[0] != 0xA1B23C4D:
        sys.exit(f"{path}: tcpdump wrote no nanoseconds")
    at, found = 24, {}
    while at + 16 <= len(data):
        seconds, nanos, kept, _ = struct.unpack("<IIII", data[at : at + 16])
        frame = data[at + 16 : at + 16 + kept]
        at += 16 + kept
        if len(frame) >= 58 and int.from_bytes(frame[42:46], "big") == run:
            found[int.from_bytes(frame[47:54], "big")] = seconds * 10**9 + nanos
    return found


class Prepared:
    """A device that the lab did not make: a namespace behind two veths of another one, both of which go in the end."""

    def __init__(self):
        self.host, self.device = (f"nilo-{part}-{time.time_ns() % 10**9}" for part in ("host", "device"))
        self.processes, self.scratch = [], tempfile.TemporaryDirectory()

    def __enter__(self):
        for namespace in (self.host, self.device):
            run("ip", "netns", "add", namespace)
            run("ip", "-n", namespace, "link", "set", "lo", "up")
        for near, far in (("tgc", "dc"), ("tgs", "ds")):
            run("ip", "-n", self.host, "link", "add", near, "type", "veth", "peer", "name", far, "netns", self.device)
            run("ip", "-n", self.host, "link", "set", near, "up")
            run("ip", "-n", self.device, "link", "set", far, "up")
            # (Nothing behind it would fill in what a card is left to.)
            subprocess.run(["ip", "netns", "exec", self.device, "ethtool", "-K", far, "tx", "off"], capture_output=True)
        return self

    def __exit__(self, *_):
        for process in reversed(self.processes):
            process.terminate()
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
        for namespace in (self.host, self.device):
            subprocess.run(["ip", "netns", "del", namespace], capture_output=True)
        self.scratch.cleanup()

    def inside(self):
        return ["ip", "netns", "exec", self.device]

    def start(self, *words, **more):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, **more}
        self.processes.append(subprocess.Popen([*self.inside(), *words], **pipes))

    def routes(self, nilometer):
        """Lets the kernel forward, as `lab wiring` says."""
        wiring = json.loads(run("ip", "netns", "exec", self.host, nilometer, "lab", "wiring", "--json", *INTERFACES))
        for side, port in (("client", "dc"), ("server", "ds")):
            for address in wiring[side]["device_addresses"]:
                run("ip", "-n", self.device, "address", "add", address, "dev", port, "nodad")
        run(*self.inside(), "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
        for route in wiring["routes"]:
            run("ip", "-n", self.device, "route", "add", route["prefix"], "via", route["via"])


def tool(name):
    """Where a program is, also outside of PATH; none where it is not installed."""
    places = os.environ["PATH"].split(":") + ["/usr/sbin", "/usr/lib/openvswitch-switch"]
    return shutil.which(name, path=":".join(places))


def beside_tcpdump(args):
    import pyarrow.parquet

    with Prepared() as bench:
        bench.routes(args.nilometer)
        scratch = pathlib.Path(bench.scratch.name)
        for port, way in (("dc", "in"), ("ds", "out")):
            words = ["tcpdump", "-i", port, "-Q", way, "-j", "host", "--nano", "-s", "64", "-B", "65536", "-U"]
            bench.start(*words, "-w", str(scratch / f"{port}.pcap"), "udp", "and", "src", "net", "198.18.0.0/16")
        time.sleep(1)
        words = [*INTERFACES, "--pps", "5000", "--seconds", "4", "--out", str(scratch / "run")]
        result = stream(["ip", "netns", "exec", bench.host, args.nilometer], words)
        time.sleep(1)
        for process in bench.processes:
            process.terminate()
            process.wait()
        entered, left = (captured(scratch / f"{port}.pcap", result["run"]) for port in ("dc", "ds"))
        table = pyarrow.parquet.read_table(scratch / "run" / "packets.parquet").to_pydict()
        report(table, entered, left, result, args)


def report(table, entered, left, result, args):
    ours, theirs, differ = {}, {}, []
    for sequence, sent, received in zip(table["sequence"], table["sent_ns"], table["received_ns"]):
        if sent is not None and received is not None:
            ours[sequence] = received - sent
    theirs = {sequence: left[sequence] - entered[sequence] for sequence in entered if sequence in left}
    both = sorted(ours.keys() & theirs.keys())
    differ = sorted(ours[sequence] - theirs[sequence] for sequence in both)
    if not both:
        sys.exit("no packet was seen by both")
    at = lambda values, share: sorted(values)[min(len(values) - 1, int(share * len(values)))]
    lines = {
        "frames sent": result["packets"]["in"],
        "frames with both stamps of ours": len(ours),
        "frames that tcpdump saw at both ports": len(theirs),
        "frames that only one of both saw": len(ours.keys() ^ theirs.keys()),
        "our delay, p50 and p99, ns": [at(ours.values(), 0.5), at(ours.values(), 0.99)],
        "tcpdump's, p50 and p99, ns": [at(theirs.values(), 0.5), at(theirs.values(), 0.99)],
        "ours less tcpdump's of the same packet, p5, p50, p95, ns": [at(differ, share) for share in (0.05, 0.5, 0.95)],
        "packets for which ours is the shorter": sum(1 for difference in differ if difference < 0),
    }
    for name, value in lines.items():
        print(f"{name}: {value}")
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "tcpdump.json").write_text(json.dumps(lines, indent=1))


def main():
    numbers = lambda text: [int(one) for one in text.split(",")]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("nilometer")
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--dut", type=lambda text: text.split(","), default=DEVICES)
    parser.add_argument("--pps", type=numbers, default=[10_000, 40_000, 150_000])
    parser.add_argument("--frame-bytes", type=numbers, default=[64, 512, 1518])
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--external", action="append", default=[])
    parser.add_argument("--tcpdump", action="store_true")
    args = parser.parse_args()
    args.nilometer = str(pathlib.Path(args.nilometer).resolve())
    beside_tcpdump(args) if args.tcpdump else survey(args)


if __name__ == "__main__":
    main()

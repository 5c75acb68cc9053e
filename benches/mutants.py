#!/usr/bin/env python3
"""How much of the pure crates' code their own tests hold: the mutation score.

    benches/mutants.py draw --seed SEED [--count N] [-o FILE]
    benches/mutants.py run FILE --room FOLDER [--first N] [--minutes M] [--crates A,B] [--tree NAME]
    benches/mutants.py score FILE --room FOLDER [--equivalent FILE]

A *mutant* is the code with one small fault put in by cargo-mutants (a comparison turned round, a sum
made a product, a function that returns a constant). It is *caught* when a test of its own crate
fails, *missed* when all pass. The score is caught / (caught + missed).

draw    takes N mutants of those that cargo-mutants lists, stratified by crate: each crate's share is
        in proportion to its mutants, and 20 at the least. SEED is a number, or a commit's hash; the
        same seed on the same sources draws the same mutants. Reserves follow each crate's draw: they
        take the places of mutants that do not compile.
run     tests them, crate by crate, in a clone of HEAD in the room; what an interrupted run had
        found is not run again. --first N runs the first N of each crate, to learn how long it takes.
        Two may run at once in one room, of different --crates, each in a --tree of its own.
score   prints caught, missed, timed out and not compiled by crate, the score with the lower end of
        its one-sided 90 % interval (Wilson), and the names of those missed. --equivalent names a
        file with a mutant's name and why it changes nothing, a tab between, line by line; those are
        left out, and may be 3 % of the draw at most. Exit status 1 where the score is below 90 %
        overall or a crate's lower bound below 70 %.

Mutants that time out (an endless loop) are counted apart and are part of neither number. A test that
takes more than 6 GiB of memory fails.
Wants git, patch, cargo and cargo-mutants (`cargo install cargo-mutants`), which lists the mutants
(to run some, it has no filter that holds for all kinds), and 5 GB in the room.
"""
import argparse
import hashlib
import json
import math
import os
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

CRATES = ["wire", "stat", "queue", "tcp", "flow", "traffic", "router", "profile", "sim"]
LEAST_OF_A_CRATE = 20
RESERVES = 0.3
EQUIVALENT_SHARE_MAX = 0.03
MEMORY_BYTES = 6 << 30
SCORE_LEAST, CRATE_LOWER_LEAST = 0.90, 0.70
ROOT = Path(__file__).resolve().parent.parent


def fail(words):
    print(f"mutants: {words}", file=sys.stderr)
    sys.exit(2)


def output_of(*command, cwd=ROOT):
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    if done.returncode != 0:
        fail(f"{' '.join(command)}: {done.stderr.strip().splitlines()[-1:]}")
    return done.stdout


def quotas(sizes, count):
    """Places of each crate: in proportion, with a least number, `count` in all."""
    least = {crate: min(LEAST_OF_A_CRATE, size) for crate, size in sizes.items()}
    places = dict(least)
    whole = sum(sizes.values())
    while sum(places.values()) < count:
        # The crate that is farthest below its proportion gets the next place.
        crate = max(sizes, key=lambda one: (count * sizes[one] / whole - places[one], one))
        places[crate] += 1
    return places


def draw(args):
    listed = {}
    for crate in CRATES:
        text = output_of("cargo", "mutants", "--list", "--json", "--package", f"nilometer-{crate}")
        listed[crate] = sorted(mutant["name"] for mutant in json.loads(text))
    places = quotas({crate: len(names) for crate, names in listed.items()}, args.count)
    drawn = {}
    for crate, names in listed.items():
        seed = hashlib.sha256(f"{args.seed} {crate}".encode()).digest()
        order = random.Random(seed).sample(names, len(names))
        kept = math.ceil(places[crate] * (1 + RESERVES))
        drawn[crate] = {"listed": len(names), "places": places[crate], "mutants": order[:kept]}
    document = {
        "seed": args.seed,
        "commit": output_of("git", "rev-parse", "HEAD").strip(),
        "changed": bool(output_of("git", "status", "--porcelain", "crates").strip()),
        "tool": output_of("cargo", "mutants", "--version").strip(),
        "crates": drawn,
    }
    text = json.dumps(document, indent=1) + "\n"
    if args.out:
        Path(args.out).write_text(text)
    else:
        sys.stdout.write(text)


def found(room, crate):
    """What was found so far: mutant -> outcome."""
    ledger = room / f"{crate}.jsonl"
    if not ledger.exists():
        return {}
    lines = [json.loads(line) for line in ledger.read_text().splitlines() if line.endswith("}")]
    return {line["name"]: line["outcome"] for line in lines}


def counted(entry, outcomes, places):
    """The first mutants of a crate's draw that compile, `places` of them, and those that do not."""
    taken, unviable = [], []
    for name in entry["mutants"]:
        if len(taken) == places:
            break
        (unviable if outcomes.get(name) == "unviable" else taken).append(name)
    return taken, unviable


class Tree:
    """A clone of the commit in the room, in which one mutant at a time is put and tested."""

    def __init__(self, room, name, commit):
        self.path, self.commit = room / name, commit
        if not self.path.exists():
            output_of("git", "clone", "--quiet", "--shared", str(ROOT), str(self.path))
        self.heal()
        self.environment = dict(
            os.environ,
            CARGO_TARGET_DIR=str(room / f"{name}-target"),
            CARGO_INCREMENTAL="1",
            # Mutants are built more often than they are run for long.
            CARGO_PROFILE_RELEASE_OPT_LEVEL="1",
            CARGO_PROFILE_RELEASE_CODEGEN_UNITS="64",
        )

    def heal(self):
        output_of("git", "checkout", "--quiet", "--force", self.commit, cwd=self.path)

    def cargo(self, crate, *arguments, limit_s=None):
        """Whether `cargo test` of the crate succeeds; None where it took longer than the limit."""
        command = ["cargo", "test", "--release", "--package", f"nilometer-{crate}", *arguments]
        child = subprocess.Popen(command, cwd=self.path, env=self.environment,
                                 stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL, start_new_session=True,
                                 preexec_fn=lambda: resource.setrlimit(
                                     resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES)))
        try:
            return child.wait(limit_s) == 0
        except BaseException as stop:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            if isinstance(stop, subprocess.TimeoutExpired):
                return None
            raise

    def listed(self, crate):
        text = output_of("cargo", "mutants", "--list", "--json", "--package",
                         f"nilometer-{crate}", cwd=self.path)
        return {mutant["name"]: mutant for mutant in json.loads(text)}

    def put(self, mutant):
        """Applies the mutant's difference to its file."""
        done = subprocess.run(["patch", "--quiet", "-p0"], cwd=self.path, text=True,
                              input=mutant["diff"].replace("\n+++ ", f"\n+++ {mutant['file']}\t"),
                              capture_output=True)
        if done.returncode != 0:
            fail(f"{mutant['name']}: {done.stdout.strip()} {done.stderr.strip()}")

    def judge(self, crate, mutant, limit_s):
        self.put(mutant)
        try:
            if not self.cargo(crate, "--no-run"):
                return "unviable"
            passed = self.cargo(crate, limit_s=limit_s)
            return {True: "missed", False: "caught", None: "timeout"}[passed]
        finally:
            self.heal()


def run(args):
    document = json.loads(Path(args.draw).read_text())
    room = Path(args.room).resolve()
    room.mkdir(parents=True, exist_ok=True)
    tree = Tree(room, args.tree, document["commit"])
    only = args.crates.split(",") if args.crates else CRATES
    unknown = set(only) - set(CRATES)
    if unknown:
        fail(f"--crates {','.join(sorted(unknown))}: it is some of {','.join(CRATES)}")
    until = time.monotonic() + 60 * args.minutes if args.minutes else math.inf
    for crate, entry in document["crates"].items():
        if crate not in only:
            continue
        places = min(args.first, entry["places"]) if args.first else entry["places"]
        mutants, limit_s = None, None
        while time.monotonic() < until:
            outcomes = found(room, crate)
            left = [name for name in counted(entry, outcomes, places)[0] if name not in outcomes]
            if not left:
                break
            if mutants is None:
                mutants = tree.listed(crate)
                tree.cargo(crate, "--no-run")
                begun = time.monotonic()
                if not tree.cargo(crate):
                    fail(f"{crate}: its tests fail without any mutant; see to that first")
                limit_s = max(60.0, 8 * (time.monotonic() - begun))
            begun = time.monotonic()
            outcome = tree.judge(crate, mutants[left[0]], limit_s)
            seconds = round(time.monotonic() - begun, 1)
            line = {"name": left[0], "outcome": outcome, "seconds": seconds}
            with open(room / f"{crate}.jsonl", "a") as ledger:
                ledger.write(json.dumps(line) + "\n")
            print(f"mutants: {outcome:8} {seconds:6.1f} s {left[0]}", file=sys.stderr)


def wilson_lower(caught, number):
    """Lower end of the one-sided 90 % interval of a share (Wilson's score, z = 1.2816)."""
    if number == 0:
        return 0.0
    z, share = 1.2815515655446004, caught / number
    middle = share + z * z / (2 * number)
    spread = z * math.sqrt(share * (1 - share) / number + z * z / (4 * number * number))
    return (middle - spread) / (1 + z * z / number)


def score(args):
    document = json.loads(Path(args.draw).read_text())
    room = Path(args.room).resolve()
    why = {}
    if args.equivalent:
        for line in Path(args.equivalent).read_text().splitlines():
            if line.strip() and not line.startswith("#"):
                name, _, reason = line.partition("\t")
                if not reason.strip():
                    fail(f"{args.equivalent}: no reason for {name}")
                why[name] = reason.strip()
    sums = dict.fromkeys(["caught", "missed", "timeout", "unviable", "equivalent", "left"], 0)
    missed, bad = [], False
    print(f"{'crate':9} {'caught':>6} {'missed':>6} {'timeout':>7} {'score':>6} {'lower':>6}")
    for crate, entry in document["crates"].items():
        outcomes = found(room, crate)
        taken, unviable = counted(entry, outcomes, entry["places"])
        kinds = dict.fromkeys(sums, 0) | {"unviable": len(unviable)}
        for name in taken:
            kind = outcomes.get(name, "left")
            if kind == "missed" and name in why:
                kind = "equivalent"
            elif kind == "missed":
                missed.append(name)
            kinds[kind] += 1
        told = kinds["caught"] + kinds["missed"]
        lower = wilson_lower(kinds["caught"], told)
        share = kinds["caught"] / told if told else 0.0
        bad |= lower < CRATE_LOWER_LEAST
        print(f"{crate:9} {kinds['caught']:6} {kinds['missed']:6} {kinds['timeout']:7} "
              f"{share:6.3f} {lower:6.3f}")
        for kind, number in kinds.items():
            sums[kind] += number
    told = sums["caught"] + sums["missed"]
    share = sums["caught"] / told if told else 0.0
    print(f"{'all':9} {sums['caught']:6} {sums['missed']:6} {sums['timeout']:7} "
          f"{share:6.3f} {wilson_lower(sums['caught'], told):6.3f}")
    print(f"not compiled {sums['unviable']}, equivalent {sums['equivalent']}, "
          f"not run {sums['left']}; commit {document['commit'][:12]}, seed {document['seed']}")
    for name in missed:
        print(f"missed: {name}")
    number = sum(entry["places"] for entry in document["crates"].values())
    if sums["equivalent"] > EQUIVALENT_SHARE_MAX * number:
        print("more than 3 % of the draw are said to be equivalent")
        bad = True
    if sums["left"]:
        print("not all were run")
        bad = True
    sys.exit(1 if bad or share < SCORE_LEAST else 0)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    verb = verbs.add_parser("draw")
    verb.add_argument("--seed", required=True)
    verb.add_argument("--count", type=int, default=300)
    verb.add_argument("-o", "--out")
    verb.set_defaults(do=draw)
    verb = verbs.add_parser("run")
    verb.add_argument("draw")
    verb.add_argument("--room", required=True)
    verb.add_argument("--first", type=int)
    verb.add_argument("--minutes", type=float)
    verb.add_argument("--crates")
    verb.add_argument("--tree", default="tree")
    verb.set_defaults(do=run)
    verb = verbs.add_parser("score")
    verb.add_argument("draw")
    verb.add_argument("--room", required=True)
    verb.add_argument("--equivalent")
    verb.set_defaults(do=score)
    args = parser.parse_args()
    args.do(args)


if __name__ == "__main__":
    main()

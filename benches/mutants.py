#!/usr/bin/env python3
"""How much of the pure crates' code their own tests hold: the mutation score.

    benches/mutants.py draw --seed SEED [--count N] [-o FILE]
    benches/mutants.py run FILE --room FOLDER [--first N] [--minutes M]
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
score   prints caught, missed, timed out and not compiled by crate, the score with the lower end of
        its one-sided 90 % interval (Wilson), and the names of those missed. --equivalent names a
        file with a mutant's name and why it changes nothing, a tab between, line by line; those are
        left out, and may be 3 % of the draw at most. Exit status 1 where the score is below 90 %
        overall or a crate's lower bound below 70 %.

Mutants that time out (an endless loop) are counted apart and are part of neither number.
Wants git, cargo and cargo-mutants (`cargo install cargo-mutants`), and 5 GB in the room.
"""
import argparse
import hashlib
import json
import math
import os
import random
import re
import subprocess
import sys
import time
from pathlib import Path

CRATES = ["wire", "stat", "queue", "tcp", "flow", "traffic", "router", "profile", "sim"]
LEAST_OF_A_CRATE = 20
RESERVES = 0.3
EQUIVALENT_SHARE_MAX = 0.03
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


OUTCOMES = {
    "CaughtMutant": "caught",
    "MissedMutant": "missed",
    "Timeout": "timeout",
    "Unviable": "unviable",
}


def found(room, crate):
    """What earlier runs found: mutant -> outcome."""
    outcomes = {}
    for file in sorted((room / crate).glob("*/mutants.out/outcomes.json")):
        for one in json.loads(file.read_text())["outcomes"]:
            if isinstance(one["scenario"], dict):
                outcome = OUTCOMES.get(one["summary"])
                if outcome:
                    outcomes[one["scenario"]["Mutant"]["name"]] = outcome
    return outcomes


def counted(entry, outcomes, places):
    """The first mutants of a crate's draw that compile, `places` of them, and those that do not."""
    taken, unviable = [], []
    for name in entry["mutants"]:
        if len(taken) == places:
            break
        (unviable if outcomes.get(name) == "unviable" else taken).append(name)
    return taken, unviable


def run(args):
    document = json.loads(Path(args.draw).read_text())
    room = Path(args.room).resolve()
    tree = room / "tree"
    room.mkdir(parents=True, exist_ok=True)
    if not tree.exists():
        output_of("git", "clone", "--quiet", "--shared", str(ROOT), str(tree))
    output_of("git", "checkout", "--quiet", "--force", document["commit"], cwd=tree)
    environment = dict(
        os.environ,
        CARGO_TARGET_DIR=str(room / "target"),
        CARGO_INCREMENTAL="1",
        # Mutants are built more often than they are run for long.
        CARGO_PROFILE_RELEASE_OPT_LEVEL="1",
        CARGO_PROFILE_RELEASE_CODEGEN_UNITS="64",
    )
    until = time.monotonic() + 60 * args.minutes if args.minutes else math.inf
    for crate, entry in document["crates"].items():
        places = min(args.first, entry["places"]) if args.first else entry["places"]
        while time.monotonic() < until:
            outcomes = found(room, crate)
            taken, _ = counted(entry, outcomes, places)
            left = [name for name in taken if name not in outcomes]
            if not left:
                break
            number = len(list((room / crate).glob("*"))) + 1
            out = room / crate / f"{number:03}"
            out.mkdir(parents=True)
            command = ["cargo", "mutants", "--in-place", "--package", f"nilometer-{crate}"]
            command += ["--profile", "release", "--no-shuffle", "--output", str(out)]
            command += ["--timeout-multiplier", "8", "--minimum-test-timeout", "120"]
            for name in left:
                command += ["--re", f"^{re.escape(name)}$"]
            # Deleted fields of structs are not filtered by --re: the files keep their number small,
            # and what was not drawn is not counted.
            for file in sorted({name.split(":")[0] for name in left}):
                command += ["--file", file]
            begun = time.monotonic()
            child = subprocess.Popen(command, cwd=tree, env=environment)
            try:
                child.wait(None if until == math.inf else max(1, until - time.monotonic()))
            except (subprocess.TimeoutExpired, KeyboardInterrupt):
                child.terminate()
                child.wait()
                output_of("git", "checkout", "--quiet", "--force", document["commit"], cwd=tree)
                print(f"mutants: {crate}: stopped; run again to go on", file=sys.stderr)
                return
            now = found(room, crate)
            new = sum(name in now for name in left)
            print(f"mutants: {crate}: {new} in {time.monotonic() - begun:.0f} s", file=sys.stderr)
            if new == 0:
                fail(f"{crate}: nothing was found; see {out}/mutants.out/log")


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

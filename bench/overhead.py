# SPDX-License-Identifier: Apache-2.0
"""What of a step is neither computing nor the schedule's own bubble, by a trace of train --trace.

A rank's slices are played again, each as long as it took, in the rank's order, and as early as the slices
that it needs allow: without messages and without waits for anything else. What the step took longer than that
and the update is overhead, the sums and the norm at its end included.

    python3 bench/overhead.py TRACE.json
"""
import json
import sys


def play(ranks):
    """Seconds until the last slice ends; ranks is [stage][slice in order]."""
    ends = [{} for _ in ranks]
    clock = [0.0] * len(ranks)
    done = [0] * len(ranks)
    while any(done[k] < len(slices) for k, slices in enumerate(ranks)):
        before = sum(done)
        for k, slices in enumerate(ranks):
            while done[k] < len(slices):
                name, group, start, seconds = slices[done[k]]
                needs = {"forward": k - 1, "backward": k + 1}.get(name, -1)
                unit = (name, group, start)
                if 0 <= needs < len(ranks) and unit not in ends[needs]:
                    break
                if 0 <= needs < len(ranks):
                    clock[k] = max(clock[k], ends[needs][unit])
                clock[k] += seconds
                ends[k][unit] = clock[k]
                done[k] += 1
        if sum(done) == before:
            sys.exit("slices wait for each other: expected every slice on every rank")
    return max(clock)


def is_pipeline(trace, stages):
    """Do ranks send to their neighbours, and to no others? Replicas and op ranks do not."""
    sent = {e["id"]: e["pid"] for e in trace if e["ph"] == "s"}
    pairs = {(sent[e["id"]], e["pid"]) for e in trace if e["ph"] == "f"}
    neighbours = set(zip(stages, stages[1:]))
    return pairs == neighbours | {(b, a) for a, b in neighbours}


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    try:
        with open(sys.argv[1]) as file:
            trace = json.load(file)["traceEvents"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        sys.exit(f"{sys.argv[1]}: expected a trace: {error}")
    events = [e for e in trace if e["ph"] == "X"]
    stages = sorted({e["pid"] for e in events})
    if not is_pipeline(trace, stages):
        sys.exit(f"{sys.argv[1]}: expected a pipeline of one rank a stage, without --op and --data")
    ranks = [[] for _ in stages]
    computed = [0.0] * len(stages)
    for e in sorted(events, key=lambda e: e["ts"]):
        if e["name"] in ("forward", "backward", "weight gradients"):
            k = stages.index(e["pid"])
            ranks[k].append((e["name"], e["args"]["group"], e["args"]["start"], 1e-6 * e["dur"]))
            computed[k] += 1e-6 * e["dur"]
    step = max(1e-6 * (e["ts"] + e["dur"]) for e in events)
    least = play(ranks)
    update = max([1e-6 * e["dur"] for e in events if e["name"] == "update"], default=0.0)
    rest = step - least - update
    print(f"step {1e3 * step:.1f} ms: slices and bubble {1e3 * least:.1f}, update {1e3 * update:.1f}, "
          f"overhead {1e3 * rest:.1f} ({100 * rest / step:.2f} %)")
    for k, seconds in zip(stages, computed):
        print(f"rank {k}: computes {1e3 * seconds:.1f} ms ({100 * seconds / step:.1f} %)")


main()

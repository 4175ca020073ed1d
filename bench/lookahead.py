"""What looking ahead saves: real selections replayed over a bounded fast tier.

    python bench/lookahead.py [--model FOLDER]

Three tasks of 6,000 tokens and their answers of 128 are recorded once, with dense attention in
float32 (some minutes; kept in the cache), and replayed over the engine's own tables and kernels at
a budget of 1,024. Figures are of all tasks together, by task where the name ends with one.

``miss_ratio_vs_lru``: pages that a token's own query selects and that are not in the fast tier by
then, over those that are missed when each token loads what it selects and evicts the least recently
selected. The pools are equal: two budgets and the local blocks (``tight``: one). Predictions:
``ngram`` is the engine's default, ``ema`` and ``previous`` those without drafts, ``draft`` a draft
head that is right seven times in ten and else has the second best token.

``agreement_*``: part of the tokens' own sets that the prediction has.

``arrival_*``: a decode engine that has the hot pages of a prompt only and gets what it wants two
steps later; residency hit by length of answer, mass recall, and blocks per head on demand.

``escalated``: with twice the budget for the heads that the tasks' audits would find to recall
little; ``pages`` of it are pages selected over those without. ``p5`` is the 5th percentile over
tokens and heads.

``raw`` is without the mean of queries, which ``previous`` never has (with it, it is ``ema``);
``plain`` is without the preference for the last set (``SelectFlag.KEEP``) besides. ``moved_rate``:
pages that were loaded, over pages that were needed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from bench import result
from bench.command_line import parsed, parser_of
from bench.plain.recording import Recording
from bench.replays.arrival import arrival
from bench.replays.bed import Make, Plain, true_masses
from bench.replays.residency import (
    DRAFT_HIT_RATE,
    Residency,
    agreement,
    lookahead,
    lru,
    predictions,
)
from bench.replays.tasks import recordings
from oasis_runtime.core.escalation import Escalation
from oasis_runtime.core.smoothing import WEIGHT
from oasis_runtime.kernels.contract import U8
from oasis_runtime.kernels.cpu import CpuKernels

LENGTHS = (2, 8, 25, 49, 119)
Metrics = dict[str, float]


def misses(r: Recording) -> Metrics:
    """Counts of one task, to be added up over tasks, and recalls."""
    mass, found = true_masses(r), Metrics()
    for pool, budgets in (("", 2.0), ("_tight", 1.0)):
        found |= counts("lru", pool, lru(r, mass, budgets))
        queries = predictions(r)
        for method, predicted in queries.items():
            # The mean is the engine's: it is of the queries themselves.
            newest = queries["previous"] if method == "ema" else predicted
            for variant, make, weight in variants(method):
                ours = lookahead(r, mass, newest, budgets, make, weight=weight)
                found |= counts(f"{method}{variant}", pool, ours)
    return found


def variants(method: str) -> Sequence[tuple[str, Make, float]]:
    """Suffix, kernels and weight of the newest query: the engine's first."""
    if method == "ema":
        return [("", CpuKernels, WEIGHT)]
    alone: list[tuple[str, Make, float]] = [("_plain", Plain, 1.0)]
    if method == "previous":
        return [("", CpuKernels, 1.0), *alone]
    return [("", CpuKernels, WEIGHT), ("_raw", CpuKernels, 1.0), *alone]


def counts(name: str, pool: str, found: Residency) -> Metrics:
    return {
        f"needed_{name}{pool}": found.needed,
        f"missed_{name}{pool}": found.missed,
        f"moved_{name}{pool}": found.moved,
        f"recall_{name}": float(found.recall.mean()),
        f"recall_p5_{name}": float(np.quantile(found.recall, 0.05)),
    }


def escalation(tasks: Sequence[Recording]) -> Metrics:
    """What all tasks' audits find decides which heads are escalated in each."""
    masses, drafts = [true_masses(r) for r in tasks], [predictions(r)["ngram"] for r in tasks]

    def run(boost: U8 | None) -> list[Residency]:
        return [
            lookahead(r, mass, predicted, 2.0, boost=boost)
            for r, mass, predicted in zip(tasks, masses, drafts, strict=True)
        ]

    before = run(None)
    heads = Escalation(*before[0].recall.shape[1:])
    for found in before:
        for (layer, head), recall in np.ndenumerate(found.recall.mean(axis=0)):
            heads.observe(layer, head, float(recall))
    after = run(heads.boost())
    out = {
        "escalated_heads": float(heads.count),
        "pages_escalated": sum(a.needed for a in after) / sum(b.needed for b in before),
    }
    for name, runs in (("ngram", before), ("escalated", after)):
        recall = np.concatenate([found.recall for found in runs])
        out[f"recall_{name}"] = float(recall.mean())
        out[f"recall_p5_{name}"] = float(np.quantile(recall, 0.05))
    return out


def arrivals(r: Recording) -> Metrics:
    mass, predicted = true_masses(r), predictions(r)["ngram"]
    found = Metrics()
    for variant, make, weight in variants("ngram"):
        a = arrival(r, mass, predicted, make, weight)
        found |= {f"arrival_hit_{n}{variant}": float(a.hit[n - 1]) for n in LENGTHS}
        found[f"arrival_recall{variant}"] = float(a.recall.mean())
        found[f"arrival_demand_blocks{variant}"] = a.demanded
    return found


def one(r: Recording) -> Metrics:
    agreed = {f"agreement_{name}": agreement(r, p) for name, p in predictions(r).items()}
    return misses(r) | agreed | arrivals(r) | {"ngram_hit_rate": float((r.hit == 1).mean())}


def together(tasks: dict[str, Metrics]) -> Metrics:
    """Ratios of sums where there are counts, means of the others; the main ones by task too."""
    names = list(next(iter(tasks.values())))
    mean = {name: float(np.mean([t[name] for t in tasks.values()])) for name in names}

    def rate(which: str, over: Metrics) -> float:
        return over[f"missed_{which}"] / over[f"needed_{which}"]

    out = Metrics()
    for name in mean:
        if name.startswith("missed_"):
            which = name.removeprefix("missed_")
            out[f"miss_rate_{which}"] = rate(which, mean)
            out[f"moved_rate_{which}"] = mean[f"moved_{which}"] / mean[f"needed_{which}"]
            if not which.startswith("lru"):
                tight = "_tight" if which.endswith("_tight") else ""
                out[f"miss_ratio_vs_lru_{which}"] = rate(which, mean) / rate(f"lru{tight}", mean)
        elif not name.startswith(("needed_", "moved_")):
            out[name] = mean[name]
    out["miss_ratio_vs_lru"] = out["miss_ratio_vs_lru_ngram"]
    out["draft_hit_rate"] = DRAFT_HIT_RATE
    for task, found in tasks.items():
        out[f"miss_ratio_vs_lru_{task}"] = rate("ngram", found) / rate("lru", found)
        for name in ("arrival_hit_8", "arrival_hit_8_plain", "recall_ngram", "recall_ngram_plain"):
            out[f"{name}_{task}"] = found[name]
    return dict(sorted(out.items()))


def main(arguments: Sequence[str]) -> None:
    parser = parser_of(__doc__)
    options = parsed(parser, arguments)
    tasks, found = {}, {}
    for name, tasks[name] in recordings(options.model):
        found[name] = one(tasks[name])
        print(f"replayed {name}", flush=True)
    metrics = together(found) | escalation(list(tasks.values()))
    for name, value in sorted(metrics.items()):
        print(f"{name:44}{value:10.4f}")
    print(f"wrote {result.write('lookahead', dict(sorted(metrics.items())))}")


if __name__ == "__main__":
    main(sys.argv[1:])

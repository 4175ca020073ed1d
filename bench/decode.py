"""Decode throughput against stock dense vLLM, side by side in one run.

    python bench/decode.py [--model FOLDER] [--repeats 3]

Two engines, one stock and one ours, live in processes of their own and take turns, so that a
machine that drifts drifts for both. A figure is the median over the repeats of decoded tokens per
second of wall time, without the prompt: the time for many tokens less the time for one.
"""

from __future__ import annotations

import argparse
import multiprocessing as mp
import os
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import result

STEPS = 32
BUDGETS = (2048, 1024)
CONTEXTS = (4096, 7168)
BATCHES = (1, 4)
FAST_BYTES = 320 << 20


@dataclass(frozen=True)
class Case:
    context: int
    batch: int
    tokens: int


def engine_arguments(model: str, budget: int | None) -> dict[str, Any]:
    """Arguments of vLLM's ``LLM``; ``budget`` None is stock vLLM."""
    common: dict[str, Any] = {
        "model": model,
        "max_model_len": 8192,
        "max_num_seqs": max(BATCHES),
        "enforce_eager": True,
        "block_size": 32,
        "dtype": "bfloat16",
        "kv_cache_memory_bytes": 1 << 30,
    }
    if budget is None:
        return common
    from oasis_runtime.contract import EngineConfig, LinkConfig, SelectionConfig, TierConfig
    from oasis_runtime.serve.arguments import CONNECTOR, CONNECTOR_MODULE, WORKER_CLASS
    from oasis_runtime.serve.command import prepare
    from oasis_runtime.serve.payload import PAYLOAD_KEY

    config = EngineConfig(
        model=model,
        links=LinkConfig(force=True),
        tiers=TierConfig(fast_bytes=FAST_BYTES),
        selection=SelectionConfig(budget_tokens=budget),
    )
    payload = prepare(config)
    return common | {
        "worker_cls": WORKER_CLASS,
        "kv_transfer_config": {
            "kv_connector": CONNECTOR,
            "kv_connector_module_path": CONNECTOR_MODULE,
            "kv_role": "kv_both",
            "kv_connector_extra_config": {PAYLOAD_KEY: payload.model_dump(mode="json")},
        },
    }


def serve(pipe: Connection, model: str, budget: int | None) -> None:
    """An engine that runs cases until told to stop."""
    os.environ.update(
        VLLM_ENABLE_V1_MULTIPROCESSING="0",
        OMP_NUM_THREADS="1",
        VLLM_CPU_OMP_THREADS_BIND="nobind",
        NUMBA_THREADING_LAYER="workqueue",
        HF_HUB_OFFLINE="1",
        VLLM_NO_USAGE_STATS="1",
        VLLM_LOGGING_LEVEL="ERROR",
    )
    from vllm import LLM, SamplingParams

    llm = LLM(**engine_arguments(model, budget))
    vocabulary = llm.get_tokenizer().vocab_size
    pipe.send("ready")
    while (case := pipe.recv()) is not None:
        prompts = [
            {"prompt_token_ids": [(i * 7919 + j * 104729) % (vocabulary - 100) + 50
                                  for j in range(case.context)]}
            for i in range(case.batch)
        ]  # fmt: skip
        parameters = SamplingParams(temperature=0, max_tokens=case.tokens, ignore_eos=True)
        start = time.perf_counter()
        llm.generate(prompts, parameters, use_tqdm=False)
        pipe.send(time.perf_counter() - start)


class Engine:
    def __init__(self, model: str, budget: int | None) -> None:
        context = mp.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs, model, budget), daemon=True)
        self._process.start()

    def wait(self) -> None:
        self._pipe.recv()

    def seconds(self, case: Case) -> float:
        self._pipe.send(case)
        return float(self._pipe.recv())

    def rate(self, context: int, batch: int) -> float:
        """Decoded tokens per second; the prompt is in the prefix cache already."""
        one = self.seconds(Case(context, batch, 1))
        many = self.seconds(Case(context, batch, STEPS + 1))
        return batch * STEPS / (many - one)

    def stop(self) -> None:
        self._pipe.send(None)
        self._process.join()


def measure(model: str, repeats: int) -> dict[str, float]:
    metrics: dict[str, float] = {}
    for budget in BUDGETS:
        stock, ours = Engine(model, None), Engine(model, budget)
        stock.wait()
        ours.wait()
        for context in CONTEXTS:
            for batch in BATCHES:
                for engine in (stock, ours):
                    engine.seconds(Case(context, batch, 1))
                pairs = [
                    (stock.rate(context, batch), ours.rate(context, batch)) for _ in range(repeats)
                ]
                name = f"{context // 1024}k_b{batch}"
                metrics[f"stock_tokens_per_second_{name}"] = median([s for s, _ in pairs])
                metrics[f"tokens_per_second_{name}_budget{budget}"] = median([o for _, o in pairs])
                speedup = median([o / s for s, o in pairs])
                metrics[f"speedup_{name}_budget{budget}"] = speedup
                print(f"context {context:5} batch {batch} budget {budget}: {speedup:.2f}x stock")
        stock.stop()
        ours.stop()
    return metrics


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", default=os.environ.get("OASISKV_MODEL"))
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    if options.model is None:
        parser.error("name a model folder with --model, or set OASISKV_MODEL")
    print(f"wrote {result.write('decode', measure(options.model, options.repeats))}")


if __name__ == "__main__":
    main()

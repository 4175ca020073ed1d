"""An engine in a process of its own, stock or ours, that decodes what it is told to."""

from __future__ import annotations

import multiprocessing as mp
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

STEPS = 32
RECORDED = 4096
"""Tokens of the prompt that is computed for real."""
LONGEST = 32768
BLOCK = 32
ANSWER, QUESTION = 128, 64


@dataclass(frozen=True)
class Sizes:
    """``cache_bytes``: of vLLM's cache, which is our host tier. ``fast_bytes``: None for stock."""

    requests: int
    cache_bytes: int
    fast_bytes: int | None = None
    budget: int = 2048


@dataclass(frozen=True)
class Case:
    context: int
    batch: int

    @property
    def name(self) -> str:
        return f"{self.context // 1024}k_b{self.batch}"


@dataclass(frozen=True)
class Order:
    """``fill``: take the prompts in from the recording, into the prefix cache. ``apart``: say
    where the time goes, at the cost of some."""

    case: Case
    tokens: int
    fill: bool = False
    apart: bool = False


@dataclass(frozen=True)
class Turn:
    """A prompt with an answer of ``ANSWER`` tokens, and then, which is timed, all of that with
    ``QUESTION`` tokens more. Those of another ``number`` have another text."""

    number: int


@dataclass(frozen=True)
class Report:
    """``selecting_seconds``: of the decode thread in the engine's selections, 0 for stock."""

    seconds: float
    selecting_seconds: float


@dataclass(frozen=True)
class Apart:
    """By part (:class:`bench.turns.stopwatch.Part`): seconds, and calls that were timed."""

    seconds: Mapping[str, float]
    calls: int


class Engine:
    def __init__(self, model: str, sizes: Sizes) -> None:
        context = mp.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, model, sizes), daemon=True)
        self._process.start()

    def wait(self) -> None:
        """Until the model is loaded and the recording made."""
        self._pipe.recv()

    def run(self, order: Order | Turn) -> Report:
        self._pipe.send(order)
        report: Report = self._pipe.recv()
        return report

    def decode_apart(self, case: Case) -> Apart:
        """Of the same ``STEPS`` steps as :meth:`decode`."""
        one, many = (self._apart(Order(case, tokens, apart=True)) for tokens in (1, STEPS + 1))
        seconds = {part: many.seconds[part] - one.seconds[part] for part in many.seconds}
        return Apart(seconds, many.calls - one.calls)

    def _apart(self, order: Order) -> Apart:
        self._pipe.send(order)
        apart: Apart = self._pipe.recv()
        return apart

    def take_in(self, case: Case) -> None:
        """The prompts are in the prefix cache afterwards, and one step was taken."""
        self.run(Order(case, 1, fill=True))
        self.run(Order(case, 1))

    def decode(self, case: Case) -> Report:
        """Of ``STEPS`` steps: the time for many tokens less the time for one."""
        one, many = self.run(Order(case, 1)), self.run(Order(case, STEPS + 1))
        return Report(many.seconds - one.seconds, many.selecting_seconds - one.selecting_seconds)

    def second_turn(self, number: int) -> float:
        """Seconds to the first token of a second turn, with ``RECORDED`` tokens in the first."""
        return self.run(Turn(number)).seconds

    def stop(self) -> None:
        self._pipe.send(None)
        self._process.join()


def _arguments(model: str, sizes: Sizes) -> dict[str, Any]:
    """Arguments of vLLM's ``LLM``."""
    common: dict[str, Any] = {
        "model": model,
        "hf_overrides": {"max_position_embeddings": 2 * LONGEST},
        "max_model_len": LONGEST + STEPS + BLOCK,
        "max_num_seqs": sizes.requests,
        "enforce_eager": True,
        "block_size": BLOCK,
        "dtype": "bfloat16",
        "kv_cache_memory_bytes": sizes.cache_bytes,
    }
    if sizes.fast_bytes is None:
        return common
    from oasis_runtime.contract import EngineConfig, LinkConfig, SelectionConfig, TierConfig
    from oasis_runtime.serve.arguments import CONNECTOR, CONNECTOR_MODULE, WORKER_CLASS
    from oasis_runtime.serve.command import prepare
    from oasis_runtime.serve.payload import PAYLOAD_KEY

    config = EngineConfig(
        model=model,
        links=LinkConfig(force=True),
        tiers=TierConfig(fast_bytes=sizes.fast_bytes),
        selection=SelectionConfig(budget_tokens=sizes.budget),
    )
    return common | {
        "worker_cls": WORKER_CLASS,
        "kv_transfer_config": {
            "kv_connector": CONNECTOR,
            "kv_connector_module_path": CONNECTOR_MODULE,
            "kv_role": "kv_both",
            "kv_connector_extra_config": {PAYLOAD_KEY: prepare(config).model_dump(mode="json")},
        },
    }


def _prompts(prose: Sequence[int], case: Case) -> list[dict[str, list[int]]]:
    """Prompts of a shorter context are the beginnings of those of a longer one."""
    starts = (3001 * i for i in range(case.batch))
    return [
        {"prompt_token_ids": [prose[(start + j) % len(prose)] for j in range(case.context)]}
        for start in starts
    ]


def _serve(pipe: Connection, model: str, sizes: Sizes) -> None:
    os.environ.update(
        VLLM_ENABLE_V1_MULTIPROCESSING="0",
        OMP_NUM_THREADS="1",
        VLLM_CPU_OMP_THREADS_BIND="nobind",
        NUMBA_THREADING_LAYER="workqueue",
        HF_HUB_OFFLINE="1",
        VLLM_NO_USAGE_STATS="1",
        VLLM_LOGGING_LEVEL="ERROR",
    )
    if sizes.fast_bytes is None:
        # The plugin is installed, and would put its backend before stock's, to pass all on to it.
        os.environ["VLLM_PLUGINS"] = ""
    from vllm import LLM, SamplingParams

    from bench.turns.filling import Filling
    from bench.turns.parts import taken_apart
    from bench.turns.stopwatch import Part
    from bench.turns.timing import selecting
    from tests.engine.prompts import Prose

    prose = Prose.of(Path(model)).tokens
    llm = LLM(**_arguments(model, sizes))
    [filling] = llm.apply_model(Filling)
    [loaded] = llm.apply_model(lambda model: model)

    def answer(prompts: Sequence[Any], tokens: int) -> list[int]:
        parameters = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True)
        outputs = llm.generate(prompts, parameters, use_tqdm=False)
        return list(outputs[0].outputs[0].token_ids)

    def generate(case: Case, tokens: int) -> None:
        answer(_prompts(prose, case), tokens)

    def second_turn(number: int) -> float:
        first = list(prose[997 * number : 997 * number + RECORDED])
        first += answer([{"prompt_token_ids": first}], ANSWER)
        question = prose[-QUESTION * (number + 1) :][:QUESTION]
        start = time.perf_counter()
        answer([{"prompt_token_ids": [*first, *question]}], 1)
        return time.perf_counter() - start

    with filling.recording():
        generate(Case(RECORDED, 1), 1)
    llm.reset_prefix_cache()
    pipe.send("ready")
    while (order := pipe.recv()) is not None:
        if isinstance(order, Turn):
            pipe.send(Report(second_turn(order.number), 0.0))
            continue
        if order.apart:
            with taken_apart(loaded) as watch:
                generate(order.case, order.tokens)
            parts = {str(part): watch.seconds[part] for part in Part}
            pipe.send(Apart(parts, watch.calls.total()))
            continue
        if order.fill:
            with filling.filling():
                generate(order.case, order.tokens)
        with selecting() as clock:
            start = time.perf_counter()
            if not order.fill:
                generate(order.case, order.tokens)
            pipe.send(Report(time.perf_counter() - start, clock.seconds))

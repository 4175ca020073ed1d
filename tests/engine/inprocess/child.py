"""vLLM with its scheduler and worker in one process, driven step by step over a pipe."""

from __future__ import annotations

import os
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from oasis_runtime.contract import EngineConfig
from oasis_runtime.core.tables import SlotState
from oasis_runtime.serve.arguments import server_arguments
from oasis_runtime.serve.command import prepare
from oasis_runtime.serve.environment import server_environment
from oasis_runtime.serve.threads import CpuShare
from tests.engine.inprocess.asks import Answer, Ask, Held


@dataclass(frozen=True)
class Setup:
    """An engine as ``python -m oasis_runtime serve`` configures it.

    ``stock``: plain vLLM of the same model and sizes instead. ``extra``: more arguments of vLLM.
    """

    config: EngineConfig
    stock: bool = False
    extra: tuple[str, ...] = ()

    def arguments(self) -> list[str]:
        if not self.stock:
            return [*server_arguments(prepare(self.config)), *self.extra]
        c = self.config
        return [
            *("--model", c.model, "--dtype", c.dtype, "--max-model-len", str(c.max_model_len)),
            *("--max-num-seqs", str(c.max_num_seqs), "--block-size", str(c.tiers.block_tokens)),
            *("--kv-cache-memory-bytes", str(c.tiers.host_bytes), "--enforce-eager"),
            *self.extra,
        ]


class Engine:
    def __init__(self, setup: Setup) -> None:
        """Two CPUs are assumed whatever the machine has, so that it computes with one thread."""
        os.environ |= server_environment(setup.config, CpuShare(2, None), os.environ)
        if setup.stock:
            os.environ["VLLM_PLUGINS"] = ""  # ours is installed, and would be loaded
        # vLLM reads the environment when it is imported.
        from vllm.engine.arg_utils import EngineArgs
        from vllm.entrypoints.launchers.cli_args import make_arg_parser
        from vllm.utils.argparse_utils import FlexibleArgumentParser
        from vllm.v1.engine.llm_engine import LLMEngine

        parser = make_arg_parser(FlexibleArgumentParser())  # type: ignore[no-untyped-call]
        arguments = EngineArgs.from_cli_args(parser.parse_args(setup.arguments()))
        self._llm = LLMEngine.from_engine_args(arguments)
        self._asked = 0

    def run(self, asks: Sequence[Ask]) -> list[Answer]:
        """Serve the requests together; returns when the engine has nothing left to do."""
        from vllm import SamplingParams
        from vllm.outputs import RequestOutput

        waiting = sorted(enumerate(asks), key=lambda one: one[1].after)
        names: dict[str, int] = {}
        samples: dict[int, dict[int, Any]] = {index: {} for index in range(len(asks))}
        cached: dict[int, int] = {}
        steps = 0
        while waiting or self._llm.has_unfinished_requests():
            while waiting and waiting[0][1].after <= steps:
                index, ask = waiting.pop(0)
                self._asked += 1
                names[f"ask-{self._asked}"] = index
                params = SamplingParams(
                    n=ask.n,
                    temperature=ask.temperature,
                    seed=ask.seed,
                    max_tokens=ask.tokens,
                    ignore_eos=True,
                    extra_args={"oasis": dict(ask.oasis)} if ask.oasis else None,
                )
                prompt: Any = {"prompt_token_ids": list(ask.prompt)}
                self._llm.add_request(f"ask-{self._asked}", prompt, params)
            for output in self._llm.step():
                assert isinstance(output, RequestOutput)
                index = names[output.request_id]
                samples[index] |= {sample.index: sample for sample in output.outputs}
                cached[index] = output.num_cached_tokens or 0
                limit = asks[index].abort_after
                if limit is not None and len(output.outputs[0].token_ids) >= limit:
                    self._llm.abort_request([output.request_id])
            steps += 1
        while self._scheduler().has_requests():  # what ended reaches the worker with a step
            self._llm.step()
        return [_answer(samples[index], cached[index]) for index in range(len(asks))]

    def _scheduler(self) -> Any:
        core: Any = self._llm.engine_core
        return core.engine_core.scheduler

    def held(self) -> Held:
        """Raises AssertionError when the sparse engine's tables contradict each other."""

        def walk(worker: Any) -> tuple[int, int]:
            engine = worker.session.engine
            engine.check()
            arriving = int((engine.tables.state == SlotState.ARRIVING).sum())
            return len(engine.requests), arriving

        ((tracked, arriving),) = self._llm.collective_rpc(walk)
        scheduler = self._scheduler()
        pool = scheduler.kv_cache_manager.block_pool
        used = pool.num_gpu_blocks - 1 - pool.get_num_free_blocks()
        return Held(len(scheduler.requests), used, tracked, arriving)

    def metrics(self) -> str:
        """vLLM's /metrics."""
        from prometheus_client import REGISTRY, generate_latest

        return generate_latest(REGISTRY).decode()


def serve(pipe: Connection, setup: Setup) -> None:
    """Answer calls ``(method, arguments)`` with ``(fine, value or traceback)`` until the end."""
    try:
        engine = Engine(setup)
    except BaseException:  # noqa: BLE001 - raised in the test
        pipe.send((False, traceback.format_exc()))
        return
    pipe.send((True, None))
    while True:
        try:
            method, arguments = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send((True, getattr(engine, method)(*arguments)))
        except Exception:  # noqa: BLE001 - raised in the test
            pipe.send((False, traceback.format_exc()))


def _answer(samples: Mapping[int, Any], cached: int) -> Answer:
    ordered = [samples[index] for index in sorted(samples)]
    outputs = tuple(tuple(sample.token_ids) for sample in ordered)
    return Answer(outputs, cached, str(ordered[0].finish_reason))

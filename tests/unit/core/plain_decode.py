"""Answers of a small Llama through the engine core, in a process where no framework can be
imported; prints them as JSON. Run by ``test_without_framework``."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

REFUSED = ("vllm", "nixl", "nixl_cu12", "transformers", "sglang", "tensorrt_llm")


# Python refuses to import what is listed as None, installed or not.
sys.modules.update(dict.fromkeys(REFUSED))  # type: ignore[arg-type]

import torch  # noqa: E402

from bench.plain.decode import dense_greedy, greedy  # noqa: E402
from bench.plain.llama import Llama, Shape  # noqa: E402
from bench.plain.server import PlainServer, Sizes  # noqa: E402
from oasis_runtime.contract import PrefetchConfig, SelectionConfig  # noqa: E402
from oasis_runtime.core.tables import Tables  # noqa: E402
from oasis_runtime.kernels.contract import Kernels  # noqa: E402
from oasis_runtime.kernels.cpu import CpuKernels  # noqa: E402
from oasis_runtime.kernels.reference import ReferenceKernels  # noqa: E402

SHAPE = Shape(layers=3, heads=6, kv_heads=2, dim=32, hidden=96, inner=192, vocabulary=300)
BLOCK, TOKENS = 16, 24
ENOUGH, SMALL = 1024, 128
"""Budgets in tokens: more than any context here, and much less."""
UNBOUNDED = 2 * 64
BOUNDED = 2 * (SMALL // BLOCK + 1 + 3)
"""Slots a layer: for every block of every head, and for what one request may hold at a time."""


def serve(
    model: Llama, budget: int, slots: int, kernels: Callable[[Tables], Kernels] = CpuKernels
) -> PlainServer:
    selection = SelectionConfig(
        mode="sparse", budget_tokens=budget, sink_tokens=BLOCK, window_tokens=BLOCK
    )
    prefetch = PrefetchConfig(cap=1.0, wait_ms=60000)
    return PlainServer(model, Sizes(BLOCK, 64, slots), selection, prefetch, kernels)


def answer(
    server: PlainServer, prompt: list[int], tokens: int = TOKENS, chunk: int = 150
) -> list[int]:
    found = greedy(server, "r", prompt, tokens, chunk)
    server.engine.check()
    server.close()
    return found


def with_wrong_drafts(server: PlainServer, prompt: list[int]) -> list[int]:
    """As :func:`answer`, with a draft in every step that turns out to be wrong."""
    server.add("r", len(prompt))
    out = [int(server.step({"r": prompt})["r"][-1].argmax())]
    while len(out) < TOKENS:
        logits = server.step({"r": [out[-1], 7]})["r"]
        server.reject("r", 1)
        out.append(int(logits[0].argmax()))
    server.close()
    return out


def together(server: PlainServer, prompts: list[list[int]]) -> list[list[int]]:
    """Answers to prompts that are decoded in the same steps."""
    outs = []
    for name, prompt in enumerate(prompts):
        server.add(str(name), len(prompt))
        outs.append([int(server.step({str(name): prompt})[str(name)][-1].argmax())])
    while len(outs[0]) < TOKENS:
        logits = server.step({str(name): out[-1:] for name, out in enumerate(outs)})
        for name, out in enumerate(outs):
            out.append(int(logits[str(name)][-1].argmax()))
    server.close()
    return outs


def main() -> None:
    torch.set_num_threads(1)
    # In float64, so that the order of sums decides no token and no block.
    model = Llama.random(SHAPE, seed=0, dtype=torch.float64)
    generator = torch.Generator().manual_seed(1)
    long, other = (torch.randint(300, (n,), generator=generator).tolist() for n in (430, 260))
    bounded, unbounded = serve(model, SMALL, BOUNDED), serve(model, SMALL, UNBOUNDED)
    found = {
        "dense": dense_greedy(model, long, TOKENS),
        "enough": answer(serve(model, ENOUGH, UNBOUNDED), long),
        "drafted": with_wrong_drafts(serve(model, ENOUGH, UNBOUNDED), long),
        "bounded": answer(bounded, long),
        "unbounded": answer(unbounded, long),
        "together": together(serve(model, SMALL, 2 * UNBOUNDED), [long, other]),
        # In one step as well: a block that is summarised in two has wider bounds.
        "alone": [answer(serve(model, SMALL, UNBOUNDED), p, chunk=512) for p in (long, other)],
        "short": answer(serve(model, SMALL, BOUNDED), other, 6),
        "reference": answer(serve(model, SMALL, BOUNDED, ReferenceKernels), other, 6),
        "bounded loads": bounded.engine.statistics.moved_bytes["host", "fast", "prefetch"],
        "unbounded loads": unbounded.engine.statistics.moved_bytes["host", "fast", "prefetch"],
        "modules": [m for m in sys.modules if m.startswith("oasis_runtime.")],
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()

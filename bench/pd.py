"""What prefill/decode costs and saves: two servers beside one that does both, on one machine.

    python bench/pd.py [--model FOLDER] [--repeats 5]

All are real servers (``python -m oasis_runtime serve``) with the settings of
``examples/demo.yaml``; requests go to the pair as a router sends them. ``ttft_overhead_s_2k`` is
the median over prompts of 2,048 tokens of the time to the first token through the pair less the
time in one role, each prompt new to both and all servers warm. ``bytes_ratio_6k`` is the bytes that
a dense transfer of a prompt of 6,000 tokens would have moved over those moved at admission and on
demand until the end of an answer of 64 tokens. ``idle_cores_*`` is the CPU that an engine burns
without a request, ``keeping_cores`` what prefill burns while an export waits for its reader.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import result
from bench.command_line import parsed, parser_of
from oasis_runtime.contract import (
    EngineConfig,
    LinkConfig,
    Metric,
    Role,
    SelectionConfig,
    TierConfig,
    TransferConfig,
)
from tests.engine.inprocess.asks import Tokens
from tests.engine.metrics import Metrics
from tests.engine.prompts import Prose
from tests.engine.servers import NAME, Pair, Server, free_port, tokens_of

SHORT, LONG = 2048, 6000
ANSWER = 64
REPORT_SECONDS = 30.0
IDLE_SECONDS = 10.0


def server(model: Path, role: Role, folder: Path) -> Server:
    config = EngineConfig(
        model=str(model),
        served_model_name=NAME,
        role=role,
        dtype="bfloat16",
        max_model_len=8192,
        max_num_seqs=4,
        port=free_port(),
        tiers=TierConfig(host_bytes=512 << 20, fast_bytes=128 << 20),
        selection=SelectionConfig(budget_tokens=1024),
        links=LinkConfig(force=True),
        transfer=TransferConfig(port=free_port()),
    )
    return Server(config, folder)


def first_token_seconds(pair: Pair, single: Server, prompt: Tokens) -> tuple[float, float]:
    """Through the pair, and in one role."""
    start = time.perf_counter()
    with pair.streamed(prompt, 2) as tokens:
        next(tokens)
        through_pair = time.perf_counter() - start
        for _ in tokens:
            pass
    start = time.perf_counter()
    with single.streamed(prompt, 2) as tokens:
        next(tokens)
        alone = time.perf_counter() - start
        for _ in tokens:
            pass
    return through_pair, alone


def moved(pair: Pair, prompt: Tokens) -> Metrics:
    """What the decode engine counted for one answer."""
    before = pair.decode.metrics()
    tokens_of(pair.ask(prompt, ANSWER))
    pair.prefill.wait_for(lambda m: m.value(Metric.EXPORTS) == 0, REPORT_SECONDS, "no release")
    return pair.decode.metrics().since(before)


def cores(watched: Server) -> float:
    before = watched.cpu_seconds()
    time.sleep(IDLE_SECONDS)
    return (watched.cpu_seconds() - before) / IDLE_SECONDS


def idle(pair: Pair, single: Server, prompt: Tokens) -> dict[str, float]:
    """Cores that the engines burn without work; last what an unread export costs."""
    found = {
        "idle_cores_prefill": cores(pair.prefill),
        "idle_cores_decode": cores(pair.decode),
        "idle_cores_single": cores(single),
    }
    pair.prefilled(prompt)
    return found | {"keeping_cores": cores(pair.prefill)}


def measure(model: Path, repeats: int, folder: Path) -> dict[str, float]:
    prose = Prose.of(model)
    pair = Pair(server(model, Role.PREFILL, folder), server(model, Role.DECODE, folder))
    single = server(model, Role.BOTH, folder)
    try:
        pair.up()
        single.start()
        single.wait_until_healthy()
        first_token_seconds(pair, single, prose.passage(0, SHORT))
        times = [
            first_token_seconds(pair, single, prose.passage(1 + i, SHORT)) for i in range(repeats)
        ]
        counted = moved(pair, prose.passage(1 + repeats, LONG))
        quiet = idle(pair, single, prose.passage(2 + repeats, 500))
    finally:
        pair.stop()
        single.stop()
    return {
        "ttft_pd_s_2k": statistics.median(pd for pd, _ in times),
        "ttft_single_s_2k": statistics.median(alone for _, alone in times),
        "ttft_overhead_s_2k": statistics.median(pd - alone for pd, alone in times),
        **transfer(counted),
        **quiet,
    }


def transfer(counted: Metrics) -> dict[str, float]:
    def came(reason: str) -> float:
        return counted.value(Metric.TIER_BYTES, source="remote", target="host", reason=reason)

    dense = counted.value(Metric.DENSE_TRANSFER_BYTES)
    return {
        "dense_bytes_6k": dense,
        "admission_bytes_6k": came("admission"),
        "demand_bytes_6k": came("demand"),
        "bytes_ratio_6k": dense / (came("admission") + came("demand")),
        "resident_share_6k": counted.value(Metric.PAGES_RESIDENT)
        / counted.value(Metric.PAGES_SELECTED),
        "late_share_6k": counted.value(Metric.PAGES_LATE) / counted.value(Metric.PAGES_SELECTED),
        "mass_recall_6k": counted.mean(Metric.MASS_RECALL),
    }


def main(arguments: Sequence[str]) -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    options = parsed(parser, arguments)
    with tempfile.TemporaryDirectory() as folder:
        metrics = measure(options.model, options.repeats, Path(folder))
    for name, value in metrics.items():
        print(f"{name:22}{value:14.4f}")
    print(f"wrote {result.write('pd', metrics)}")


if __name__ == "__main__":
    main(sys.argv[1:])

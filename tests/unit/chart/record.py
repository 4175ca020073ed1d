"""Records what prefill engine, decode engine and router really expose, for the tests of queries.

``python -m tests.unit.chart.record`` starts them, sends requests through the router, lets some
fail, and writes ``expositions/*.prom``. Needed after an upgrade of vLLM or of the router, which
publish most series only once something was counted. Of a histogram's buckets only the last is
kept: queries name the label, never a bound.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from oasis_runtime.contract import (
    AuditConfig,
    Metric,
    Role,
    SelectionConfig,
    TierConfig,
    TransferConfig,
)
from testbed import model as models
from testbed import versions
from tests.engine.configs import engine_config
from tests.engine.inprocess.asks import Tokens
from tests.engine.prompts import Prose
from tests.engine.servers import NAME, Pair, Server, body, free_port, wait_until

FOLDER = Path(__file__).parent / "expositions"
_LEFT_OUT = re.compile(r'_bucket\{.*le="[^+]|[a-z]_created\b|^(# (HELP|TYPE) )?python_')


def shortened(text: str) -> str:
    """An exposition without the buckets below infinity and the times of creation."""
    lines = [line for line in text.splitlines() if line and not _LEFT_OUT.search(line)]
    return "\n".join(lines) + "\n"


def recorded_with() -> str:
    """First line of an exposition: what has to be the same for it to be true."""
    return f"# recorded with vllm {versions.VLLM}, vllm-router {versions.VLLM_ROUTER}\n"


def _pair(model: Path, folder: Path) -> Pair:
    def server(role: Role, fast_bytes: int) -> Server:
        config = engine_config(
            model,
            served_model_name=NAME,
            role=role,
            port=free_port(),
            tiers=TierConfig(host_bytes=900 << 20, fast_bytes=fast_bytes),
            selection=SelectionConfig(budget_tokens=512),
            audit=AuditConfig(every_steps=4),
            transfer=TransferConfig(port=free_port(), lease_seconds=5, heartbeat_seconds=1),
        )
        return Server(config, folder)

    return Pair(server(Role.PREFILL, 32 << 20), server(Role.DECODE, 300 << 20))


@dataclass(frozen=True)
class _Router:
    """Addresses of its API and of its metrics."""

    api: str
    metrics: str

    def ask(self, prompt: Tokens, tokens: int) -> httpx.Response:
        question = body(prompt, tokens, model=NAME)
        return httpx.post(f"{self.api}/v1/completions", json=question, timeout=240)

    def exposition(self) -> str:
        return httpx.get(self.metrics).text


@contextmanager
def _router(folder: Path, name: str, *mode: str) -> Iterator[_Router]:
    port, metrics_port = free_port(), free_port()
    command = [
        *("vllm-router", "--host=127.0.0.1", f"--port={port}", *mode),
        *("--prometheus-host=127.0.0.1", f"--prometheus-port={metrics_port}"),
    ]
    log = folder / f"{name}.log"
    with log.open("ab") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out)
    router = _Router(f"http://127.0.0.1:{port}", f"http://127.0.0.1:{metrics_port}/metrics")

    def ready() -> bool:
        assert process.poll() is None, log.read_text()[-3000:]
        try:
            return httpx.get(f"{router.api}/readiness").status_code == 200
        except httpx.TransportError:
            return False

    try:
        wait_until(ready, 60, f"{name} is not ready")
        yield router
    finally:
        process.terminate()
        process.wait()


def _recorded(pair: Pair, prose: Prose, folder: Path) -> Iterator[tuple[str, str]]:
    """Name and text of every exposition."""
    prefill, decode = (str(server.client.base_url) for server in (pair.prefill, pair.decode))
    split = ("--vllm-pd-disaggregation", "--prefill", prefill, "--decode", decode)
    with (
        _router(folder, "split", *split) as two,
        _router(folder, "plain", "--worker-urls", decode) as one,
    ):
        for number, length in enumerate((200, 3000)):
            two.ask(prose.passage(number, length), 64).raise_for_status()
        one.ask(prose.passage(5, 50), 4).raise_for_status()
        pair.decode.wait_for(
            lambda m: m.value(Metric.STEPS, mode="sparse") > 0, 60, "no sparse step"
        )
        yield "prefill", pair.prefill.client.get("/metrics").text
        yield "decode", pair.decode.client.get("/metrics").text
        for server in (pair.decode, pair.prefill):
            server.kill()
            for router in (two, one):
                assert router.ask(prose.passage(6, 50), 4).is_error
        yield "router-split", two.exposition()
        yield "router-plain", one.exposition()


def main() -> None:
    model = Path(os.environ.get("OASISKV_MODEL") or models.make())
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        pair = _pair(model, Path(name))
        try:
            pair.up()
            for component, text in _recorded(pair, Prose.of(model), Path(name)):
                (FOLDER / f"{component}.prom").write_text(recorded_with() + shortened(text))
                print(f"wrote {component}.prom")
        finally:
            pair.stop()


if __name__ == "__main__":
    main()

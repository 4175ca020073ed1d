"""Records what a real prefill and a real decode engine publish under a short load.

    python -m tests.unit.operator.autoscaling.record --model FOLDER

Writes ``recorded.om.gz``: OpenMetrics text with a time at every sample, in seconds from the start,
and the labels ``namespace`` and ``pod`` as Prometheus' discovery of pods sets them. Of what engines
publish it keeps the series that the operator's queries name. In the load three clients ask for
twelve answers; after it a prompt is prefilled that no decode engine takes up.
"""

from __future__ import annotations

import argparse
import gzip
import re
import tempfile
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from bench.pd import server
from oasis_operator.signals.queries import fleet_queries, queries
from oasis_runtime.contract import Role
from tests.engine.prompts import Prose
from tests.engine.servers import Pair, Server, tokens_of
from tests.unit.operator.make import deployment

FILE = Path(__file__).parent / "recorded.om.gz"
NAMESPACE = "team"
REVISION = "0123abcd"
PODS = {role: f"chat-{REVISION}-{role}-5d9f-x2x" for role in (Role.PREFILL, Role.DECODE)}
SCRAPE_SECONDS = 5.0
QUIET_SECONDS = 11.0
UNREAD_SECONDS = 16.0
CLIENTS, ANSWERS, TOKENS = 3, 12, 64
LENGTHS = (700, 2600, 1500)
SPARSE = {"vllm_xargs": {"oasis": {"mode": "sparse"}}}

Shot = tuple[float, Role, str]
"""Time, engine, and its exposition."""


def names() -> frozenset[str]:
    """Series that the operator asks for."""
    od = deployment()
    text = f"{asdict(queries(od, REVISION))} {asdict(fleet_queries(od, REVISION))}"
    return frozenset(re.findall(r"(?:oasis_|vllm:)[a-z_]+", text))


def open_metrics(shots: list[Shot]) -> str:
    """Every series with its samples in order of time."""
    start = min(at for at, _, _ in shots)
    kept = names()
    series: dict[str, list[str]] = {}
    for at, role, exposition in shots:
        for family in text_string_to_metric_families(exposition):
            for sample in family.samples:
                if sample.name in kept:
                    name = _series(sample.name, role, sample.labels)
                    series.setdefault(name, []).append(f"{name} {sample.value} {at - start:.3f}")
    return "".join(f"{line}\n" for name in sorted(series) for line in series[name])


def _series(name: str, role: Role, labels: Mapping[str, str]) -> str:
    pairs = {"namespace": NAMESPACE, "pod": PODS[role], **labels}.items()
    text = ",".join(f'{key}="{value}"' for key, value in pairs)
    return f"{name}{{{text}}}"


def record(pair: Pair, prose: Prose) -> list[Shot]:
    shots: list[Shot] = []
    stop = threading.Event()

    def scrape() -> None:
        engines: tuple[Server, ...] = (pair.prefill, pair.decode)
        while not stop.is_set():
            shots.extend(
                (time.time(), engine.config.role, engine.client.get("/metrics").text)
                for engine in engines
            )
            stop.wait(SCRAPE_SECONDS)

    def answer(number: int) -> None:
        prompt = prose.passage(1 + number, LENGTHS[number % len(LENGTHS)])
        tokens_of(pair.ask(prompt, TOKENS, **SPARSE))

    tokens_of(pair.ask(prose.passage(0, LENGTHS[0]), 4, **SPARSE))
    scraper = threading.Thread(target=scrape)
    scraper.start()
    try:
        time.sleep(QUIET_SECONDS)
        with ThreadPoolExecutor(CLIENTS) as clients:
            list(clients.map(answer, range(ANSWERS)))
        time.sleep(QUIET_SECONDS)
        pair.prefilled(prose.passage(1 + ANSWERS, LENGTHS[0]))
        time.sleep(UNREAD_SECONDS)
    finally:
        stop.set()
        scraper.join()
    return shots


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    model: Path = parser.parse_args().model
    with tempfile.TemporaryDirectory() as folder:
        roles = [server(model, role, Path(folder)) for role in PODS]
        pair = Pair(*roles)
        try:
            pair.up()
            shots = record(pair, Prose.of(model))
        finally:
            pair.stop()
    FILE.write_bytes(gzip.compress(open_metrics(shots).encode(), mtime=0))
    print(f"wrote {FILE.name}: {len(shots)} expositions, {FILE.stat().st_size} bytes")


if __name__ == "__main__":
    main()

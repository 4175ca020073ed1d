"""The real server over HTTP: one engine from its configuration file to SIGTERM."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from prometheus_client import Counter

from oasis_runtime.contract import Metric
from oasis_runtime.serve.arguments import RENDERERS
from oasis_runtime.vllm.metrics import LABEL_VALUES, SERIES
from testbed import model
from tests.engine.metrics import Metrics

START_SECONDS = 240
"""Measured 25 s on two idle cores; other work on the machine makes it slower."""
ANSWER_SECONDS = 120
STOP_SECONDS = 60

CONTEXT = 2048
BUDGET = 128
"""Small, so that a prompt of some 1,000 tokens is decoded sparsely."""
DRAINED_TOKENS = 24
"""More than come before the signal, few enough for the drain time on a busy machine."""

QUESTION = [{"role": "user", "content": "What is the capital of France? Answer in one word."}]
LONG = [{"role": "user", "content": "Repeat after me: " + "a quick brown fox, " * 220}]


@dataclass(frozen=True)
class Server:
    """A running engine."""

    process: subprocess.Popen[bytes]
    client: httpx.Client
    log: Path

    def chat(self, messages: list[dict[str, str]], **fields: Any) -> httpx.Response:
        body = {"model": "smol", "messages": messages, "temperature": 0, "max_tokens": 8}
        return self.client.post("/v1/chat/completions", json={**body, **fields})

    def answer(self, messages: list[dict[str, str]], **fields: Any) -> str:
        response = self.chat(messages, **fields)
        assert response.status_code == 200, response.text
        return str(response.json()["choices"][0]["message"]["content"])

    def metric(self, metric: str, **labels: str) -> float:
        """Sum of the samples of ``metric`` that have ``labels``; 0 when there are none."""
        total = 0.0
        for line in self.client.get("/metrics").text.splitlines():
            found = re.fullmatch(rf"{metric}\{{(.*)\}} (\S+)", line)
            if found and all(f'{name}="{value}"' in found[1] for name, value in labels.items()):
                total += float(found[2])
        return total

    def wait_for_metric(self, metric: Metric, above: float, **labels: str) -> None:
        """Counts reach /metrics with the engine's next report, some time after the answer."""
        deadline = time.monotonic() + ANSWER_SECONDS
        while (value := self.metric(metric, **labels)) <= above:
            assert time.monotonic() < deadline, f"{metric} {labels} stays at {value}"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("serve")
    port = free_port()
    config = {
        "model": os.environ.get("OASISKV_MODEL") or str(model.make()),
        "served_model_name": "smol",
        "max_model_len": CONTEXT,
        "max_num_seqs": 4,
        "port": port,
        "tiers": {"host_bytes": 256 << 20, "fast_bytes": 64 << 20},
        "selection": {"budget_tokens": BUDGET},
        "links": {"force": True},
    }
    (folder / "engine.yaml").write_text(yaml.safe_dump(config))
    log = folder / "serve.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "oasis_runtime", "serve", "--config", folder / "engine.yaml"],
            stdout=output,
            stderr=subprocess.STDOUT,
            # Children of the server die with it even if it is killed.
            start_new_session=True,
        )
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=ANSWER_SECONDS) as client:
            running = Server(process, client, log)
            wait_until_healthy(running)
            yield running
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def wait_until_healthy(server: Server) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        assert server.process.poll() is None, server.log.read_text()[-4000:]
        try:
            if server.client.get("/health").status_code == 200:
                return
        except httpx.TransportError:
            # Not listening yet: wait for the process to end or half a second to pass.
            try:
                server.process.wait(0.5)
            except subprocess.TimeoutExpired:
                continue
    pytest.fail(f"not healthy after {START_SECONDS} s:\n{server.log.read_text()[-4000:]}")


def test_every_counter_begins_at_zero_with_all_that_its_labels_can_be(server: Server) -> None:
    """Before anything is asked, so it stays the first test of the file."""
    counters = {metric for metric, series in SERIES.items() if series.kind is Counter}
    begun = Metrics.parse(server.client.get("/metrics").text)
    for metric in counters:
        own = {
            tuple(dict(labels)[name] for name in SERIES[metric].labels): value
            for (name, labels), value in begun.samples.items()
            if name == metric
        }
        assert own == dict.fromkeys(LABEL_VALUES.get(metric, ((),)), 0.0), metric


def test_a_question_is_answered(server: Server) -> None:
    assert "Paris" in server.answer(QUESTION)


@pytest.mark.parametrize(
    "fields",
    [
        {"top_k": 5, "temperature": 0.8, "seed": 1},
        {"top_p": 0.9, "temperature": 0.8, "seed": 1},
        {"logprobs": True, "top_logprobs": 2},
        {"prompt_logprobs": 1},
        {"frequency_penalty": 0.5, "presence_penalty": 0.5, "repetition_penalty": 1.1},
        {"response_format": {"type": "json_object"}},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_a_request_may_sample_as_it_likes(server: Server, fields: dict[str, Any]) -> None:
    response = server.chat(QUESTION, max_tokens=24, **fields)
    assert response.status_code == 200, response.text
    assert server.chat(LONG, max_tokens=24, **fields).status_code == 200


def test_a_long_prompt_is_decoded_sparsely_and_the_metrics_say_so(server: Server) -> None:
    before = server.metric(Metric.STEPS, mode="sparse")
    server.answer(LONG, max_tokens=32, ignore_eos=True)
    server.wait_for_metric(Metric.STEPS, before, mode="sparse")
    selected = server.metric(Metric.PAGES_SELECTED)
    assert 0 < server.metric(Metric.PAGES_RESIDENT) <= selected


@pytest.mark.parametrize(
    "options", [{"mode": "dense"}, '{"mode": "dense"}'], ids=["object", "text"]
)
def test_a_request_may_ask_for_dense_decoding(server: Server, options: object) -> None:
    sparse = server.metric(Metric.STEPS, mode="sparse")
    dense = server.metric(Metric.STEPS, mode="dense")
    server.answer(LONG, vllm_xargs={"oasis": options}, ignore_eos=True)
    server.wait_for_metric(Metric.STEPS, dense, mode="dense")
    assert server.metric(Metric.STEPS, mode="sparse") == sparse


@pytest.mark.parametrize("metric", list(Metric))
def test_every_metric_of_the_contract_is_published(server: Server, metric: Metric) -> None:
    assert f"# TYPE {metric} " in server.client.get("/metrics").text


def test_what_was_found_at_start_is_on_the_metrics(server: Server) -> None:
    log = server.log.read_text()
    verdicts = {"aligned": 1, "misaligned": 0, "unknown": -1}
    found = re.search(r"NUMA (\w+): ", log)
    measured = re.search(r"copies ([\d.]+) GB/s", log)
    assert found
    assert measured
    server.answer(QUESTION)
    server.wait_for_metric(Metric.LINK_BANDWIDTH, 0, link="host_fast")
    assert server.metric(Metric.LINK_ENABLED, link="host_fast") == 1
    assert server.metric(Metric.LINK_ENABLED, link="network") == 0
    assert server.metric(Metric.NUMA_ALIGNED) == verdicts[found[1]]


@pytest.mark.parametrize(
    "params",
    [
        "yes",
        [],
        {"do_remote_prefill": "true"},
        {"do_remote_prefill": True},
        {"do_remote_prefill": True, "do_remote_decode": True},
        {"do_remote_decode": True, "oasis": {"version": "one", "generation": None}},
        {"remote_block_ids": [[-1]]},
    ],
    ids=json.dumps,
)
@pytest.mark.parametrize("stream", [False, True])
def test_malformed_transfer_parameters_are_refused_and_the_engine_lives(
    server: Server, params: object, stream: bool
) -> None:
    response = server.chat(QUESTION, kv_transfer_params=params, stream=stream)
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["message"].startswith("kv_transfer_params")
    assert (error["type"], error["code"]) == ("BadRequestError", 400)
    assert "Paris" in server.answer(QUESTION)


def test_an_engine_in_one_role_keeps_nothing_for_a_peer(server: Server) -> None:
    response = server.chat(LONG, max_tokens=1, kv_transfer_params={"do_remote_decode": True})
    assert response.status_code == 200, response.text
    assert response.json()["kv_transfer_params"] is None
    # Its blocks are free again.
    deadline = time.monotonic() + ANSWER_SECONDS
    while server.metric("vllm:kv_cache_usage_perc") > 0:
        assert time.monotonic() < deadline, "blocks of no request stay in use"
        server.answer(QUESTION)


def test_options_beyond_the_engines_budget_are_refused(server: Server) -> None:
    response = server.chat(QUESTION, vllm_xargs={"oasis": {"budget_tokens": 2 * BUDGET}})
    assert response.status_code == 400
    assert f"this engine is configured for {BUDGET}" in response.json()["error"]["message"]


def test_a_prompt_longer_than_the_model_takes_is_refused_and_the_engine_lives(
    server: Server,
) -> None:
    response = server.chat([{"role": "user", "content": "word " * (2 * CONTEXT)}])
    assert response.status_code == 400
    assert str(CONTEXT) in response.json()["error"]["message"]
    assert "Paris" in server.answer(QUESTION)


ODD_BODIES = (
    b'{"model": "smol", "prompt": "a", "max_tokens": 1, "kv_transfer_params": {"remote_port": -1}}',
    b'{"model": "smol", "prompt": "a", "max_tokens": 1, "vllm_xargs": {"kv_transfer_params": "x"}}',
    b'{"model": "smol", "prompt": "a", "max_tokens": 1, "vllm_xargs": {"x": "\\ud800"}}',
    b'{"model": "smol", "prompt": "a", "max_tokens": 1, "vllm_xargs": {"oasis": "zz"}}',
    b'{"model": "smol", "token_ids": [1], "sampling_params": {"extra_args": {"oasis": "zz"}}}',
    b'{"model": "smol", "prompt": "a", "max_tokens": ' + b"9" * 5000 + b"}",
    b"[" * 100000,
)


def test_no_path_of_the_server_takes_a_request_unchecked(server: Server) -> None:
    """The paths are those that vLLM lists at its start, of this version with these arguments."""
    routes = re.findall(r"Route: (\S+), Methods: (.*)", server.log.read_text())
    paths = {path for path, methods in routes if "POST" in methods}
    assert {"/v1/completions", "/v1/chat/completions/render", "/invocations"} <= paths
    answers = {
        (path, body[:90]): server.client.post(
            re.sub(r"\{\w+\}", "x", path),
            content=body,
            headers={"content-type": "application/json"},
        ).status_code
        for path in paths
        for body in ODD_BODIES
    }
    assert {asked: status for asked, status in answers.items() if status != 400} == {}
    log = server.log.read_text()
    assert '"POST /v1/completions HTTP' in log
    assert [path for path in RENDERERS if f'"POST {path} HTTP' in log] == []
    assert "Paris" in server.answer(QUESTION)


def test_what_is_no_json_gets_vllms_own_answer(server: Server) -> None:
    response = server.client.post(
        "/v1/chat/completions", content=b"{", headers={"content-type": "application/json"}
    )
    assert response.status_code == 400


def test_sigterm_lets_a_stream_end_and_then_exits_cleanly(server: Server) -> None:
    """Ends the server, so it stays the last test of the file."""
    body = {
        "model": "smol",
        "messages": QUESTION,
        "max_tokens": DRAINED_TOKENS,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    with server.client.stream("POST", "/v1/chat/completions", json=body) as response:
        lines = response.iter_lines()
        next(line for line in lines if "content" in line)
        server.process.terminate()
        rest = [line.removeprefix("data: ") for line in lines if line]
    assert rest[-1] == "[DONE]"
    assert json.loads(rest[-2])["usage"]["completion_tokens"] == DRAINED_TOKENS
    assert server.process.wait(STOP_SECONDS) == 0

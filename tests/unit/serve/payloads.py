"""A payload as the entry point makes it, for the tests here."""

from __future__ import annotations

from typing import Any

from oasis_runtime.contract import EngineConfig, LinkConfig
from oasis_runtime.serve.payload import EnginePayload
from oasis_runtime.tiers import links, numa


def payload(**settings: Any) -> EnginePayload:
    config = EngineConfig(**{"model": "/models/x", **settings})
    return EnginePayload(
        config=config,
        links=links.LinkReport(
            links.judge_host_fast(60e9, LinkConfig()),
            links.judge_network(config.role, links.NetworkSpeed("eth0", 100e9), LinkConfig()),
        ),
        numa=numa.NumaReport(numa.Verdict.ALIGNED, "all on NUMA node 0", 0, bound=True),
        weights="0123456789abcdef",
    )

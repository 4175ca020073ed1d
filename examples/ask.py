"""Asks an OasisDeployment one question about a long document, and says what it cost.

    python examples/ask.py --url http://demo-router.default:8080/v1 \
        --prometheus http://prometheus.monitoring:9090 --namespace default --name demo

The client is the ordinary ``openai`` one. The figures are the difference that the request made in
Prometheus.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass

from openai import APIStatusError, OpenAI

QUESTION = "Which ship brought the cargo of copper wire, and on which day?"
PLACES = ("Lisbon", "Odessa", "Bergen", "Genoa", "Halifax", "Valparaiso", "Aden", "Macau")
SHIPS = ("Albatross", "Meridian", "Juniper", "Sextant", "Kestrel", "Halcyon", "Tamarind")
GOODS = ("oranges", "timber", "coal", "tea", "salted fish", "window glass", "wool", "bricks")
WEATHER = ("fog", "a fresh breeze", "rain", "clear sky", "a falling barometer", "heavy swell")

SETTLE_SECONDS = 5.0
"""Counts of an answer that has ended are on the engine's metrics well before this."""
SCRAPE_SECONDS = 90.0
"""Prometheus' usual minute between scrapes, and some more."""


def logbook(entries: int) -> str:
    """A harbour master's log of ``entries`` days; on one of them a ship brings copper wire."""
    lines = ["Log of the harbour master.", ""]
    for day in range(1, entries + 1):
        place = PLACES[day * 3 % len(PLACES)]
        cargo = "copper wire" if day == asked_day(entries) else GOODS[day * 7 % len(GOODS)]
        lines.append(
            f"Day {day}: {WEATHER[day % len(WEATHER)]} in the morning. The {ship(day)} came in "
            f"from {place} with a cargo of {cargo} and left berth {day % 9 + 1} before night."
        )
    return "\n".join(lines)


def ship(day: int) -> str:
    return SHIPS[day * 5 % len(SHIPS)]


def asked_day(entries: int) -> int:
    return entries // 3


def right_answer(entries: int) -> str:
    """What a model that reads the log well says."""
    day = asked_day(entries)
    return f"The {ship(day)}, on day {day}."


@dataclass(frozen=True)
class Prometheus:
    """Reads sums of engine counters over the pods of one deployment."""

    url: str
    namespace: str
    name: str

    def query(self, promql: str) -> Mapping[tuple[str, ...], float]:
        """Values by their labels' values; empty where no series matches."""
        target = f"{self.url}/api/v1/query?{urllib.parse.urlencode({'query': promql})}"
        with urllib.request.urlopen(target, timeout=10) as answer:
            result = json.load(answer)["data"]["result"]
        return {tuple(r["metric"].values()): float(r["value"][1]) for r in result}

    def one(self, metric: str, **labels: str) -> float:
        """Sum of a metric over the decode pods, 0 where there is no such series."""
        return self.query(f"sum ({self._decode(metric, **labels)})").get((), 0.0)

    def last_scrape(self) -> float:
        """When the decode pod that has waited longest was scraped, in Prometheus' Unix time.

        0 where none was.
        """
        series = self._decode("oasis_request_steps_total")
        return self.query(f"min (timestamp({series}))").get((), 0.0)

    def _decode(self, metric: str, **labels: str) -> str:
        matchers = [f'namespace="{self.namespace}"', f'pod=~"{self.name}-[0-9a-f]+-decode-.*"']
        matchers += [f'{key}="{value}"' for key, value in labels.items()]
        return f"{metric}{{{','.join(matchers)}}}"


COUNTERS: tuple[tuple[str, str, dict[str, str]], ...] = (
    ("selected", "oasis_pages_selected_total", {}),
    ("resident", "oasis_pages_resident_total", {}),
    ("late", "oasis_pages_late_total", {}),
    ("predicted", "oasis_pages_predicted_total", {}),
    ("agreed", "oasis_pages_agreed_total", {}),
    ("recall_sum", "oasis_attention_mass_recall_sum", {}),
    ("recall_count", "oasis_attention_mass_recall_count", {}),
    ("error_sum", "oasis_attention_output_error_sum", {}),
    ("dense_bytes", "oasis_dense_transfer_bytes_total", {}),
    ("admission", "oasis_tier_bytes_total", {"source": "remote", "reason": "admission"}),
    ("demand", "oasis_tier_bytes_total", {"source": "remote", "reason": "demand"}),
    ("sparse_steps", "oasis_request_steps_total", {"mode": "sparse"}),
    ("dense_steps", "oasis_request_steps_total", {"mode": "dense"}),
)


def snapshot(prometheus: Prometheus) -> dict[str, float]:
    return {name: prometheus.one(metric, **labels) for name, metric, labels in COUNTERS}


def settled(prometheus: Prometheus, before: Mapping[str, float]) -> dict[str, float]:
    """What has been added to the counters, once Prometheus has all of a request that is answered.

    That is when every decode pod was scraped some seconds later than now: counts take a moment to
    reach an engine's metrics, and how often Prometheus scrapes is not ours to say.

    Raises TimeoutError when no such scrape comes.
    """
    answered = prometheus.query("vector(time())")[()]
    deadline = time.monotonic() + SCRAPE_SECONDS
    while prometheus.last_scrape() < answered + SETTLE_SECONDS:
        if time.monotonic() > deadline:
            raise TimeoutError("Prometheus has not scraped the decode pods since the answer")
        time.sleep(0.5)
    return {name: value - before[name] for name, value in snapshot(prometheus).items()}


def ratio(part: float, whole: float) -> str:
    return f"{part / whole:.3f}" if whole else "no sample"


def size(count: float) -> str:
    return f"{count / 2**20:.1f} MiB"


def ask(url: str, document: str, max_tokens: int, **extra: object) -> tuple[str, int, float]:
    """Stream the answer to standard output; its text, the prompt's tokens, seconds to the first.

    ``extra``: parameters that vLLM has and OpenAI has not.

    Raises APIStatusError when the router refuses.
    """
    client = OpenAI(base_url=url, api_key="unused", max_retries=1, timeout=600)
    model = client.models.list().data[0].id
    start = time.monotonic()
    stream = client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": f"{document}\n\nQuestion: {QUESTION}"}],
        max_tokens=max_tokens,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
        extra_body=extra,
    )
    words, tokens, first = [], 0, 0.0
    for chunk in stream:
        if chunk.usage is not None:
            tokens = chunk.usage.prompt_tokens
        if chunk.choices and chunk.choices[0].delta.content:
            first = first or time.monotonic() - start
            words.append(chunk.choices[0].delta.content)
            print(words[-1], end="", flush=True)
    print()
    return "".join(words), tokens, first


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--url", required=True, help="the router's OpenAI API")
    parser.add_argument("--prometheus", help="without it, only the answer is printed")
    parser.add_argument("--namespace", default="default")
    parser.add_argument("--name", default="demo", help="the OasisDeployment")
    parser.add_argument("--entries", type=int, default=170, help="days in the log; 36 tokens each")
    parser.add_argument("--max-tokens", type=int, default=64)
    options = parser.parse_args()
    prometheus = None
    if options.prometheus is not None:
        prometheus = Prometheus(options.prometheus, options.namespace, options.name)
    before = {} if prometheus is None else snapshot(prometheus)
    print(f"question   {QUESTION}\nanswer     ", end="")
    try:
        _, tokens, first = ask(options.url, logbook(options.entries), options.max_tokens)
    except APIStatusError as error:
        print(f"\nthe router answered {error.status_code}: {error.message}", file=sys.stderr)
        return 1
    print(f"in the log {right_answer(options.entries)}")
    rows = [("prompt tokens", str(tokens)), ("time to first token", f"{first:.1f} s")]
    if prometheus is not None:
        try:
            rows += cost(prometheus, settled(prometheus, before))
        except TimeoutError as late:
            print(f"\n{late}, so what it cost is not known", file=sys.stderr)
    print()
    for label, value in rows:
        print(f"{label:26}{value:>24}")
    return 0


def cost(prometheus: Prometheus, used: Mapping[str, float]) -> list[tuple[str, str]]:
    """What the request made of the counters, as rows of a table."""
    sparse, dense = used["sparse_steps"], used["dense_steps"]
    moved = used["admission"] + used["demand"]
    blocks = prometheus.one("oasis_resident_blocks_per_head")
    aligned = {1.0: "aligned", 0.0: "not aligned", -1.0: "unknown"}
    numa = prometheus.query(
        f'min (oasis_numa_aligned{{namespace="{prometheus.namespace}",'
        f'pod=~"{prometheus.name}-[0-9a-f]+-.*"}})'
    )
    return [
        ("KV of a dense transfer", size(used["dense_bytes"])),
        ("KV moved at admission", size(used["admission"])),
        ("KV moved on demand", size(used["demand"])),
        ("dense / moved", f"{used['dense_bytes'] / moved:.1f}x" if moved else "nothing moved"),
        ("blocks resident per head", f"{blocks:.0f}"),
        ("residency hit", ratio(used["resident"], used["selected"])),
        ("prediction agreement", ratio(used["agreed"], used["predicted"])),
        ("late fraction", ratio(used["late"], used["selected"])),
        ("attention mass recall", ratio(used["recall_sum"], used["recall_count"])),
        ("attention output error", ratio(used["error_sum"], used["recall_count"])),
        ("mode", f"{sparse:.0f} steps sparse, {dense:.0f} dense"),
        ("NUMA", aligned.get(next(iter(numa.values()), -1.0), "unknown")),
    ]


if __name__ == "__main__":
    sys.exit(main())

"""``examples/ask.py`` reads its figures when all of the request is in them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlparse

import pytest

from examples.ask import (
    COUNTERS,
    SETTLE_SECONDS,
    Prometheus,
    logbook,
    right_answer,
    settled,
    snapshot,
)

ANSWERED = 1_000.0


@dataclass
class Scrapes:
    """A Prometheus whose next scrape comes with every query for its time."""

    ages: list[float]
    """When the scrapes to come were made, in seconds after the answer."""
    late: float
    """After this much counters hold the whole request, before it half."""
    queries: list[str] = field(default_factory=list)

    def value(self, query: str) -> float:
        self.queries.append(query)
        if query == "vector(time())":
            return ANSWERED
        if "timestamp" in query and len(self.ages) > 1:
            self.ages.pop(0)
        if "timestamp" in query:
            return ANSWERED + self.ages[0]
        return 10.0 if self.ages[0] >= self.late else 5.0


@pytest.mark.parametrize("entries", [20, 170, 171, 500])
def test_the_right_answer_is_what_the_one_line_about_copper_wire_says(entries: int) -> None:
    (line,) = [line for line in logbook(entries).splitlines() if "copper wire" in line]
    ship, _, day = right_answer(entries).removeprefix("The ").rstrip(".").partition(", on day ")
    assert line.startswith(f"Day {day}: ")
    assert f"The {ship} came in" in line


@pytest.fixture
def scrapes() -> Scrapes:
    return Scrapes(ages=[-1.0, 1.0, 3.0, 6.0], late=SETTLE_SECONDS - 1)


@pytest.fixture
def prometheus(scrapes: Scrapes) -> Iterator[Prometheus]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            (query,) = parse_qs(urlparse(self.path).query)["query"]
            result = [{"metric": {}, "value": [0, str(scrapes.value(query))]}]
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"data": {"result": result}}).encode())

        def log_message(self, *_: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield Prometheus(f"http://127.0.0.1:{server.server_port}", "default", "demo")
        server.shutdown()


def test_a_scrape_soon_after_the_answer_is_not_believed(prometheus: Prometheus) -> None:
    before = snapshot(prometheus)
    assert settled(prometheus, before) == dict.fromkeys((name for name, *_ in COUNTERS), 5.0)


def test_the_pod_that_was_scraped_first_does_not_speak_for_the_others(
    prometheus: Prometheus, scrapes: Scrapes
) -> None:
    prometheus.last_scrape()
    assert scrapes.queries[-1].startswith("min (timestamp(")


def test_without_a_scrape_it_says_so(
    prometheus: Prometheus, scrapes: Scrapes, monkeypatch: pytest.MonkeyPatch
) -> None:
    scrapes.ages = [1.0]
    monkeypatch.setattr("examples.ask.SCRAPE_SECONDS", 0.1)
    with pytest.raises(TimeoutError, match="has not scraped the decode pods since the answer"):
        settled(prometheus, snapshot(prometheus))

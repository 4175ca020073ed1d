"""Runs the whole test suite in stages: ``python3 -m tests.run [STAGE ...]``.

Standard library only, because it starts on a machine where nothing is installed yet. Each stage
prints how long it took; the last line is ``N passed, N failed, N skipped`` over all of them,
or, where none of them has tests, what was checked.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from testbed import cache, environment, model, packages, programs
from testbed.problem import Problem

CHECKOUT = Path(__file__).resolve().parents[1]
CODE = ("charts", "operator", "runtime", "testbed", "tests", "bench", "examples")
ENGINE_TESTS = CHECKOUT / "tests/engine"
SERVERS = ("test_pd", "test_serve")
"""Files of ``ENGINE_TESTS`` whose engines are servers of their own: half of the time."""
TYPED = (
    "oasis_operator",
    "oasis_runtime",
    "testbed",
    "charts.dashboards",
    "bench",
    "tests",
)
"""With ``bench`` and ``tests``: recordings by hand and benchmarks take minutes until they fail."""


@dataclass
class Tally:
    """Tests over all stages. ``broken``: stages that failed without a failing test."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    broken: list[str] = field(default_factory=list)
    checks: dict[str, bool] = field(default_factory=dict)
    """What else was checked, and whether all was well."""

    @property
    def failures(self) -> int:
        """A stage that failed without a failing test (a linter, a build) counts as one."""
        return max(self.failed, len(self.broken)) if self.broken else self.failed

    def closing(self) -> str:
        """The last line."""
        if self.passed + self.failed + self.skipped == 0 and self.checks:
            wrong = [name for name, well in self.checks.items() if not well]
            if wrong:
                return f"{', '.join(wrong)}: something is wrong, see above"
            if not self.broken:
                return f"{', '.join(self.checks)}: nothing is wrong"
        return f"{self.passed} passed, {self.failures} failed, {self.skipped} skipped"

    def add(self, report: Path) -> None:
        for suite in ElementTree.parse(report).getroot().iter("testsuite"):
            total = int(suite.get("tests", 0))
            failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
            skipped = int(suite.get("skipped", 0))
            self.passed += total - failed - skipped
            self.failed += failed
            self.skipped += skipped


class Suite:
    """What the stages share: the environment, the builds under way, the tally."""

    def __init__(self) -> None:
        self.tally = Tally()
        self.times: list[tuple[str, float]] = []
        self._pool = ThreadPoolExecutor(1)
        self._builds: Future[object] | None = None

    def python(self) -> str:
        return str(environment.python(environment.make()))

    def start_builds(self) -> None:
        """Compile what the later stages need, beside the stages that do not need it."""
        if self._builds is None and not os.environ.get(programs.ASSETS_VARIABLE):
            self._builds = self._pool.submit(programs.build_all, programs.MODULES)

    def await_builds(self) -> None:
        if self._builds is not None:
            self._builds.result()

    def run(self, stage: str, *words: str, inside: Sequence[str] = ()) -> bool:
        """Run a command, and whether it succeeded; a failure is noted and other stages go on."""
        print(f"$ {shlex.join(words)}", flush=True)
        done = subprocess.run([*inside, *words], cwd=CHECKOUT, env=self.variables())
        return self._note(stage, done.returncode)

    def check(self, stage: str, name: str, *arguments: str) -> None:
        """Run a linter, a module of Python; ``name`` is it with what the closing line says."""
        words = [*name.split(), *arguments]
        self.tally.checks[name] = self.run(stage, self.python(), "-m", *words)

    def pytest(self, stage: str, *paths: str, inside: Sequence[str] = ()) -> None:
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report.xml"
            self.run(stage, *self._pytest(report, paths), inside=inside)
            self._count(report)

    def pytest_beside(self, stage: str, paths: Sequence[str], others: Sequence[str]) -> None:
        """Two runs at the same time; what the second prints follows when both are done."""
        with tempfile.TemporaryDirectory() as folder:
            reports = [Path(folder) / name for name in ("first.xml", "second.xml")]
            printed = Path(folder) / "second.log"
            words = self._pytest(reports[1], others)
            with printed.open("wb") as log:
                second = subprocess.Popen(
                    words, cwd=CHECKOUT, env=self.variables(), stdout=log, stderr=log
                )
            self.run(stage, *self._pytest(reports[0], paths))
            self._note(stage, second.wait())
            print(f"$ {shlex.join(words)}\n{printed.read_text()}", flush=True)
            for report in reports:
                self._count(report)

    def _pytest(self, report: Path, paths: Sequence[str]) -> Sequence[str]:
        return [self.python(), "-m", "pytest", "-q", f"--junitxml={report}", *paths]

    def _count(self, report: Path) -> None:
        if report.exists():
            self.tally.add(report)

    def _note(self, stage: str, status: int) -> bool:
        if status != 0 and stage not in self.tally.broken:
            self.tally.broken.append(stage)
        return status == 0

    def variables(self) -> Mapping[str, str]:
        return {**os.environ, "OASISKV_MODEL": str(model.make()), "PYTHONUNBUFFERED": "1"}


def prepare(suite: Suite) -> None:
    packages.install(packages.PURPOSES)
    suite.start_builds()
    environment.link(environment.make())
    model.make()


def lint(suite: Suite) -> None:
    code = [name for name in CODE if (CHECKOUT / name).exists()]
    suite.check("lint", "ruff check", *code)
    suite.check("lint", "ruff format --check", *code)
    names = [word for name in TYPED for word in ("-p", name)]
    # Outside the checkout: a clean one then checks only what changed since the last.
    kept = str(cache.root() / "mypy")
    suite.check("lint", "mypy --strict", "--cache-dir", kept, *names)


def unit(suite: Suite) -> None:
    # Made here: a build of minutes must not count as the time of the test that comes first.
    programs.find(("helm", "prometheus", "promtool"))
    suite.pytest("unit", "tests/unit")


def controlplane(suite: Suite) -> None:
    suite.await_builds()
    suite.pytest("controlplane", "tests/controlplane")


def engine(suite: Suite) -> None:
    suite.await_builds()
    # An engine computes on one thread here, and servers wait for each other: two runs fit.
    files = {path.name: str(path.relative_to(CHECKOUT)) for path in ENGINE_TESTS.glob("test_*.py")}
    servers = sorted(file for name, file in files.items() if name.startswith(SERVERS))
    suite.pytest_beside("engine", sorted(set(files.values()) - set(servers)), servers)


def e2e(suite: Suite) -> None:
    suite.await_builds()
    bed = [sys.executable, "-m", "testbed"]
    # What an earlier run left there would take the room of the tests' engines.
    suite.run("e2e", *bed, "down")
    suite.run("e2e", *bed, "up")
    try:
        suite.run("e2e", *bed, "images", "--load")
        suite.run("e2e", *bed, "model", "--offer")
        suite.run("e2e", *bed, "prometheus")
        suite.pytest("e2e", "tests/e2e", inside=[*bed, "exec", "--"])
    finally:
        suite.run("e2e", *bed, "down")


def crds(suite: Suite) -> None:
    suite.run("crds", suite.python(), "-m", "oasis_operator.api.generate")


STAGES: Mapping[str, Callable[[Suite], None]] = {
    "prepare": prepare,
    "lint": lint,
    "unit": unit,
    "controlplane": controlplane,
    "e2e": e2e,
    "engine": engine,
}
EXTRA: Mapping[str, Callable[[Suite], None]] = {"crds": crds}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python3 -m tests.run", description=__doc__)
    parser.add_argument("stages", nargs="*", choices=[[], *STAGES, *EXTRA], metavar="STAGE")
    chosen = parser.parse_args().stages
    suite = Suite()
    for name in ["prepare", *chosen] if chosen else STAGES:
        print(f"\n== {name}", flush=True)
        start = time.monotonic()
        try:
            ({**STAGES, **EXTRA}[name])(suite)
        except Problem as problem:
            print(f"{name}: {problem}", file=sys.stderr, flush=True)
            suite.tally.broken.append(name)
        suite.times.append((name, time.monotonic() - start))
        print(f"== {name} took {suite.times[-1][1]:.0f} s", flush=True)
    return report(suite)


def report(suite: Suite) -> int:
    tally = suite.tally
    print()
    for name, seconds in suite.times:
        print(f"{name:14}{seconds:7.0f} s{'   FAILED' if name in tally.broken else ''}")
    print(tally.closing(), flush=True)
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main())

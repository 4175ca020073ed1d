"""What the documentation says agrees with the code that it is about."""

from __future__ import annotations

import ast
import re
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from markdown_it import MarkdownIt
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from bench import readme
from oasis_operator.api.spec import Resources, SecretKey, Spec
from oasis_operator.cluster.store import Store
from oasis_operator.fleet import Fleet
from oasis_operator.metrics import OperatorMetrics
from oasis_operator.topology.probe import UNSATISFIABLE, Verdict
from oasis_runtime.contract import EngineConfig, Metric, RequestOptions
from oasis_runtime.serve.transfer_params import TransferParams
from tests.unit.core.reasons import fallback_reasons
from tests.unit.operator.make import built, deployment

ROOT = Path(__file__).parents[3]
PAGES = sorted(
    path
    for pattern in ("README.md", "*/README.md", "*/*/README.md", "docs/*.md", "docs/*/*.md")
    for path in ROOT.glob(pattern)
    if "build" not in path.parts
)
DOCS = ROOT / "docs"


def table(page: Path, heading: str) -> list[list[str]]:
    """Cells of the first table under a heading, without its head."""
    lines = page.read_text().splitlines()
    start = next(i for i, line in enumerate(lines) if line.lstrip("# ") == heading)
    rows: list[list[str]] = []
    for line in lines[start + 1 :]:
        if line.startswith("|"):
            rows.append([cell.strip() for cell in line.strip("|").split("|")])
        elif rows or line.startswith("#"):
            break
    return rows[2:]


def names(page: Path, heading: str) -> set[str]:
    """What stands in backticks in the table's first column."""
    return {name for row in table(page, heading) for name in re.findall(r"`([^`]+)`", row[0])}


def anchors(page: Path) -> set[str]:
    """Of the headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        link = urllib.parse.urlsplit(target)
        if link.scheme:
            continue
        file = (page.parent / link.path).resolve() if link.path else page
        assert file.exists(), target
        if link.fragment:
            assert link.fragment in anchors(file), target


def published() -> set[str]:
    """Names of all series: a histogram's three besides its own."""
    histograms = (Metric.MASS_RECALL, Metric.OUTPUT_ERROR)
    found = {metric.value for metric in Metric}
    found |= {f"{name}_{part}" for name in histograms for part in ("sum", "count", "bucket")}
    for family in (*OperatorMetrics().registry.collect(), *Fleet(Store()).collect()):
        suffixes = {"counter": ("_total",), "histogram": ("", "_bucket", "_sum", "_count")}
        found |= {family.name + suffix for suffix in suffixes.get(family.type, ("",))}
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_metric_named_exists(page: Path) -> None:
    words = set(re.findall(r"(?<![\w/])oasis_[a-z_]+(?!\w|\.cpp)", page.read_text()))
    packages = {"oasis_runtime", "oasis_operator"}
    assert words - packages - published() == set()


def test_every_metric_of_the_engine_is_described() -> None:
    assert names(DOCS / "engine.md", "Metrics") == {metric.value for metric in Metric}


def settings(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted names of a model's values as they are written, and their defaults."""
    leaves = (SecretKey, Resources)
    for name, field in model.model_fields.items():
        path = f"{prefix}{field.alias or name}"
        inner = next(
            (
                kind
                for kind in (field.annotation, *get_args(field.annotation))
                if isinstance(kind, type) and issubclass(kind, BaseModel)
            ),
            None,
        )
        if inner is None or issubclass(inner, leaves) or path == "prefill":
            absent = field.default in (PydanticUndefined, None)
            yield path, None if absent else field.default
        else:
            yield from settings(inner, f"{path}.")


def documented(page: Path, heading: str) -> dict[str, Any]:
    """Settings of a table whose second column is the default."""
    return {
        row[0].strip("`"): yaml.safe_load(row[1].strip("`") or "null")
        for row in table(page, heading)
    }


def plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def test_the_table_of_engine_yaml_has_every_setting_and_its_default() -> None:
    expected = {name: plain(default) for name, default in settings(EngineConfig)}
    assert documented(DOCS / "engine.md", "engine.yaml") == expected


def test_the_table_of_request_options_has_every_option() -> None:
    assert names(DOCS / "engine.md", "Options of a request") == {*RequestOptions.model_fields}


def test_the_table_of_the_oasis_deployment_has_fields_that_exist_and_their_defaults() -> None:
    given = documented(DOCS / "deploy.md", "The OasisDeployment")
    assert given == {name: default for name, default in settings(Spec) if name in given}


def test_the_table_of_kv_transfer_params_has_every_field() -> None:
    assert names(DOCS / "transfer.md", "kv_transfer_params") == {*TransferParams.model_fields}


REASON_AT = {
    "Notice": 0,
    "Draft": 2,
    "draft": 1,
    "Problem": 0,
    "NoSignals": 0,
    "failed": 0,
    "Obstacle": 0,
}
"""Functions of the operator that make a condition, and where they take its reason."""


def reasons() -> set[str]:
    """Every reason that the operator's code can give."""
    found: set[Any] = {verdict.value for verdict in (*UNSATISFIABLE, Verdict.BUSY)}
    for file in (ROOT / "operator").rglob("*.py"):
        tree = ast.parse(file.read_text())
        constants = {
            node.targets[0].id: node.value.value
            for node in tree.body
            if isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and isinstance(node.value, ast.Constant)
        }
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            at = REASON_AT.get(node.func.id)
            if at is None or len(node.args) <= at:
                continue
            reason = node.args[at]
            if isinstance(reason, ast.Constant):
                found.add(reason.value)
            elif isinstance(reason, ast.Name) and reason.id in constants:
                found.add(constants[reason.id])
    return found


def test_the_table_of_conditions_has_every_reason_and_no_other() -> None:
    assert names(DOCS / "conditions.md", "Reasons") == reasons()


def test_the_table_of_events_has_every_decision() -> None:
    folder = ROOT / "operator/oasis_operator/reconcile"
    given = {
        node.args[0].value
        for name in ("decisions.py", "scaling.py")
        for node in ast.walk(ast.parse((folder / name).read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "Decision"
        and isinstance(node.args[0], ast.Constant)
    }
    assert names(DOCS / "observability.md", "Events") == given


def test_the_table_of_fallbacks_has_every_reason_that_the_engine_gives() -> None:
    compared = {"dense"}  # the mode that a return asks for
    assert (
        names(DOCS / "engine.md", "When a request is decoded densely")
        == fallback_reasons() - compared
    )


def test_the_benchmarks_figures_are_those_of_the_result_files() -> None:
    text = readme.README.read_text()
    assert text == readme.with_results(text), "stale: run `python bench/readme.py`"


def test_the_figures_of_the_first_page_are_those_of_the_result_files() -> None:
    text = readme.FRONT.read_text()
    assert text == readme.with_figures(text), "stale: run `python bench/readme.py`"


def test_the_figures_of_a_step_are_those_of_the_result_file() -> None:
    text = readme.SELECTION.read_text()
    assert text == readme.with_step(text), "stale: run `python bench/readme.py`"


def test_every_benchmark_is_explained() -> None:
    scripts = {file.name for file in readme.BENCH.glob("*.py")} - {"result.py", "__init__.py"}
    assert scripts <= names(readme.README, "Benchmarks")


COMMAND = re.compile(r"^(kubectl|helm|curl|cat|python3?|\$PYTHON|flock|make|git) ")
QUERY = re.compile(r"^(sum|max|min|rate|histogram_quantile|count|avg)\b[\w ]*\(")


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_and_queries_are_shown_as_code(page: Path) -> None:
    """In a paragraph lines run together, and quotes and stars are marks of the text."""
    for token in MarkdownIt().parse(page.read_text()):
        if token.type == "inline":
            for line in token.content.splitlines():
                assert not COMMAND.match(line), line
                assert not QUERY.match(line), line


@pytest.mark.parametrize("page", sorted((DOCS / "runbooks").glob("*.md")), ids=lambda p: p.stem)
def test_a_runbook_has_something_to_type_under_look_here(page: Path) -> None:
    _, _, rest = page.read_text().partition("## Look here\n")
    section, _, _ = rest.partition("\n## ")
    shown = [token.type for token in MarkdownIt().parse(section)]
    assert {"code_block", "fence"} & set(shown)


def roles_shown(page: Path) -> list[dict[str, Any]]:
    """The ``decode`` of every piece of an OasisDeployment that a page shows."""
    blocks = [
        token.content
        for token in MarkdownIt().parse(page.read_text())
        if token.type in ("code_block", "fence") and token.content.startswith("decode:")
    ]
    return [yaml.safe_load(block)["decode"] for block in blocks]


@pytest.mark.parametrize("role", roles_shown(DOCS / "platform.md"), ids=lambda role: "-".join(role))
def test_what_is_shown_to_write_into_a_role_is_in_the_pods(role: dict[str, Any]) -> None:
    od = deployment(prefill=None, decode=role)
    (made,) = (
        item["spec"]["template"]["spec"]
        for item in built(od).objects
        if item["kind"] == "Deployment" and item["metadata"]["name"].endswith("-decode")
    )
    given = {**role, **role.get("podTemplate", {}).get("spec", {})}
    given.pop("podTemplate", None)
    (engine,) = given.pop("containers", [{}])
    assert within(given, made)
    assert within(engine, made["containers"][0])


def within(part: Any, whole: Any) -> bool:
    """Whether everything that ``part`` says is so in ``whole``."""
    if isinstance(part, dict):
        return all(name in whole and within(value, whole[name]) for name, value in part.items())
    return bool(part == whole)


def passing() -> set[str]:
    """Reasons for which something is not ready that only needs time."""
    folder = ROOT / "operator/oasis_operator/reconcile"
    found: set[str] = set()
    for name in ("ready_condition.py", "role_condition.py", "rollout_condition.py"):
        for node in ast.walk(ast.parse((folder / name).read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            words = [str(item.value) for item in node.args if isinstance(item, ast.Constant)]
            told = len(node.args) > 4 or node.keywords  # alarming
            if node.func.id == "Draft" and "False" in words and not told:
                found |= {word for word in words if word != "False" and re.match(r"^\w+$", word)}
    return found


def test_the_health_check_for_argo_waits_for_what_needs_only_time() -> None:
    (lua,) = re.findall(r"local waits = \{(.*?)\}", (DOCS / "platform.md").read_text(), re.DOTALL)
    waits = set(re.findall(r"(\w+) = true", lua))
    assert waits >= passing() > set()
    assert waits <= reasons()


def test_what_leads_to_the_router_from_outside_names_its_service_and_port() -> None:
    od = deployment("demo")
    (service,) = (
        item
        for item in built(od).objects
        if item["kind"] == "Service" and item["metadata"]["name"] == "demo-router"
    )
    (port,) = service["spec"]["ports"]
    shown = {
        item["kind"]: item
        for token in MarkdownIt().parse((DOCS / "platform.md").read_text())
        if token.type == "code_block" and token.content.startswith("apiVersion")
        for item in yaml.safe_load_all(token.content)
    }
    (rule,) = shown["HTTPRoute"]["spec"]["rules"]
    assert rule["backendRefs"] == [{"name": "demo-router", "port": port["port"]}]
    ((path,),) = (rule["http"]["paths"] for rule in shown["Ingress"]["spec"]["rules"])
    assert path["backend"]["service"] == {"name": "demo-router", "port": {"number": port["port"]}}


WRITTEN = [page for page in PAGES if page != DOCS / "api.md"]


@pytest.mark.parametrize("page", WRITTEN, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_page_stays_short(page: Path) -> None:
    written, _, _ = page.read_text().partition(readme.HEADING)
    assert len(written.splitlines()) <= 220

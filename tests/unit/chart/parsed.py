"""PromQL as Prometheus itself parses it, and what a query says about series and labels."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.unit.chart.series import Labels, labels_by_name, values_by_label

Node = dict[str, Any]
GRAFANA = {
    "$__rate_interval": "5m",
    "$__interval": "1m",
    "$namespace": "team",
    "$deployment": "chat",
}
NAME = "__name__"
SELECTORS = ("vectorSelector", "matrixSelector")


@dataclass(frozen=True)
class Parser:
    """A running Prometheus."""

    url: str

    def tree(self, query: str) -> Node:
        """The syntax tree of ``/api/v1/parse_query``.

        Raises ``AssertionError`` with Prometheus' words if it is none.
        """
        for variable, value in GRAFANA.items():
            query = query.replace(variable, value)
        asked = f"{self.url}/api/v1/parse_query?{urllib.parse.urlencode({'query': query})}"
        try:
            with urllib.request.urlopen(asked, timeout=10) as answer:
                found: Node = json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{query}: {json.load(error)['error']}") from error
        return found

    def problems(self, query: str) -> list[str]:
        """What is wrong with the names in it; empty if all of them exist."""
        return list(_problems(self.tree(query)))

    def labels(self, query: str) -> Labels:
        """Labels that the series of its result can have."""
        return _labels(self.tree(query))


def _problems(tree: Node) -> Iterator[str]:
    for node in _walk(tree):
        if node["type"] in SELECTORS:
            yield from _selector_problems(node)
        elif node["type"] == "aggregation":
            for label in set(node["grouping"]) - _labels(node["expr"]):
                yield f"no series below has the label {label}"
        elif node["type"] == "binaryExpr" and node["matching"]:
            for side in ("lhs", "rhs"):
                for label in set(node["matching"]["labels"]) - _labels(node[side]):
                    yield f"no series of one side has the label {label}"


def _selector_problems(node: Node) -> Iterator[str]:
    known, values = labels_by_name(), values_by_label()
    names = _names(node)
    if not names:
        yield f"there is no series {node['name'] or node['matchers']}"
    for matcher in node["matchers"]:
        label = matcher["name"]
        if label == NAME:
            continue
        for name in names:
            if label not in known[name]:
                yield f"{name} has no label {label}"
            elif (name, label) in values and not _free(label):
                yield from _value_problems(name, matcher, values[name, label])


def _free(label: str) -> bool:
    """Whether it holds names that users choose."""
    return label in ("model_name", "worker", "handler", "route", "pod", "le", "engine")


def _value_problems(name: str, matcher: Node, known: frozenset[str]) -> Iterator[str]:
    """A value that never occurs: the query would match nothing, or everything."""
    wanted = [matcher["value"]]
    if matcher["type"] in ("=~", "!~"):
        wanted = matcher["value"].split("|")
    for value in wanted:
        if not any(re.fullmatch(value, one) for one in known):
            yield f"{name} never has {matcher['name']}={value!r}, but {sorted(known)}"


def _names(node: Node) -> list[str]:
    """The series that a selector can find."""
    (matcher,) = [item for item in node["matchers"] if item["name"] == NAME]
    if matcher["type"] == "=":
        return [matcher["value"]] if matcher["value"] in labels_by_name() else []
    pattern = re.compile(matcher["value"])
    return [name for name in labels_by_name() if pattern.fullmatch(name)]


def _labels(node: Node) -> Labels:
    """Labels of a node's result, as far as they follow from the tree."""
    known = labels_by_name()
    match node["type"]:
        case kind if kind in SELECTORS:
            return frozenset[str]().union(*(known[name] for name in _names(node)))
        case "aggregation":
            inner = _labels(node["expr"])
            grouping = frozenset(node["grouping"])
            return inner - grouping if node["without"] else inner & grouping
        case "call" if node["func"]["name"] == "label_replace":
            return _labels(node["args"][0]) | {node["args"][1]["val"]}
        case "call" if node["func"]["name"] == "histogram_quantile":
            return _labels(node["args"][1]) - {"le"}
        case "binaryExpr" if _scalar(node["lhs"]):
            return _labels(node["rhs"])
        case "binaryExpr" if node["op"] == "or":
            return _labels(node["lhs"]) | _labels(node["rhs"])
        case "binaryExpr":
            return _labels(node["lhs"])
        case _:
            return frozenset[str]().union(*(_labels(child) for child in _children(node)))


def _scalar(node: Node) -> bool:
    return bool(node["type"] == "numberLiteral")


def _walk(node: Node) -> Iterator[Node]:
    yield node
    for child in _children(node):
        yield from _walk(child)


def _children(node: Node) -> Iterator[Node]:
    for value in node.values():
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, dict) and "type" in item and item["type"] not in _MATCHERS:
                yield item


_MATCHERS = ("=", "!=", "=~", "!~")

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from oasis_operator.api.crd import CRD_NAME, custom_resource_definition
from oasis_operator.api.generate import generated_files
from oasis_operator.api.reference import reference_page
from oasis_operator.api.spec import Spec

ROOT = Path(__file__).parents[3]
VERSION = custom_resource_definition()["spec"]["versions"][0]
SCHEMA = VERSION["schema"]["openAPIV3Schema"]


def walk(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, field in schema.get("properties", {}).items():
        yield from walk(field, f"{path}.{name}")
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), dict):
            yield from walk(schema[name], f"{path}[]")


@pytest.mark.parametrize("path", sorted(generated_files()), ids=str)
def test_generated_files_are_up_to_date(path: Path) -> None:
    assert (ROOT / path).read_text() == generated_files()[path], (
        "stale: run `python -m oasis_operator.api.generate`"
    )


def test_the_generator_writes_the_files_it_names(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "oasis_operator.api.generate", "--root", str(tmp_path)]
    subprocess.run(command, check=True, cwd=ROOT, env={"PYTHONPATH": "operator:runtime"})
    for path, content in generated_files().items():
        assert (tmp_path / path).read_text() == content


def test_it_fits_the_annotation_of_a_plain_kubectl_apply() -> None:
    assert len(generated_files()[Path("crds") / f"{CRD_NAME}.yaml"]) < 100_000


def test_only_the_charts_copy_outlives_the_chart() -> None:
    plain, chart = (
        yaml.safe_load(generated_files()[Path(folder) / f"{CRD_NAME}.yaml"])
        for folder in ("crds", "charts/oasiskv/files")
    )
    assert chart["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
    assert chart == plain


def test_every_list_and_map_is_bounded() -> None:
    for path, field in walk(SCHEMA["properties"]["spec"]):
        if field.get("type") == "array":
            assert "maxItems" in field, path
        if isinstance(field.get("additionalProperties"), dict):
            assert "maxProperties" in field, path


def test_every_field_explains_itself() -> None:
    for path, field in walk({"properties": SCHEMA["properties"]}):
        if path.startswith((".spec", ".status")) and not path.endswith("[]"):
            assert field.get("description"), path


def test_explanations_read_as_prose() -> None:
    for path, field in walk(SCHEMA):
        for paragraph in field.get("description", "").split("\n\n"):
            assert "\n" not in paragraph, path
            assert "``" not in paragraph, path


def test_the_reference_tells_a_share_of_the_pods_from_a_quantity() -> None:
    rows = [line.split(" | ") for line in reference_page().splitlines() if line.startswith("| `")]
    kinds: dict[str, set[str]] = {}
    for name, kind, *_ in rows:
        kinds.setdefault(kind, set()).add(name.strip("|` "))
    assert kinds["integer or percentage"] == {"maxSurge", "maxUnavailable"}
    assert kinds["quantity"] == {"hostSize", "fastSize"}


def test_every_rule_tells_what_to_do() -> None:
    remedy = re.compile(r"\b(write|use|raise|lower|name exactly one)\b")
    for path, field in walk(SCHEMA):
        for rule in field.get("x-kubernetes-validations", []):
            assert remedy.search(rule["message"]), path


def test_conditions_are_a_map_by_type() -> None:
    conditions = SCHEMA["properties"]["status"]["properties"]["conditions"]
    assert conditions["x-kubernetes-list-map-keys"] == ["type"]


def test_no_pod_spec_is_embedded() -> None:
    for role in ("prefill", "decode"):
        template = SCHEMA["properties"]["spec"]["properties"][role]["properties"]["podTemplate"]
        assert template["x-kubernetes-preserve-unknown-fields"] is True
        assert "properties" not in template


def test_the_short_name_and_the_status_subresource_are_there() -> None:
    crd = custom_resource_definition()["spec"]
    assert crd["names"]["shortNames"] == ["odep"]
    assert VERSION["subresources"] == {"status": {}}
    assert [column["name"] for column in VERSION["additionalPrinterColumns"]][:3] == [
        "Model",
        "Ready",
        "Reason",
    ]


def with_defaults(schema: dict[str, Any], value: dict[str, Any]) -> dict[str, Any]:
    """What the API server stores: defaults filled in at every level that is there."""
    out = dict(value)
    for name, field in schema.get("properties", {}).items():
        if name not in out and "default" in field:
            out[name] = field["default"]
        if isinstance(out.get(name), dict):
            out[name] = with_defaults(field, out[name])
    return out


def test_the_api_servers_defaults_are_the_operators() -> None:
    given = {"model": {"image": {"path": "/m"}}, "prefill": {}}
    stored = with_defaults(SCHEMA["properties"]["spec"], given)
    assert Spec.model_validate(stored) == Spec.model_validate(given)
    assert stored["kv"]["prediction"]["ngramMax"] == 4

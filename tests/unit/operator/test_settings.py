from __future__ import annotations

import pytest

from oasis_operator.settings import SettingsError, settings_from

NEEDED = {
    "POD_NAMESPACE": "system",
    "OASIS_RUNTIME_IMAGE": "runtime:1",
    "OASIS_ROUTER_IMAGE": "router:1",
}


def test_what_is_not_said_has_a_default() -> None:
    found = settings_from(NEEDED)
    assert (found.metrics_port, found.health_port) == (8081, 8082)
    assert found.prometheus_url == ""
    assert found.identity


@pytest.mark.parametrize("name", sorted(NEEDED))
def test_a_missing_variable_is_named(name: str) -> None:
    rest = {key: value for key, value in NEEDED.items() if key != name}
    with pytest.raises(SettingsError, match=name):
        settings_from(rest)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OASIS_RESYNC_SECONDS", "often"),
        ("OASIS_PROMETHEUS_HEADERS", "X-Scope-OrgID: team"),
        ("OASIS_PROMETHEUS_HEADERS", '{"X-Scope-OrgID": 1}'),
    ],
)
def test_a_wrong_value_is_named(name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=name):
        settings_from(NEEDED | {name: value})

from __future__ import annotations

import pytest

from oasis_operator.topology.inventory import Device, DeviceId
from oasis_operator.topology.selectors import may_match

DEVICE = Device(
    DeviceId("dra.net", "n", "nic-0"), "n", {"dra.net/rdma": True, "dra.net/speed": 400}
)


@pytest.mark.parametrize(
    "expression",
    [
        'device.driver == "dra.net"',
        "device.driver=='dra.net'",
        'device.attributes["dra.net"].rdma',
        'device.attributes["dra.net"].rdma == true && device.driver == "dra.net"',
        "device.attributes['dra.net'].speed == 400",
    ],
)
def test_what_holds_matches(expression: str) -> None:
    assert may_match(DEVICE, [expression])


@pytest.mark.parametrize(
    "expression",
    [
        'device.driver == "gpu.nvidia.com"',
        'device.attributes["dra.net"].rdma == false',
        'device.attributes["dra.net"].speed == 100',
        'device.attributes["dra.net"].speed == "400"',
        'device.attributes["dra.net"].missing',
        'device.driver == "dra.net" && device.attributes["dra.net"].speed == 100',
        'device.driver == "gpu.nvidia.com" && size(device.attributes) > 0',
    ],
)
def test_what_certainly_does_not_hold_does_not(expression: str) -> None:
    assert not may_match(DEVICE, [expression])


@pytest.mark.parametrize(
    "expression",
    [
        'device.driver == "gpu.nvidia.com" || true',
        '!(device.driver == "gpu.nvidia.com")',
        'true ? true : false && device.driver == "gpu.nvidia.com"',
        '[1].exists(x, x == 1 && device.driver == "gpu.nvidia.com" && false) == false',
        "\"a && device.driver == 'gpu.nvidia.com' && b\" != ''",
        'device.capacity["dra.net"].memory.isGreaterThan(quantity("1Gi"))',
    ],
)
def test_what_cannot_be_told_may_match(expression: str) -> None:
    assert may_match(DEVICE, [expression])


def test_one_expression_that_does_not_hold_is_enough() -> None:
    assert not may_match(DEVICE, ['device.driver == "dra.net"', 'device.driver == "other"'])

"""Pins of the Python environment."""

from __future__ import annotations

import pytest

from testbed import environment
from testbed.problem import Problem


def test_pins_are_names_and_versions_with_comments_left_out() -> None:
    assert environment.parse_pins("# why\ntorch==2.13.0\n\nkopf==1  # so\n") == {
        "torch": "2.13.0",
        "kopf": "1",
    }


@pytest.mark.parametrize("line", ["torch", "torch>=2", "torch==", "-r other.txt", "a==1 ; x"])
def test_anything_but_an_exact_pin_is_refused(line: str) -> None:
    with pytest.raises(Problem, match="a pin must read name==version"):
        environment.parse_pins(line)


def test_the_files_agree_wherever_they_pin_the_same_package() -> None:
    assert len(environment.pins()) > 100


def test_no_file_names_a_host() -> None:
    for file in environment.FILES:
        assert "://" not in (environment.REQUIREMENTS / f"{file}.txt").read_text()


def test_cuda_packages_are_left_out() -> None:
    assert not [name for name in environment.pins() if name.startswith("nvidia-")]


def test_triton_is_for_tests_and_in_no_image() -> None:
    holders = [
        file
        for file in environment.FILES
        if "triton"
        in environment.parse_pins((environment.REQUIREMENTS / f"{file}.txt").read_text())
    ]
    assert holders == ["dev"]

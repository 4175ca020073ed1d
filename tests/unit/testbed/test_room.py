"""A disk that is too small is told before the first long step."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed import room
from testbed.problem import Problem
from testbed.room import Need


def test_what_is_there_already_needs_no_room(tmp_path: Path) -> None:
    room.require([Need("everything", 1e9, made=True)], tmp_path)


def test_what_does_not_fit_is_named_with_its_size_the_folder_and_the_remedy(tmp_path: Path) -> None:
    needs = [
        Need("the model", 1e9, made=False),
        Need("the images", 2e9, made=False),
        Need("the cluster", 4e9, made=True),
    ]
    with pytest.raises(Problem, match=r"^the model, the images will take 3000000000\.0 GB") as told:
        room.require(needs, tmp_path)
    assert str(tmp_path) in str(told.value)
    assert "set OASISKV_CACHE" in str(told.value)


def test_the_disk_of_a_folder_that_is_not_there_yet_is_that_of_its_parent(tmp_path: Path) -> None:
    there = room.free_gigabytes(tmp_path)
    assert room.free_gigabytes(tmp_path / "not" / "yet") == pytest.approx(there, rel=0.1)

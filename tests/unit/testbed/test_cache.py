"""The cache: keys follow content, and only finished entries count."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed import cache


def nothing(folder: Path) -> None:
    """An entry with nothing in it."""
    assert folder.is_dir()


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OASISKV_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_oasiskv_cache_wins_over_xdg_cache_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    monkeypatch.setenv("OASISKV_CACHE", "/mine")
    assert cache.root() == Path("/mine")
    monkeypatch.delenv("OASISKV_CACHE")
    assert cache.root() == Path("/xdg/oasiskv")


@given(st.lists(st.text(), min_size=1, max_size=4), st.lists(st.text(), min_size=1, max_size=4))
def test_fingerprints_differ_when_the_parts_do(left: list[str], right: list[str]) -> None:
    assert (cache.fingerprint(*left) == cache.fingerprint(*right)) == (left == right)


def test_a_fingerprint_follows_the_content_of_a_file_and_not_its_name(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("same")
    (tmp_path / "b").write_text("same")
    before = cache.fingerprint(tmp_path / "a")
    assert cache.fingerprint(tmp_path / "b") == before
    (tmp_path / "a").write_text("other")
    assert cache.fingerprint(tmp_path / "a") != before


def test_an_entry_is_made_once() -> None:
    made: list[Path] = []
    first = cache.entry("kind", "name", "0" * 12, made.append)
    assert cache.entry("kind", "name", "0" * 12, made.append) == first
    assert made == [first]


def test_an_interrupted_entry_is_made_again_from_nothing() -> None:
    def interrupted(folder: Path) -> None:
        (folder / "half").touch()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache.entry("kind", "name", "0" * 12, interrupted)
    assert cache.finished("kind", "name", "0" * 12) is None
    folder = cache.entry("kind", "name", "0" * 12, lambda made: (made / "whole").touch())
    assert not (folder / "half").exists()


def test_a_new_key_replaces_the_old_entry_and_leaves_similar_names_alone() -> None:
    old = cache.entry("kind", "python", "0" * 12, nothing)
    other = cache.entry("kind", "python-build", "1" * 12, nothing)
    new = cache.entry("kind", "python", "2" * 12, nothing)
    assert (old.exists(), other.exists(), new.exists()) == (False, True, True)

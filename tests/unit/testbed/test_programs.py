"""Programs are built from one go build each, or taken from KUBEBUILDER_ASSETS."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed import programs
from testbed.problem import Problem


def executable(folder: Path, name: str) -> Path:
    path = folder / name
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_every_program_has_exactly_one_module() -> None:
    names = [name for module in programs.MODULES for name in module.programs]
    assert sorted(names) == sorted(set(names))
    for module in programs.MODULES:
        assert len(module.packages) == len(module.programs)


def test_the_key_changes_with_the_flags_and_stays_without_a_change() -> None:
    module = programs.module_of("etcd")
    changed = programs.Module(
        module.name, module.packages, module.programs, (*module.ldflags, "-X a=b"), module.tags
    )
    assert module.key() == programs.module_of("kubelet").key() != changed.key()


def test_go_gives_every_program_its_name() -> None:
    for module in programs.MODULES:
        *_, into, first = module.arguments(Path("/out"))[: -len(module.packages) + 1 or None]
        folders = [package.rpartition("/")[2] for package in module.packages]
        made = [module.output] if module.output else folders
        # A package that is the folder of the module itself is called as that.
        assert [module.name if name == "." else name for name in made] == list(module.programs)
        assert (into, first) == (f"/out/{module.output}", module.packages[0])


def test_kubebuilder_assets_are_taken_and_nothing_is_built(tmp_path: Path) -> None:
    etcd = executable(tmp_path, "etcd")
    found = programs.find(["etcd"], {"KUBEBUILDER_ASSETS": str(tmp_path), "PATH": ""})
    assert found == {"etcd": etcd}


def test_a_program_that_the_assets_lack_is_looked_for_on_path(tmp_path: Path) -> None:
    assets, path = tmp_path / "assets", tmp_path / "bin"
    assets.mkdir()
    path.mkdir()
    helm = executable(path, "helm")
    found = programs.find(["helm"], {"KUBEBUILDER_ASSETS": str(assets), "PATH": str(path)})
    assert found == {"helm": helm}


def test_missing_assets_are_named_with_the_remedy(tmp_path: Path) -> None:
    executable(tmp_path, "etcd")
    with pytest.raises(Problem, match=r"but kube-apiserver, kubectl is neither there nor on PATH"):
        programs.find(
            ["etcd", "kubectl", "kube-apiserver"],
            {"KUBEBUILDER_ASSETS": str(tmp_path), "PATH": ""},
        )


def test_an_unknown_module_is_refused_with_the_list_of_known_ones() -> None:
    with pytest.raises(Problem, match="the modules are kubernetes, helm"):
        programs.named(["kubernets"])

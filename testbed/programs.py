"""Programs that the test bed builds from the Go module proxy, or takes from KUBEBUILDER_ASSETS."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from testbed import cache, host, progress, versions
from testbed.problem import Problem

SOURCES = Path(__file__).parent / "go"
ASSETS_VARIABLE = "KUBEBUILDER_ASSETS"
AT_ONCE = 2
"""Builds that run side by side: the linkers of more would not fit in memory."""

_COMPONENT_VERSION = "k8s.io/component-base/version"
_COMMON_VERSION = "github.com/prometheus/common/version"


@dataclass(frozen=True)
class Module:
    """One ``go.mod`` and the programs that one ``go build`` in it makes."""

    name: str
    packages: tuple[str, ...]
    programs: tuple[str, ...]
    ldflags: tuple[str, ...] = ()
    tags: str = ""
    output: str = ""
    """Name of the only program, where the folder of its package has another."""
    files: tuple[str, ...] = ()
    """What else of the first package's module lies beside the programs, as paths in its source."""

    @property
    def folder(self) -> Path:
        return SOURCES / self.name

    def key(self) -> str:
        """Changes with anything that changes the binaries, apart from the Go compiler."""
        files = sorted(
            path for path in self.folder.rglob("*") if path.suffix in {".go", ".mod", ".sum"}
        )
        return cache.fingerprint(*self.arguments(Path("out")), *self.files, *files)

    def arguments(self, out: Path) -> list[str]:
        """Arguments of ``go`` that build into ``out``.

        One command with one cgo setting: a second one with another setting would compile nearly
        every package again.
        """
        command = ["build", "-trimpath", "-ldflags", " ".join(("-s", "-w", *self.ldflags))]
        if self.tags:
            command += ["-tags", self.tags]
        return [*command, "-o", f"{out}/{self.output}", *self.packages]


def _set(variable: str, value: str) -> str:
    return f"-X {variable}={value}"


_MAJOR, _MINOR, _PATCH = versions.KUBERNETES.split(".")

# In the order of the builds: the longest first, then what the tests need first.
MODULES: tuple[Module, ...] = (
    Module(
        "kubernetes",
        (
            "k8s.io/kubernetes/cmd/kube-apiserver",
            "k8s.io/kubernetes/cmd/kube-controller-manager",
            "k8s.io/kubernetes/cmd/kube-scheduler",
            "k8s.io/kubernetes/cmd/kubelet",
            "k8s.io/kubernetes/cmd/kube-proxy",
            "k8s.io/kubernetes/cmd/kubectl",
            "./etcd",
        ),
        (
            "kube-apiserver",
            "kube-controller-manager",
            "kube-scheduler",
            "kubelet",
            "kube-proxy",
            "kubectl",
            "etcd",
        ),
        (
            _set(f"{_COMPONENT_VERSION}.gitVersion", f"v{versions.KUBERNETES}"),
            _set(f"{_COMPONENT_VERSION}.gitMajor", _MAJOR),
            _set(f"{_COMPONENT_VERSION}.gitMinor", _MINOR),
        ),
    ),
    Module(
        "helm",
        ("helm.sh/helm/v3/cmd/helm",),
        ("helm",),
        (
            _set("helm.sh/helm/v3/internal/version.version", f"v{versions.HELM}"),
            # Helm renders .Capabilities.KubeVersion from these when no cluster is there to ask.
            _set("helm.sh/helm/v3/pkg/lint/rules.k8sVersionMajor", _MAJOR),
            _set("helm.sh/helm/v3/pkg/lint/rules.k8sVersionMinor", _MINOR),
            _set("helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor", _MAJOR),
            _set("helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor", _MINOR),
        ),
    ),
    Module(
        "prometheus",
        (
            "github.com/prometheus/prometheus/cmd/prometheus",
            "github.com/prometheus/prometheus/cmd/promtool",
        ),
        ("prometheus", "promtool"),
        (_set(f"{_COMMON_VERSION}.Version", versions.PROMETHEUS),),
        # Of some thirty discovery mechanisms the bed uses one; the others double the build.
        tags="remove_all_sd,enable_kubernetes_sd",
    ),
    Module("coredns", (".",), ("coredns",)),
    Module(
        "kwok",
        ("sigs.k8s.io/kwok/cmd/kwok",),
        ("kwok",),
        (_set("sigs.k8s.io/kwok/pkg/consts.Version", f"v{versions.KWOK}"),),
    ),
    Module(
        "lws",
        ("sigs.k8s.io/lws/cmd",),
        ("lws",),
        (_set("sigs.k8s.io/lws/pkg/version.GitVersion", f"v{versions.LWS}"),),
        output="lws",
        files=("config/crd/bases/leaderworkerset.x-k8s.io_leaderworkersets.yaml",),
    ),
)


def module_of(program: str) -> Module:
    """The module that makes ``program``; raises Problem for a name that none makes."""
    for module in MODULES:
        if program in module.programs:
            return module
    raise Problem(f"no module of the test bed builds a program called {program!r}")


def named(names: Iterable[str]) -> list[Module]:
    """Modules by name; raises Problem that lists the names for one that does not exist."""
    known = {module.name: module for module in MODULES}
    wanted = list(names)
    for name in wanted:
        if name not in known:
            raise Problem(
                f"there is no module {name!r} to build; the modules are {', '.join(known)}"
            )
    return [known[name] for name in wanted]


def build(module: Module) -> Path:
    """Folder with the module's programs, built now when the cache has none of this version."""

    def make(out: Path) -> None:
        go = host.require_go()
        log = progress.log_file(f"build-{module.name}")
        with progress.step(f"building {', '.join(module.programs)}"):
            progress.run(
                [go, *module.arguments(out)],
                log,
                cwd=module.folder,
                env={**os.environ, "GOFLAGS": "-buildvcs=false"},
                remedy="The build needs the Go module proxy, 5 GB of disk and 3 GB of memory.",
            )
        for file in module.files:
            shutil.copyfile(_source(go, module) / file, out / Path(file).name)

    return cache.entry("programs", module.name, module.key(), make)


def _source(go: str, module: Module) -> Path:
    """Folder with the source of the module that the first package is of."""
    words = ["list", "-f", "{{.Module.Dir}}", module.packages[0]]
    done = subprocess.run(
        [go, *words], cwd=module.folder, capture_output=True, text=True, check=True
    )
    return Path(done.stdout.strip())


def build_all(modules: Iterable[Module]) -> list[Path]:
    """Build several modules, at most two at a time."""
    pool = ThreadPoolExecutor(AT_ONCE)
    try:
        folders = list(pool.map(build, modules))
    except KeyboardInterrupt:
        # Builds under way end with this process.
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    except BaseException:
        pool.shutdown(cancel_futures=True)
        raise
    pool.shutdown()
    return folders


def search_path(environment: Mapping[str, str] | None = None) -> list[str]:
    """Folders of the programs that are there already, for the PATH of a command."""
    env = os.environ if environment is None else environment
    if env.get(ASSETS_VARIABLE):
        return [env[ASSETS_VARIABLE]]
    folders = (cache.finished("programs", module.name, module.key()) for module in MODULES)
    return [str(folder) for folder in folders if folder is not None]


def ready(modules: Iterable[Module]) -> bool:
    """Whether nothing of these has to be built."""
    return bool(os.environ.get(ASSETS_VARIABLE)) or all(
        cache.finished("programs", module.name, module.key()) is not None for module in modules
    )


def find(names: Iterable[str], environment: Mapping[str, str] | None = None) -> dict[str, Path]:
    """Path of each program.

    With ``KUBEBUILDER_ASSETS`` set, programs come from that folder, else from PATH, and nothing
    is built; raises Problem that names the programs which are in neither.
    """
    env = os.environ if environment is None else environment
    wanted = list(names)
    assets = env.get(ASSETS_VARIABLE)
    if not assets:
        modules = {module_of(name).name: module_of(name) for name in wanted}
        folders = dict(zip(modules, build_all(modules.values()), strict=True))
        return {name: folders[module_of(name).name] / name for name in wanted}
    search = os.pathsep.join([assets, env.get("PATH", "")])
    found = {name: shutil.which(name, path=search) for name in wanted}
    absent = sorted(name for name, path in found.items() if path is None)
    if absent:
        raise Problem(
            f"{ASSETS_VARIABLE} is {assets}, so nothing is built, but {', '.join(absent)} is "
            f"neither there nor on PATH; put it there, or unset {ASSETS_VARIABLE}"
        )
    return {name: Path(path) for name, path in found.items() if path is not None}

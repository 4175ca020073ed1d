"""ConfigMap with an engine's configuration."""

from __future__ import annotations

from pathlib import PurePosixPath

from oasis_operator.api.resource import OasisDeployment
from oasis_operator.desired.metadata import REVISION_LABEL, Component, Manifest, manifest
from oasis_runtime.contract import ENGINE_CONFIG_PATH

CONFIG_VOLUME = "config"


def config_map(
    od: OasisDeployment, component: Component, revision: str, name: str, config: str
) -> Manifest:
    """Immutable: another configuration is another revision with a ConfigMap of its own."""
    return manifest(od, "v1", "ConfigMap", name, component, {REVISION_LABEL: revision}) | {
        "immutable": True,
        "data": {PurePosixPath(ENGINE_CONFIG_PATH).name: config},
    }

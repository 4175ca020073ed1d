"""A cluster as a test or a demo sees it: by its environment, from wherever it runs."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

from testbed.problem import Problem

KUBECONFIG = "KUBECONFIG"
IMAGE_PREFIX = "OASISKV_IMAGE_"


def variables(images: Mapping[str, str]) -> dict[str, str]:
    """Environment variables that name the images of a bed."""
    return {f"{IMAGE_PREFIX}{name.upper()}": image for name, image in images.items()}


@dataclass(frozen=True)
class Cluster:
    """A cluster that ``kubectl`` reaches, with the names of the project's images in it."""

    images: Mapping[str, str]
    environment: Mapping[str, str]

    @staticmethod
    def of(environment: Mapping[str, str]) -> Cluster:
        """The cluster of an environment; raises Problem when it names none."""
        if KUBECONFIG not in environment:
            raise Problem(
                "no cluster here: KUBECONFIG is not set; run this inside the node bed with "
                "`python3 -m testbed exec -- ...`, or set KUBECONFIG to a cluster"
            )
        images = {
            name.removeprefix(IMAGE_PREFIX).lower(): value
            for name, value in environment.items()
            if name.startswith(IMAGE_PREFIX)
        }
        return Cluster(images, environment)

    def image(self, name: str) -> str:
        """Full name of the image ``operator``, ``router`` or ``runtime``.

        Raises Problem that says how to load one that is missing.
        """
        if name not in self.images:
            raise Problem(
                f"the image {name} is not in the cluster: run `python3 -m testbed images --load "
                f"{name}`, or set {IMAGE_PREFIX}{name.upper()} to one that the cluster can pull"
            )
        return self.images[name]

    def kubectl(self, *arguments: str, manifest: object | None = None) -> str:
        """Run kubectl and return what it prints; ``manifest`` goes to its input as JSON.

        Raises Problem with kubectl's words when it fails.
        """
        done = subprocess.run(
            ["kubectl", *arguments],
            input=None if manifest is None else json.dumps(manifest),
            capture_output=True,
            text=True,
            env=dict(self.environment),
        )
        if done.returncode != 0:
            raise Problem(f"kubectl {' '.join(arguments)} failed: {done.stderr.strip()}")
        return done.stdout

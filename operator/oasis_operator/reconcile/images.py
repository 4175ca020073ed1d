"""Images of the pods: what the spec names, else what serves, else the operator's defaults."""

from __future__ import annotations

from oasis_operator.api.resource import OasisDeployment
from oasis_operator.desired.build import Images
from oasis_operator.desired.metadata import Component
from oasis_operator.reconcile.observed import Observed


def images(od: OasisDeployment, observed: Observed, defaults: Images) -> Images:
    """The images that the pods of ``od`` are to run."""
    return Images(
        engine=od.spec.image or observed.proven_image(Component.DECODE) or defaults.engine,
        router=od.spec.router.image or observed.proven_image(Component.ROUTER) or defaults.router,
    )

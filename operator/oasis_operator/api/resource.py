"""An OasisDeployment as the operator works with it: identity and typed spec."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from oasis_operator.api.problems import problems_of
from oasis_operator.api.spec import Spec


class InvalidSpecError(ValueError):
    """The stored spec does not fit the models: it was written under another version of the CRD."""


@dataclass(frozen=True)
class OasisDeployment:
    """One custom resource."""

    name: str
    namespace: str
    uid: str
    generation: int
    spec: Spec

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> OasisDeployment:
        """From the manifest that the API server stores.

        Raises:
            InvalidSpecError: the spec does not fit the models, with one sentence per field.
        """
        metadata = body["metadata"]
        try:
            spec = Spec.model_validate(body.get("spec", {}))
        except ValidationError as error:
            raise InvalidSpecError(problems_of(error, "spec.")) from error
        return cls(
            name=metadata["name"],
            namespace=metadata["namespace"],
            uid=metadata["uid"],
            generation=metadata["generation"],
            spec=spec,
        )

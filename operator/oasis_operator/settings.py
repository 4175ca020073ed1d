"""Settings of the operator process, from its environment."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, Json, ValidationError

from oasis_operator.logs import LogFormat
from oasis_runtime.contract import OPERATOR_HEALTH_PORT, OPERATOR_METRICS_PORT


class SettingsError(ValueError):
    """The environment does not say what the operator needs to know."""


class Settings(BaseModel):
    """Each field is read from the variable in its alias."""

    model_config = ConfigDict(frozen=True)

    namespace: Annotated[str, Field(alias="POD_NAMESPACE", min_length=1)]
    """Where the leader's Lease is."""
    identity: Annotated[str, Field(alias="POD_NAME", min_length=1)]
    """Name of this replica, unique among them."""
    runtime_image: Annotated[str, Field(alias="OASIS_RUNTIME_IMAGE", min_length=1)]
    """Image of engines whose spec names none."""
    router_image: Annotated[str, Field(alias="OASIS_ROUTER_IMAGE", min_length=1)]
    """Image of routers whose spec names none."""
    prometheus_url: Annotated[str, Field(alias="OASIS_PROMETHEUS_URL")] = ""
    """Base URL; empty: conditions that need metrics are Unknown."""
    prometheus_headers: Annotated[
        Json[dict[str, str]], Field(alias="OASIS_PROMETHEUS_HEADERS", default_factory=dict)
    ]
    """Headers of every query, as JSON."""
    prometheus_token_file: Annotated[Path | None, Field(alias="OASIS_PROMETHEUS_TOKEN_FILE")] = None
    prometheus_ca_file: Annotated[Path | None, Field(alias="OASIS_PROMETHEUS_CA_FILE")] = None
    resync_seconds: Annotated[float, Field(alias="OASIS_RESYNC_SECONDS", gt=0)] = 30.0
    writes_per_second: Annotated[float, Field(alias="OASIS_WRITES_PER_SECOND", gt=0)] = 200.0
    metrics_port: Annotated[int, Field(alias="OASIS_METRICS_PORT")] = OPERATOR_METRICS_PORT
    health_port: Annotated[int, Field(alias="OASIS_HEALTH_PORT")] = OPERATOR_HEALTH_PORT
    log_level: Annotated[str, Field(alias="OASIS_LOG_LEVEL")] = "INFO"
    log_format: Annotated[LogFormat, Field(alias="OASIS_LOG_FORMAT")] = "text"


def settings_from(environment: Mapping[str, str]) -> Settings:
    """Reads the settings.

    Raises:
        SettingsError: one sentence per variable that is missing or wrong.
    """
    known = {"POD_NAME": f"{socket.gethostname()}-{os.getpid()}", **environment}
    try:
        return Settings.model_validate(known)
    except ValidationError as error:
        problems = "; ".join(f"{item['loc'][0]}: {item['msg']}" for item in error.errors())
        raise SettingsError(f"set the operator's environment variables: {problems}") from error

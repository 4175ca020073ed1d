"""ASGI middleware: a wrong ``kv_transfer_params`` or option is the client's error, not ours.

vLLM takes both as dictionaries of anything and hands them to the scheduler, where an exception
ends the engine for everybody. Here they are checked before a request exists.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from pydantic import ValidationError

from oasis_runtime.contract import Role
from oasis_runtime.serve.payload import PAYLOAD_KEY, EnginePayload
from oasis_runtime.serve.request_options import OPTIONS_KEY, parse_request_options
from oasis_runtime.serve.sentences import sentence
from oasis_runtime.serve.transfer_params import TransferParams

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]

CHECKED_PATHS = frozenset(
    {
        "/v1/completions",
        "/v1/completions/render",
        "/v1/chat/completions",
        "/v1/chat/completions/batch",
        "/v1/chat/completions/render",
        "/v1/responses",
        "/v1/responses/render",
        "/v1/messages",
        "/v1/messages/render",
        "/inference/v1/generate",
    }
)
"""The endpoints of vLLM 0.32 that take ``kv_transfer_params`` or ``vllm_xargs``.

vllm-router sends every request to ``/render`` first, to learn the prompt's tokens.
"""

MAX_BODY_BYTES = 64 << 20
"""A million tokens of text are some 5 MB; the rest is for images."""

TRANSFER_KEY = "kv_transfer_params"
XARGS_KEY = "vllm_xargs"


class RequestValidation:
    """Checks the body of a generation request and passes it on, or answers 400.

    A body that is not a JSON object is passed on as it is, for vLLM's own answer.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (
            scope["type"] != "http"
            or scope["method"] != "POST"
            or scope["path"].rstrip("/") not in CHECKED_PATHS
        ):
            await self.app(scope, receive, send)
            return
        try:
            body = await _read_body(receive)
            if body is None:
                return
            checked = checked_body(body, _payload(scope))
        except RequestError as error:
            await _answer(send, error)
            return
        if checked is not body:
            scope = {**scope, "headers": _with_length(scope["headers"], len(checked))}
        await self.app(scope, _replay(checked, receive), send)


class RequestError(Exception):
    """The request is refused; the text is the one sentence for the client."""

    def __init__(self, text: str, param: str | None, status: int = 400) -> None:
        super().__init__(text)
        self.param = param
        self.status = status


def checked_body(body: bytes, payload: EnginePayload) -> bytes:
    """The body to pass on: ``body`` itself, unless options were given as an object.

    vLLM wants a string where the options are, so an object there is turned into its JSON text.

    Raises:
        RequestError: the transfer parameters or the options are wrong for this engine.
    """
    try:
        request = json.loads(body)
    except (ValueError, RecursionError):
        return body
    if not isinstance(request, dict):
        return body
    if request.get(TRANSFER_KEY) is not None:
        _check_transfer(request[TRANSFER_KEY], payload.config.role)
    if OPTIONS_KEY in request:
        raise RequestError(
            f"{OPTIONS_KEY} belongs under {XARGS_KEY}: "
            f'{{"{XARGS_KEY}": {{"{OPTIONS_KEY}": {{...}}}}}}',
            OPTIONS_KEY,
        )
    extra = request.get(XARGS_KEY)
    if not isinstance(extra, dict) or OPTIONS_KEY not in extra:
        return body
    _check_options(extra[OPTIONS_KEY], payload.config.selection.budget_tokens)
    if isinstance(extra[OPTIONS_KEY], str):
        return body
    extra[OPTIONS_KEY] = json.dumps(extra[OPTIONS_KEY])
    return json.dumps(request).encode()


def _check_transfer(value: object, role: Role) -> None:
    try:
        params = TransferParams.model_validate(value)
    except ValidationError as invalid:
        first = invalid.errors()[0]
        text = sentence(first, TransferParams, prefix=(TRANSFER_KEY,))
        raise RequestError(text, TRANSFER_KEY) from None
    if params.do_remote_prefill and role is Role.PREFILL:
        raise RequestError(
            f"{TRANSFER_KEY}.do_remote_prefill is true and this is a prefill engine; "
            "send the request to a decode engine",
            TRANSFER_KEY,
        )
    if params.do_remote_decode and role is Role.DECODE:
        raise RequestError(
            f"{TRANSFER_KEY}.do_remote_decode is true and this is a decode engine; "
            "send the request to a prefill engine",
            TRANSFER_KEY,
        )


def _check_options(value: object, budget_tokens: int) -> None:
    try:
        options = parse_request_options(value)
    except ValueError as error:
        raise RequestError(f"{XARGS_KEY}.{error}", XARGS_KEY) from None
    if options.budget_tokens is not None and options.budget_tokens > budget_tokens:
        raise RequestError(
            f"{XARGS_KEY}.{OPTIONS_KEY}.budget_tokens is {options.budget_tokens} and this engine "
            f"is configured for {budget_tokens}; ask for no more than that",
            XARGS_KEY,
        )


def _payload(scope: Scope) -> EnginePayload:
    """vLLM keeps its configuration in the state of the application that the request came to."""
    transfer = scope["app"].state.vllm_config.kv_transfer_config
    return EnginePayload.model_validate(transfer.kv_connector_extra_config[PAYLOAD_KEY])


async def _read_body(receive: Receive) -> bytes | None:
    """The whole body, None when the client has gone."""
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        chunk: bytes = message.get("body", b"")
        size += len(chunk)
        if size > MAX_BODY_BYTES:
            raise RequestError(
                f"the request body is larger than {MAX_BODY_BYTES >> 20} MiB; send less",
                None,
                status=413,
            )
        chunks.append(chunk)
        if not message.get("more_body", False):
            return b"".join(chunks)


def _replay(body: bytes, receive: Receive) -> Receive:
    """A ``receive`` that gives the whole body first and then what the server has."""
    pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replayed() -> Message:
        return pending.pop() if pending else await receive()

    return replayed


def _with_length(headers: list[tuple[bytes, bytes]], length: int) -> list[tuple[bytes, bytes]]:
    others = [(name, value) for name, value in headers if name.lower() != b"content-length"]
    return [*others, (b"content-length", str(length).encode())]


async def _answer(send: Send, error: RequestError) -> None:
    """The error in the shape of OpenAI's API, as vLLM's own answers have it."""
    content = {
        "error": {
            "message": str(error),
            "type": "BadRequestError",
            "param": error.param,
            "code": error.status,
        }
    }
    body = json.dumps(content).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
    ]
    if error.status == 413:
        # The rest of the body is still on its way.
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})

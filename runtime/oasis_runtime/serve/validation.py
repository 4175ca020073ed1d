"""ASGI middleware: a wrong ``kv_transfer_params`` or option is the client's error, not ours.

vLLM takes both as dictionaries of anything and hands them to the scheduler, where an exception
ends the engine for everybody. Here they are checked before a request exists, whatever path it came
by: vLLM has a dozen that take a prompt, more with each release, and its plugins add others.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from typing import Any

from pydantic import ValidationError

from oasis_runtime.contract import Role
from oasis_runtime.serve.payload import PAYLOAD_KEY, EnginePayload
from oasis_runtime.serve.request_options import OPTIONS_KEY, parse_request_options
from oasis_runtime.serve.sentences import Location, dotted, sentence
from oasis_runtime.serve.transfer_params import TransferParams

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]

MAX_BODY_BYTES = 64 << 20
"""A million tokens of text are some 5 MB; the rest is for images."""

TRANSFER_KEY = "kv_transfer_params"
XARGS_KEY = "vllm_xargs"
_EXTRA_ARGS = ("sampling_params", "extra_args")
"""Where a request of tokens (``/inference/v1/generate``) has what others have in ``vllm_xargs``."""
_OF_THE_REQUEST = (TRANSFER_KEY, "ec_transfer_params")
"""vLLM puts these fields of a request among its extra arguments, and expects mappings there."""

_HALF = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])"
    rb"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F]"
    rb"|\xed[\xa0-\xbf]|\x00"
)
"""Only a body with one of these can say half of a surrogate pair: as an escape without the other
half, in UTF-8 as only Python takes it, or in UTF-16. Where it stands, and whether a backslash is
itself escaped, the parsed body says."""


class RequestValidation:
    """Checks the body of a request and passes it on, or answers 400.

    A body that is not a JSON object is passed on as it is, for vLLM's own answer.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
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
        RequestError: the transfer parameters or the options are wrong for this engine, or the body
            is JSON that no part of it can carry.
    """
    request = _parsed(body)
    if not isinstance(request, dict):
        return body
    if _may_have_halves(body):
        _check_text(request)
    if request.get(TRANSFER_KEY) is not None:
        _check_transfer(request[TRANSFER_KEY], payload.config.role)
    if OPTIONS_KEY in request:
        raise RequestError(
            f"{OPTIONS_KEY} belongs under {XARGS_KEY}: "
            f'{{"{XARGS_KEY}": {{"{OPTIONS_KEY}": {{...}}}}}}',
            OPTIONS_KEY,
        )
    for location in ((XARGS_KEY,), _EXTRA_ARGS):
        _check_extra(request, location, payload.config.selection.budget_tokens)
    extra = request.get(XARGS_KEY)
    if not isinstance(extra, dict) or isinstance(extra.get(OPTIONS_KEY, ""), str):
        return body
    extra[OPTIONS_KEY] = json.dumps(extra[OPTIONS_KEY])
    return json.dumps(request).encode()


def _parsed(body: bytes) -> object:
    """The JSON value of the body, None where it is not JSON."""
    try:
        return json.loads(body)
    except (json.JSONDecodeError, UnicodeDecodeError):
        return None
    except RecursionError:
        raise RequestError(
            "the request body is JSON that is nested too deeply; send it flatter", None
        ) from None
    except ValueError:
        raise RequestError(
            f"the request body has a number of more than {sys.get_int_max_str_digits()} digits; "
            "send a smaller one",
            None,
        ) from None


def _may_have_halves(body: bytes) -> bool:
    # Most bodies are plain, which is ten times sooner found out than what the others hold.
    plain = body.isascii() and b"\\u" not in body and b"\x00" not in body
    return not plain and _HALF.search(body) is not None


def _check_text(request: dict[str, Any]) -> None:
    """JSON can say half of a surrogate pair, which no text that goes to the engine can hold.

    Holds one iterator for each level: a body of millions of numbers must not take more memory here
    than it has.
    """
    levels: list[Iterator[tuple[str | int, object]]] = [iter(request.items())]
    path: list[str | int] = [""]
    while levels:
        name, value = next(levels[-1], (None, None))
        if name is None:
            levels.pop()
            path.pop()
            continue
        if isinstance(name, str) and not _is_text(name):
            raise _half(tuple(path[:-1]))
        path[-1] = name
        if isinstance(value, str) and not _is_text(value):
            raise _half(tuple(path))
        if isinstance(value, dict):
            levels.append(iter(value.items()))
            path.append("")
        elif isinstance(value, list):
            levels.append(iter(enumerate(value)))
            path.append(0)


def _half(location: Location) -> RequestError:
    name = dotted(location) or "the request"
    return RequestError(
        f"{name} has half of a surrogate pair, which is no character; send whole ones",
        str(location[0]) if location else None,
    )


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_extra(request: dict[str, Any], location: tuple[str, ...], budget_tokens: int) -> None:
    extra: object = request
    for name in location:
        extra = extra.get(name) if isinstance(extra, dict) else None
    if not isinstance(extra, dict):
        return
    for name in _OF_THE_REQUEST:
        # vLLM's own rendering of a request (``/render``) says them twice.
        said_twice = name in request and request[name] == extra.get(name)
        if name in extra and not said_twice:
            raise RequestError(
                f"{dotted((*location, name))}: {name} is a field of the request itself; put it "
                f"beside {location[0]}",
                location[0],
            )
    if OPTIONS_KEY in extra:
        _check_options(extra[OPTIONS_KEY], budget_tokens, location)


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


def _check_options(value: object, budget_tokens: int, location: tuple[str, ...]) -> None:
    where = dotted(location)
    try:
        options = parse_request_options(value)
    except ValueError as error:
        raise RequestError(f"{where}.{error}", location[0]) from None
    if options.budget_tokens is not None and options.budget_tokens > budget_tokens:
        raise RequestError(
            f"{where}.{OPTIONS_KEY}.budget_tokens is {options.budget_tokens} and this engine "
            f"is configured for {budget_tokens}; ask for no more than that",
            location[0],
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

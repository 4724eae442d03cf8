"""From the bytes of a call to its handler, and from the handler's answer back to bytes.

gRPC's own way parses before a handler is asked, and answers bytes that are no message with
UNKNOWN and the name of a Python exception. Here parsing is part of the call, so that such bytes
are an invalid argument like any other; and a handler that has assembled its answer's bytes
itself returns them as they are.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from functools import partial
from typing import Any, Final

import grpc
from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import DecodeError, Message
from warmindex.errors import InvalidError, WarmindexError

from warmindex_server.access.gate import Gate
from warmindex_server.rpc.faults import Context, status_of
from warmindex_server.rpc.traffic import Traffic

# A handler takes a message, or an iterator of them, and the call's context; it gives a message
# or its bytes, or an iterator of these.
Handler = Callable[[Any, Context], Any]
Parse = Callable[[bytes], Message]
Read = Callable[[Any], Any]
Admit = Callable[[Context], None]

# By whether the client streams, and whether the server does.
_MAKE: Final[dict[tuple[bool, bool], Callable[[Any], Any]]] = {
    (False, False): grpc.unary_unary_rpc_method_handler,
    (False, True): grpc.unary_stream_rpc_method_handler,
    (True, False): grpc.stream_unary_rpc_method_handler,
    (True, True): grpc.stream_stream_rpc_method_handler,
}


def handlers_of(
    servicer: object, service: ServiceDescriptor, traffic: Traffic, gate: Gate
) -> grpc.GenericRpcHandler:
    """The calls of a service, answered by the methods of `servicer` that have their names."""
    return grpc.method_handlers_generic_handler(
        service.full_name,
        {
            method.name: _handler(getattr(servicer, method.name), method, traffic, gate)
            for method in service.methods
        },
    )


def _handler(handle: Handler, method: MethodDescriptor, traffic: Traffic, gate: Gate) -> Any:
    parse: Any = message_factory.GetMessageClass(method.input_type).FromString
    read: Read = partial(_Parsed if method.client_streaming else parsed, parse)
    make = _streaming if method.server_streaming else _answering
    admit: Admit = partial(_admit, gate, method.name)
    return _MAKE[method.client_streaming, method.server_streaming](
        make(handle, read, traffic, admit)
    )


def _admit(gate: Gate, method: str, context: Context) -> None:
    gate.admit(context, method)


def _answering(
    handle: Handler, read: Read, traffic: Traffic, admit: Admit
) -> Callable[[Any, Context], Awaitable[bytes]]:
    """A call with one answer."""

    async def call(raw: Any, context: Context) -> bytes:
        try:
            with traffic:
                admit(context)
                return to_bytes(await handle(read(raw), context))
        except WarmindexError as error:
            await context.abort_with_status(status_of(error))
            raise

    return call


def _streaming(
    handle: Handler, read: Read, traffic: Traffic, admit: Admit
) -> Callable[[Any, Context], AsyncIterator[bytes]]:
    """A call with any number of answers."""

    async def call(raw: Any, context: Context) -> AsyncIterator[bytes]:
        try:
            with traffic:
                admit(context)
                async with aclosing(handle(read(raw), context)) as responses:
                    async for response in responses:
                        yield to_bytes(response)
        except WarmindexError as error:
            await context.abort_with_status(status_of(error))

    return call


class _Parsed:
    """The messages of a stream of bytes."""

    def __init__(self, parse: Parse, raws: AsyncIterator[bytes]) -> None:
        # Not `aiter(raws)` yet: gRPC opens its stream in there, and warns where nobody reads it.
        self._raws = raws
        self._parse = parse

    def __aiter__(self) -> _Parsed:
        return self

    async def __anext__(self) -> Message:
        return parsed(self._parse, await anext(self._raws))


def parsed(parse: Parse, raw: bytes) -> Message:
    """The message of some bytes; InvalidError where they are none."""
    try:
        return parse(raw)
    except DecodeError as error:
        raise InvalidError(
            f"these bytes are no such message ({error}): a client made from the contract's "
            ".proto files sends valid ones, and text must be UTF-8"
        ) from None


def to_bytes(response: Message | bytes) -> bytes:
    """The bytes of an answer."""
    return response if isinstance(response, bytes) else response.SerializeToString()

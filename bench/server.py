"""What the server costs beside gRPC itself: ratios to a floor server, in one run.

The floor answers every call with the bytes that the real server gives, and does nothing for
it. Calls to the two alternate in small rounds, so that whatever else the machine does hits
both.

    python bench/server.py            all of it, about a minute
    python bench/server.py fetch-140  one of them
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

import load
import numpy as np
from load import Servers, call_once, calls_per_s, channel_to, cpu_s, p50s_s, process, stream_s
from search_speed import queries, tools
from warmindex.v1 import event_pb2, index_service_pb2

SERVICE = "/warmindex.v1.IndexService"
MODEL = "acme/model"


# ---- content -----------------------------------------------------------------------------


def key(number: int, length: int = 32) -> bytes:
    return number.to_bytes(length, "big")


def publish(servers: Servers, *events: event_pb2.CacheEvent) -> None:
    for event in events:
        request = index_service_pb2.PublishEventRequest(event=event)
        call_once((servers.real, f"{SERVICE}/PublishEvent"), request.SerializeToString())


def vectors(count: int) -> event_pb2.EmbeddingBlock:
    rows = np.random.default_rng(count).normal(size=(count, 384)).astype(np.float32)
    return event_pb2.EmbeddingBlock(dimensions=384, values=rows.tobytes())


def embedded(adapter: str, hashes: Sequence[bytes], **fields: object) -> event_pb2.CacheEvent:
    return event_pb2.CacheEvent(
        type=event_pb2.CacheEvent.EMBEDDED,
        replica_id="pod-1",
        model_id=MODEL,
        adapter_id=adapter,
        content_hashes=hashes,
        **fields,
    )


def partition(adapter: str, scheme: str = "") -> event_pb2.PartitionKey:
    return event_pb2.PartitionKey(model_id=MODEL, adapter_id=adapter, hash_scheme=scheme)


# ---- what is measured --------------------------------------------------------------------


def compare(
    servers: Servers, name: str, method: str, request: bytes, target: float | None = None
) -> None:
    """Print the p50 of a call as a multiple of the floor's."""
    real = (servers.real, f"{SERVICE}/{method}")
    response = call_once(real, request)
    floor = servers.floor_method(name, response)
    rounds = p50s_s((floor, real), request)
    ratios = sorted(real_s / floor_s for floor_s, real_s in rounds)
    floor_s, real_s = (median(column) * 1e6 for column in zip(*rounds, strict=True))
    wanted = f", target {target:.2f}" if target else ""
    print(
        f"{name:14} p50 {real_s:7.0f} µs, floor {floor_s:7.0f} µs: ratio {median(ratios):.2f} "
        f"({ratios[1]:.2f} to {ratios[-2]:.2f}){wanted}; "
        f"{len(request)} bytes in, {len(response)} out"
    )


def fetch(count: int) -> Callable[[Servers], None]:
    def measure(servers: Servers) -> None:
        hashes = [key(number) for number in range(count)]
        publish(servers, embedded(f"fetch-{count}", hashes, embeddings=vectors(count)))
        request = index_service_pb2.GetEmbeddingsRequest(
            partition=partition(f"fetch-{count}"), content_hashes=hashes
        )
        compare(servers, f"fetch-{count}", "GetEmbeddings", request.SerializeToString(), 1.25)

    return measure


def route(servers: Servers) -> None:
    chain = [key(number, 8) for number in range(512)]
    publish(servers, embedded("route", chain, hash_scheme="xxh3-chain/16"))
    request = index_service_pb2.LookupRouteRequest(
        partition=partition("route", "xxh3-chain/16"), block_hashes=chain
    )
    compare(servers, "route-512", "LookupRoute", request.SerializeToString(), 1.2)


def search(servers: Servers) -> None:
    """A hybrid search over 1000 made-up tools, as bench/search_speed.py makes them up."""
    documents = [
        event_pb2.Document(name=each.name, description=each.description) for each in tools(1000)
    ]
    hashes = [key(number) for number in range(1000)]
    publish(servers, embedded("search", hashes, embeddings=vectors(1000), documents=documents))
    request = index_service_pb2.SearchRequest(
        partition=partition("search"), query_embedding=vectors(1), query_text=queries(1)[0]
    )
    compare(servers, "search-1000", "Search", request.SerializeToString())


def publish_stream(servers: Servers) -> None:
    """Entries a second through PublishEvents, one event of 1000 8-byte hashes a message."""
    count, runs = 500, []
    real = (servers.real, f"{SERVICE}/PublishEvents")
    floor = None
    for run in range(5):
        requests = [
            index_service_pb2.PublishEventsRequest(
                events=[
                    embedded(
                        f"stream-{run}",
                        [key(number * 1000 + each, 8) for each in range(1000)],
                        hash_scheme="vllm-native",
                    )
                ]
            ).SerializeToString()
            for number in range(count)
        ]
        if floor is None:
            with channel_to(servers.real) as channel:
                (response,) = channel.stream_stream(real[1])(iter(requests[:1]))
            floor = servers.floor_method("publish-stream", response, stream=True)
        floor_s, before = stream_s(floor, requests), cpu_s(servers.real_pid)
        real_s = stream_s(real, requests)
        runs.append((real_s, floor_s, cpu_s(servers.real_pid) - before))
    best = min(runs)
    rates = sorted(count / real_s for real_s, _, _ in runs)
    print(
        f"publish-stream {median(rates):.0f} thousand entries/s (best {rates[-1]:.0f}), floor "
        f"{count / median(floor_s for _, floor_s, _ in runs):.0f}; "
        f"{best[2] / count * 1e6:.0f} µs of the server's processor a message"
    )


def publish_one(servers: Servers) -> None:
    """PublishEvent one by one from eight connections, against the empty handler's rate."""
    real = (servers.real, f"{SERVICE}/PublishEvent")
    event = embedded("one", [key(1, 8)], hash_scheme="vllm-native", token_count=16)
    request = index_service_pb2.PublishEventRequest(event=event).SerializeToString()
    response = call_once(real, request)
    floor = servers.floor_method("publish-one", response)
    ratios, cpu_ratios = [], []
    for _ in range(5):
        rates, costs = [], []
        for target, pid in ((floor, servers.floor_pid), (real, servers.real_pid)):
            before = cpu_s(pid)
            rate = calls_per_s(servers.folder, target, request, 2.0)
            rates.append(rate)
            costs.append((cpu_s(pid) - before) / rate / 2.0)
        ratios.append(rates[1] / rates[0])
        cpu_ratios.append(costs[0] / costs[1])
    print(
        f"publish-one    {rates[1]:.0f} calls/s, floor {rates[0]:.0f}: ratio "
        f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}), target 0.85; server's "
        f"processor a call {costs[1] * 1e6:.0f} µs, floor {costs[0] * 1e6:.0f} µs: "
        f"{median(cpu_ratios):.2f}"
    )


MEASURES: dict[str, Callable[[Servers], None]] = {
    "fetch-140": fetch(140),
    "fetch-1000": fetch(1000),
    "route-512": route,
    "search-1000": search,
    "publish-stream": publish_stream,
    "publish-one": publish_one,
}


# ---- the run -----------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", default=list(MEASURES), metavar="NAME")
    names = parser.parse_args().names
    free = "127.0.0.1:0"
    with (
        tempfile.TemporaryDirectory() as folder,
        process("-m", "warmindex_server", "--listen", free, "--http-listen", free) as real,
        process(load.__file__, "floor", folder) as floor,
    ):
        servers = Servers(*real, *floor, Path(folder))
        for name in names:
            MEASURES[name](servers)


if __name__ == "__main__":
    main()

"""A sidecar beside an inference engine: KV-cache events in, domain events out.

The data path, one file a step. What comes before `sockets` is pure: no socket, no clock.

    framing      ZMQ frames -> topic, sequence number, payload
    order        sequence numbers -> actions: loss, replay, restarts; with delivered, held,
                 lesson and replay, which remember each a part of it
    decode       payload -> what the engine says, in any version's shape; with extra_keys
    runs         blocks said one by one -> runs of blocks
    adapters     an engine's names and numbers -> adapter ids
    copies       medium, locality, group -> one copy of a block, and its tier
    ledger       engine hash -> where its block went
    residence    what an engine says -> which holds begin and end
    outbox       holds -> few `CacheEvent`s, in order
    replicas     one residence per rank, published and learned
    ranks        ranks -> endpoints, and names of replicas
    sockets      SUB, the replay's DEALER, and the monitor
    stream       one publisher of an engine, from its sockets to the sink
    models       adapter versions, from the engine's model list
    sidecar      all ranks of an engine; `command` is its command line

What leaves is handed to a `sink.EventSink`. Nothing here sends prompt text or token ids on.

The rule above all others: a hold that may be false is cleared. A cleared hold costs a
prefill, a stale one sends a prompt to a replica that does not have its prefix.
"""

"""An engine without a model: a real prefix cache, real chats, real KV events over ZMQ.

    traffic      prompts as chats make them: shared system prompts, turns that grow
    cache        a bounded prefix cache: which blocks of a prompt are there, which go
    shapes       what the cache says, as vLLM or SGLang write it
    publisher    PUB and replay ROUTER, and how they lose things on demand
    command      all of it as `warmindex-subscriber fake-engine`

For tests, demos and load. The parts are a library: `cache.Engine` serves prompts and says what
changed; `traffic.Traffic` is an endless, seeded stream of them.
"""

"""Every limit of the contract, with the reason for its value.

The server's own settings (how long a drain may take, how much of the log is kept)
stand beside what they limit; what a caller may send stands here.
"""

from __future__ import annotations

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB

# A replica is named by a pod's name with a rank behind it; Kubernetes allows 253.
REPLICA_ID_BYTES_MAX: Final = 256
# A model's identity spells out all that determines a vector, prompts included.
MODEL_ID_BYTES_MAX: Final = 2048
TENANT_ID_BYTES_MAX: Final = 128
ADAPTER_ID_BYTES_MAX: Final = 256
HASH_SCHEME_BYTES_MAX: Final = 64
# A claimant is a random name; a UUID with room to spare.
CLAIMANT_ID_BYTES_MAX: Final = 256

# 4096 hashes and 384-wide vectors make an event of 6 MiB at the most, so the byte
# limit rules there; with keys alone 4096 keeps one event's work below a few ms.
CONTENT_HASHES_MAX: Final = 4096
CONTENT_HASH_BYTES_MAX: Final = 64
TEXT_HASH_BYTES: Final = 32
CHAIN_HASH_BYTES: Final = 8
# 64 hex digits are valid base64 and decode to 48 bytes: a digest sent as hex in JSON.
HEX_DIGEST_READ_AS_BASE64_BYTES: Final = 48

# An effect of an event must fit a watch response, and those stay under the 4 MiB
# that every gRPC client accepts by default.
EVENT_BYTES_MAX: Final = 3 * MIB
DIMENSIONS_MAX: Final = 8192
DOCUMENT_NAME_BYTES_MAX: Final = KIB
DOCUMENT_DESCRIPTION_BYTES_MAX: Final = 64 * KIB
TOKEN_COUNT_MAX: Final = 2**32 - 1
SEQUENCE_MAX: Final = 2**64 - 1

# What one message may be, both ways: a batch of events, a page of vectors.
MESSAGE_BYTES_MAX: Final = 16 * MIB
EVENTS_PER_MESSAGE_MAX: Final = 1024

# The answer to GetEmbeddings: under a default client's 4 MiB unless it asks for more,
# and never over the message limit.
GET_BYTES_DEFAULT: Final = 3 * MIB
GET_BYTES_MAX: Final = 15 * MIB
CLAIM_TTL_S_DEFAULT: Final = 30.0
CLAIM_TTL_S_MAX: Final = 600.0
WAIT_S_MAX: Final = 60.0
MIN_REVISION_WAIT_S: Final = 5.0

# What hits' documents and what an entry's places may take in one answer, for the same reason
# as above.
ANSWER_TEXT_BYTES_MAX: Final = 3 * MIB

QUERY_TEXT_BYTES_MAX: Final = 64 * KIB
KEYWORDS_MAX: Final = 256
# Each keyword is a word or two; all of them together are held to the query's limit.
ALLOWED_MAX: Final = 16384
SEARCH_LIMIT_DEFAULT: Final = 8
SEARCH_LIMIT_MAX: Final = 1000
DISTANCE_MAX: Final = 2.0

# A million tokens is the longest context served today; 65536 blocks of 16 are the same.
BLOCK_HASHES_MAX: Final = 65536
TOKEN_IDS_MAX: Final = 1048576
ROUTE_REPLICAS_MAX: Final = 4096

PAGE_SIZE_DEFAULT: Final = 100
PAGE_SIZE_MAX: Final = 1000
PAGE_TOKEN_BYTES_MAX: Final = 4 * KIB

LEASE_TTL_S_MIN: Final = 1.0
LEASE_TTL_S_MAX: Final = 86400.0
LEASES_PER_MESSAGE_MAX: Final = 1024
WATCH_ADAPTERS_MAX: Final = 1024

assert GET_BYTES_MAX < MESSAGE_BYTES_MAX  # noqa: S101 - a relation between constants
assert EVENT_BYTES_MAX < 4 * MIB  # noqa: S101 - a relation between constants
assert DIMENSIONS_MAX * 4 < EVENT_BYTES_MAX  # noqa: S101 - one row always fits

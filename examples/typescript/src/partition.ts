import { credentials, Metadata, type CallOptions, type ChannelCredentials, type ServiceError } from "@grpc/grpc-js";
import { CacheEvent, CacheEvent_Type, Document, PartitionKey } from "./gen/warmindex/v1/event.js";
import {
  GetEmbeddingsRequest,
  GetEmbeddingsResponse,
  GetEmbeddingsResponse_State as State,
  IndexServiceClient,
  PublishEventRequest,
  PublishEventResponse,
  ReleaseClaimsRequest,
  ReleaseClaimsResponse,
  SearchRequest,
  SearchResponse,
  SearchResponse_Hit,
} from "./gen/warmindex/v1/index_service.js";
import { KEY_BYTES, TEXT_SCHEME } from "./hashing.js";
import { decode, encode } from "./vectors.js";

/** The most keys of one call or event. */
export const KEYS_MAX = 4096;
// The contract's limit of an encoded event, less room for its frame.
const EVENT_BYTES_MAX = 3 * 2 ** 20 - 16 * 2 ** 10;
// What a key, and the frame around it and its document, take in an event.
const ENTRY_BYTES = KEY_BYTES + 24;
// Longer than any wait that is asked for here. What takes longer is computed sooner.
const CALL_MS_MAX = 10_000;

/** What one key has: a vector, and the document under which it is found by words. */
export interface Item {
  key: Buffer;
  vector: Float32Array;
  document?: Document;
}

/** A state and, where it is STATE_FOUND, a vector. */
export interface Answer {
  state: State;
  vector?: Float32Array;
}

/** One place of the index: a tenant's texts under one model and adapter. Close it. */
export class Partition {
  readonly #stub: IndexServiceClient;
  readonly #key: PartitionKey;
  readonly #replica: string;

  /** `replica` is under whose name vectors are published: a deployment, not a process. */
  constructor(
    server: string,
    modelId: string,
    replica: string,
    options: { tenantId?: string; adapterId?: string; credentials?: ChannelCredentials } = {},
  ) {
    this.#stub = new IndexServiceClient(server, options.credentials ?? credentials.createInsecure());
    const { tenantId = "", adapterId = "" } = options;
    this.#key = { tenantId, modelId, adapterId, hashScheme: TEXT_SCHEME };
    this.#replica = replica;
  }

  close(): void {
    this.#stub.close();
  }

  /** Vectors, one for each key in order; undefined where the index has none. */
  async get(keys: readonly Buffer[]): Promise<(Float32Array | undefined)[]> {
    const vectors: (Float32Array | undefined)[] = keys.map(() => undefined);
    let places = keys.map((_key, place) => place);
    while (places.length > 0) {
      const asked = places.slice(0, KEYS_MAX);
      const answers = await this.ask(asked.map((place) => keys[place]!));
      asked.forEach((place, i) => (vectors[place] = answers[i]!.vector));
      // A full answer leaves the rest for the next call.
      const deferred = asked.filter((_place, i) => answers[i]!.state === State.STATE_DEFERRED);
      places = [...deferred, ...places.slice(asked.length)];
    }
    return vectors;
  }

  /**
   * Publishes vectors of one width, in as many events as they need. Without numbers an event
   * always applies, which is right for a replica that several processes share.
   */
  async put(items: readonly Item[]): Promise<void> {
    for (let start = 0; start < items.length; ) {
      const part = items.slice(start, start + eventItems(items, start));
      const event = CacheEvent.fromPartial({
        type: CacheEvent_Type.EMBEDDED,
        replicaId: this.#replica,
        ...this.#key,
        contentHashes: part.map((item) => item.key),
        embeddings: encode(part.map((item) => item.vector)),
        // One a key, or none at all: an empty document leaves what the entry has.
        documents: part.map((item) => item.document ?? Document.create()),
      });
      const request = PublishEventRequest.create({ event });
      await call<PublishEventResponse>((...how) => this.#stub.publishEvent(request, ...how));
      start += part.length;
    }
  }

  /** The best documents by meaning, by words, or by both: either may be left out. */
  async search(query: { vector?: Float32Array; text?: string; limit?: number }): Promise<SearchResponse_Hit[]> {
    const request = SearchRequest.fromPartial({
      partition: this.#key,
      queryText: query.text ?? "",
      limit: query.limit ?? 0,
      ...(query.vector && { queryEmbedding: encode([query.vector]) }),
    });
    const answer = await call<SearchResponse>((...how) => this.#stub.search(request, ...how));
    return answer.hits;
  }

  /** One call for at most KEYS_MAX keys; `options` say what to claim, and how long to wait. */
  async ask(keys: Buffer[], options: Partial<GetEmbeddingsRequest> = {}): Promise<Answer[]> {
    const request = GetEmbeddingsRequest.create({ ...options, partition: this.#key, contentHashes: keys });
    const answer = await call<GetEmbeddingsResponse>((...how) => this.#stub.getEmbeddings(request, ...how));
    const rows = decode(answer.embeddings).values();
    return keys.map((_key, i) => {
      const state = answer.states[i] ?? State.STATE_ABSENT;
      if (state !== State.STATE_FOUND) return { state };
      const vector = rows.next().value;
      if (vector === undefined) throw new Error("the answer has fewer rows than keys found");
      return { state, vector };
    });
  }

  /** Gives up claims whose content will not be published. */
  async release(claimantId: string, keys: Buffer[]): Promise<void> {
    const request = ReleaseClaimsRequest.create({ partition: this.#key, claimantId, contentHashes: keys });
    await call<ReleaseClaimsResponse>((...how) => this.#stub.releaseClaims(request, ...how));
  }
}

/** How many items from `start` one event takes. */
function eventItems(items: readonly Item[], start: number): number {
  let bytes = 0;
  let count = 0;
  for (const { vector, document } of items.slice(start, start + KEYS_MAX)) {
    const { name = "", description = "" } = document ?? {};
    bytes += ENTRY_BYTES + vector.byteLength + Buffer.byteLength(name) + Buffer.byteLength(description);
    if (count > 0 && bytes > EVENT_BYTES_MAX) break;
    count += 1;
  }
  return count;
}

type Done<T> = (error: ServiceError | null, answer: T) => void;

/** A call as a promise, with a deadline: without one it waits for ever. */
function call<T>(start: (metadata: Metadata, options: CallOptions, done: Done<T>) => unknown): Promise<T> {
  return new Promise((resolve, reject) => {
    const deadline = Date.now() + CALL_MS_MAX;
    start(new Metadata(), { deadline }, (error, answer) => (error ? reject(error) : resolve(answer)));
  });
}

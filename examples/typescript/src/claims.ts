import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import type { Document } from "./gen/warmindex/v1/event.js";
import { GetEmbeddingsResponse_State as State } from "./gen/warmindex/v1/index_service.js";
import { textKey } from "./hashing.js";
import { KEYS_MAX, type Answer, type Partition } from "./partition.js";

// Outlives the computing of one share; whoever waits for a dead claimant waits no longer.
const CLAIM_S = 30;
// How long one call lets the server wait for others' work.
const WAIT_S = 5;
// How many keys one round claims, so that callers that start together share the work.
const SHARE_MAX = 64;
// Keeps a server that does not wait from being asked in a tight loop.
const PAUSE_MS = 20;

/** What is embedded, and the document under which its vector is found by words. */
export interface Text {
  text: string;
  document?: Document;
}

/** Embeds texts: one vector of one width for each, in order. */
export type Compute = (texts: string[]) => Promise<Float32Array[]>;

export interface Got {
  /** One for each text, in order. */
  vectors: Float32Array[];
  /** How many this caller computed; the others were found. */
  computed: number;
  /**
   * Why the index could not be asked or published to. The vectors are whole all the same: an
   * index saves work, and is never needed.
   */
  problem?: unknown;
}

interface Build {
  partition: Partition;
  compute: Compute;
  /** Unique to this computation, not to the process. */
  claimantId: string;
  vectors: Map<string, Float32Array>;
  computed: number;
  problem?: unknown;
}

type Entry = [id: string, text: Text];

/**
 * A vector for each text: from the index where it is there, from whoever is computing it just
 * now, and by `compute` otherwise. Throws where `compute` does.
 */
export async function getOrCompute(partition: Partition, texts: readonly Text[], compute: Compute): Promise<Got> {
  const ids = texts.map((each) => textKey(each.text).toString("hex"));
  const build: Build = { partition, compute, claimantId: randomUUID(), vectors: new Map(), computed: 0 };
  const entries = [...new Map(ids.map((id, place) => [id, texts[place]!])).entries()];
  for (let start = 0; start < entries.length; start += KEYS_MAX) {
    await settle(build, entries.slice(start, start + KEYS_MAX));
  }
  const { vectors, computed, problem } = build;
  return { vectors: ids.map((id) => vectors.get(id)!), computed, problem };
}

/** Round by round, until every entry has a vector. */
async function settle(build: Build, entries: Entry[]): Promise<void> {
  let waiting = false;
  for (let left = entries; left.length > 0; left = left.filter(([id]) => !build.vectors.has(id))) {
    let answers: Answer[];
    try {
      answers = await build.partition.ask(left.map(keyOf), {
        claimantId: build.claimantId,
        claimTtl: { seconds: BigInt(CLAIM_S), nanos: 0 },
        maxClaims: SHARE_MAX,
        ...(waiting && { wait: { seconds: BigInt(WAIT_S), nanos: 0 } }),
      });
    } catch (error) {
      build.problem = error;
      await make(build, left, false);
      continue;
    }
    answers.forEach(({ vector }, i) => vector && build.vectors.set(left[i]![0], vector));
    const inState = (...states: State[]) => left.filter((_entry, i) => states.includes(answers[i]!.state));
    const claimed = inState(State.STATE_CLAIMED);
    const pending = inState(State.STATE_PENDING);
    const known = inState(State.STATE_FOUND, State.STATE_DEFERRED);
    if (claimed.length > 0) {
      // Absent ones beside these are past this round's share.
      await make(build, claimed, true);
    } else if (pending.length > 0) {
      if (waiting) await sleep(PAUSE_MS);
    } else {
      // Nobody gives claims for these: they are computed without one.
      await make(build, left.filter((entry) => !known.includes(entry)), false);
    }
    waiting = claimed.length === 0 && pending.length > 0;
  }
}

/** Computes and publishes; a claim that comes to nothing is given up. */
async function make(build: Build, entries: Entry[], claimed: boolean): Promise<void> {
  if (entries.length === 0) return;
  let published = false;
  try {
    const vectors = await build.compute(entries.map(([, { text }]) => text));
    if (vectors.length !== entries.length) {
      throw new RangeError(`compute gave ${vectors.length} vectors for ${entries.length} texts`);
    }
    entries.forEach(([id], i) => build.vectors.set(id, vectors[i]!));
    build.computed += entries.length;
    if (build.problem !== undefined) return;
    try {
      const items = entries.map((entry, i) => ({
        key: keyOf(entry),
        vector: vectors[i]!,
        ...(entry[1].document && { document: entry[1].document }),
      }));
      await build.partition.put(items);
      published = true;
    } catch (error) {
      build.problem = error;
    }
  } finally {
    if (claimed && !published) {
      // Whatever fails here, the claims end by themselves.
      await build.partition.release(build.claimantId, entries.map(keyOf)).catch(() => undefined);
    }
  }
}

function keyOf([id]: Entry): Buffer {
  return Buffer.from(id, "hex");
}

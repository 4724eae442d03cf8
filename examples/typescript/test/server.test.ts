import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import test, { type TestContext } from "node:test";
import { getOrCompute, type Compute, type Text } from "../src/claims.js";
import { textKey } from "../src/hashing.js";
import { Partition } from "../src/partition.js";

const server = process.env.WARMINDEX_SERVER;
const skip = server ? false : "WARMINDEX_SERVER names no server";

/** A partition of its own. */
function fresh(t: TestContext, at = server!): Partition {
  const partition = new Partition(at, `test-embedder@${randomUUID()}`, "typescript-test");
  t.after(() => partition.close());
  return partition;
}

function texts(count: number): Text[] {
  return Array.from({ length: count }, (_text, i) => ({
    text: `buoy ${i}`,
    document: { name: `buoy_${i}`, description: "" },
  }));
}

function signal(): { given: Promise<void>; give: () => void } {
  let give = (): void => undefined;
  const given = new Promise<void>((resolve) => (give = resolve));
  return { given, give };
}

/** A text's length and its bytes' sum. */
const compute: Compute = async (texts) =>
  texts.map((text) => Float32Array.of(text.length, Buffer.from(text).reduce((sum, byte) => sum + byte, 0)));

test("what was put is got back bit for bit, also what no single answer or event holds", { skip }, async (t) => {
  const partition = fresh(t);
  const items = Array.from({ length: 5000 }, (_item, i) => {
    const vector = new Float32Array(384);
    vector[i % 384] = i + 0.1;
    return { key: textKey(String(i)), vector };
  });
  await partition.put(items);
  const vectors = await partition.get([...items.map((item) => item.key), textKey("nobody's")]);
  assert.equal(vectors.pop(), undefined);
  assert.deepEqual(vectors, items.map((item) => item.vector));
});

test("callers that start together compute each text once among them", { skip }, async (t) => {
  const partition = fresh(t);
  const wanted = [...texts(300), ...texts(20)]; // Some twice.
  const all = await Promise.all(Array.from({ length: 4 }, () => getOrCompute(partition, wanted, compute)));
  const right = await compute(wanted.map((each) => each.text));
  for (const got of all) {
    assert.equal(got.problem, undefined);
    assert.deepEqual(got.vectors, right);
  }
  assert.equal(all.reduce((sum, got) => sum + got.computed, 0), 300);
});

test("who waits for a caller that fails goes on as soon as it has", { skip, timeout: 15_000 }, async (t) => {
  const partition = fresh(t);
  const started = signal();
  const fail = signal();
  const failed = assert.rejects(
    getOrCompute(partition, texts(3), async () => {
      started.give();
      await fail.given;
      throw new Error("no embedder");
    }),
    /no embedder/,
  );
  await started.given;
  setTimeout(fail.give, 100);
  const got = await getOrCompute(partition, texts(3), compute);
  assert.equal(got.computed, 3);
  await failed;
});

test("where no index answers, everything is computed, and the problem told", async (t) => {
  const got = await getOrCompute(fresh(t, "127.0.0.1:1"), texts(3), compute);
  assert.equal(got.computed, 3);
  assert.ok(got.problem);
});

test("an entry is found by words alone, and by its vector", { skip }, async (t) => {
  const partition = fresh(t);
  const items = texts(9).map(({ text, document }, i) => {
    const vector = new Float32Array(9);
    vector[i] = 1;
    return { key: textKey(text), vector, document: document! };
  });
  await partition.put(items);
  const byWords = await partition.search({ text: "buoy 7", limit: 1 });
  assert.deepEqual(byWords.map((hit) => hit.document?.name), ["buoy_7"]);
  const byMeaning = await partition.search({ vector: items[4]!.vector, limit: 1 });
  assert.deepEqual(byMeaning.map((hit) => hit.document?.name), ["buoy_4"]);
});

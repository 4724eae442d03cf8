import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import { chainKeys, chainScheme, textKey } from "../src/hashing.js";
import { modelId } from "../src/identity.js";

interface Golden {
  "text-sha256": { text: string; content_hash_hex: string }[];
  "xxh3-chain": { name: string; hash_scheme: string; parent_hex: string | null; token_ids: number[]; chain_hex: string[] }[];
  "model-id": { name: string; fields: Record<string, string>; model_id: string }[];
}

// The project's own vectors, and those of the file that WARMINDEX_VECTORS names, if any.
// From dist/test/, where this runs.
const own = new URL("../../../../docs/golden-vectors.json", import.meta.url);
const files = [own, ...(process.env.WARMINDEX_VECTORS ? [process.env.WARMINDEX_VECTORS] : [])];
const golden = files.map((file) => JSON.parse(readFileSync(file, "utf8")) as Golden);

test("the key of a text is the published one, byte for byte", () => {
  const vectors = golden.flatMap((each) => each["text-sha256"]);
  assert.ok(vectors.length > 0);
  for (const { text, content_hash_hex } of vectors) {
    assert.equal(textKey(text).toString("hex"), content_hash_hex, JSON.stringify(text));
  }
  assert.throws(() => textKey("\ud800"), /lone surrogate/);
});

test("so are the keys of a prompt's blocks, with a parent and without", async () => {
  const vectors = golden.flatMap((each) => each["xxh3-chain"]);
  assert.ok(vectors.length > 0);
  for (const { name, hash_scheme, parent_hex, token_ids, chain_hex } of vectors) {
    const blockSize = Number(hash_scheme.slice("xxh3-chain/".length));
    assert.equal(chainScheme(blockSize), hash_scheme);
    const parent = parent_hex ? Buffer.from(parent_hex, "hex") : undefined;
    const keys = await chainKeys(token_ids, blockSize, parent);
    assert.deepEqual(keys.map((key) => key.toString("hex")), chain_hex, name);
  }
});

test("so is the identity of a model, whatever its fields hold", () => {
  const vectors = golden.flatMap((each) => each["model-id"]);
  assert.ok(vectors.length > 0);
  for (const { name, fields, model_id } of vectors) {
    const { p = "", h, m = "", r, d, pool, dim, norm, trunc = "", doc } = fields;
    const identity = {
      provider: p,
      model: m,
      dimensions: Number(dim),
      normalized: norm === "1",
      truncation: trunc,
      ...(h !== undefined && { host: h }),
      ...(r !== undefined && { revision: r }),
      ...(d !== undefined && { dtype: d }),
      ...(pool !== undefined && { pooling: pool }),
      ...(doc !== undefined && { documentPrompt: doc }),
    };
    assert.equal(modelId(identity), model_id, name);
  }
});

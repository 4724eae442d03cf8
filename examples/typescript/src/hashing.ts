import { createHash } from "node:crypto";
import { createXXHash3 } from "hash-wasm";

/** The hash scheme of texts. */
export const TEXT_SCHEME = "text-sha256";
/** The length of a text's key. */
export const KEY_BYTES = 32;

const TEXT_TAG = Buffer.from("text/1");
// Settled by the contract: under another seed it is another scheme.
const CHAIN_SEED = 1337;

/** The text under which a tool is embedded and hashed. */
export function toolText(name: string, description: string): string {
  return `name: ${name} description: ${description}`;
}

/**
 * The text-sha256 key of a text, 32 bytes, over exactly what is embedded: nothing is trimmed or
 * normalised. Throws where the text has a lone surrogate, which no UTF-8 can carry.
 */
export function textKey(text: string): Buffer {
  // Buffer.from would write U+FFFD in its place, and two texts would have one key.
  if (/\p{Surrogate}/u.test(text)) {
    throw new RangeError("text has a lone surrogate, so it is not valid Unicode; repair it before hashing");
  }
  const bytes = Buffer.from(text, "utf8");
  return createHash("sha256")
    .update(le64(BigInt(TEXT_TAG.length)))
    .update(TEXT_TAG)
    .update(le64(BigInt(bytes.length)))
    .update(bytes)
    .digest();
}

/** The hash scheme of a prompt's blocks of `blockSize` tokens. */
export function chainScheme(blockSize: number): string {
  return `xxh3-chain/${blockSize}`;
}

/**
 * The keys of a run of tokens, 8 bytes each, one for every whole block. `parent` is the key of
 * the block before the run, left out at a prompt's beginning.
 */
export async function chainKeys(tokens: readonly number[], blockSize: number, parent?: Buffer): Promise<Buffer[]> {
  const hasher = await createXXHash3(CHAIN_SEED);
  // The digest is the value big-endian, which is also how a key is written.
  const hash = (data: Uint8Array): Buffer => Buffer.from(hasher.init().update(data).digest("binary"));
  const keys: Buffer[] = [];
  for (let start = 0; start + blockSize <= tokens.length; start += blockSize) {
    const block = Buffer.alloc(4 * blockSize);
    tokens.slice(start, start + blockSize).forEach((token, i) => block.writeUInt32LE(token, 4 * i));
    let key = hash(block);
    if (parent !== undefined) {
      key = hash(Buffer.concat([le64(parent.readBigUInt64BE()), le64(key.readBigUInt64BE())]));
    }
    keys.push(key);
    parent = key;
  }
  return keys;
}

function le64(value: bigint): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(value);
  return bytes;
}

import type { EmbeddingBlock } from "./gen/warmindex/v1/event.js";

/** Rows of one width as little-endian float32. */
export function encode(rows: readonly Float32Array[]): EmbeddingBlock {
  const dimensions = rows[0]?.length ?? 0;
  const values = Buffer.alloc(4 * dimensions * rows.length);
  rows.forEach((row, i) => {
    if (row.length !== dimensions || dimensions === 0) {
      throw new RangeError(`row ${i} has ${row.length} numbers and row 0 has ${dimensions}; give rows of one width`);
    }
    row.forEach((value, j) => values.writeFloatLE(value, 4 * (i * dimensions + j)));
  });
  return { dimensions, values };
}

/** The rows of a block; one that is not there has none. */
export function decode(block: EmbeddingBlock | undefined): Float32Array[] {
  const { dimensions, values } = block ?? { dimensions: 0, values: Buffer.alloc(0) };
  if (values.length === 0) return [];
  if (dimensions === 0 || values.length % (4 * dimensions) !== 0) {
    throw new RangeError(`${values.length} bytes are no rows of ${dimensions} float32`);
  }
  return Array.from({ length: values.length / (4 * dimensions) }, (_row, i) =>
    Float32Array.from({ length: dimensions }, (_value, j) => values.readFloatLE(4 * (i * dimensions + j))),
  );
}

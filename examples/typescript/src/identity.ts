// The contract's limit of a model_id.
const MODEL_ID_BYTES_MAX = 2048;

/** Everything that determines the vector of a document. */
export interface Identity {
  /** "tei", "openai" or "local". */
  provider: string;
  /** Where the model's name means something; left out where it does everywhere. */
  host?: string;
  model: string;
  revision?: string;
  /** In lower case, like `pooling`. */
  dtype?: string;
  pooling?: string;
  /** The width asked for; 0, the default, is the model's own. */
  dimensions?: number;
  /** Whether normalisation is asked for. */
  normalized: boolean;
  /** "right@L", "left@L", "none@0" or "server@0". */
  truncation: string;
  /** Put before documents; or "name:…" of one that the server knows. */
  documentPrompt?: string;
}

/** The identity as one string, the `model_id` of an embedding scope: all fields, in this order. */
export function modelId(identity: Identity): string {
  const fields: [string, string][] = [
    ["p", identity.provider],
    ["h", identity.host ?? ""],
    ["m", identity.model],
    ["r", identity.revision ?? ""],
    ["d", identity.dtype ?? ""],
    ["pool", identity.pooling ?? ""],
    ["dim", String(identity.dimensions ?? 0)],
    ["norm", identity.normalized ? "1" : "0"],
    ["trunc", identity.truncation],
    ["doc", identity.documentPrompt ?? ""],
  ];
  const id = ["emb/1", ...fields.map(([key, value]) => `${key}=${quote(value)}`)].join(";");
  if (id.length > MODEL_ID_BYTES_MAX) {
    throw new RangeError(
      `model_id has ${id.length} bytes, and ${MODEL_ID_BYTES_MAX} is the most; shorten the model's name or prompt`,
    );
  }
  return id;
}

// encodeURIComponent leaves !~*'() alone and encodes / @ :, so its set is another; it also throws
// for a lone surrogate, as it should.
function quote(value: string): string {
  return encodeURIComponent(value)
    .replace(/[!~*'()]/g, (mark) => `%${mark.charCodeAt(0).toString(16).toUpperCase()}`)
    .replace(/%(2F|40|3A)/g, (encoded) => decodeURIComponent(encoded));
}

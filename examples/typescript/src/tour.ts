// Makes keys, fetches, computes and publishes what is missing, and searches.
//
//     npm run tour -- 127.0.0.1:50151
import { getOrCompute } from "./claims.js";
import { textKey, toolText } from "./hashing.js";
import { modelId } from "./identity.js";
import { Partition } from "./partition.js";

const TOOLS = [
  { name: "read_rain_gauge", description: "Say how much rain fell since midnight." },
  { name: "open_sluice", description: "Open a sluice gate by so many centimetres." },
  { name: "next_ferry", description: "Say when the next ferry leaves." },
];

/** Stands for an embedding server: how often each letter occurs. 26 wide. */
async function letters(texts: string[]): Promise<Float32Array[]> {
  return texts.map((text) => {
    const counts = new Float32Array(26);
    for (const letter of text.match(/[a-z]/g) ?? []) counts[letter.charCodeAt(0) - 97]! += 1;
    return counts;
  });
}

const id = modelId({
  provider: "tei",
  model: "example/harbour-letters",
  revision: "1",
  dtype: "float32",
  pooling: "mean",
  normalized: true,
  truncation: "right@512",
});
console.log("model", id);
const texts = TOOLS.map((tool) => ({ text: toolText(tool.name, tool.description), document: tool }));
texts.forEach(({ text, document }) => console.log("key", textKey(text).toString("hex"), document.name));

const partition = new Partition(process.argv[2] ?? "127.0.0.1:50151", id, "tour");
try {
  const got = await getOrCompute(partition, texts, letters);
  if (got.problem !== undefined) throw got.problem;
  console.log("computed", got.computed, "of", texts.length);
  const question = "how much rain";
  const [vector] = await letters([question]);
  for (const hit of await partition.search({ vector: vector!, text: question, limit: 2 })) {
    console.log("hit", hit.score.toFixed(2), hit.document?.name);
  }
} finally {
  partition.close();
}

package warmindex

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// What docs/golden-vectors.json and files like it say; field names as there.
type textVector struct {
	Text string `json:"text"`
	Key  string `json:"content_hash_hex"`
}

type chainVector struct {
	Name   string   `json:"name"`
	Scheme string   `json:"hash_scheme"`
	Parent string   `json:"parent_hex"`
	Tokens []uint32 `json:"token_ids"`
	Keys   []string `json:"chain_hex"`
}

type identityVector struct {
	Name    string            `json:"name"`
	Fields  map[string]string `json:"fields"`
	ModelID string            `json:"model_id"`
}

type goldenVectors struct {
	Texts      []textVector     `json:"text-sha256"`
	Chains     []chainVector    `json:"xxh3-chain"`
	Identities []identityVector `json:"model-id"`
}

// golden are the vectors of the project, and of the file that WARMINDEX_VECTORS names, if any.
func golden(t *testing.T) goldenVectors {
	t.Helper()
	all := goldenVectors{}
	for _, file := range []string{filepath.Join("..", "..", "docs", "golden-vectors.json"), os.Getenv("WARMINDEX_VECTORS")} {
		if file == "" {
			continue
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var read goldenVectors
		if err := json.Unmarshal(data, &read); err != nil {
			t.Fatal(err)
		}
		all.Texts = append(all.Texts, read.Texts...)
		all.Chains = append(all.Chains, read.Chains...)
		all.Identities = append(all.Identities, read.Identities...)
	}
	if len(all.Texts) == 0 || len(all.Chains) == 0 || len(all.Identities) == 0 {
		t.Fatal("a kind of vectors is missing")
	}
	return all
}

// TestTextKeys: the key of a text is the published one, byte for byte.
func TestTextKeys(t *testing.T) {
	for _, vector := range golden(t).Texts {
		key, err := TextKey(vector.Text)
		if err != nil || hex.EncodeToString(key) != vector.Key {
			t.Errorf("%q: %x, %v; want %s", vector.Text, key, err, vector.Key)
		}
	}
	if _, err := TextKey("\xed\xa0\x80"); err == nil {
		t.Error("a lone surrogate has a key")
	}
}

// TestChainKeys: so are the keys of a prompt's blocks, with a parent and without.
func TestChainKeys(t *testing.T) {
	for _, vector := range golden(t).Chains {
		blockSize, err := strconv.Atoi(strings.TrimPrefix(vector.Scheme, "xxh3-chain/"))
		if err != nil || ChainScheme(blockSize) != vector.Scheme {
			t.Fatalf("%s: scheme %q", vector.Name, vector.Scheme)
		}
		var parent []byte
		if vector.Parent != "" {
			parent, _ = hex.DecodeString(vector.Parent)
		}
		keys, err := ChainKeys(vector.Tokens, blockSize, parent)
		if err != nil || len(keys) != len(vector.Keys) {
			t.Fatalf("%s: %x, %v; want %v", vector.Name, keys, err, vector.Keys)
		}
		for i, key := range keys {
			if hex.EncodeToString(key) != vector.Keys[i] {
				t.Errorf("%s, block %d: %x; want %s", vector.Name, i, key, vector.Keys[i])
			}
		}
	}
}

// TestModelIDs: so is the identity of a model, whatever its fields hold.
func TestModelIDs(t *testing.T) {
	for _, vector := range golden(t).Identities {
		dimensions, err := strconv.Atoi(vector.Fields["dim"])
		if err != nil {
			t.Fatal(err)
		}
		modelID, err := Identity{
			Provider:       vector.Fields["p"],
			Host:           vector.Fields["h"],
			Model:          vector.Fields["m"],
			Revision:       vector.Fields["r"],
			DType:          vector.Fields["d"],
			Pooling:        vector.Fields["pool"],
			Dimensions:     dimensions,
			Normalized:     vector.Fields["norm"] == "1",
			Truncation:     vector.Fields["trunc"],
			DocumentPrompt: vector.Fields["doc"],
		}.ModelID()
		if err != nil || modelID != vector.ModelID {
			t.Errorf("%s: %q, %v; want %q", vector.Name, modelID, err, vector.ModelID)
		}
	}
}

package warmindex

import (
	"errors"
	"fmt"
	"strings"
)

// modelIDBytesMax is the contract's limit of a model_id.
const modelIDBytesMax = 2048

// Identity is everything that determines the vector of a document. Its ModelID is the model_id of
// an embedding scope: what was stored under another one is not found.
type Identity struct {
	Provider       string // "tei", "openai" or "local"
	Host           string // where the model's name means something; "" where it does everywhere
	Model          string
	Revision       string
	DType          string // lower case
	Pooling        string // lower case
	Dimensions     int    // the width asked for; 0 is the model's own
	Normalized     bool   // whether normalisation is asked for
	Truncation     string // "right@L", "left@L", "none@0" or "server@0"
	DocumentPrompt string // put before documents; or "name:…" of one that the server knows
}

// ModelID is the identity as one string: all fields, in the contract's order.
func (identity Identity) ModelID() (string, error) {
	if identity.Provider == "" || identity.Model == "" || identity.Truncation == "" {
		return "", errors.New("an identity needs a provider, a model and a truncation")
	}
	normalized := "0"
	if identity.Normalized {
		normalized = "1"
	}
	modelID := "emb/1"
	for _, field := range [][2]string{
		{"p", identity.Provider},
		{"h", identity.Host},
		{"m", identity.Model},
		{"r", identity.Revision},
		{"d", identity.DType},
		{"pool", identity.Pooling},
		{"dim", fmt.Sprint(identity.Dimensions)},
		{"norm", normalized},
		{"trunc", identity.Truncation},
		{"doc", identity.DocumentPrompt},
	} {
		modelID += ";" + field[0] + "=" + quote(field[1])
	}
	if len(modelID) > modelIDBytesMax {
		return "", fmt.Errorf("model_id has %d bytes, and %d is the most; shorten the model's name or prompt", len(modelID), modelIDBytesMax)
	}
	return modelID, nil
}

// quote writes every byte that could be mistaken for the frame as %XX. No function of net/url
// has this set of bytes.
func quote(value string) string {
	var quoted strings.Builder
	for i := range len(value) {
		switch c := value[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9',
			strings.IndexByte("._/@:-", c) >= 0:
			quoted.WriteByte(c)
		default:
			fmt.Fprintf(&quoted, "%%%02X", c)
		}
	}
	return quoted.String()
}

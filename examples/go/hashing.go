package warmindex

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"unicode/utf8"

	"github.com/zeebo/xxh3"
)

const (
	// TextScheme is the hash scheme of texts.
	TextScheme = "text-sha256"
	// KeyBytes is the length of a text's key.
	KeyBytes = sha256.Size
	// ChainKeyBytes is the length of a key of a chain.
	ChainKeyBytes = 8

	// chainSeed is settled by the contract: under another seed it is another scheme.
	chainSeed = 1337
	textTag   = "text/1"
)

// ToolText is the text under which a tool is embedded and hashed.
func ToolText(name, description string) string {
	return fmt.Sprintf("name: %s description: %s", name, description)
}

// TextKey is the text-sha256 key of a text, 32 bytes, over exactly the bytes that are embedded:
// nothing is trimmed or normalised. It fails where the text is not valid UTF-8.
func TextKey(text string) ([]byte, error) {
	if !utf8.ValidString(text) {
		return nil, fmt.Errorf("text is not valid UTF-8; repair it before hashing: %.40q", text)
	}
	// The lengths in front keep two different inputs from ever giving the same bytes.
	input := make([]byte, 0, 8+len(textTag)+8+len(text))
	input = binary.LittleEndian.AppendUint64(input, uint64(len(textTag)))
	input = append(input, textTag...)
	input = binary.LittleEndian.AppendUint64(input, uint64(len(text)))
	input = append(input, text...)
	key := sha256.Sum256(input)
	return key[:], nil
}

// ChainScheme is the hash scheme of a prompt's blocks of blockSize tokens.
func ChainScheme(blockSize int) string {
	return fmt.Sprintf("xxh3-chain/%d", blockSize)
}

// ChainKeys are the keys of a run of tokens, 8 bytes each, one for every whole block. parent is
// the key of the block before the run, nil at a prompt's beginning.
func ChainKeys(tokens []uint32, blockSize int, parent []byte) ([][]byte, error) {
	if blockSize < 1 {
		return nil, fmt.Errorf("blockSize is %d; give the engine's, 1 or more", blockSize)
	}
	if parent != nil && len(parent) != ChainKeyBytes {
		return nil, fmt.Errorf("parent has %d bytes where a chain's key has %d", len(parent), ChainKeyBytes)
	}
	keys := make([][]byte, 0, len(tokens)/blockSize)
	for ; len(tokens) >= blockSize; tokens = tokens[blockSize:] {
		block := make([]byte, 0, 4*blockSize)
		for _, token := range tokens[:blockSize] {
			block = binary.LittleEndian.AppendUint32(block, token)
		}
		key := xxh3.HashSeed(block, chainSeed)
		if parent != nil {
			key = xxh3.HashSeed(pair(binary.BigEndian.Uint64(parent), key), chainSeed)
		}
		parent = binary.BigEndian.AppendUint64(nil, key)
		keys = append(keys, parent)
	}
	return keys, nil
}

func pair(parent, content uint64) []byte {
	both := binary.LittleEndian.AppendUint64(make([]byte, 0, 16), parent)
	return binary.LittleEndian.AppendUint64(both, content)
}

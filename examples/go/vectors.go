package warmindex

import (
	"encoding/binary"
	"fmt"
	"math"

	pb "example.com/warmindex/warmindexv1"
)

// encode writes rows of one width as little-endian float32.
func encode(rows []Vector) (*pb.EmbeddingBlock, error) {
	width := len(rows[0])
	values := make([]byte, 0, 4*width*len(rows))
	for i, row := range rows {
		if len(row) != width || width == 0 {
			return nil, fmt.Errorf("row %d has %d numbers and row 0 has %d; give rows of one width", i, len(row), width)
		}
		for _, value := range row {
			values = binary.LittleEndian.AppendUint32(values, math.Float32bits(value))
		}
	}
	return &pb.EmbeddingBlock{Dimensions: uint32(width), Values: values}, nil
}

// decode reads rows; a block that is not there has none.
func decode(block *pb.EmbeddingBlock) ([]Vector, error) {
	bytes := block.GetValues()
	if len(bytes) == 0 {
		return nil, nil
	}
	width := int(block.Dimensions)
	if width == 0 || len(bytes)%(4*width) != 0 {
		return nil, fmt.Errorf("%d bytes are no rows of %d float32", len(bytes), width)
	}
	rows := make([]Vector, len(bytes)/(4*width))
	for i := range rows {
		rows[i] = make(Vector, width)
		for j := range rows[i] {
			rows[i][j] = math.Float32frombits(binary.LittleEndian.Uint32(bytes[4*(i*width+j):]))
		}
	}
	return rows, nil
}

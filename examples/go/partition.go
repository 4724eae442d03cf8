// Package warmindex is a small client of the index, written by the contract alone: Get, Put,
// Search, and GetOrCompute, by which a fleet computes every vector once.
package warmindex

import (
	"context"
	"fmt"

	"google.golang.org/grpc"

	pb "example.com/warmindex/warmindexv1"
)

const (
	// keysMax is the most keys of one call or event.
	keysMax = 4096
	// eventBytesMax is the contract's limit of an encoded event, less room for its frame.
	eventBytesMax = 3<<20 - 16<<10
	// entryBytes is what a key, and the frame around it and its document, take in an event.
	entryBytes = KeyBytes + 24
)

// Vector is a row of float32; nil where there is none.
type Vector = []float32

// Partition is one place of the index: a tenant's texts under one model and adapter.
type Partition struct {
	Stub     pb.IndexServiceClient
	ModelID  string
	TenantID string
	Adapter  string // "" is the base model's
	Replica  string // under whose name vectors are published: a deployment, not a process
}

// New is the base model's partition of the default tenant.
func New(connection grpc.ClientConnInterface, modelID, replica string) *Partition {
	return &Partition{Stub: pb.NewIndexServiceClient(connection), ModelID: modelID, Replica: replica}
}

// Item is what one key has: a vector, and the document under which it is found by words.
type Item struct {
	Key      []byte
	Vector   Vector
	Document *pb.Document // may be nil
}

// Get fetches vectors, one for each key in order; nil where the index has none.
func (partition *Partition) Get(ctx context.Context, keys [][]byte) ([]Vector, error) {
	vectors := make([]Vector, len(keys))
	for start := 0; start < len(keys); start += keysMax {
		places := placesFrom(start, min(start+keysMax, len(keys)))
		for len(places) > 0 {
			asked := &pb.GetEmbeddingsRequest{ContentHashes: pick(keys, places)}
			states, err := partition.ask(ctx, asked, places, vectors)
			if err != nil {
				return nil, err
			}
			// A full answer leaves the rest for the next call.
			places = withState(places, states, pb.GetEmbeddingsResponse_STATE_DEFERRED)
		}
	}
	return vectors, nil
}

// Put publishes vectors, in as many events as they need. All must be of one width. Without
// numbers an event always applies, which is right for a replica that several processes share.
func (partition *Partition) Put(ctx context.Context, items []Item) error {
	for len(items) > 0 {
		count := eventItems(items)
		event := &pb.CacheEvent{
			Type:       pb.CacheEvent_EMBEDDED,
			ReplicaId:  partition.Replica,
			ModelId:    partition.ModelID,
			TenantId:   partition.TenantID,
			AdapterId:  partition.Adapter,
			HashScheme: TextScheme,
		}
		vectors := make([]Vector, count)
		for i, item := range items[:count] {
			event.ContentHashes = append(event.ContentHashes, item.Key)
			// One a key, or none at all: an empty document leaves what the entry has.
			event.Documents = append(event.Documents, documentOf(item))
			vectors[i] = item.Vector
		}
		block, err := encode(vectors)
		if err != nil {
			return err
		}
		event.Embeddings = block
		if _, err := partition.Stub.PublishEvent(ctx, &pb.PublishEventRequest{Event: event}); err != nil {
			return fmt.Errorf("publish %d vectors: %w", count, err)
		}
		items = items[count:]
	}
	return nil
}

// Search ranks the partition's documents by meaning, by words, or by both: vector may be nil,
// text may be "".
func (partition *Partition) Search(ctx context.Context, vector Vector, text string, limit uint32) ([]*pb.SearchResponse_Hit, error) {
	request := &pb.SearchRequest{Partition: partition.key(), QueryText: text, Limit: limit}
	if vector != nil {
		block, err := encode([]Vector{vector})
		if err != nil {
			return nil, err
		}
		request.QueryEmbedding = block
	}
	answer, err := partition.Stub.Search(ctx, request)
	if err != nil {
		return nil, fmt.Errorf("search: %w", err)
	}
	return answer.Hits, nil
}

func (partition *Partition) key() *pb.PartitionKey {
	return &pb.PartitionKey{
		TenantId:   partition.TenantID,
		ModelId:    partition.ModelID,
		AdapterId:  partition.Adapter,
		HashScheme: TextScheme,
	}
}

// ask makes one call for the keys at places, and puts the rows found where they belong.
func (partition *Partition) ask(ctx context.Context, request *pb.GetEmbeddingsRequest, places []int, vectors []Vector) ([]pb.GetEmbeddingsResponse_State, error) {
	request.Partition = partition.key()
	answer, err := partition.Stub.GetEmbeddings(ctx, request)
	if err != nil {
		return nil, fmt.Errorf("ask for %d vectors: %w", len(places), err)
	}
	if len(answer.States) != len(places) {
		return nil, fmt.Errorf("the answer has %d states for %d keys", len(answer.States), len(places))
	}
	rows, err := decode(answer.Embeddings)
	if err != nil {
		return nil, err
	}
	found := withState(places, answer.States, pb.GetEmbeddingsResponse_STATE_FOUND)
	if len(found) != len(rows) {
		return nil, fmt.Errorf("the answer has %d rows for %d keys found", len(rows), len(found))
	}
	for i, place := range found {
		vectors[place] = rows[i]
	}
	return answer.States, nil
}

// eventItems is how many of the next items one event takes.
func eventItems(items []Item) int {
	bytes := 0
	for i, item := range items {
		bytes += entryBytes + 4*len(item.Vector)
		if item.Document != nil {
			bytes += len(item.Document.Name) + len(item.Document.Description)
		}
		if i > 0 && (i == keysMax || bytes > eventBytesMax) {
			return i
		}
	}
	return len(items)
}

func documentOf(item Item) *pb.Document {
	if item.Document == nil {
		return &pb.Document{}
	}
	return item.Document
}

func placesFrom(start, end int) []int {
	places := make([]int, 0, end-start)
	for place := start; place < end; place++ {
		places = append(places, place)
	}
	return places
}

func pick(keys [][]byte, places []int) [][]byte {
	picked := make([][]byte, len(places))
	for i, place := range places {
		picked[i] = keys[place]
	}
	return picked
}

func withState(places []int, states []pb.GetEmbeddingsResponse_State, wanted pb.GetEmbeddingsResponse_State) []int {
	var found []int
	for i, state := range states {
		if state == wanted {
			found = append(found, places[i])
		}
	}
	return found
}

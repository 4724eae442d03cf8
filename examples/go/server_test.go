package warmindex

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "example.com/warmindex/warmindexv1"
)

// fresh is a partition of its own in the server that WARMINDEX_SERVER names.
func fresh(t *testing.T) *Partition {
	t.Helper()
	server := os.Getenv("WARMINDEX_SERVER")
	if server == "" {
		t.Skip("WARMINDEX_SERVER names no server")
	}
	return partitionAt(t, server)
}

func partitionAt(t *testing.T, server string) *Partition {
	t.Helper()
	connection, err := grpc.NewClient(server, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { connection.Close() })
	return New(connection, "test-embedder@"+rand.Text(), "go-test")
}

func texts(count int) []Text {
	made := make([]Text, count)
	for i := range made {
		made[i].Text = fmt.Sprintf("buoy %d", i)
		made[i].Document = &pb.Document{Name: fmt.Sprintf("buoy_%d", i)}
	}
	return made
}

// compute gives a text its length and its bytes' sum.
func compute(_ context.Context, texts []string) ([]Vector, error) {
	vectors := make([]Vector, len(texts))
	for i, text := range texts {
		sum := float32(0)
		for _, letter := range []byte(text) {
			sum += float32(letter)
		}
		vectors[i] = Vector{float32(len(text)), sum}
	}
	return vectors, nil
}

// TestPutGet: what was put is got back bit for bit, also what no single answer or event holds.
func TestPutGet(t *testing.T) {
	partition := fresh(t)
	items := make([]Item, 5000)
	keys := make([][]byte, len(items)+1)
	for i := range items {
		key, err := TextKey(fmt.Sprint(i))
		if err != nil {
			t.Fatal(err)
		}
		keys[i] = key
		items[i] = Item{Key: key, Vector: make(Vector, 384)}
		items[i].Vector[i%384] = float32(i) + 0.1
	}
	keys[len(items)], _ = TextKey("nobody's")
	if err := partition.Put(t.Context(), items); err != nil {
		t.Fatal(err)
	}
	vectors, err := partition.Get(t.Context(), keys)
	if err != nil {
		t.Fatal(err)
	}
	for i, item := range items {
		if !slices.Equal(vectors[i], item.Vector) {
			t.Fatalf("vector %d differs", i)
		}
	}
	if vectors[len(items)] != nil {
		t.Error("a key that nobody published has a vector")
	}
}

// TestFleetComputesOnce: callers that start together compute each text once among them.
func TestFleetComputesOnce(t *testing.T) {
	partition := fresh(t)
	wanted := append(texts(300), texts(20)...) // Some twice.
	var computed atomic.Int64
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			got, err := partition.GetOrCompute(t.Context(), wanted, compute)
			if err != nil || got.Problem != nil {
				t.Error(err, got)
				return
			}
			computed.Add(int64(got.Computed))
			for i, text := range wanted {
				right, _ := compute(t.Context(), []string{text.Text})
				if !slices.Equal(got.Vectors[i], right[0]) {
					t.Errorf("text %d: %v", i, got.Vectors[i])
				}
			}
		})
	}
	callers.Wait()
	if computed.Load() != 300 {
		t.Errorf("computed %d vectors of 300 texts", computed.Load())
	}
}

// TestFailureGivesClaimsUp: who waits for a caller that fails goes on as soon as it has.
func TestFailureGivesClaimsUp(t *testing.T) {
	partition := fresh(t)
	started, fail := make(chan struct{}), make(chan struct{})
	broken := errors.New("no embedder")
	failed := make(chan error, 1)
	go func() {
		_, err := partition.GetOrCompute(t.Context(), texts(3), func(context.Context, []string) ([]Vector, error) {
			close(started)
			<-fail
			return nil, broken
		})
		failed <- err
	}()
	<-started
	time.AfterFunc(100*time.Millisecond, func() { close(fail) })
	// Well under the claims' own 30 s.
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	got, err := partition.GetOrCompute(ctx, texts(3), compute)
	if err != nil || got.Computed != 3 {
		t.Fatal(got, err)
	}
	if err := <-failed; !errors.Is(err, broken) {
		t.Error(err)
	}
}

// TestWithoutIndex: where no index answers, everything is computed, and the problem told.
func TestWithoutIndex(t *testing.T) {
	got, err := partitionAt(t, "127.0.0.1:1").GetOrCompute(t.Context(), texts(3), compute)
	if err != nil || got.Computed != 3 || got.Problem == nil {
		t.Fatal(got, err)
	}
}

// TestSearch: an entry is found by words alone, and by its vector.
func TestSearch(t *testing.T) {
	partition := fresh(t)
	items := make([]Item, 9)
	for i, text := range texts(len(items)) {
		key, err := TextKey(text.Text)
		if err != nil {
			t.Fatal(err)
		}
		items[i] = Item{Key: key, Vector: make(Vector, len(items)), Document: text.Document}
		items[i].Vector[i] = 1
	}
	if err := partition.Put(t.Context(), items); err != nil {
		t.Fatal(err)
	}
	byWords, err := partition.Search(t.Context(), nil, "buoy 7", 1)
	if err != nil || len(byWords) != 1 || byWords[0].Document.Name != "buoy_7" {
		t.Error(byWords, err)
	}
	byMeaning, err := partition.Search(t.Context(), items[4].Vector, "", 1)
	if err != nil || len(byMeaning) != 1 || byMeaning[0].Document.Name != "buoy_4" {
		t.Error(byMeaning, err)
	}
}

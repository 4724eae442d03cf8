package warmindex

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "example.com/warmindex/warmindexv1"
)

const (
	// claimTTL outlives the computing of one share; whoever waits for a dead claimant waits no
	// longer than this.
	claimTTL = 30 * time.Second
	// waitMax is how long one call lets the server wait for others' work.
	waitMax = 5 * time.Second
	// releaseMax is how long giving up claims may take: they end by themselves too.
	releaseMax = 2 * time.Second
	// shareMax is how many keys one round claims, so that callers that start together share
	// the work.
	shareMax = 64
	// pauseMin keeps a server that does not wait from being asked in a tight loop.
	pauseMin = 20 * time.Millisecond
)

// Text is what is embedded, and the document under which its vector is found by words.
type Text struct {
	Text     string
	Document *pb.Document // may be nil
}

// Compute embeds texts, one vector of one width for each in order. It must end before claimTTL
// (30 s) has passed; a slower one works too, only others may compute the same.
type Compute func(ctx context.Context, texts []string) ([]Vector, error)

// Got is what GetOrCompute came to.
type Got struct {
	Vectors  []Vector // one for each text, in order
	Computed int      // how many this caller computed; the others were found
	// Problem is why the index could not be asked or published to, nil where it could. The
	// vectors are whole all the same: an index saves work, and is never needed.
	Problem error
}

// GetOrCompute gets a vector for each text: from the index where it is there, from whoever is
// computing it just now, and by compute otherwise. It fails where compute does or ctx ends.
func (partition *Partition) GetOrCompute(ctx context.Context, texts []Text, compute Compute) (*Got, error) {
	keys := make([][]byte, len(texts))
	first := make(map[string]int, len(texts))
	var todo []int
	for place, text := range texts {
		key, err := TextKey(text.Text)
		if err != nil {
			return nil, fmt.Errorf("text %d: %w", place, err)
		}
		keys[place] = key
		if _, repeated := first[string(key)]; !repeated {
			first[string(key)] = place
			todo = append(todo, place)
		}
	}
	build := &build{partition, texts, keys, make([]Vector, len(texts)), compute, rand.Text(), Got{}}
	for len(todo) > 0 {
		share := todo[:min(keysMax, len(todo))]
		if err := build.settle(ctx, share); err != nil {
			return nil, err
		}
		todo = todo[len(share):]
	}
	for place, key := range keys {
		build.vectors[place] = build.vectors[first[string(key)]]
	}
	build.got.Vectors = build.vectors
	return &build.got, nil
}

// build is one GetOrCompute under way.
type build struct {
	partition *Partition
	texts     []Text
	keys      [][]byte
	vectors   []Vector
	compute   Compute
	claimant  string // unique to this computation, not to the process
	got       Got
}

// settle gets the vectors at places, round by round.
func (build *build) settle(ctx context.Context, places []int) error {
	waiting := false
	for len(places) > 0 {
		request := &pb.GetEmbeddingsRequest{
			ContentHashes: pick(build.keys, places),
			ClaimantId:    build.claimant,
			ClaimTtl:      durationpb.New(claimTTL),
			MaxClaims:     shareMax,
		}
		if waiting {
			request.Wait = durationpb.New(waitMax)
		}
		states, err := build.partition.ask(ctx, request, places, build.vectors)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			build.got.Problem = err
			return build.make(ctx, places, false)
		}
		mine := withState(places, states, pb.GetEmbeddingsResponse_STATE_CLAIMED)
		claimed := len(mine) > 0
		pending := withState(places, states, pb.GetEmbeddingsResponse_STATE_PENDING)
		deferred := withState(places, states, pb.GetEmbeddingsResponse_STATE_DEFERRED)
		if !claimed && len(pending) == 0 {
			// Nobody gives claims for these: they are computed without one. Beside claimed
			// ones they are only past this round's share.
			mine = build.missing(places, deferred)
		}
		if len(mine) > 0 {
			if err := build.make(ctx, mine, claimed); err != nil {
				return err
			}
		} else if waiting && len(deferred) == 0 {
			time.Sleep(pauseMin)
		}
		waiting = !claimed && len(pending) > 0
		places = build.missing(places, nil)
	}
	return nil
}

// make computes what is at places and publishes it; a claim that comes to nothing is given up.
func (build *build) make(ctx context.Context, places []int, claimed bool) error {
	published := false
	defer func() {
		if claimed && !published {
			build.release(places)
		}
	}()
	texts := make([]string, len(places))
	for i, place := range places {
		texts[i] = build.texts[place].Text
	}
	vectors, err := build.compute(ctx, texts)
	if err != nil {
		return fmt.Errorf("compute %d vectors: %w", len(texts), err)
	}
	if len(vectors) != len(texts) {
		return fmt.Errorf("compute gave %d vectors for %d texts", len(vectors), len(texts))
	}
	items := make([]Item, len(places))
	for i, place := range places {
		build.vectors[place] = vectors[i]
		items[i] = Item{build.keys[place], vectors[i], build.texts[place].Document}
	}
	build.got.Computed += len(places)
	if build.got.Problem == nil {
		build.got.Problem = build.partition.Put(ctx, items)
		published = build.got.Problem == nil
	}
	return nil
}

// release gives up claims. It has a time of its own, since the caller's end may be why.
func (build *build) release(places []int) {
	ctx, cancel := context.WithTimeout(context.Background(), releaseMax)
	defer cancel()
	// Whatever fails here, the claims end by themselves.
	_, _ = build.partition.Stub.ReleaseClaims(ctx, &pb.ReleaseClaimsRequest{
		Partition:     build.partition.key(),
		ClaimantId:    build.claimant,
		ContentHashes: pick(build.keys, places),
	})
}

// missing are the places without a vector, those of except left out.
func (build *build) missing(places, except []int) []int {
	left := map[int]bool{}
	for _, place := range except {
		left[place] = true
	}
	var missing []int
	for _, place := range places {
		if build.vectors[place] == nil && !left[place] {
			missing = append(missing, place)
		}
	}
	return missing
}

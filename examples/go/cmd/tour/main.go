// Command tour makes keys, fetches, computes and publishes what is missing, and searches.
//
//	go run ./cmd/tour -server 127.0.0.1:50151
package main

import (
	"context"
	"encoding/hex"
	"flag"
	"fmt"
	"log"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"example.com/warmindex"
	pb "example.com/warmindex/warmindexv1"
)

var tools = []*pb.Document{
	{Name: "read_rain_gauge", Description: "Say how much rain fell since midnight."},
	{Name: "open_sluice", Description: "Open a sluice gate by so many centimetres."},
	{Name: "next_ferry", Description: "Say when the next ferry leaves."},
}

func main() {
	server := flag.String("server", "127.0.0.1:50151", "where the index listens")
	flag.Parse()
	connection, err := grpc.NewClient(*server, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := tour(ctx, connection); err != nil {
		log.Fatal(err)
	}
}

func tour(ctx context.Context, connection grpc.ClientConnInterface) error {
	modelID, err := warmindex.Identity{
		Provider:   "tei",
		Model:      "example/harbour-letters",
		Revision:   "1",
		DType:      "float32",
		Pooling:    "mean",
		Normalized: true,
		Truncation: "right@512",
	}.ModelID()
	if err != nil {
		return err
	}
	fmt.Println("model", modelID)
	texts := make([]warmindex.Text, len(tools))
	for i, tool := range tools {
		texts[i] = warmindex.Text{Text: warmindex.ToolText(tool.Name, tool.Description), Document: tool}
		key, err := warmindex.TextKey(texts[i].Text)
		if err != nil {
			return err
		}
		fmt.Println("key", hex.EncodeToString(key), tool.Name)
	}
	partition := warmindex.New(connection, modelID, "tour")
	got, err := partition.GetOrCompute(ctx, texts, letters)
	if err != nil {
		return err
	}
	if got.Problem != nil {
		return got.Problem
	}
	fmt.Println("computed", got.Computed, "of", len(texts))
	query, err := letters(ctx, []string{"how much rain"})
	if err != nil {
		return err
	}
	hits, err := partition.Search(ctx, query[0], "how much rain", 2)
	if err != nil {
		return err
	}
	for _, hit := range hits {
		fmt.Printf("hit %.2f %s\n", hit.Score, hit.Document.Name)
	}
	return nil
}

// letters stands for an embedding server: how often each letter occurs. 26 wide.
func letters(_ context.Context, texts []string) ([]warmindex.Vector, error) {
	vectors := make([]warmindex.Vector, len(texts))
	for i, text := range texts {
		vectors[i] = make(warmindex.Vector, 26)
		for _, letter := range text {
			if 'a' <= letter && letter <= 'z' {
				vectors[i][letter-'a']++
			}
		}
	}
	return vectors, nil
}

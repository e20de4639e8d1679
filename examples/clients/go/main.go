// Produces three orders and consumes them in a consumer group, with franz-go: go run . [BOOTSTRAP]
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var orders = []struct{ customer, item string }{{"ada", "tea"}, {"bob", "coffee"}, {"ada", "cake"}}

func main() {
	bootstrap := "127.0.0.1:9092"
	if len(os.Args) > 1 {
		bootstrap = os.Args[1]
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := produce(ctx, bootstrap); err != nil {
		log.Fatal(err)
	}
	if err := consume(ctx, bootstrap); err != nil {
		log.Fatal(err)
	}
}

func produce(ctx context.Context, bootstrap string) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.AllowAutoTopicCreation())
	if err != nil {
		return err
	}
	defer client.Close()
	for _, order := range orders {
		record := &kgo.Record{Topic: "orders", Key: []byte(order.customer), Value: []byte(order.item)}
		if err := client.ProduceSync(ctx, record).FirstErr(); err != nil {
			return err
		}
		fmt.Printf("produced to partition %d at offset %d\n", record.Partition, record.Offset)
	}
	return nil
}

func consume(ctx context.Context, bootstrap string) error {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap),
		kgo.ConsumerGroup("shipping-go"),
		kgo.ConsumeTopics("orders"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	for seen := 0; seen < len(orders); {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		fetches.EachRecord(func(record *kgo.Record) {
			fmt.Printf("consumed %s: %s\n", record.Key, record.Value)
			seen++
		})
		if err := client.CommitUncommittedOffsets(ctx); err != nil {
			return err
		}
	}
	return nil
}

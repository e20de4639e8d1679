// Uses Penstock through franz-go: one line for every step, "ok NAME" or "failed NAME: why".
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sort"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const count = 100

var (
	bootstrap = os.Args[1]
	prefix    = os.Args[2]
)

func main() {
	step("topics", topics)
	step("messages", messages)
	step("compression", compression)
	step("group", group)
	step("transactions", transactions)
	step("exactly_once", exactlyOnce)
}

func step(name string, run func(context.Context, string) error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx, prefix+"-"+name); err != nil {
		fmt.Printf("failed %s: %s\n", name, strings.ReplaceAll(err.Error(), "\n", " "))
		return
	}
	fmt.Printf("ok %s\n", name)
}

func connect(options ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append(options, kgo.SeedBrokers(bootstrap))...)
}

func create(ctx context.Context, topic string, partitions int32) error {
	client, err := connect()
	if err != nil {
		return err
	}
	defer client.Close()
	_, err = kadm.NewClient(client).CreateTopic(ctx, partitions, 1, nil, topic)
	return err
}

func values(topic string) []string {
	made := make([]string, count)
	for number := range made {
		made[number] = fmt.Sprintf("%s-%03d", topic, number)
	}
	return made
}

func send(ctx context.Context, client *kgo.Client, topic string, wanted []string) error {
	records := make([]*kgo.Record, 0, len(wanted))
	for _, value := range wanted {
		header := kgo.RecordHeader{Key: "kind", Value: []byte("test")}
		records = append(records, &kgo.Record{Topic: topic, Key: []byte(value), Value: []byte(value), Headers: []kgo.RecordHeader{header}})
	}
	return client.ProduceSync(ctx, records...).FirstErr()
}

// receive polls until it has as many values as are wanted, and then compares.
func receive(ctx context.Context, wanted []string, clients ...*kgo.Client) error {
	var found []string
	for len(found) < len(wanted) {
		for _, client := range clients {
			short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
			fetches := client.PollFetches(short)
			cancel()
			for _, problem := range fetches.Errors() {
				if !errors.Is(problem.Err, context.DeadlineExceeded) {
					return problem.Err
				}
			}
			fetches.EachRecord(func(record *kgo.Record) { found = append(found, string(record.Value)) })
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%d messages came, %d were sent", len(found), len(wanted))
		}
	}
	sort.Strings(found)
	sorted := append([]string(nil), wanted...)
	sort.Strings(sorted)
	if fmt.Sprint(found) != fmt.Sprint(sorted) {
		return fmt.Errorf("what came is not what was sent: %d messages of %d", len(found), len(sorted))
	}
	return nil
}

func topics(ctx context.Context, topic string) error {
	client, err := connect()
	if err != nil {
		return err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	if _, err := admin.CreateTopic(ctx, 3, 1, map[string]*string{"retention.ms": kadm.StringPtr("60000")}, topic); err != nil {
		return err
	}
	if _, err := admin.UpdatePartitions(ctx, 5, topic); err != nil {
		return err
	}
	listed, err := admin.ListTopics(ctx, topic)
	if err != nil {
		return err
	}
	if found := len(listed[topic].Partitions); found != 5 {
		return fmt.Errorf("the topic has %d partitions", found)
	}
	configs, err := admin.DescribeTopicConfigs(ctx, topic)
	if err != nil {
		return err
	}
	for _, config := range configs[0].Configs {
		if config.Key == "retention.ms" && *config.Value != "60000" {
			return fmt.Errorf("retention.ms is %s", *config.Value)
		}
	}
	_, err = admin.DeleteTopic(ctx, topic)
	return err
}

func messages(ctx context.Context, topic string) error {
	if err := create(ctx, topic, 3); err != nil {
		return err
	}
	client, err := connect(kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return err
	}
	defer client.Close()
	wanted := values(topic)
	if err := send(ctx, client, topic, wanted); err != nil {
		return err
	}
	return receive(ctx, wanted, client)
}

func compression(ctx context.Context, topic string) error {
	if err := create(ctx, topic, 1); err != nil {
		return err
	}
	var all []string
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	for name, codec := range codecs {
		client, err := connect(kgo.ProducerBatchCompression(codec))
		if err != nil {
			return err
		}
		wanted := values(topic + name)
		err = send(ctx, client, topic, wanted)
		client.Close()
		if err != nil {
			return err
		}
		all = append(all, wanted...)
	}
	client, err := connect(kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return err
	}
	defer client.Close()
	return receive(ctx, all, client)
}

func group(ctx context.Context, topic string) error {
	if err := create(ctx, topic, 4); err != nil {
		return err
	}
	member := func() (*kgo.Client, error) {
		start := kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())
		return connect(kgo.ConsumerGroup(topic), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(), start)
	}
	first, err := member()
	if err != nil {
		return err
	}
	defer first.Close()
	second, err := member()
	if err != nil {
		return err
	}
	wanted := values(topic)
	if err := send(ctx, first, topic, wanted); err != nil {
		return err
	}
	if err := receive(ctx, wanted, first, second); err != nil {
		return err
	}
	for _, one := range []*kgo.Client{first, second} {
		if err := one.CommitUncommittedOffsets(ctx); err != nil {
			return err
		}
	}
	second.Close() // its partitions go to the first, which goes on where the second stopped
	more := values(topic + "-more")
	if err := send(ctx, first, topic, more); err != nil {
		return err
	}
	if err := receive(ctx, more, first); err != nil {
		return err
	}
	if err := first.CommitUncommittedOffsets(ctx); err != nil {
		return err
	}
	lags, err := kadm.NewClient(first).Lag(ctx, topic)
	if err != nil {
		return err
	}
	described := lags[topic]
	if total := described.Lag.Total(); total != 0 {
		return fmt.Errorf("the group lags by %d", total)
	}
	return nil
}

func transactions(ctx context.Context, topic string) error {
	if err := create(ctx, topic, 2); err != nil {
		return err
	}
	producer, err := connect(kgo.TransactionalID(topic))
	if err != nil {
		return err
	}
	defer producer.Close()
	wanted := values(topic)
	for _, try := range []struct {
		values []string
		end    kgo.TransactionEndTry
	}{{values(topic + "-aborted"), kgo.TryAbort}, {wanted, kgo.TryCommit}} {
		if err := producer.BeginTransaction(); err != nil {
			return err
		}
		if err := send(ctx, producer, topic, try.values); err != nil {
			return err
		}
		if err := producer.EndTransaction(ctx, try.end); err != nil {
			return err
		}
	}
	start := kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())
	consumer, err := connect(kgo.ConsumeTopics(topic), start, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		return err
	}
	defer consumer.Close()
	return receive(ctx, wanted, consumer)
}

func exactlyOnce(ctx context.Context, topic string) error {
	source, target := topic+"-from", topic+"-to"
	for _, name := range []string{source, target} {
		if err := create(ctx, name, 2); err != nil {
			return err
		}
	}
	producer, err := connect()
	if err != nil {
		return err
	}
	defer producer.Close()
	wanted := values(topic)
	if err := send(ctx, producer, source, wanted); err != nil {
		return err
	}
	start := kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(bootstrap), kgo.TransactionalID(topic), kgo.ConsumerGroup(topic), kgo.ConsumeTopics(source), start,
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.RequireStableFetchOffsets(),
	)
	if err != nil {
		return err
	}
	defer session.Close()
	for copied := 0; copied < count; {
		fetches := session.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		if err := session.Begin(); err != nil {
			return err
		}
		batch := 0
		fetches.EachRecord(func(record *kgo.Record) {
			batch++
			session.Produce(ctx, &kgo.Record{Topic: target, Value: record.Value}, nil)
		})
		committed, err := session.End(ctx, kgo.TryCommit)
		if err != nil {
			return err
		}
		if committed {
			copied += batch
		}
	}
	consumer, err := connect(kgo.ConsumeTopics(target), start, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		return err
	}
	defer consumer.Close()
	return receive(ctx, wanted, consumer)
}

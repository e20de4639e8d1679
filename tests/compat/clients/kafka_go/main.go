// Uses Penstock through kafka-go: one line for every step, "ok NAME" or "failed NAME: why". It has no transactions.
package main

import (
	"context"
	"fmt"
	"os"
	"sort"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"
)

const count = 100

var (
	bootstrap = os.Args[1]
	prefix    = os.Args[2]
	client    = &kafka.Client{Addr: kafka.TCP(os.Args[1]), Timeout: 20 * time.Second}
)

func main() {
	step("topics", topics)
	step("messages", messages)
	step("compression", compression)
	step("group", group)
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

func create(ctx context.Context, topic string, partitions int) error {
	config := kafka.TopicConfig{Topic: topic, NumPartitions: partitions, ReplicationFactor: 1}
	made, err := client.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{config}})
	if err != nil {
		return err
	}
	return made.Errors[topic]
}

func values(topic string) []string {
	made := make([]string, count)
	for number := range made {
		made[number] = fmt.Sprintf("%s-%03d", topic, number)
	}
	return made
}

func send(ctx context.Context, topic string, codec kafka.Compression, wanted []string) error {
	writer := &kafka.Writer{
		Addr: kafka.TCP(bootstrap), Topic: topic, Compression: codec, RequiredAcks: kafka.RequireAll,
		Balancer: &kafka.Hash{}, BatchTimeout: 10 * time.Millisecond,
	}
	defer writer.Close()
	batch := make([]kafka.Message, 0, len(wanted))
	for _, value := range wanted {
		headers := []kafka.Header{{Key: "kind", Value: []byte("test")}}
		batch = append(batch, kafka.Message{Key: []byte(value), Value: []byte(value), Headers: headers})
	}
	return writer.WriteMessages(ctx, batch...)
}

func receive(ctx context.Context, group, topic string, wanted []string) error {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{bootstrap}, GroupID: group, Topic: topic, StartOffset: kafka.FirstOffset, MaxWait: 200 * time.Millisecond,
	})
	defer reader.Close()
	var found []string
	for len(found) < len(wanted) {
		message, err := reader.FetchMessage(ctx)
		if err != nil {
			return fmt.Errorf("%d messages came, %d were sent: %w", len(found), len(wanted), err)
		}
		found = append(found, string(message.Value))
		if err := reader.CommitMessages(ctx, message); err != nil {
			return err
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
	if err := create(ctx, topic, 3); err != nil {
		return err
	}
	more := kafka.TopicPartitionsConfig{Name: topic, Count: 5}
	grown, err := client.CreatePartitions(ctx, &kafka.CreatePartitionsRequest{Topics: []kafka.TopicPartitionsConfig{more}})
	if err != nil {
		return err
	}
	if err := grown.Errors[topic]; err != nil {
		return err
	}
	// The client refreshes its metadata only every few seconds.
	for partitions := 0; partitions != 5; time.Sleep(100 * time.Millisecond) {
		described, err := client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{topic}})
		if err != nil {
			return fmt.Errorf("the topic has %d partitions: %w", partitions, err)
		}
		partitions = len(described.Topics[0].Partitions)
	}
	asked := kafka.DescribeConfigRequestResource{ResourceType: kafka.ResourceTypeTopic, ResourceName: topic, ConfigNames: []string{"retention.ms"}}
	configs, err := client.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{Resources: []kafka.DescribeConfigRequestResource{asked}})
	if err != nil {
		return err
	}
	if entries := configs.Resources[0].ConfigEntries; len(entries) != 1 || entries[0].ConfigValue != "604800000" {
		return fmt.Errorf("the configuration is %v", entries)
	}
	gone, err := client.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{topic}})
	if err != nil {
		return err
	}
	return gone.Errors[topic]
}

func messages(ctx context.Context, topic string) error {
	if err := create(ctx, topic, 3); err != nil {
		return err
	}
	if err := send(ctx, topic, 0, values(topic)); err != nil {
		return err
	}
	return receive(ctx, topic, topic, values(topic))
}

func compression(ctx context.Context, topic string) error {
	if err := create(ctx, topic, 1); err != nil {
		return err
	}
	var all []string
	for _, codec := range []kafka.Compression{0, kafka.Gzip, kafka.Snappy, kafka.Lz4, kafka.Zstd} {
		wanted := values(fmt.Sprintf("%s%d", topic, codec))
		if err := send(ctx, topic, codec, wanted); err != nil {
			return err
		}
		all = append(all, wanted...)
	}
	return receive(ctx, topic, topic, all)
}

func group(ctx context.Context, topic string) error {
	if err := create(ctx, topic, 4); err != nil {
		return err
	}
	for _, wanted := range [][]string{values(topic), values(topic + "-more")} {
		if err := send(ctx, topic, 0, wanted); err != nil {
			return err
		}
		// A member of its own each time, which goes on where the one before has stopped.
		if err := receive(ctx, topic, topic, wanted); err != nil {
			return err
		}
	}
	asked := &kafka.OffsetFetchRequest{GroupID: topic, Topics: map[string][]int{topic: {0, 1, 2, 3}}}
	offsets, err := client.OffsetFetch(ctx, asked)
	if err != nil {
		return err
	}
	total := int64(0)
	for _, one := range offsets.Topics[topic] {
		total += one.CommittedOffset
	}
	if total != 2*count {
		return fmt.Errorf("the group has committed %d", total)
	}
	return nil
}

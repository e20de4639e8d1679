// Uses Penstock through sarama: one line for every step, "ok NAME" or "failed NAME: why".
package main

import (
	"context"
	"fmt"
	"os"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

const count = 100

var (
	brokers = []string{os.Args[1]}
	prefix  = os.Args[2]
)

func main() {
	step("topics", topics)
	step("messages", messages)
	step("compression", compression)
	step("group", group)
	step("transactions", transactions)
	step("exactly_once", exactlyOnce)
}

func step(name string, run func(string) error) {
	done := make(chan error, 1)
	go func() { done <- run(prefix + "-" + name) }()
	var err error
	select {
	case err = <-done:
	case <-time.After(time.Minute):
		err = fmt.Errorf("not done after a minute")
	}
	if err != nil {
		fmt.Printf("failed %s: %s\n", name, strings.ReplaceAll(err.Error(), "\n", " "))
		return
	}
	fmt.Printf("ok %s\n", name)
}

func settings() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.V4_0_0_0
	config.Producer.Return.Successes = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	return config
}

func create(topic string, partitions int32) error {
	admin, err := sarama.NewClusterAdmin(brokers, settings())
	if err != nil {
		return err
	}
	defer admin.Close()
	return admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 1}, false)
}

func values(topic string) []string {
	made := make([]string, count)
	for number := range made {
		made[number] = fmt.Sprintf("%s-%03d", topic, number)
	}
	return made
}

func send(producer sarama.SyncProducer, topic string, wanted []string) error {
	batch := make([]*sarama.ProducerMessage, 0, len(wanted))
	for _, value := range wanted {
		message := &sarama.ProducerMessage{Topic: topic, Key: sarama.StringEncoder(value), Value: sarama.StringEncoder(value)}
		message.Headers = []sarama.RecordHeader{{Key: []byte("kind"), Value: []byte("test")}}
		batch = append(batch, message)
	}
	return producer.SendMessages(batch)
}

func sendWith(config *sarama.Config, topic string, wanted []string) error {
	producer, err := sarama.NewSyncProducer(brokers, config)
	if err != nil {
		return err
	}
	defer producer.Close()
	return send(producer, topic, wanted)
}

// receive reads all partitions from their start until it has as many values as are wanted, and then compares.
func receive(config *sarama.Config, topic string, partitions int32, wanted []string) error {
	consumer, err := sarama.NewConsumer(brokers, config)
	if err != nil {
		return err
	}
	defer consumer.Close()
	came := make(chan string)
	for partition := int32(0); partition < partitions; partition++ {
		reader, err := consumer.ConsumePartition(topic, partition, sarama.OffsetOldest)
		if err != nil {
			return err
		}
		defer reader.Close()
		go func() {
			for message := range reader.Messages() {
				came <- string(message.Value)
			}
		}()
	}
	var found []string
	for len(found) < len(wanted) {
		select {
		case value := <-came:
			found = append(found, value)
		case <-time.After(20 * time.Second):
			return fmt.Errorf("%d messages came, %d were sent", len(found), len(wanted))
		}
	}
	return same(found, wanted)
}

func same(found, wanted []string) error {
	sort.Strings(found)
	sorted := append([]string(nil), wanted...)
	sort.Strings(sorted)
	if fmt.Sprint(found) != fmt.Sprint(sorted) {
		return fmt.Errorf("what came is not what was sent: %d messages of %d", len(found), len(sorted))
	}
	return nil
}

func topics(topic string) error {
	if err := create(topic, 3); err != nil {
		return err
	}
	admin, err := sarama.NewClusterAdmin(brokers, settings())
	if err != nil {
		return err
	}
	defer admin.Close()
	if err := admin.CreatePartitions(topic, 5, nil, false); err != nil {
		return err
	}
	described, err := admin.DescribeTopics([]string{topic})
	if err != nil {
		return err
	}
	if found := len(described[0].Partitions); found != 5 {
		return fmt.Errorf("the topic has %d partitions", found)
	}
	resource := sarama.ConfigResource{Type: sarama.TopicResource, Name: topic, ConfigNames: []string{"retention.ms"}}
	configs, err := admin.DescribeConfig(resource)
	if err != nil || len(configs) != 1 {
		return fmt.Errorf("the configuration is %v, %v", configs, err)
	}
	return admin.DeleteTopic(topic)
}

func messages(topic string) error {
	if err := create(topic, 3); err != nil {
		return err
	}
	wanted := values(topic)
	if err := sendWith(settings(), topic, wanted); err != nil {
		return err
	}
	return receive(settings(), topic, 3, wanted)
}

func compression(topic string) error {
	if err := create(topic, 1); err != nil {
		return err
	}
	var all []string
	for _, codec := range []sarama.CompressionCodec{
		sarama.CompressionNone, sarama.CompressionGZIP, sarama.CompressionSnappy, sarama.CompressionLZ4, sarama.CompressionZSTD,
	} {
		config := settings()
		config.Producer.Compression = codec
		wanted := values(topic + codec.String())
		if err := sendWith(config, topic, wanted); err != nil {
			return err
		}
		all = append(all, wanted...)
	}
	return receive(settings(), topic, 1, all)
}

// member notes what it is given; with a producer it copies that, exactly once.
type member struct {
	mutex    sync.Mutex
	found    []string
	copyTo   string
	producer sarama.AsyncProducer
	group    string
	problem  error
}

func (m *member) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (m *member) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		m.mutex.Lock()
		if m.producer != nil {
			if err := m.copy(message); err != nil {
				m.problem = err
				m.mutex.Unlock()
				return err
			}
		}
		m.found = append(m.found, string(message.Value))
		session.MarkMessage(message, "")
		m.mutex.Unlock()
	}
	return nil
}

func (m *member) copy(message *sarama.ConsumerMessage) error {
	if err := m.producer.BeginTxn(); err != nil {
		return err
	}
	m.producer.Input() <- &sarama.ProducerMessage{Topic: m.copyTo, Value: sarama.ByteEncoder(message.Value)}
	if err := m.producer.AddMessageToTxn(message, m.group, nil); err != nil {
		return err
	}
	return m.producer.CommitTxn()
}

func (m *member) taken() ([]string, error) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return append([]string(nil), m.found...), m.problem
}

// join makes a member that reads until the returned function is called, which leaves and waits.
func join(config *sarama.Config, group, topic string, handler *member) (func() error, error) {
	client, err := sarama.NewConsumerGroup(brokers, group, config)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if err := client.Consume(ctx, []string{topic}, handler); err != nil {
				return
			}
		}
	}()
	return func() error {
		cancel()
		<-done
		return client.Close()
	}, nil
}

func wait(wanted []string, members ...*member) error {
	for deadline := time.Now().Add(40 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		var found []string
		for _, one := range members {
			taken, err := one.taken()
			if err != nil {
				return err
			}
			found = append(found, taken...)
		}
		if len(found) >= len(wanted) {
			return same(found, wanted)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d messages came, %d were sent", len(found), len(wanted))
		}
	}
}

func group(topic string) error {
	if err := create(topic, 4); err != nil {
		return err
	}
	wanted := values(topic)
	if err := sendWith(settings(), topic, wanted); err != nil {
		return err
	}
	first, second := &member{}, &member{}
	leaveFirst, err := join(settings(), topic, topic, first)
	if err != nil {
		return err
	}
	if err := wait(wanted, first); err != nil {
		return err
	}
	leaveSecond, err := join(settings(), topic, topic, second)
	if err != nil {
		return err
	}
	if err := leaveFirst(); err != nil { // commits what it has read, and the second goes on from there
		return err
	}
	more := values(topic + "-more")
	if err := sendWith(settings(), topic, more); err != nil {
		return err
	}
	if err := wait(more, second); err != nil {
		return err
	}
	return leaveSecond()
}

func transactional(id string) *sarama.Config {
	config := settings()
	config.Producer.Idempotent = true
	config.Producer.Transaction.ID = id
	config.Net.MaxOpenRequests = 1
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	return config
}

func transactions(topic string) error {
	if err := create(topic, 2); err != nil {
		return err
	}
	producer, err := sarama.NewSyncProducer(brokers, transactional(topic))
	if err != nil {
		return err
	}
	defer producer.Close()
	wanted := values(topic)
	for _, try := range []struct {
		values []string
		end    func() error
	}{{values(topic + "-aborted"), producer.AbortTxn}, {wanted, producer.CommitTxn}} {
		if err := producer.BeginTxn(); err != nil {
			return err
		}
		if err := send(producer, topic, try.values); err != nil {
			return err
		}
		if err := try.end(); err != nil {
			return err
		}
	}
	return receive(transactional(""), topic, 2, wanted)
}

func exactlyOnce(topic string) error {
	source, target := topic+"-from", topic+"-to"
	for _, name := range []string{source, target} {
		if err := create(name, 1); err != nil {
			return err
		}
	}
	wanted := values(topic)
	if err := sendWith(settings(), source, wanted); err != nil {
		return err
	}
	config := transactional(topic)
	config.Producer.Return.Successes = false
	producer, err := sarama.NewAsyncProducer(brokers, config)
	if err != nil {
		return err
	}
	defer producer.Close()
	reading := settings()
	reading.Consumer.Offsets.AutoCommit.Enable = false
	reading.Consumer.IsolationLevel = sarama.ReadCommitted
	copier := &member{copyTo: target, producer: producer, group: topic}
	leave, err := join(reading, topic, source, copier)
	if err != nil {
		return err
	}
	if err := wait(wanted, copier); err != nil {
		return err
	}
	if err := leave(); err != nil {
		return err
	}
	plain := settings()
	plain.Consumer.IsolationLevel = sarama.ReadCommitted
	return receive(plain, target, 1, wanted)
}

//! Produces three orders and consumes them in a consumer group, with rust-rdkafka: `cargo run [BOOTSTRAP]`.

use std::env;
use std::error::Error;
use std::time::Duration;

use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::message::{DeliveryResult, Message};
use rdkafka::producer::{BaseRecord, Producer, ProducerContext, ThreadedProducer};
use rdkafka::ClientContext;

const ORDERS: [(&str, &str); 3] = [("ada", "tea"), ("bob", "coffee"), ("ada", "cake")];

/// Reports the outcome of every message: it is on disk, or it failed for good.
struct Report;

impl ClientContext for Report {}

impl ProducerContext for Report {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, _: ()) {
        match result {
            Ok(message) => println!("produced to partition {} at offset {}", message.partition(), message.offset()),
            Err((error, _)) => eprintln!("failed to produce: {error}"),
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let bootstrap = env::args().nth(1).unwrap_or("127.0.0.1:9092".into());
    produce(&bootstrap)?;
    consume(&bootstrap)
}

fn produce(bootstrap: &str) -> Result<(), Box<dyn Error>> {
    let producer: ThreadedProducer<Report> = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("enable.idempotence", "true")
        .create_with_context(Report)?;
    for (customer, item) in &ORDERS {
        producer.send(BaseRecord::to("orders").key(*customer).payload(*item)).map_err(|(error, _)| error)?;
    }
    producer.flush(Duration::from_secs(30))?;
    Ok(())
}

fn consume(bootstrap: &str) -> Result<(), Box<dyn Error>> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("group.id", "shipping-rust")
        .set("auto.offset.reset", "earliest")
        .set("enable.auto.commit", "false")
        .create()?;
    consumer.subscribe(&["orders"])?;
    for message in consumer.iter().take(ORDERS.len()) {
        let message = message?;
        let text = |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned();
        println!("consumed {}: {}", text(message.key()), text(message.payload()));
        consumer.commit_message(&message, CommitMode::Sync)?;
    }
    Ok(())
}

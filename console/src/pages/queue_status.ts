// What the Queue Agent says of a queue in the words of YT. The API hands its attributes on as they are, without a schema.
import type { Schemas } from "../api";

type Rates = Schemas["Rates"];

interface StatusError {
  message: string;
}

/** One of `@queue_partitions`. */
export interface QueuePartition {
  lower_row_index?: number;
  upper_row_index?: number;
  available_row_count?: number;
  available_data_weight?: number | null;
  write_row_count_rate?: Rates;
  last_row_commit_time?: string;
  error?: StatusError;
}

interface ConsumerPartition {
  unread_row_count?: number;
  processing_lag?: number | null;
}

/** A registration with what is known of its consumer, which is nothing if that is on another cluster. */
export interface Registration {
  consumer: string;
  vital: boolean;
  status: { read_row_count_rate?: Rates; error?: StatusError } | null;
  partitions: ConsumerPartition[] | null;
}

export type Queue = Omit<Schemas["QueueDetail"], "registrations" | "partition_list"> & {
  registrations: Registration[];
  partition_list: QueuePartition[];
};

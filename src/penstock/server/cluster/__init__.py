"""A node that is one of a cluster: its identity in etcd, its links to the others, its share of the storage, and its role."""

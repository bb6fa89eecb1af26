"""The mesh on one machine: the embedded NATS server and every service, kept running under one supervisor."""

"""A worker: one process of the fleet. It proves primes, and ends with its yard."""

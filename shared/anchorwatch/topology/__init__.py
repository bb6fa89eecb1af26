"""Every stream, subject and bucket, once, as data."""

"""The notifier: sends notices from journal records to people."""

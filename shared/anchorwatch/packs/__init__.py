"""Domains: what a pack is (`port`), how packs are found (`registry`), and the packs that ship."""

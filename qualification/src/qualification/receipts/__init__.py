"""Receipts: what a check concluded about which bits, from which evidence, signed."""

"""Drafters: what the service asks for draft tokens.  `base` is the interface; the others implement it."""

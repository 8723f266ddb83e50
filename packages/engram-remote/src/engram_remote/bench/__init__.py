"""How long lookups take on this host, beside what they are made of: a gather in memory and the wire."""

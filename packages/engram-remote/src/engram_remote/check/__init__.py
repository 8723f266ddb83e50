"""Whether every row that reaches this host is the row of its local shard: over each endpoint, and from the shard
itself.

In the order in which a check meets them: `expected` (what rows must be, read by plain Python), `cases` (which ids
are asked for), `rows` (asks and compares), `refusals` (what a server must say no to), `report`.
"""

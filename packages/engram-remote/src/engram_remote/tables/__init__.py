"""Tables on disk: format, manifest, build, verify.  No transport, no engine, no thread that outlives a call.

In the order in which a table meets them: `heads` (which rows exist and whose they are), `source` (where they
come from), `layout` (how a shard holds them), `manifest` (what a folder of shards says about itself), `build`,
`verify`.
"""

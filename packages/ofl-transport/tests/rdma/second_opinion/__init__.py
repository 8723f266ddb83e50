"""A second opinion on the wire: a peer that speaks ofl's frames and was written from docs/transport/wire.md alone.

Plain Python over sockets and pyverbs.  Whatever comes in is judged by the document, and what does not fit it raises
`records.WireFaultError`, so that a test fails where our own two ends would agree with each other against the document.

Must never import ofl, nor take anything from its sources: then it would be the first opinion, said twice.
"""

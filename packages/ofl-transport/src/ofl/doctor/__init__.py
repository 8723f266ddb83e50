"""Doctor: is a host fit for offload, and if not, what repairs it.

`host` asks the kernel, `gather` makes facts of the answers (plain JSON values), `checks` and `peers` judge facts and
ask nobody.  The same facts, printed as JSON on one host, are what another host is compared with.  Changes nothing.
Must never put the content of a key, a prompt, a token or a row into a fact.
"""

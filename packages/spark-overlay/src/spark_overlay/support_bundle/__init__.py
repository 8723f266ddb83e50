"""The support bundle: what somebody else needs to see of an engine that drafts remotely, and nothing else.

Everything passes by a list of what may: figures by their names, log lines by the sentences that we write, settings that
are ours.  What is on no list is left out and counted.  So no prompt, token, context row or secret can be in it,
whatever its inputs hold.
"""
